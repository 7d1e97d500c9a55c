"""The endpoint's own tool calling, or the same loop over JSON in text if the endpoint has none.

Tools are sent as JSON schemas, and the model's calls come back beside its text. Several calls run concurrently, and
each result is a message of its own. A reply without calls is the answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from plait.core import (
    Answered,
    Effects,
    Failed,
    LimitNear,
    LoopContext,
    LoopRun,
    Message,
    Observation,
    Outcome,
    Splitter,
    Stopped,
    Task,
    Unsupported,
    act,
    check_answer,
    note,
    think,
    user,
)
from plait.loops.fallback import fall_back
from plait.loops.format import Unreadable
from plait.loops.registry import check_options
from plait.loops.tool_calling.format import CallsTurn
from plait.loops.tool_calling.pages import FORMAT, Log, NativePage, Page, TextPage, carry_over
from plait.loops.tool_descriptions import are_exclusive
from plait.loops.turn import fit_prompt


@dataclass(frozen=True)
class ToolCalling:
    """Native tool calling.

    `fallback`: the loop to use if the endpoint has no native tools, or after `max_parse_errors` unreadable replies in a
    row; "" writes the calls in text, as JSON. `max_parse_errors`: unreadable or empty replies in a row before that, or
    before the run fails. `max_tokens`: limit for one reply.
    """

    fallback: str = ""
    max_parse_errors: int = 3
    max_tokens: int | None = None

    name: ClassVar[str] = "tool_calling"
    phases: ClassVar[tuple[str, ...]] = ("act",)
    reserved: ClassVar[tuple[str, ...]] = ("final_answer",)
    tool_names: ClassVar[str] = "wire"

    def __post_init__(self) -> None:
        check_options(self)

    def run(self, task: Task, context: LoopContext) -> LoopRun:
        page: Page = NativePage(task, context)
        log: Log = ()
        chars = context.observation_chars
        near: LimitNear | None = None
        while True:
            try:
                if near is not None:
                    return (yield from self._conclude(context, page, log, chars, near))
                turn, chars = yield from fit_prompt(lambda size: self._turn(page, log, size), chars)  # noqa: B023
                if not isinstance(turn, CallsTurn):
                    why = f"{turn.reason.rstrip('.')}."
                    if not self.fallback:
                        return turn  # type: ignore[no-any-return]
                    break
                if turn.answered:
                    return Answered(turn.answer)
                log = (*log, (turn, (yield from self._act(turn, context))))
            except LimitNear as limit:
                near = limit
            except Unsupported as lacking:
                why = f"{lacking.message}."
                if self.fallback and near is None:
                    break
                yield from note("calls_as_text", f"{why} Going on with calls as JSON in text.")
                page = TextPage(task, context)
        return (yield from fall_back(self.fallback, carry_over(task, context, log), context, why))

    def splitter(self, phase: str) -> Splitter:
        return FORMAT.splitter()

    def _turn(self, page: Page, log: Log, chars: int) -> Effects[CallsTurn | Failed]:
        """Return the model's next turn; ask again if it cannot be read."""
        tail: tuple[Message, ...] = ()
        complaint = ""
        for miss in range(1, self.max_parse_errors + 1):
            messages = (*page.messages(log, chars), *tail)
            reply = yield from think(
                "act", messages, tools=page.tools(log), max_tokens=self.max_tokens, repair=bool(tail)
            )
            try:
                turn = page.read(reply, log)
            except Unreadable as why:
                complaint = str(why)
                tail = page.again(reply, complaint, log)
                yield from note("unreadable", f"reply {miss} of {self.max_parse_errors} can't be read: {complaint}")
                continue
            for remark in turn.remarks:
                yield from note(remark.kind, remark.text)
            if turn.answered and (complaint := (yield from check_answer(turn.answer))):
                tail = page.again(reply, complaint, log)
                continue
            return turn
        return Failed(
            f"{self.max_parse_errors} replies in a row could not be read. The last complaint: {complaint}", "format"
        )

    def _act(self, turn: CallsTurn, context: LoopContext) -> Effects[tuple[Observation, ...]]:
        """Make the calls concurrently; of tools that do the same job, only the first one."""
        seen: dict[int, Observation] = {}
        made: list[int] = []
        for i, call in enumerate(turn.calls):
            rivals = (turn.calls[j].tool for j in made if are_exclusive(context.known, turn.calls[j].tool, call.tool))
            if other := next(rivals, ""):
                said = context.prompt("excluded", tool=call.tool, other=other).strip()
                seen[i] = Observation(said, trouble="refused")
                yield from note("refused", f"The call of {call.tool} is not made: {other} does the same job.")
            else:
                made.append(i)
        seen.update(zip(made, (yield from act(*(turn.calls[i] for i in made))), strict=True))
        return tuple(seen[i] for i in range(len(turn.calls)))

    def _conclude(self, context: LoopContext, page: Page, log: Log, chars: int, limit: LimitNear) -> Effects[Outcome]:
        """Use the reserved call: answer from what there is."""
        request = user(context.prompt("conclude", reason=limit.detail).strip())
        # Endpoints refuse a history with calls if no tools are offered, so they are; otherwise nothing invites a call.
        tools = page.tools(log) if log else ()

        def ask(size: int) -> Effects[Any]:
            messages = (*page.messages(log, size), request)
            return think("act", messages, tools=tools, max_tokens=self.max_tokens, repair=True)

        reply, _ = yield from fit_prompt(ask, chars)
        if reply.calls:
            return Stopped(limit.limit, limit.detail, reply.text.strip() or None)
        try:
            turn = page.read(reply, log)
        except Unreadable:
            return Stopped(limit.limit, limit.detail)
        return Stopped(limit.limit, limit.detail, turn.answer if turn.answered else None)
