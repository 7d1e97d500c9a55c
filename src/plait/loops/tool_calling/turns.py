"""The turns of a run: asks the model, reads its reply, asks again if it cannot be read, and concludes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import Any, TypeAlias

from msgspec import structs

from plait.core import (
    Call,
    Effects,
    Failed,
    LimitNear,
    LoopContext,
    Message,
    Observation,
    Outcome,
    Reply,
    Stopped,
    ToolSpec,
    check_answer,
    check_output,
    note,
    think,
    user,
)
from plait.loops.asking import BadReply, Rejected, ask_until_read, is_typed_answer
from plait.loops.compaction import Compaction, View
from plait.loops.format import Unreadable
from plait.loops.tool_calling.format import CallsTurn

Log: TypeAlias = tuple[tuple[CallsTurn, tuple[Observation, ...]], ...]
"""Each turn with calls, and their observations."""


class Turns(ABC):
    """Asks for the turns of one run. `max_tokens` limits one reply.

    `schema` is the form of a reply without calls, if the endpoint holds it to one, and `stop` ends a reply. A subclass
    says what comes before the log, how calls and results are shown, and how a reply is read.
    """

    schema: dict[str, Any] | None = None
    stop: tuple[str, ...] = ()

    def __init__(self, context: LoopContext, max_tokens: int | None) -> None:
        self._context, self._max_tokens = context, max_tokens
        self._shown: dict[tuple[int, View], tuple[Message, ...]] = {}

    def take_turn(self, max_parse_errors: int, log: Log, view: View) -> Effects[CallsTurn | Failed]:
        """Return the model's next turn. `view` says which part of the log the model sees.

        It is asked again if its reply cannot be read, or if its answer is refused. After `max_parse_errors` such
        replies: `Failed`.
        """
        form = self

        def ask(bad: BadReply | None) -> Effects[Reply]:
            nonlocal form
            form = self.reform(log) if bad and bad.reform else self
            tail = form.ask_again(bad, log) if bad else ()
            return form._ask(log, form.tools(log), tail, view, resample=bool(bad and bad.resample))

        def read(reply: Reply, miss: int) -> Effects[CallsTurn]:
            turn = form.read(reply, log)
            for remark in turn.remarks:
                yield from note(remark.kind, remark.text)
            if not turn.answered:
                return turn if form is self else structs.replace(turn, calls=with_ids(turn.calls, log))
            if against := (yield from check_output(turn.answer)):
                raise Rejected(against, counts=False)  # the runtime ends the run after too many
            if against := (yield from check_answer(turn.answer)):
                raise Rejected(against)
            return turn

        return ask_until_read(ask, read, max_parse_errors, text_of=lambda reply: f"{reply.text}{reply.calls or ''}")

    def conclude(self, limit: LimitNear, log: Log, compaction: Compaction) -> Effects[Outcome]:
        """Use the reserved call: answer from what there is."""
        request = user(self._context.prompt("conclude", reason=limit.detail).strip())
        # Endpoints refuse a history with calls if no tools are offered, so they are; otherwise nothing invites a call.
        tools = self.tools(log) if log or any(each.calls for each in self.head("")) else ()
        reply = yield from compaction.ask(partial(self._ask, log, tools, (request,)), log, concluding=True)
        return Stopped(limit.limit, limit.detail, self._find_answer(reply, log))

    def tools(self, log: Log) -> tuple[ToolSpec, ...]:
        """Return the tools that the next request offers, including found ones; none if the text lists them."""
        return ()

    @abstractmethod
    def head(self, summary: str) -> tuple[Message, ...]:
        """Return the messages before the log. `summary` replaces old turns; "" if there is none."""

    @abstractmethod
    def read(self, reply: Reply, log: Log) -> CallsTurn:
        """Read the turn in a reply. Raises `Unreadable`."""

    def ask_again(self, bad: BadReply, log: Log) -> tuple[Message, ...]:
        """Return a reply that cannot be read, or an answer that does not fit, and the request for another."""
        request = self._context.prompt("repair", complaint=bad.complaint).strip() if bad.counts else bad.complaint
        return bad.ask_again(request, bad.reply.text)

    @abstractmethod
    def reform(self, log: Log) -> Turns:
        """Return the same turns in another format."""

    @abstractmethod
    def _show(self, turn: CallsTurn, seen: tuple[Observation, ...], view: View) -> tuple[Message, ...]:
        """Return a turn and its results as messages."""

    def _ask(
        self, log: Log, tools: tuple[ToolSpec, ...], tail: tuple[Message, ...], view: View, resample: bool = False
    ) -> Effects[Reply]:
        """Make one model call over the log; `tail` follows it."""
        shown = [(i, view.of_entry(i)) for i in view.find_shown(len(log))]
        for i, how in shown:
            if (i, how) not in self._shown:
                self._shown[i, how] = self._show(*log[i], how)
        turns = (message for key in shown for message in self._shown[key])
        messages = (*self.head(view.show_summary(self._context)), *turns, *tail)
        options: dict[str, Any] = {"stop": self.stop, "max_tokens": self._max_tokens, "resample": resample}
        options |= {"repair": bool(tail), "is_answer": partial(is_typed_answer, self._context)}
        return think("act", messages, tools=tools, schema=self.schema, **options)

    def _find_answer(self, reply: Reply, log: Log) -> object:
        """Return the answer in the concluding reply; None if it has none."""
        try:
            turn = self.read(reply, log)
        except Unreadable:
            return reply.text.strip() or None if reply.calls else None
        return reply.text.strip() or None if turn.calls and reply.calls else turn.answer


def with_ids(calls: Sequence[Call], log: Log) -> tuple[Call, ...]:
    """Return the calls with unique ids in this run: the endpoint's id if it is given and unique."""
    used = {call.id for turn, _ in log for call in turn.calls}
    named: list[Call] = []
    for call in calls:
        id, number = call.id, len(used)
        while not id or id in used:
            number += 1
            id = f"call_{number}"
        used.add(id)
        named.append(Call(call.tool, call.input, id))
    return tuple(named)
