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
    Effects,
    Failed,
    LimitNear,
    LoopContext,
    LoopRun,
    Reply,
    Splitter,
    Stopped,
    Task,
    Think,
    check_answer,
    note,
    think,
)
from plait.loops.compiler.format import FORM
from plait.loops.compiler.joiner import JOINER, Verdict
from plait.loops.compiler.pages import Pages, Round
from plait.loops.compiler.planner import make_plan, next_round
from plait.loops.compiler.reader import JOIN
from plait.loops.fallback import fall_back
from plait.loops.format import Unreadable
from plait.loops.registry import check_options
from plait.loops.transcript import with_repair
from plait.loops.turn import Bad, fit_prompt, read_turn


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

    def run(self, task: Task, context: LoopContext) -> LoopRun:
        pages, rounds, chars = Pages(task, context), list[Round](), context.observation_chars
        try:
            while True:
                rounds.append(next_round(self, context, rounds, task.question))
                done, chars = yield from fit_prompt(partial(make_plan, self, context, pages, rounds), chars)
                work = rounds[-1].work
                if (done and work.steps) or (done and len(rounds) == 1 and not self.fallback):
                    return done  # type: ignore[no-any-return]
                if done and len(rounds) == 1:
                    return (yield from fall_back(self.fallback, task, context, f"There is no plan. {done.reason}"))
                yield from work.finish()
                last = len(rounds) > self.replans or (len(rounds) > 1 and not work.steps)
                verdict, chars = yield from fit_prompt(partial(self._join, context, pages, rounds, last), chars)
                if isinstance(verdict, Failed):
                    return verdict
                missing = verdict.text
                if verdict.kind == "finish":
                    if not (missing := (yield from check_answer(verdict.text))):
                        return Answered(verdict.text)
                    if last:
                        return Failed(missing)
                yield from note("replan", missing)
                rounds[-1].missing = missing
        except LimitNear as limit:
            # This is the reserved call: there is only one.
            reason = limit.detail

            def conclude(size: int) -> Effects[Reply]:
                asked = pages.conclude(rounds, size, reason)
                return cast(Reply, (yield Think("join", asked, max_tokens=self.max_tokens, repair=True)))

            reply, _ = yield from fit_prompt(conclude, chars)
            return Stopped(limit.limit, limit.detail, _last_words(reply.text))

    def splitter(self, phase: str) -> Splitter:
        return FORM.splitter() if phase == "plan" else JOINER.splitter()

    def _join(
        self, context: LoopContext, pages: Pages, rounds: list[Round], last: bool, chars: int
    ) -> Effects[Verdict | Failed]:
        """Return the joiner's decision; after the `last` plan, an answer or why there is none."""
        missing = ""

        def ask(bad: Bad | None) -> Effects[Reply]:
            tail = with_repair(bad[0], context.prompt("join_repair", complaint=bad[1], last=last)) if bad else ()
            messages = (*pages.join(rounds, chars, last=last), *tail)
            grammar = JOINER.grammar(last=last) if self.constrain or bad else None
            return think("join", messages, grammar=grammar, max_tokens=self.max_tokens, repair=bool(bad))

        def read(text: str) -> Verdict:
            nonlocal missing
            verdict = JOINER.read(text)
            if last and verdict.kind == "replan":
                missing = verdict.text
                raise Unreadable("There will be no further plan. Finish with what the results say.")
            rounds[-1].said = text
            return verdict

        verdict = yield from read_turn(ask, read, self.max_parse_errors)
        if missing and isinstance(verdict, Failed):
            return Failed(f"No further plan was allowed, and this was still missing: {missing}")
        return verdict


def _last_words(text: str) -> str | None:
    """Return the answer in the concluding reply; None if it decides nothing, or asks for more."""
    try:
        verdict = JOINER.read(text)
    except Unreadable:
        return None
    return verdict.text if verdict.kind == "finish" else None
