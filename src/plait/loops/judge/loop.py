"""The loop that judges one answer. The lab's graders use it, so the journal has the judge's requests and replies.

Its prompt is the template `judge.j2`, which gets `question`, `answer` and `gold` (a list of texts, empty if no right
answer is known). A user's file can replace it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from plait.core import (
    Answered,
    Effects,
    LoopContext,
    LoopRun,
    OneKind,
    Reply,
    Splitter,
    Task,
    assistant,
    note,
    system,
    think,
    user,
)
from plait.loops.asking import BadReply, Rejected, ask_until_read
from plait.loops.escape import escape_of

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

    def run(self, task: Task, context: LoopContext) -> LoopRun:
        """Ask for a verdict, and ask once more if the verdict cannot be read."""
        escape = escape_of(context)
        gold = [escape(each) for each in self.gold]
        asked = context.prompt("judge", question=escape(task.question), answer=escape(self.answer), gold=gold)
        head = (*([system(context.system)] if context.system else []), user(asked))

        def ask(bad: BadReply | None) -> Effects[Reply]:
            tail = (assistant(bad.text), user(context.prompt("repair"))) if bad else ()
            return think("judge", (*head, *tail), repair=bool(bad))

        def read(reply: Reply, miss: int) -> Effects[Answered]:
            if (right := read_verdict(reply.text)) is None:
                yield from note("unreadable", "the reply has no verdict")
                raise Rejected(reply.only_reasoning)
            return Answered({"right": right, "said": reply.text.strip()})

        def describe_failure(bad: BadReply) -> str:
            return f"the judge gave no verdict in {TRIES} replies. {bad.complaint}".rstrip(". ")

        return (yield from ask_until_read(ask, read, TRIES, failure=describe_failure))

    def splitter(self, phase: str) -> Splitter:
        return OneKind("answer")


def read_verdict(text: str) -> bool | None:
    """Read right (True) or wrong (False) from a judge's reply; None for neither. The last `Verdict:` counts, in JSON,
    bold or other words. Without one, a last line with only such a word counts."""
    for match in reversed(list(_VERDICT.finditer(text))):
        if (said := _meaning(match[1])) is not None:
            return said
    lines = [line for line in text.splitlines() if line.strip()]
    alone = re.sub(r"[^\w\s-]", "", lines[-1]).split() if lines else []
    return _meaning(" ".join(alone)) if 1 <= len(alone) <= 2 else None


def _meaning(said: str) -> bool | None:
    first, *more = said.casefold().replace("-", " ").split() or [""]
    if first == "not" and more:
        return {True: False, False: True}.get(_meaning(more[0]))  # type: ignore[arg-type]
    return True if first in _RIGHT else False if first in _WRONG and first != "not" else None
