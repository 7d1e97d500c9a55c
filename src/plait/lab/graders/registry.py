"""A grader by its word."""

from __future__ import annotations

import difflib
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Literal

from plait.core.errors import UsageError
from plait.lab.base import Grader, digest
from plait.lab.graders import acts, answers

NAMES = ("exact", "f1", "yesno", "label", "number", "has", "contains", "calls", "world", "judge", "python")

_PLAIN = {
    "exact": answers.exact,
    "yesno": answers.yesno,
    "has": answers.has,
    "contains": answers.contains,
}


def grader(word: str, *, journal: str | Path | Literal[False] | None = None) -> Grader:
    """The grader of a word.

    `exact`, `f1` or `f1:0.5`, `yesno`, `label` or `label:one|another`, `number` or `number:0.01`, `has`, `contains`,
    `calls`, `world` or `world:B`, `judge:MODEL[,template=FILE]`, `file.py:function`, `python:module:function`.
    `journal` keeps the runs of a model that judges. Raises `UsageError`: an unknown word, a function that can't be
    loaded, a setting that can't be.
    """
    name, colon, rest = word.strip().partition(":")
    if name.endswith(".py") or name == "python":
        from plait.lab.graders.functions import function_grader

        return function_grader(rest if name == "python" else word.strip())
    if name in _PLAIN and not colon:
        return answers.over(_PLAIN[name])
    match name:
        case "f1":
            return answers.over(answers.f1_above(float(_share(word, rest))) if colon else answers.f1)
        case "number":
            return answers.over(answers.number_within(_share(word, rest)) if colon else answers.number)
        case "label":
            labels = tuple(label.strip() for label in rest.split("|") if label.strip())
            if colon and len(labels) < 2:
                raise UsageError(f"{word!r} has fewer than two labels.", hint="Write label:good|bad|mixed.")
            return answers.over(answers.label_of(labels) if colon else answers.label)
        case "calls" if not colon:
            return acts.calls
        case "world":
            if rest:
                from plait.world import task_of

                task_of(rest)
            return partial(acts.world, name=rest)
        case "judge":
            from plait.lab.judge import judged_by

            return judged_by(rest, journal=journal)
    if name in NAMES:
        raise UsageError(f"{word!r}: the grader {name} takes nothing after the colon.", hint=f"Write {name}.")
    near = difflib.get_close_matches(name.casefold(), NAMES, 2)
    hint = f"Did you mean {' or '.join(near)}?" if near else f"Graders: {', '.join(NAMES)}."
    raise UsageError(f"No grader is named {name!r}.", hint=f"{hint} A function of yours is checks.py:right.")


def mark(word: str) -> str:
    """What a grade depends on beside the word: a digest of the user's file or of the judge's prompts; "" for ours.

    Raises `UsageError` for a file that is not there.
    """
    name, _, rest = word.strip().partition(":")
    if name.endswith(".py") or name == "python":
        from plait.lab.graders.functions import source_of

        return digest(source_of((rest if name == "python" else word.strip()).rpartition(":")[0]))
    if name == "judge":
        from plait.lab.judge import prompts_for

        return digest(prompts_for(rest))
    return ""


def _share(word: str, text: str) -> Fraction:
    try:
        value = Fraction(text.strip())
    except (ValueError, ZeroDivisionError):
        value = Fraction(-1)
    if not 0 <= value <= 1:
        raise UsageError(f"{word!r}: {text!r} is no number from 0 to 1.", hint="Such as f1:0.5 or number:0.01.")
    return value
