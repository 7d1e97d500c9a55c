"""The requests to planner and joiner of `compiler`. From plan to plan, each prompt only grows at its end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from plait.core import Attachment, LoopContext, Message, Task, assistant, join_parts, system, user
from plait.core.text import shorten
from plait.loops.compiler.format import FORM
from plait.loops.compiler.streamed_plan import StreamedPlan
from plait.loops.escape import escape_of, escape_task


@dataclass
class Round:
    """One plan: its calls, and the joiner's reply to their results (as written, and what is missing)."""

    work: StreamedPlan
    said: str = ""
    missing: str = ""

    @property
    def text(self) -> str:
        """The plan as its planner is shown it later."""
        return FORM.show(self.work.plan) if self.work.renumbered else self.work.reader.kept_text.strip()


class Pages:
    """The messages to planner and joiner in one run."""

    def __init__(self, task: Task, context: LoopContext) -> None:
        self._context = context
        self._ask = task.ask
        self._escape = escape = escape_of(context, FORM.escape)
        self._task = escape_task(task, escape)
        self._described = FORM.describe(context.tools)
        answer = context.output_rules("what follows Finish:")
        self._join_rules = join_parts(context.prompt("join_system"), context.instructions, answer)

    def plan(self, before: Sequence[Round], chars: int) -> tuple[Message, ...]:
        """Return the planner's request after these rounds, with at most `chars` characters of each result."""
        context = self._context
        rules = context.rules(described=self._described)
        messages = [system(rules), self._ask(context.prompt("task", **self._task))]
        for round in before:
            after = round.work.next
            missing = self._escape(round.missing, inline=True)
            again = context.prompt("replan", **self._shown(round, chars), missing=missing, next=after)
            messages += [assistant(round.text), user(again)]
        return tuple(messages)

    def join(self, rounds: Sequence[Round], chars: int, *, last: bool) -> tuple[Message, ...]:
        """Return the joiner's request about these rounds. `last`: no further plan is possible."""
        context = self._context
        first = self._shown(rounds[0], chars)
        asked = context.prompt("join_task", **self._task, **first, last=last and len(rounds) == 1)
        messages = [system(self._join_rules), self._ask(asked, _seen_in(rounds[0]))]
        for number, (before, round) in enumerate(pairwise(rounds), 2):
            more = context.prompt("join_more", **self._shown(round, chars), last=last and number == len(rounds))
            messages += [assistant(before.said), Message("user", more, attachments=_seen_in(round))]
        return tuple(messages)

    def conclude(self, rounds: Sequence[Round], chars: int, reason: str) -> tuple[Message, ...]:
        """Return the joiner's request when a limit ends the run."""
        request = user(self._context.prompt("conclude", reason=reason))
        if len(rounds) > 1 and not rounds[-1].work.steps:
            return (*self.join(rounds[:-1], chars, last=False), assistant(rounds[-2].said), request)
        return (*self.join(rounds, chars, last=False), request)

    def _shown(self, round: Round, chars: int) -> dict[str, Any]:
        """Return the calls of a round with their results, shortened and escaped."""
        rows = []
        for id, step in round.work.steps.items():
            seen = round.work.results.get(id)
            result = self._escape(shorten(seen.with_note if seen else "(no result yet)", chars)[0])
            rows.append({"id": id, "call": FORM.line(step), "result": result})
        return {"rows": rows, "refused": tuple(round.work.refused)}


def _seen_in(round: Round) -> tuple[Attachment, ...]:
    """Return the images and PDF files in a round's results."""
    return tuple(each for seen in round.work.results.values() for each in seen.attachments)
