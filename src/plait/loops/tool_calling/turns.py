"""The turns of a run of `tool_calling`: how a model is shown its run, asked, and read.

`NativeTurns` uses the endpoint's own messages and calls, `TextTurns` writes calls as JSON in text.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from functools import partial
from itertools import count
from typing import Any, TypeAlias

from msgspec import structs

from plait.core import (
    Call,
    Effects,
    Exchange,
    Failed,
    LimitNear,
    LoopContext,
    Message,
    Observation,
    Outcome,
    Reply,
    Stopped,
    Task,
    ToolSpec,
    assistant,
    check_answer,
    join_parts,
    note,
    system,
    think,
    user,
)
from plait.core.labels import HOLE
from plait.core.output import FINAL_ANSWER
from plait.core.text import shorten
from plait.loops import label_scan
from plait.loops.asking import BadReply, Rejected, ask_until_read, is_cut_within_call, is_plain_answer, is_typed_answer
from plait.loops.call_escape import escape_calls, escape_known_calls
from plait.loops.compaction import Compaction, View, with_summary
from plait.loops.escape import (
    Escape,
    begins_line,
    escape_history,
    escape_of,
    escape_question,
    show_texts,
    without_tokens,
)
from plait.loops.format import Remark, Unreadable
from plait.loops.label_scan import read_part
from plait.loops.tool_calling.format import MARKUP, SHAPE, CallObjects, CallsTurn, arguments_of
from plait.loops.tool_descriptions import offered_tools

FORMAT = CallObjects()
RESULT = "<tool_response>"
"""The tag around a result in the chat templates of many models. A model that writes it invents a result."""

_MARKS = re.compile(r"</?(?:tools|tool_response)>")
_DOUBLED = re.compile(r'\{(?=\{\s{0,20}"name")')  # Qwen 2.5's chat template doubles the brackets of its example
_AROUND_NAME = re.compile(r"\A\w{1,20}:(?=\D)|:\d{1,4}\Z|<\|.*", re.S)
"""What endpoints leave around a name: a name of the API, the number of the call, special tokens."""

Log: TypeAlias = tuple[tuple[CallsTurn, tuple[Observation, ...]], ...]
"""Each turn with calls, and their observations."""
RejectedAnswers: TypeAlias = dict[int, tuple[Message, ...]]
"""Answers and what was said against them, by the turn that follows them. They stay: the model learns from them."""


class Turns(ABC):
    """Asks for the turns of one run. `max_tokens` limits one reply.

    `schema` is the form of a reply without calls, if the endpoint holds it to one, and `stop` ends a reply. A subclass
    says what comes before the log, how calls and results are shown, and how a reply is read.
    """

    def __init__(self, context: LoopContext, max_tokens: int | None, rejected: RejectedAnswers) -> None:
        self._context, self._max_tokens, self.rejected = context, max_tokens, rejected
        self.schema: dict[str, Any] | None = None
        self.stop: tuple[str, ...] = ()
        self._heads: dict[str, tuple[Message, ...]] = {}  # by the summary in it
        self._shown: dict[tuple[int, View], tuple[Message, ...]] = {}

    def take_turn(self, max_parse_errors: int, log: Log, view: View) -> Effects[CallsTurn | Failed]:
        """Return the model's next turn. `view` says which part of the log the model sees. It is asked again if its
        reply cannot be read, or if its answer is refused. After `max_parse_errors` such replies: `Failed`."""
        form, rejected = self, Reply("")

        def ask(bad: BadReply | None) -> Effects[Reply]:
            nonlocal form
            if bad and bad.reply is rejected:
                said = self.ask_again(bad, log)
                answer = (assistant(bad.reply.text),) if bad.note and said[0].role == "user" else ()
                self.rejected[len(log)] = (*self.rejected.get(len(log), ()), *answer, *said)
            form = self.reform(log) if bad and bad.reform else self
            tail = form.ask_again(bad, log) if bad and bad.reply is not rejected else ()
            return form._ask(log, form.tools(log), tail, view, repair=bool(bad), resample=bool(bad and bad.resample))

        def read(reply: Reply, miss: int) -> Effects[CallsTurn]:
            nonlocal rejected
            turn = form.read(reply, log)
            for remark in turn.remarks:
                yield from note(remark.kind, remark.text)
            if not turn.answered:
                return turn if form is self else structs.replace(turn, calls=self.with_ids(turn.calls, log))
            rejected = reply
            if against := (yield from check_answer(turn.answer, only_output=True)):
                raise Rejected(against, counts=False)  # the runtime ends the run after too many
            if against := (yield from check_answer(turn.answer)):
                raise Rejected(against)
            return turn

        return ask_until_read(ask, read, max_parse_errors, text_of=lambda reply: f"{reply.text}{reply.calls or ''}")

    def conclude(self, limit: LimitNear, log: Log, compaction: Compaction) -> Effects[Outcome]:
        """Use the reserved call: answer from what there is."""
        request = user(self._context.prompt("conclude", reason=limit.detail).strip())
        # Endpoints refuse a history with calls if no tools are offered, so they are; otherwise nothing invites a call.
        shown = (*self.head(""), *self.rejected.get(0, ()))
        tools = self.tools(log) if log or any(each.calls for each in shown) else ()
        ask = partial(self._ask, log, tools, (request,), repair=True, enough=bool)  # no call is left for the rest
        reply = yield from compaction.ask(ask, log, concluding=True)
        try:
            turn = self.read(reply, log)
            answer = reply.text.strip() or None if turn.calls and reply.calls else turn.answer
        except Unreadable:
            answer = reply.text.strip() or None if reply.calls else None
        return Stopped(limit.limit, limit.detail, answer)

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

    def with_ids(self, calls: Sequence[Call], log: Log) -> tuple[Call, ...]:
        """Return the calls with unique ids in this run: the endpoint's id if it is given and unique."""
        used = {call.id for turn, _ in log for call in turn.calls}
        used |= {call.id for messages in self.rejected.values() for each in messages for call in each.calls}
        named: list[Call] = []
        for call in calls:
            id, number = call.id, len(used)
            while not id or id in used:
                number += 1
                id = f"call_{number}"
            used.add(id)
            named.append(Call(call.tool, call.input, id))
        return tuple(named)

    @abstractmethod
    def _show(self, turn: CallsTurn, seen: tuple[Observation, ...], view: View) -> tuple[Message, ...]:
        """Return a turn and its results as messages."""

    def _ask(
        self, log: Log, tools: tuple[ToolSpec, ...], tail: tuple[Message, ...], view: View, **options: Any
    ) -> Effects[Reply]:
        """Make one model call over the log; `tail` follows it."""
        if view.summary not in self._heads:
            self._heads[view.summary] = self.head(view.show_summary(self._context))
        messages = [*self._heads[view.summary]]
        for i in view.find_shown(len(log)):
            messages += self.rejected.get(i, ())
            key = i, how = i, view.of_entry(i)
            if key not in self._shown:
                self._shown[key] = self._show(*log[i], how)
            messages += self._shown[key]
        messages += self.rejected.get(len(log), ())
        options |= {"stop": self.stop, "max_tokens": self._max_tokens}
        options["is_answer"] = partial(is_typed_answer, self._context)
        return think("act", (*messages, *tail), tools=tools, schema=self.schema, **options)


class NativeTurns(Turns):
    """Calls and results as the endpoint's own messages. Special tokens in a result are escaped, and calls, which the
    reader would take from a reply that copies them."""

    def __init__(self, task: Task, context: LoopContext, max_tokens: int | None) -> None:
        super().__init__(context, max_tokens, {})
        self._task = task
        self.stop = tuple(mark for mark in (RESULT,) if mark in context.special_tokens)
        # Where a chat template shows the tools, the model writes calls as text. It has to know where a reply ends.
        prompt = "system_with_template" if self.stop else "system"
        rules = context.prompt(prompt).strip() if context.system is None else context.system
        place = f"given with {FINAL_ANSWER}" if takes_answer_by_tool(context) else ""
        self._rules = join_parts(rules, context.instructions, context.output_rules(place))
        self._question = show_texts(task.question, task, str)
        self._escape = Escape(escape_known_calls, tools=context.known_tools, tokens=context.special_tokens)
        if context.output is not None and context.output.method == "schema":
            self.schema = context.output.request_schema

    def head(self, summary: str) -> tuple[Message, ...]:
        said = (*self._said_before(), self._task.ask(with_summary(self._question, summary)))
        tokens = self._context.special_tokens
        plain = (structs.replace(each, content=without_tokens(each.content, tokens)) for each in said)
        return (system(self._rules), *plain)

    def _said_before(self) -> Iterator[Message]:
        """Yield the earlier turns. Without tools their calls are in words: endpoints refuse calls without tools."""
        ids = count(1)
        for past in self._task.history:
            yield user(past.question)
            if past.calls and not self._context.known_tools:
                shown = [
                    f"(You called {each.tool} with {_compact(each.input)}, which gave {each.result})"
                    for each in past.calls
                ]
                yield assistant(self._escape("\n".join(shown)))
            for call in past.calls if self._context.known_tools else ():
                id = f"earlier_{next(ids)}"
                yield Message("assistant", "", (Call(call.tool, call.input, id),))
                yield Message("tool", self._escape(call.result), call_id=id)
            yield assistant(past.answer)

    def tools(self, log: Log) -> tuple[ToolSpec, ...]:
        offered = offered_tools(self._context, (each.with_note for _, seen in log for each in seen))
        output = self._context.output
        if output is None or not takes_answer_by_tool(self._context):
            return offered
        text = self._context.prompt("final_answer").strip()
        return (*offered, ToolSpec(FINAL_ANSWER, text, output.request_schema))

    def _show(self, turn: CallsTurn, seen: tuple[Observation, ...], view: View) -> tuple[Message, ...]:
        results = (
            Message(
                "tool",
                self._escape(text),
                call_id=call.id,
                failed=not each.ok,
                attachments=view.show_attachments(each.attachments),
            )
            for call, each in zip(turn.calls, seen, strict=True)
            for text in [view.show_result(self._context, call.tool, each.with_note)]
        )
        return (Message("assistant", turn.thought, turn.calls, state=turn.state), *results)

    def read(self, reply: Reply, log: Log) -> CallsTurn:
        is_broken = reply.finish == "broken"
        if reply.calls and not is_broken:
            return self._read_calls(reply, log)
        said = reply.text if not is_broken else "" if reply.calls else reply.unread.partition(": ")[2]
        if not _MARKS.sub("", said).strip():
            raise Unreadable(f"it {reply.how_cut}" if is_broken else reply.only_reasoning or "It was empty.")
        if not is_broken and is_typed_answer(self._context, said):
            return CallsTurn(answer=said.strip(), answered=True)
        turn = self._read_text(said)
        if turn.calls and (
            all(map(self._context.tool, (call.tool for call in turn.calls))) or MARKUP.search(reply.text)
        ):
            left = label_scan.repair_remark("the calls stood in the reply's text")
            thought, calls = _MARKS.sub("", turn.thought).strip("{ \n"), self.with_ids(turn.calls, log)
            return structs.replace(turn, thought=thought, calls=calls, kept="", remarks=(*turn.remarks, left))
        if against := self._object_to_answer(reply, log):
            raise Unreadable(against)
        return turn if turn.answered else CallsTurn(answer=said.strip(), answered=True)

    def _read_calls(self, reply: Reply, log: Log) -> CallsTurn:
        notes: list[Remark] = []
        if reply.how_cut and isinstance(reply.calls[-1].input, str | None):
            raise Unreadable(f"it {reply.how_cut} within the input of its last call")
        calls = self.with_ids(tuple(self._call(call, notes) for call in reply.calls), log)
        turn = CallsTurn(reply.text.strip(), calls, remarks=tuple(notes), state=reply.state)
        return as_typed_answer(self._context, turn)

    def _read_text(self, text: str) -> CallsTurn:
        """Read the calls or the answer in a text; an empty turn for a text that only looks like a broken call."""
        tools = self._context.known_tools
        plain = _DOUBLED.sub("", text)
        for each in dict.fromkeys((text, plain)):
            try:
                return as_typed_answer(self._context, FORMAT.read(each, tools=tools))
            except Unreadable:
                # A text with a known tool's name is a broken call, or the model was still thinking about one.
                bare = read_part(text)[0]
                if each == plain and (not bare.strip() or any(tool.name in bare for tool in tools)):
                    raise
        return CallsTurn()

    def _object_to_answer(self, reply: Reply, log: Log) -> str:
        """Return why a reply without calls is not an answer; "" if it may be one."""
        said = reply.text
        if reply.finish == "broken":
            return f"it {reply.how_cut}"
        if _MARKS.match(said.lstrip()):
            return "it copies what was shown to you."
        if log and said.strip() == self._task.question.strip():
            return "it repeats the question. Write the next call, or the answer in words of your own."
        if reply.finish == "calls" and not is_plain_answer(said.rstrip().rpartition("\n")[2]):
            return "the call that it announces did not come"
        return ""

    def ask_again(self, bad: BadReply, log: Log) -> tuple[Message, ...]:
        reply: Reply = bad.reply
        if not reply.calls:
            asked = super().ask_again(bad, log)
            return tuple(structs.replace(m, state=reply.state) if m.role == "assistant" else m for m in asked)
        calls = self.with_ids(reply.calls, log)
        said = self._context.prompt("repair_call", complaint=bad.complaint).strip() if bad.counts else bad.complaint
        answer = Message("tool", join_parts(said, bad.note), failed=bad.counts)
        answers = (structs.replace(answer, call_id=call.id) for call in calls)
        return (Message("assistant", reply.text, calls, state=reply.state), *answers)

    def reform(self, log: Log) -> Turns:
        return TextTurns(self._task, self._context, self._max_tokens, self.rejected).reform(log)

    def _call(self, call: Call, notes: list[Remark]) -> Call:
        bare = call.tool if self._context.tool(call.tool) else _AROUND_NAME.sub("", call.tool)
        name = label_scan.tool_name(bare, self._context.known_tools, notes)
        if not name:
            raise Unreadable("a call names no tool")
        try:
            return Call(name, arguments_of(call.input, notes), call.id)
        except Unreadable as why:
            raise Unreadable(f"in the call of {name[:60]} {why}") from None


class TextTurns(Turns):
    """Calls as JSON objects in the model's text, results as the user's messages."""

    def __init__(self, task: Task, context: LoopContext, max_tokens: int | None, rejected: RejectedAnswers) -> None:
        texts = {at: [user(m.content) if m.role == "tool" else m for m in said] for at, said in rejected.items()}
        shown = {at: tuple(Message(m.role, m.content) for m in said if m.content) for at, said in texts.items()}
        super().__init__(context, max_tokens, shown)
        # The example has the first tool's arguments, without anything that could be copied as a value.
        names = context.tools[0].parameters.get("properties", {}) if context.tools else {}
        words = {"described": FORMAT.describe(context.tools), "example": _compact(dict.fromkeys(names, "..."))}
        rules = join_parts(context.prompt("text", **words).strip(), context.instructions, context.output_rules())
        # The user's own system prompt was written for native calls, so the text form is explained beside it.
        self._above, self._beside = (rules, "") if context.system is None else (context.system, rules)
        self._escape = escape = escape_of(context, escape_calls)
        self._inline = not begins_line(context.prompt("result", tool="", given="", text=HOLE))
        self._asked = escape_question(task, escape)
        self._task = task
        self._go_on = context.prompt("go_on", question=escape.question(task.question)).strip()
        self._history = tuple(self._said_before(escape_history(task, escape)))

    def _said_before(self, history: Iterable[Exchange]) -> Iterator[Message]:
        """Yield the earlier turns, whose strings are escaped."""
        for past in history:
            yield user(past.question)
            for each in past.calls:
                yield assistant(FORMAT.show_turn(CallsTurn(calls=(Call(each.tool, each.input),))))
                yield user(self._context.prompt("result", tool=each.tool, given="", text=each.result).rstrip())
            yield assistant(past.answer)

    def head(self, summary: str) -> tuple[Message, ...]:
        asked = with_summary(self._asked, self._escape(summary))
        question = self._context.prompt("question", question=asked, rules=self._beside).strip()
        return (system(self._above), *self._history, self._task.ask(question))

    def _show(self, turn: CallsTurn, seen: tuple[Observation, ...], view: View) -> tuple[Message, ...]:
        """Return the results of one turn as one message, in the order of the calls, which asks for the next turn."""
        results = (self._result(turn, call, each, view) for call, each in zip(turn.calls, seen, strict=True))
        said = "\n\n".join((*results, self._go_on)).rstrip()
        images = tuple(each for result in seen for each in view.show_attachments(result.attachments))
        return (assistant(turn.kept or FORMAT.show_turn(turn)), Message("user", said, attachments=images))

    def read(self, reply: Reply, log: Log) -> CallsTurn:
        if reply.only_reasoning:
            raise Unreadable(f"{reply.only_reasoning} {SHAPE}")
        turn = self._read(reply.text)
        if reply.how_cut and is_cut_within_call(reply.text, turn, self._read):
            raise Unreadable(f"it {reply.how_cut} before its last call was complete. Write a shorter one.")
        if turn.answered and log and self._go_on and self._go_on in str(turn.answer):
            raise Unreadable("it repeats the last message. Write the next call, or the answer in words of your own.")
        return turn

    def _read(self, text: str) -> CallsTurn:
        if is_typed_answer(self._context, text):
            return CallsTurn(answer=text.strip(), answered=True, kept=text.strip())
        return as_typed_answer(self._context, FORMAT.read(text, tools=self._context.known_tools))

    def reform(self, log: Log) -> Turns:
        """Return turns whose replies are one JSON object each: a call, or the answer as one."""
        held = copy(self)
        held.schema = FORMAT.schema(offered_tools(self._context, (each.with_note for _, seen in log for each in seen)))
        return held

    def _result(self, turn: CallsTurn, call: Call, seen: Observation, view: View) -> str:
        given = _compact(call.input) if len(turn.calls) > 1 and call.input is not None else ""
        text = self._escape(view.show_result(self._context, call.tool, seen.with_note), inline=self._inline)
        return self._context.prompt("result", tool=call.tool, given=given, text=text).rstrip()


def takes_answer_by_tool(context: LoopContext) -> bool:
    """Return whether the model gives its answer by calling a tool."""
    return context.output is not None and context.output.method == "tool"


def as_typed_answer(context: LoopContext, turn: CallsTurn) -> CallsTurn:
    """Return the turn as an answer if it only calls the tool that takes one, also where that tool was not offered."""
    if context.output is None or not turn.calls or any(call.tool != FINAL_ANSWER for call in turn.calls):
        return turn
    given = turn.calls[0].input
    answer = {} if given is None else given  # a call without arguments
    return structs.replace(turn, calls=(), answer=answer, answered=True)


def describe_turn(entry: tuple[CallsTurn, tuple[Observation, ...]]) -> str:
    """Return a turn of the log as text: its calls, and their results."""
    turn, seen = entry
    return "\n".join((FORMAT.show_turn(turn), *(each.with_note for each in seen)))


def carry_over(task: Task, context: LoopContext, log: Log) -> Task:
    """Return the task for a loop that continues from here, with the calls so far and their results."""
    if not log:
        return task
    # The other loop may have another protocol, so the results are escaped for text and for objects.
    escape = escape_of(context, label_scan.USUAL.escape, escape_calls)
    work = []
    for turn, seen in log:
        for call, each in zip(turn.calls, seen, strict=True):
            text = escape(shorten(each.with_note, context.observation_chars)[0], inline=True)
            work.append((call.tool, "" if call.input is None else _compact(call.input), text))
    return structs.replace(task, question=context.prompt("carried", question=task.question, work=work).strip())


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
