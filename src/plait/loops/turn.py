"""The loop of `react` and `json`: every reply is one turn.

If a reply cannot be read, the model sees it once more with a complaint, for the repair.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from plait.core import (
    Answered,
    Call,
    Effects,
    Failed,
    LimitNear,
    LoopContext,
    LoopRun,
    Message,
    Observation,
    Outcome,
    Reply,
    Stopped,
    Task,
    ToolSpec,
    act,
    check_answer,
    think,
    user,
)
from plait.core.text import shorten
from plait.loops.asking import BadReply, ask_until_read, is_typed_answer, needs_no_rest, read_plain_answer, read_reply
from plait.loops.compaction import Compaction, View
from plait.loops.format import Turn, TurnCodec, Unreadable
from plait.loops.grounding import find_ungrounded_in_turn, strike_from_turn
from plait.loops.tool_descriptions import offered_tools
from plait.loops.transcript import LogEntry, Observe, Scratchpad, Transcript, TranscriptKind

FOLDED = 300
"""Characters of a result that came once more."""


def call_one(call: Call) -> Effects[Observation]:
    """Call one tool."""
    (seen,) = yield from act(call)
    return seen


@dataclass(frozen=True)
class TurnLoop:
    """A loop whose every reply is one turn: a thought, and an action or the answer.

    `format` reads and writes the turns. `tools`: those that the prompt describes, built-in ones included. `words`:
    values of the system and repair templates. `observe`: how a prompt shows an observation, if not as the format does.
    `ends_with_object`: a reply ends with a JSON object, so what the model writes behind it is cut. `opening(n)`: how
    the prompt of a raw transcript ends before turn `n`, and `labels` those that a reply may begin with instead. `stop`
    replaces the format's stop strings. `last_label`: what the concluding reply continues; "" if it is a turn like any
    other. `answer_place` tells the model where the answer goes. `answer_of` gives the answer in a turn's input.
    `call_tool` makes a call, or ends the run for a built-in tool.
    """

    format: TurnCodec
    tools: tuple[ToolSpec, ...]
    words: Mapping[str, Any]
    transcript: TranscriptKind = "chat"
    constrain: bool = False
    max_parse_errors: int = 3
    max_tokens: int | None = None
    stop: str | None = None
    observe: Observe | None = None
    ends_with_object: bool = False
    takes_plain_answer: bool = True
    opening: Callable[[int], str] = lambda n: ""
    labels: tuple[str, ...] = ()
    last_label: str = ""
    answer_place: str = ""
    answer_of: Callable[[Any], Any] = lambda answer: answer
    call_tool: Callable[[Call], Effects[Observation | Outcome]] = call_one

    def run(self, task: Task, context: LoopContext) -> LoopRun:
        """Run turns until the model answers, fails, or a limit is near."""
        page = Transcript(
            self.transcript, self.format, task, context, self.words, self.observe, answer_place=self.answer_place
        )
        log, compaction = Scratchpad(), Compaction(context, task.question, LogEntry.describe)
        seen: Observation | None = None
        try:
            while True:
                # At temperature 0 a model that repeats itself would go on doing so.
                again = seen is not None and seen.repeated
                turn = yield from compaction.ask(partial(self._take_turn, context, page, log, again), log.entries)
                if not isinstance(turn, Turn):
                    return cast(Failed, turn)
                ungrounded = yield from find_ungrounded_in_turn(turn)
                if turn.call is None:
                    answer = self.answer_of(turn.answer)
                    if not (against := (yield from check_answer(answer))):
                        return Answered(answer)
                    said_again = bool(log.entries) and log.entries[-1].turn == turn.kept
                    seen = Observation(against, "refused", repeated=said_again)
                else:
                    result = yield from self.call_tool(turn.call)
                    if not isinstance(result, Observation):
                        return result
                    seen, tool = result, context.tool(turn.call.tool)
                    if seen.repeated and log.entries and (tool is None or tool.repeatable):
                        # A model copies what it sees of itself, so the repetition is not shown to it.
                        given = json.dumps(turn.call.input, ensure_ascii=False, default=str)
                        gave = f"{shorten(seen.text, FOLDED)[0]}\n{seen.note}"
                        log = log.once_more(
                            f"You then called {turn.call.tool} once more with {given}, which gave: {gave}"
                        )
                        continue
                log = log.then(*strike_from_turn(ungrounded, turn, seen))
        except LimitNear as limit:
            return (yield from self._conclude(context, page, log, compaction, limit))

    def _take_turn(
        self, context: LoopContext, page: Transcript, log: Scratchpad, resample: bool, view: View
    ) -> Effects[Turn | Failed]:
        def ask(bad: BadReply | None) -> Effects[Reply]:
            tail = bad.ask_again(context.prompt("repair", complaint=bad.complaint, **self.words)) if bad else ()
            opened = self.transcript != "chat" and not bad
            held, warmer = self.constrain or bool(bad), resample or bool(bad and bad.resample)
            enough = partial(needs_no_rest, read=read)
            return self._ask_model(
                context, page, log, view, tail, held=held, opened=opened, resample=warmer, enough=enough
            )

        def read(text: str) -> Turn:
            if self.transcript != "chat" and self.labels and not text.lstrip().startswith(self.labels):
                text = f"{self.opening(log.next)} {text.lstrip()}"  # so that the log reads as if the model wrote it
            return self.format.read(text, log.next, (*self.tools, *context.others))

        takes_answer = self.takes_plain_answer and (not log.entries or context.output is not None)
        answer = partial(read_plain_answer, context, self.labels) if takes_answer else None
        return ask_until_read(ask, partial(read_reply, read=read, answer=answer), self.max_parse_errors)

    def _ask_model(
        self,
        context: LoopContext,
        page: Transcript,
        log: Scratchpad,
        view: View,
        tail: tuple[Message, ...] = (),
        *,
        held: bool = False,
        opened: bool = False,
        **options: Any,
    ) -> Effects[Reply]:
        """Make one model call over the log; `tail` follows the log. `held`: send the grammar or schema of a turn."""
        if held:
            tools = (*self.tools, *offered_tools(context, log.observations)[len(context.tools) :])
            options["grammar"] = self.format.grammar(tools, log.next, opened=opened)
            options["schema"] = self.format.schema(tools)
        shape = page.think("act", log, view, self.opening(log.next), tail)
        return think(
            "act",
            shape.messages,
            prompt=shape.prompt,
            stop=self.format.stop(log.next) if self.stop is None else (self.stop,),
            stop_after_object=page.own_result if self.ends_with_object else (),
            max_tokens=self.max_tokens,
            repair=bool(tail),
            is_answer=partial(is_typed_answer, context),
            **options,
        )

    def _conclude(
        self, context: LoopContext, page: Transcript, log: Scratchpad, compaction: Compaction, limit: LimitNear
    ) -> Effects[Outcome]:
        """Use the reserved call to answer from what was found."""
        tail = (user(context.prompt("conclude", reason=limit.detail)),)
        ask = partial(self._ask_model, context, page, log, tail=tail, held=not self.last_label, prefill=self.last_label)
        ask = partial(ask, enough=bool)  # no call is left for the rest
        reply = yield from compaction.ask(lambda view: ask(view=view), log.entries, concluding=True)
        try:
            turn = self.format.read(reply.text, log.next, (*self.tools, *context.others))
            answer = self.answer_of(turn.answer) if turn.answered else None
        except Unreadable:
            # The reply continues the label that was opened for it: all of it is the answer.
            answer = reply.text.strip() or None if self.last_label else None
        return Stopped(limit.limit, limit.detail, answer)
