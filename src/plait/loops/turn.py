"""The turn loop of ReAct and JSON ReAct, and the parts that other loops share: ask, read, repair, conclude.

If a reply cannot be read, the model sees it once more with a complaint, for the repair. Then both leave the prompt; the
record keeps them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar, cast

from msgspec import structs

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
    check_output,
    is_going_round,
    note,
    think,
)
from plait.core.text import shorten
from plait.loops.attempts import Attempts, Bad
from plait.loops.compaction import Compaction, View
from plait.loops.format import Format, Remark, Turn, Unreadable
from plait.loops.grounding import find_ungrounded_in_turn, strike_from_turn
from plait.loops.tool_descriptions import offered_tools
from plait.loops.transcript import Entry, Observe, Scratchpad, Transcript, TranscriptKind, with_repair


class Read(Protocol):
    """The result of reading a reply: a turn or a plan."""

    @property
    def remarks(self) -> Sequence[Remark]:
        """The repairs and cuts."""
        ...


R = TypeVar("R", bound=Read)

_NO_PLAIN_TEXT = re.compile(
    r"[{}\[\]<>`]"
    r"|^[ \t>*_#-]{0,12}(?:thought|action|input|observation|tool|function|plan|step|call|result)\b[^\n]{0,20}[:：]"
    r"|\b(?:tool|function|action)s?\b|\w\(",
    re.I | re.M,
)
_ANNOUNCES = re.compile(
    r"\b(?:i(?:'|’)?ll|i will|i(?:'|’)?m going to|i am going to|let me|let(?:'|’)s|let us|i need|i should|i must"
    r"|i have to|i want to|we need|we should|we will|we can|we have to|to (?:answer|find|solve|determine|do)\b"
    r"|first,|first i\b|next,|one moment|please wait|looking up)",
    re.I,
)


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

    format: Format
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
        log, compaction = Scratchpad(), Compaction(context, task.question, Entry.describe)
        seen: Observation | None = None
        try:
            while True:
                attempt = partial(self._take_turn, context, page, log, is_repetition(seen))
                turn = yield from compaction.ask(attempt, log.entries)
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
                    seen = result
                    if log.entries and (words := describe_repetition(context, turn.call, seen)):
                        log = log.once_more(words)
                        continue
                log = log.then(*strike_from_turn(ungrounded, turn, seen))
        except LimitNear as limit:
            return (yield from self._conclude(context, page, log, compaction, limit))

    def _take_turn(
        self, context: LoopContext, page: Transcript, log: Scratchpad, resample: bool, view: View
    ) -> Effects[Turn | Failed]:
        def ask(bad: Bad | None) -> Effects[Reply]:
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
        answer = plain_answer(context, self.labels) if takes_answer else None
        return read_turn(ask, read, self.max_parse_errors, answer=answer)

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
        tail = with_repair("", context.prompt("conclude", reason=limit.detail))
        ask = partial(self._ask_model, context, page, log, tail=tail, held=not self.last_label, prefill=self.last_label)
        reply = yield from compaction.ask(lambda view: ask(view=view), log.entries, concluding=True)
        answer: Any = None
        try:
            turn = self.format.read(reply.text, log.next, (*self.tools, *context.others))
            answer = self.answer_of(turn.answer) if turn.answered else None
        except Unreadable:
            # The reply continues the label that was opened for it: all of it is the answer.
            answer = reply.text.strip() or None if self.last_label else None
        return Stopped(limit.limit, limit.detail, answer)


def ask_for_answer(ask: Callable[[Bad | None], Effects[Reply]]) -> Effects[str | Failed]:
    """Return a reply that is only the answer; `Failed` for an empty one. The model is asked again for an answer that
    does not fit the output, and twice after a call that cannot be read.

    `ask` makes the model call, given an answer that does not fit, or None. The runtime ends the run after too many
    answers.
    """
    attempts, broken = Attempts(), 0
    bad: Bad | None = None
    while True:
        reply = yield from ask(bad)
        answer = reply.text.strip()
        broken += reply.finish == "broken"
        if reply.finish == "broken" and broken < 3:
            against = f"Your reply {reply.how_cut}. No tool can be called now. Write the answer in words."
        elif not answer:
            return Failed(reply.only_reasoning or "The reply is empty.", kind="format")
        elif not (against := (yield from check_output(answer))):
            return answer
        bad = attempts.reject(answer, against)


FOLDED = 300
"""Characters of a result that came once more."""


def read_turn(
    ask: Callable[[Bad | None], Effects[Reply]],
    read: Callable[[str], R],
    max_parse_errors: int,
    check: Callable[[R], Effects[str]] | None = None,
    answer: Callable[[str], R | None] | None = None,
) -> Effects[R | Failed]:
    """The model's next turn, or plan: whatever `read` makes of a reply. `ask` makes the model call, given a bad reply
    to repair or None.

    After `max_parse_errors` unreadable replies in a row: `Failed`. What the reader repaired or cut is noted. `check`
    says what speaks against a turn that was read; the last try is taken as it is. `answer` makes a turn of a reply that
    is plainly an answer, None of any other: a model that simply answers is not asked for a form.
    """
    attempts = Attempts(max_parse_errors)
    bad: Bad | None = None
    for miss in range(1, max_parse_errors + 1):
        reply = yield from ask(bad)
        try:
            turn = read(reply.text)
            if isinstance(turn, Turn):
                turn = structs.replace(turn, reply=reply.text)
            if reply.how_cut and is_cut_within_call(reply.text, turn, read):
                raise Unreadable("Its action is not complete: write a shorter one.")
        except Unreadable as why:
            plain = answer(reply.text.strip()) if answer is not None and reply.finish == "stop" else None
            if miss == 1 and plain is not None:
                yield from note("repaired", "the reply was only an answer: it was taken for the answer")
                return plain
            flaw = reply.only_reasoning or (f"Your reply {reply.how_cut}." if reply.how_cut else "")
            complaint = f"{flaw} {str(why).removeprefix('Your reply is empty. ')}" if flaw else str(why)
            bad = attempts.reject(reply.text, complaint)
            yield from note("unreadable", f"reply {miss} of {max_parse_errors} can't be read: {complaint}")
            continue
        if check is not None and miss < max_parse_errors and (against := (yield from check(turn))):
            bad = attempts.reject(reply.text, against)
            yield from note("unreadable", f"reply {miss} of {max_parse_errors} can't be taken: {against}")
            continue
        for remark in turn.remarks:
            yield from note(remark.kind, remark.text)
        if reply.how_cut:
            yield from note("cut", f"the reply {reply.how_cut}: what is complete in it counts")
        return turn
    assert bad is not None
    return Failed(
        f"{max_parse_errors} replies in a row could not be read. The last complaint: {bad.complaint}", kind="format"
    )


def plain_answer(context: LoopContext, labels: Sequence[str] = ()) -> Callable[[str], Turn | None]:
    """Makes the turn of a plain answer, in words or as JSON of the output type; None for a text that names a tool or
    has a label, as it may be meant for a call."""
    words = [rf"\b{re.escape(tool.name)}\b" for tool in context.known_tools]
    words += [rf"^[ \t>*_#-]{{0,12}}{re.escape(label)}(?: ?\d{{1,3}})?[*_ \t]{{0,4}}[:：]" for label in labels]
    names = re.compile("|".join(words) or r"(?!)", re.I | re.M)
    fits = context.output.fits if context.output is not None else is_plain_answer
    return lambda text: Turn(answer=text, answered=True, kept=text) if fits(text) and not names.search(text) else None


def is_typed_answer(context: LoopContext, text: str) -> bool:
    """Return whether a whole reply is JSON of the output type, and names no tool, so that it is no call."""
    return (
        context.output is not None
        and not any(tool.name in text for tool in context.known_tools)
        and context.output.fits(text)
    )


def is_plain_answer(text: str) -> bool:
    """A text that can only be an answer: it has words, and no label, no JSON, no code, no announcement of a step."""
    return any(map(str.isalnum, text)) and not (_NO_PLAIN_TEXT.search(text) or _ANNOUNCES.search(text))


def is_cut_within_call(text: str, turn: Any, read: Callable[[str], Any]) -> bool:
    """The calls in a text that was cut may be incomplete: if the text went on, they would be read otherwise."""
    made = calls_of(turn)
    if not made:
        return False
    try:
        return calls_of(read(f"{text} and so on")) != made
    except Unreadable:
        return True


def needs_no_rest(text: str, read: Callable[[str], Any]) -> bool:
    """Return whether a reply that was cut is not continued: its one call is complete, or it goes round."""
    try:
        turn = read(text)
    except Unreadable:
        return is_going_round(text)
    return is_going_round(text) or (bool(calls_of(turn)) and not is_cut_within_call(text, turn, read))


def calls_of(turn: Any) -> Sequence[Any]:
    """The calls of a turn, or the steps of a plan."""
    call = getattr(turn, "call", None)
    return getattr(getattr(turn, "plan", turn), "calls", ()) if call is None else (call,)


def is_repetition(seen: Observation | None) -> bool:
    """The last call repeated an earlier one, or a refused answer: at temperature 0 a model that copies itself would go
    on doing so."""
    return seen is not None and seen.repeated


def describe_repetition(context: LoopContext, call: Call, seen: Observation) -> str:
    """Return the text in place of a turn that only repeated a call; "" if the turn stays. A model copies what it
    sees of itself, so the repetition is not shown to it."""
    tool = context.tool(call.tool)
    if not seen.repeated or (tool is not None and not tool.repeatable):
        return ""
    given = json.dumps(call.input, ensure_ascii=False, default=str)
    return (
        f"You then called {call.tool} once more with {given}, which gave: {shorten(seen.text, FOLDED)[0]}\n{seen.note}"
    )
