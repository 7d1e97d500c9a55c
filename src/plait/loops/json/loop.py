"""JSON ReAct: one JSON object a turn, `{"thought", "tool", "tool_input"}`.

Three tools are built in: `ask_user` (the run waits until someone answers), `final_answer` (any JSON value) and
`fail_task` (the model gives up and says why). The loop itself is `plait.loops.turn.TurnLoop`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import ClassVar

from msgspec import structs

from plait.core import (
    JSON,
    Call,
    Effects,
    Failed,
    LoopContext,
    LoopRun,
    Observation,
    Outcome,
    Splitter,
    Task,
    ToolSpec,
    act,
    ask,
)
from plait.core.output import FINAL_ANSWER, is_object
from plait.loops.json.format import ARGUMENTS, ASK_USER, FAIL_TASK, JsonTurn, argument_of
from plait.loops.registry import CheckedOptions
from plait.loops.transcript import TranscriptKind
from plait.loops.turn import TurnLoop


@dataclass(frozen=True)
class JsonReAct(CheckedOptions):
    """JSON ReAct.

    `lenient`: also read objects with fences, text around them, trailing commas or Python literals. `transcript`: how
    the log is shown: as chat messages, inside one user message, or as one raw completion. `constrain`: send the JSON
    schema of a turn with every request (otherwise only with a second attempt). `max_parse_errors`: unreadable replies
    in a row before the run fails. `max_tokens`: limit for one reply.
    """

    lenient: bool = True
    transcript: TranscriptKind = "chat"
    constrain: bool = False
    max_parse_errors: int = 3
    max_tokens: int | None = None

    name: ClassVar[str] = "json"
    phases: ClassVar[tuple[str, ...]] = ("act",)
    shared_prompts: ClassVar[tuple[str, ...]] = ("compaction", "transcript")
    reserved: ClassVar[tuple[str, ...]] = tuple(ARGUMENTS)
    reply_words: ClassVar[tuple[str, ...]] = ("JSON", "tool_input")

    def run(self, task: Task, context: LoopContext) -> LoopRun:
        tools = (*context.tools, *_built_in_tools(context))
        form = JsonTurn(lenient=self.lenient, can_ask=context.can_ask)
        words = {
            "described": form.describe(tools),
            "names": ", ".join(map(attrgetter("name"), tools)),
            "can_ask": context.can_ask,
            "wrapped": context.output is not None and not is_object(context.output.schema),
        }
        turns = TurnLoop(
            form,
            tools,
            words,
            transcript=self.transcript,
            constrain=self.constrain,
            max_parse_errors=self.max_parse_errors,
            max_tokens=self.max_tokens,
            observe=lambda tool, text, n: context.prompt("result", tool=tool, text=text),
            ends_with_object=True,
            takes_plain_answer=self.lenient,
            answer_place="the tool_input of final_answer",
            answer_of=lambda answer: answer if context.output is not None else argument_of(FINAL_ANSWER, answer),
            call_tool=partial(_call_tool, context),
        )
        return turns.run(task, context)

    def splitter(self, phase: str) -> Splitter:
        return JsonTurn(lenient=self.lenient).stream()


def _built_in_tools(context: LoopContext) -> tuple[ToolSpec, ...]:
    known = set(map(attrgetter("name"), context.tools))
    tools: list[ToolSpec] = []
    for name in (ASK_USER, FINAL_ANSWER, FAIL_TASK):
        if name not in known and (context.can_ask or name != ASK_USER):
            kind = {} if name == FINAL_ANSWER else {"type": "string"}
            schema = {"type": "object", "properties": {ARGUMENTS[name]: kind}, "required": [ARGUMENTS[name]]}
            if name == FINAL_ANSWER and context.output is not None:
                schema = context.output.request_schema
            tools.append(ToolSpec(name, context.prompt(name).strip(), schema))
    return tuple(tools)


def _call_tool(context: LoopContext, call: Call) -> Effects[Observation | Outcome]:
    """Call a tool, or a built-in one. The message for an unknown tool also lists the built-in ones."""
    if call.tool == FAIL_TASK:
        return Failed(_words(argument_of(FAIL_TASK, call.input)))
    if call.tool == ASK_USER and context.can_ask:
        return Observation((yield from ask(_words(argument_of(ASK_USER, call.input)))))
    (seen,) = yield from act(call)
    if seen.trouble != "unknown_tool":
        return seen
    others = "ask_user, final_answer and fail_task" if context.can_ask else "final_answer and fail_task"
    return structs.replace(seen, text=f"{seen.text} Always there: {others}.")


def _words(value: JSON) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)
