"""The endpoint's own tool calling, or the same loop over JSON in text if the endpoint has none.

Tools are sent as JSON schemas, and the model's calls come back beside its text. Several calls run concurrently, and
each result is a message of its own. A reply without calls is the answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from plait.core import (
    Answered,
    Call,
    Effects,
    Failed,
    LimitNear,
    LoopContext,
    LoopRun,
    Observation,
    Splitter,
    Task,
    Unsupported,
    act,
    note,
)
from plait.core.output import FINAL_ANSWER
from plait.loops.compaction import Compaction
from plait.loops.fallback import fall_back
from plait.loops.registry import CheckedOptions
from plait.loops.tool_calling.turns import (
    FORMAT,
    Log,
    NativeTurns,
    TextTurns,
    Turns,
    carry_over,
    describe_turn,
    takes_answer_by_tool,
)
from plait.loops.tool_descriptions import are_exclusive


@dataclass(frozen=True)
class ToolCalling(CheckedOptions):
    """Native tool calling.

    `fallback`: the loop to use if the endpoint has no native tools, or after `max_parse_errors` unreadable replies in a
    row. With "", the loop writes the calls in text, as JSON, for a model that is known to take no tools, and the run
    fails if the endpoint rejects tools. `max_parse_errors`: unreadable or empty replies in a row before that, or
    before the run fails. `max_tokens`: limit for one reply.
    """

    fallback: str = ""
    max_parse_errors: int = 3
    max_tokens: int | None = None

    name: ClassVar[str] = "tool_calling"
    phases: ClassVar[tuple[str, ...]] = ("act",)
    shared_prompts: ClassVar[tuple[str, ...]] = ("compaction",)
    reserved: ClassVar[tuple[str, ...]] = ("final_answer",)
    tool_names: ClassVar[str] = "wire"

    def run(self, task: Task, context: LoopContext) -> LoopRun:
        turns: Turns = NativeTurns(task, context, self.max_tokens)
        log: Log = ()
        compaction = Compaction(context, task.question, describe_turn)
        near: LimitNear | None = None
        while True:
            try:
                if near is not None:
                    return (yield from turns.conclude(near, log, compaction))
                turn = yield from compaction.ask(partial(turns.take_turn, self.max_parse_errors, log), log)
                if isinstance(turn, Failed):
                    if not self.fallback:
                        return turn
                    why = turn.reason
                    break
                if turn.answered:
                    return Answered(turn.answer)
                log = (*log, (turn, (yield from _make_calls(context, turn.calls))))
            except LimitNear as limit:
                near = limit
            except Unsupported as lacking:
                why = lacking.message
                if lacking.said and not self.fallback:
                    raise  # the endpoint rejects what this loop is for
                if self.fallback and near is None:
                    break
                yield from note("calls_as_text", f"{why}. Going on with calls as JSON in text.")
                turns = TextTurns(task, context, self.max_tokens, turns.rejected)
        return (yield from fall_back(self.fallback, carry_over(task, context, log), context, f"{why.rstrip('.')}."))

    def splitter(self, phase: str) -> Splitter:
        return FORMAT.stream()


def _make_calls(context: LoopContext, calls: tuple[Call, ...]) -> Effects[tuple[Observation, ...]]:
    """Make the calls concurrently; of tools that do the same job, only the first one."""
    refused: dict[int, Observation] = {}
    for i, call in enumerate(calls):
        if takes_answer_by_tool(context) and call.tool == FINAL_ANSWER:
            refused[i] = Observation(context.prompt("too_early", tool=FINAL_ANSWER).strip(), trouble="refused")
            continue
        made = [each.tool for j, each in enumerate(calls[:i]) if j not in refused]
        if other := next((tool for tool in made if are_exclusive(context.known_tools, tool, call.tool)), ""):
            said = context.prompt("excluded", tool=call.tool, other=other).strip()
            refused[i] = Observation(said, trouble="refused")
            yield from note("refused", f"The call of {call.tool} is not made: {other} does the same job.")
    seen = iter((yield from act(*(call for i, call in enumerate(calls) if i not in refused))))
    return tuple(refused[i] if i in refused else next(seen) for i in range(len(calls)))
