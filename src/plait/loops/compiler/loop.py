"""LLMCompiler: a plan of numbered calls that runs while it is being written, then a joiner.

After Kim et al. 2023 (arXiv:2312.04511). A planner writes calls that name each other's results (`$1`). Each call starts
as soon as it is written and its inputs exist. When the plan is done, a joiner answers, or says what a further plan has
to find out.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar, cast

from plait.core import (
    Answered,
    Failed,
    LimitNear,
    LoopContext,
    LoopRun,
    Splitter,
    Stopped,
    Task,
    check_answer,
    note,
)
from plait.loops.compaction import fit_prompt
from plait.loops.compiler.format import FORM
from plait.loops.compiler.joiner import JOINER
from plait.loops.compiler.pages import Pages, Round
from plait.loops.compiler.reader import JOIN
from plait.loops.compiler.turns import ask_joiner, conclude, make_plan, next_round
from plait.loops.fallback import fall_back
from plait.loops.options import check_options
from plait.loops.registry import check_fallback


@dataclass(frozen=True)
class LLMCompiler:
    """LLMCompiler: calls start while the plan is still being written.

    `replans`: how many further plans the joiner may request. `fallback`: the loop to use if the first plan has no call;
    "": fail instead. `constrain`: send the grammars with every request (otherwise only with a second attempt).
    `max_parse_errors`: plans without a call, or unreadable replies of the joiner, in a row. `max_calls`: calls of one
    plan that run. `max_tokens`: limit for one reply.
    """

    replans: int = 2
    fallback: str = "react"
    constrain: bool = False
    max_parse_errors: int = 2
    max_calls: int = 20
    max_tokens: int | None = None

    name: ClassVar[str] = "compiler"
    phases: ClassVar[tuple[str, ...]] = ("plan", "join")
    reserved: ClassVar[tuple[str, ...]] = (JOIN,)
    reply_words: ClassVar[tuple[str, ...]] = ("join()", "$1")
    tool_names: ClassVar[str] = "call"
    makes_plan: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_options(self)
        check_fallback(self.fallback)

    def run(self, task: Task, context: LoopContext) -> LoopRun:
        pages, rounds, chars = Pages(task, context), list[Round](), context.observation_chars
        try:
            while True:
                first = not rounds
                rounds.append(next_round(self, context, rounds, task.question))
                failed, chars = yield from fit_prompt(partial(make_plan, self, context, pages, rounds), chars)
                work = rounds[-1].work
                if failed and (work.steps or (first and not self.fallback)):
                    return cast(Failed, failed)
                if failed and first:
                    return (yield from fall_back(self.fallback, task, context, f"There is no plan. {failed.reason}"))
                yield from work.finish()
                last = len(rounds) > self.replans or not (first or work.steps)
                verdict, chars = yield from fit_prompt(partial(ask_joiner, self, context, pages, rounds, last), chars)
                if isinstance(verdict, Failed):
                    return verdict
                missing = verdict.text
                if verdict.kind == "finish" and not (missing := (yield from check_answer(verdict.text))):
                    return Answered(verdict.text)
                if last:
                    return Failed(missing)
                yield from note("replan", missing)
                rounds[-1].missing = missing
        except LimitNear as limit:
            answer, _ = yield from fit_prompt(partial(conclude, self, pages, rounds, limit.detail), chars)
            return Stopped(limit.limit, limit.detail, answer)

    def splitter(self, phase: str) -> Splitter:
        return FORM.splitter() if phase == "plan" else JOINER.splitter()
