"""Graders by their word, such as `exact`, `number:0.01` or `checks.py:right`."""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Literal

from plait.core.errors import ConfigError
from plait.core.text import suggest
from plait.lab.graders import scores
from plait.lab.graders.functions import load_function_grader, read_source
from plait.lab.tasks import Grade, Grader, SuiteTask, digest
from plait.lab.world import task_of
from plait.runtime.run import Run

UNJUDGED = "not judged"
"""The grader, and the mark, of a run whose question has no right answer to compare with."""

_GRADERS: dict[str, Grader] = {
    "exact": scores.grade_answers(scores.score_exact),
    "f1": scores.grade_answers(scores.score_f1),
    "yesno": scores.grade_answers(scores.score_yes_no),
    "label": scores.grade_answers(scores.score_label),
    "number": scores.grade_answers(scores.score_number),
    "has": scores.grade_answers(scores.score_has),
    "contains": scores.grade_answers(scores.score_contains),
    "calls": scores.grade_calls,
    "world": scores.grade_errand,
}
NAMES = (*_GRADERS, "judge", "python")


def load_grader(word: str, *, journal: str | Path | Literal[False] | None = None) -> Grader:
    """Return the grader of a word.

    `exact`, `f1` or `f1:0.5`, `yesno`, `label` or `label:one|another`, `number` or `number:0.01`, `has`, `contains`,
    `calls`, `world` or `world:B`, `judge:MODEL[,template=FILE]`, `file.py:function`, `python:module:function`.
    `journal` stores the runs of a judging model. Raises `ConfigError` for an unknown word, a function that cannot be
    loaded, and an invalid setting.
    """
    name, colon, rest = word.strip().partition(":")
    if word == UNJUDGED:
        return _leave_unjudged
    if is_function(word):
        return load_function_grader(rest if name == "python" else word.strip())
    if name == "judge":
        from plait.lab.judge import load_judge

        return load_judge(rest, journal=journal)
    if name in _GRADERS and not colon:
        return _GRADERS[name]
    match name:
        case "f1":
            return scores.grade_answers(partial(scores.score_f1, threshold=float(_parse_share(word, rest))))
        case "number":
            return scores.grade_answers(partial(scores.score_number, tolerance=_parse_share(word, rest)))
        case "label":
            labels = tuple(label.strip() for label in rest.split("|") if label.strip())
            if len(labels) < 2:
                raise ConfigError(f"{word!r} has fewer than two labels.", hint="Write label:good|bad|mixed.")
            return scores.grade_answers(partial(scores.score_label, labels=labels))
        case "world":
            if rest:
                task_of(rest)
            return partial(scores.grade_errand, name=rest)
    if name in NAMES:
        raise ConfigError(f"{word!r}: the grader {name} takes nothing after the colon.", hint=f"Write {name}.")
    hint = suggest(name.casefold(), NAMES, f"Graders: {', '.join(NAMES)}.", most=2)
    raise ConfigError(f"No grader is named {name!r}.", hint=f"{hint} A function of yours is checks.py:right.")


def is_function(word: str) -> bool:
    """Return whether a grader is a user's function. It may do without a right answer to compare with."""
    return word.strip().startswith("python:") or word.strip().partition(":")[0].endswith(".py")


def grader_digest(word: str) -> str:
    """Return a digest of the file or prompts that a grade depends on besides the word; "" for Plait's own graders.

    Raises `ConfigError` if the file does not exist.
    """
    name, _, rest = word.strip().partition(":")
    if is_function(word):
        return digest(read_source((rest if name == "python" else word.strip()).rpartition(":")[0]))
    if name == "judge":
        from plait.lab.judge import judge_prompts

        return digest(judge_prompts(rest))
    return ""


async def _leave_unjudged(task: SuiteTask, run: Run) -> Grade:
    return Grade(False, 0.0, UNJUDGED, "the question has no right answer to compare with")


def _parse_share(word: str, text: str) -> Fraction:
    try:
        value = Fraction(text.strip())
    except (ValueError, ZeroDivisionError):
        value = Fraction(-1)
    if not 0 <= value <= 1:
        raise ConfigError(f"{word!r}: {text!r} is not a number from 0 to 1.", hint="Such as f1:0.5 or number:0.01.")
    return value
