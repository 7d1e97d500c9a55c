"""A model as a judge of answers. The judge is a loop with one phase, so the journal has its requests and replies.

Its prompt is the template `judge/judge.j2`, which gets `question`, `answer` and `gold` (a list of texts, empty if no
right answer is known). A user's file can replace it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal

from plait import config
from plait.agent import Agent
from plait.core import (
    Answered,
    Crashed,
    Failed,
    LoopContext,
    LoopRun,
    Message,
    OneKind,
    Splitter,
    Task,
    assistant,
    errors,
    note,
    system,
    think,
    user,
)
from plait.core.errors import ConfigError, ModelError, ModelMissing, PlaitError
from plait.lab.graders.answers import answer_text, list_golds
from plait.lab.graders.scores import describe_end, grade_of_run
from plait.lab.tasks import Grade, Grader, SuiteTask
from plait.loops.escape import escape_of
from plait.models.base import Model
from plait.models.resolve import resolve
from plait.runtime.prompts import PromptBook, shipped_prompts
from plait.runtime.run import Run

TRIES = 2
_VERDICT = re.compile(
    r"""verdict["'*_`\s]*[:=-]?["'*_`\s]*(?:the\s+answer\s+)?(?:is\s+)?([\w-]+(?:\s+\w+)?)""", re.IGNORECASE
)
_RIGHT = frozenset(["right", "correct", "yes", "true", "pass", "passed", "accept", "accepted", "1"])
_WRONG = frozenset(["wrong", "incorrect", "no", "false", "fail", "failed", "reject", "rejected", "0", "not"])


@dataclass(frozen=True)
class Judge:
    """The loop that judges one answer. `gold` are right answers; `prompts` replace Plait's templates by name."""

    answer: str = ""
    gold: tuple[str, ...] = ()
    prompts: Mapping[str, str] = field(default_factory=dict)

    name: ClassVar[str] = "judge"
    phases: ClassVar[tuple[str, ...]] = ("judge",)

    def run(self, task: Task, kit: LoopContext) -> LoopRun:
        """Ask for a verdict, and ask once more if the verdict cannot be read."""
        escape = escape_of(kit)
        gold = [escape(each) for each in self.gold]
        asked = kit.prompt("judge", question=escape(task.question), answer=escape(self.answer), gold=gold)
        messages: tuple[Message, ...] = (*([system(kit.system)] if kit.system else []), user(asked))
        for attempt in range(TRIES):
            reply = yield from think("judge", messages, repair=attempt > 0)
            right = read_verdict(reply.text)
            if right is not None:
                return Answered({"right": right, "said": reply.text.strip()})
            yield from note("unreadable", "the reply has no verdict")
            messages = (*messages, assistant(reply.text), user(kit.prompt("repair")))
        return Failed(f"the judge gave no verdict in {TRIES} replies", kind="format")

    def splitter(self, phase: str) -> Splitter:
        """Stream the whole reply as its answer."""
        return OneKind("answer")


def read_verdict(text: str) -> bool | None:
    """Read right (True) or wrong (False) from a judge's reply; None if it says neither.

    The last `Verdict:` counts, in JSON, bold or other words. Without one, a last line with only such a word counts.
    """
    for match in reversed(list(_VERDICT.finditer(text))):
        if (said := _meaning(match[1])) is not None:
            return said
    lines = [line for line in text.splitlines() if line.strip()]
    alone = re.sub(r"[^\w\s-]", "", lines[-1]).split() if lines else []
    return _meaning(" ".join(alone)) if 1 <= len(alone) <= 2 else None


def load_judge(settings: str, *, journal: str | Path | Literal[False] | None = None) -> Grader:
    """Return the grader of `MODEL[,template=FILE]`. Raises `ConfigError` for an invalid model or template."""
    model, _, file = settings.partition(",template=")
    if not model.strip():
        raise ConfigError("A judge needs a model.", hint="Write judge:openai:gpt-5 or judge:local.")
    return make_judge(model.strip(), template=file.strip() or None, journal=journal)


def judge_prompts(settings: str) -> dict[str, str]:
    """Return the prompts that the judge of `MODEL[,template=FILE]` uses, by name."""
    return {**shipped_prompts("judge"), **_load_template(settings.partition(",template=")[2].strip() or None)}


def make_judge(
    model: str | Model,
    *,
    template: str | Path | None = None,
    journal: str | Path | Literal[False] | None = None,
) -> Grader:
    """Return a grader that asks a model. `template` is a file that replaces Plait's prompt; `journal` stores the runs.

    Raises `ConfigError` for an invalid model or template. The grade has the judging run and its cost. Grading raises
    `ModelError` or `ModelMissing` if the model cannot be asked: then there is no grade.
    """
    prompts = _load_template(template)
    asked = resolve(model, config.load().models) if isinstance(model, str) else model  # once for all its runs

    async def grade(task: SuiteTask, run: Run) -> Grade:
        if run.answer is None:
            return grade_of_run(run, Grade(False, 0.0, "wrong", describe_end(run)))
        gold = tuple(answer_text(each) for each in list_golds(task.answer) if each is not None)
        loop = Judge(answer_text(run.answer), gold, prompts)
        judging = await Agent(loop, model=asked, journal=journal, can_ask=False).arun(task.question)
        return grade_of_run(run, _grade_judging(judging))

    return grade


def _grade_judging(judging: Run) -> Grade:
    outcome = judging.outcome
    if isinstance(outcome, Crashed):
        raise _error(outcome)
    cost, id = judging.cost_usd, judging.id
    if not isinstance(outcome, Answered):
        return Grade(False, 0.0, "unreadable", outcome.reason or outcome.status, cost_usd=cost, run=id)
    right = bool(outcome.answer["right"])
    why = "" if right else " ".join(outcome.answer["said"].split())[:300]
    return Grade(right, float(right), "right" if right else "wrong", why, cost_usd=cost, run=id)


def _error(crashed: Crashed) -> PlaitError:
    kind = getattr(errors, crashed.error, None)
    if isinstance(kind, type) and issubclass(kind, (ModelError, ModelMissing)) and kind is not errors.Unsupported:
        made: PlaitError = kind(crashed.reason, hint=crashed.hint)
        return made
    return PlaitError(f"The judge's run crashed: {crashed.reason}.", hint=crashed.hint)


def _load_template(file: str | Path | None) -> dict[str, str]:
    """Return the user's template as the loop's prompts, after one trial rendering."""
    if file is None:
        return {}
    path = Path(file).expanduser()
    try:
        text = path.read_bytes().decode()
    except OSError as error:
        raise ConfigError(f"The template {str(file)!r} can't be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"The template {str(file)!r} is not UTF-8 text.") from error
    try:
        PromptBook("judge", None, {"judge": text}).render(
            "judge", {"tools": (), "question": "q", "answer": "a", "gold": ["g"]}
        )
    except ConfigError as error:
        raise ConfigError(
            f"The template {str(file)!r}: {error.message}", hint="It is given question, answer and gold (a list)."
        ) from error
    return {"judge": text}


def _meaning(said: str) -> bool | None:
    first, *more = said.casefold().replace("-", " ").split() or [""]
    if first == "not" and more:
        return {True: False, False: True}.get(_meaning(more[0]))  # type: ignore[arg-type]
    return True if first in _RIGHT else False if first in _WRONG and first != "not" else None
