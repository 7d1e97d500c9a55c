"""A model as judge: is this answer right? A loop of one phase, so that what it was asked and said is on the record.

Its prompt is the template `judge/judge.j2`, which is given `question`, `answer` and `gold` (a list of texts, empty
where no right answer is known); a file of the user's can take its place.
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
    Kit,
    Loop,
    Message,
    OneKind,
    Splitter,
    assistant,
    errors,
    note,
    system,
    think,
    user,
)
from plait.core import Task as Asked
from plait.core.errors import ModelError, ModelMissing, PlaitError, UsageError
from plait.lab.base import Grade, Grader, Task
from plait.lab.graders.answers import ended, of_run
from plait.lab.graders.words import golds_of, text_of
from plait.loops.escape import escape_of
from plait.models.base import Model
from plait.models.resolve import resolve
from plait.runtime.prompts import PromptBook, shipped
from plait.runtime.run import Run

TRIES = 2
_VERDICT = re.compile(
    r"""verdict["'*_`\s]*[:=-]?["'*_`\s]*(?:the\s+answer\s+)?(?:is\s+)?([\w-]+(?:\s+\w+)?)""", re.IGNORECASE
)
_RIGHT = frozenset(["right", "correct", "yes", "true", "pass", "passed", "accept", "accepted", "1"])
_WRONG = frozenset(["wrong", "incorrect", "no", "false", "fail", "failed", "reject", "rejected", "0", "not"])


@dataclass(frozen=True)
class Judge:
    """Judges one answer. `gold` are the right ones; `prompts` are templates in place of ours, by name."""

    answer: str = ""
    gold: tuple[str, ...] = ()
    prompts: Mapping[str, str] = field(default_factory=dict)

    name: ClassVar[str] = "judge"
    phases: ClassVar[tuple[str, ...]] = ("judge",)

    def run(self, task: Asked, kit: Kit) -> Loop:
        """The loop: ask, and ask once more for a verdict that can't be read."""
        escape = escape_of(kit)
        gold = [escape(each) for each in self.gold]
        asked = kit.prompt("judge", question=escape(task.question), answer=escape(self.answer), gold=gold)
        messages: tuple[Message, ...] = (*([system(kit.system)] if kit.system else []), user(asked))
        for attempt in range(TRIES):
            reply = yield from think("judge", messages, repair=attempt > 0)
            right = verdict(reply.text)
            if right is not None:
                return Answered({"right": right, "said": reply.text.strip()})
            yield from note("unreadable", "the reply has no verdict")
            messages = (*messages, assistant(reply.text), user(kit.prompt("repair")))
        return Failed(f"the judge gave no verdict in {TRIES} replies", kind="format")

    def splitter(self, phase: str) -> Splitter:
        """All of a reply is its answer."""
        return OneKind("answer")


def verdict(text: str) -> bool | None:
    """Whether a judge's reply says right or wrong; None where it says neither.

    The last `Verdict:` counts, however it is dressed (JSON, bold, other words); without one, a last line that is
    nothing but such a word.
    """
    for match in reversed(list(_VERDICT.finditer(text))):
        if (said := _meaning(match[1])) is not None:
            return said
    lines = [line for line in text.splitlines() if line.strip()]
    alone = re.sub(r"[^\w\s-]", "", lines[-1]).split() if lines else []
    return _meaning(" ".join(alone)) if 1 <= len(alone) <= 2 else None


def judged_by(settings: str, *, journal: str | Path | Literal[False] | None = None) -> Grader:
    """The grader of `MODEL[,template=FILE]`. Raises `UsageError` for a model or a template that can't be."""
    model, _, file = settings.partition(",template=")
    if not model.strip():
        raise UsageError("A judge needs a model.", hint="Write judge:openai:gpt-5 or judge:local.")
    return judge(model.strip(), template=file.strip() or None, journal=journal)


def prompts_for(settings: str) -> dict[str, str]:
    """The prompts that the judge of `MODEL[,template=FILE]` uses, by name."""
    return {**shipped("judge"), **_template(settings.partition(",template=")[2].strip() or None)}


def judge(
    model: str | Model,
    *,
    template: str | Path | None = None,
    journal: str | Path | Literal[False] | None = None,
) -> Grader:
    """A grader that asks a model. `template` is a file in place of our prompt; `journal` keeps the judge's runs.

    Raises `UsageError` for a model or a template that can't be. The grade has the run that judged and what it cost.
    Grading raises `ModelError` or `ModelMissing` where the model can't be asked: then there is no grade.
    """
    prompts = _template(template)
    asked = resolve(model, config.load().models) if isinstance(model, str) else model  # once for all its runs

    async def grade(task: Task, run: Run) -> Grade:
        if run.answer is None:
            return of_run(run, Grade(False, 0.0, "wrong", ended(run)))
        gold = tuple(text_of(each) for each in golds_of(task.answer) if each is not None)
        loop = Judge(text_of(run.answer), gold, prompts)
        judging = await Agent(loop, model=asked, journal=journal, can_ask=False).arun(task.question)
        return of_run(run, _grade(judging))

    return grade


def _grade(judging: Run) -> Grade:
    outcome = judging.outcome
    if isinstance(outcome, Crashed):
        raise _error(outcome)
    cost, id = judging.cost_usd, judging.run
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


def _template(file: str | Path | None) -> dict[str, str]:
    """The user's template as a loop's prompts, tried out once."""
    if file is None:
        return {}
    path = Path(file).expanduser()
    try:
        text = path.read_bytes().decode()
    except OSError as error:
        raise UsageError(f"The template {str(file)!r} can't be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"The template {str(file)!r} is not UTF-8 text.") from error
    try:
        PromptBook("judge", None, {"judge": text}).render(
            "judge", {"tools": (), "question": "q", "answer": "a", "gold": ["g"]}
        )
    except UsageError as error:
        raise UsageError(
            f"The template {str(file)!r}: {error.message}", hint="It is given question, answer and gold (a list)."
        ) from error
    return {"judge": text}


def _meaning(said: str) -> bool | None:
    first, *more = said.casefold().replace("-", " ").split() or [""]
    if first == "not" and more:
        return {True: False, False: True}.get(_meaning(more[0]))  # type: ignore[arg-type]
    return True if first in _RIGHT else False if first in _WRONG and first != "not" else None
