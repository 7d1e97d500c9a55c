"""LLMCompiler: a plan of numbered calls, carried out while it is being written, then joined.

After Kim et al. 2023 (arXiv:2312.04511): a planner writes calls that name each other's results (`$1`); each call starts
as soon as it is written and its inputs are there; when the plan is done a joiner answers, or says what a
further plan has to find out.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, cast

from plait.core import (
    Answered,
    Effect,
    Failed,
    LimitNear,
    LoopContext,
    LoopRun,
    Message,
    Outcome,
    Plan,
    Reply,
    Splitter,
    Stopped,
    Task,
    Think,
    assistant,
    note,
    propose,
    start,
    take,
    think,
    user,
)
from plait.loops.compiler.format import NumberedCalls
from plait.loops.compiler.joiner import Joiner, Verdict
from plait.loops.compiler.pages import Pages, Round
from plait.loops.compiler.reader import JOIN
from plait.loops.compiler.streamed_plan import Written
from plait.loops.fallback import fall_back
from plait.loops.format import Unreadable
from plait.loops.offered_tools import offered, searched
from plait.loops.plan import with_leave
from plait.loops.references import RESULTS
from plait.loops.registry import check_options
from plait.loops.transcript import with_repair
from plait.loops.turn import Bad, fitting, read_turn

FORM, JOINER = NumberedCalls(), Joiner()


@dataclass(frozen=True)
class LLMCompiler:
    """LLMCompiler.

    `replans`: how many further plans the joiner may ask for. `fallback`: the loop to go on with when the first plan
    has no call; "" fails instead. `constrain`: hand the endpoint the grammars (at a second try it is in any case).
    `max_parse_errors`: plans without a call, or replies of the joiner that can't be read, in a row. `max_calls`: of
    one plan; those beyond are not made. `max_tokens`: of one reply.
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
    tool_names: ClassVar[str] = "call"

    def __post_init__(self) -> None:
        check_options(self)

    def run(self, task: Task, kit: LoopContext) -> LoopRun:
        """The loop."""
        pages, rounds, chars = Pages(task, kit), list[Round](), kit.observation_chars
        try:
            while True:
                rounds.append(self._round(kit, rounds, task.question))
                done, chars = yield from fitting(partial(self._plan, kit, pages, rounds), chars)
                work = rounds[-1].work
                if (done and work.steps) or (done and len(rounds) == 1 and not self.fallback):
                    return done  # type: ignore[no-any-return]
                if done and len(rounds) == 1:
                    return (yield from fall_back(self.fallback, task, kit, f"There is no plan. {done.reason}"))
                yield from work.finish()
                last = len(rounds) > self.replans or (len(rounds) > 1 and not work.steps)
                verdict, chars = yield from fitting(partial(self._join, kit, pages, rounds, last), chars)
                if isinstance(verdict, Failed):
                    return verdict
                missing = verdict.text
                if verdict.kind == "finish":
                    if not (missing := (yield from propose(verdict.text))):
                        return Answered(verdict.text)
                    if last:
                        return Failed(missing)
                yield from note("replan", missing)
                rounds[-1].missing = missing
        except LimitNear as limit:
            # The call kept in reserve: one, whatever comes of it.
            reason = limit.detail

            def conclude(size: int) -> Generator[Effect, Any, Reply]:
                asked = pages.conclude(rounds, size, reason)
                return cast(Reply, (yield Think("join", asked, max_tokens=self.max_tokens, repair=True)))

            reply, _ = yield from fitting(conclude, chars)
            return Stopped(limit.limit, limit.detail, _last_words(reply.text))

    def splitter(self, phase: str) -> Splitter:
        """Tells the parts of a reply apart."""
        return FORM.splitter() if phase == "plan" else JOINER.splitter()

    # -- plan

    def _plan(
        self, kit: LoopContext, pages: Pages, rounds: list[Round], chars: int
    ) -> Generator[Effect, Any, Failed | None]:
        """A plan whose calls are under way, or why there is none."""
        head = pages.plan(rounds[:-1], chars)
        made = yield from self._planner(kit, rounds, head, pages.question)
        if made or not kit.approve_plan or not rounds[-1].work.plan.calls:
            return made
        said: list[Message] = []

        def replan(plan: Plan, words: str) -> Generator[Effect, Any, Plan | Outcome]:
            said.extend((assistant(FORM.show(plan)), user(kit.prompt("feedback", words=words))))
            failed = yield from self._planner(kit, rounds, (*head, *said), pages.question)
            return failed or rounds[-1].work.plan

        read = partial(_read_plan, kit, rounds)
        plan = yield from with_leave(rounds[-1].work.plan, FORM.show, _reads_as_plan, read, replan)
        if not isinstance(plan, Plan):
            return cast(Failed, plan)
        yield from rounds[-1].work.go(plan)
        return None

    def _planner(
        self, kit: LoopContext, rounds: list[Round], head: tuple[Message, ...], question: str
    ) -> Generator[Effect, Any, Failed | None]:
        """Ask for a plan; begin its calls while it is written, unless a person has to see it first."""
        bad: Bad | None = None
        rounds[-1] = self._round(kit, rounds[:-1], question)
        work = rounds[-1].work
        for miss in range(1, self.max_parse_errors + 1):
            if bad:
                work.restart()
            tail = with_repair(bad[0], kit.prompt("repair", complaint=bad[1])) if bad else ()
            grammar = FORM.grammar(offered(kit, _results(rounds)), self.max_calls) if self.constrain or bad else None
            asked = Think(
                "plan",
                (*head, *tail),
                stop=(f"\n{work.next + self.max_calls + 1}. ",),
                grammar=grammar,
                max_tokens=self.max_tokens,
                repair=bool(bad),
                watch=True,
            )
            reply = yield from _written(asked, work)
            if reply.how_cut:
                yield from note("cut", f"The plan {reply.how_cut}: the calls that are complete are made.")
            there_is_a_plan = bool(work.steps) or work.reader.ended
            if there_is_a_plan and (not work.faults or miss == self.max_parse_errors or reply.how_cut):
                yield from work.release()
                return None
            if there_is_a_plan:
                said = "; ".join(work.faults)
                yield from note("unreadable", f"plan {miss} of {self.max_parse_errors} can't be carried out: {said}")
                bad = (reply.text, (yield from searched(kit, said)))
            else:
                bad = (reply.text, "; ".join(work.faults) or "there is no call in it and no join()")
                yield from note("unreadable", f"plan {miss} of {self.max_parse_errors} has no call")
        return Failed(f"{self.max_parse_errors} plans in a row had no call.", kind="format")

    def _round(self, kit: LoopContext, before: list[Round], question: str) -> Round:
        """The next round: its calls may name the results of those before."""
        earlier = {id: step for round in before for id, step in round.work.steps.items()}
        results = before[-1].work.results if before else {}
        return Round(
            Written(kit.known, earlier, results, held=kit.approve_plan, most=self.max_calls, question=question)
        )

    # -- join

    def _join(
        self, kit: LoopContext, pages: Pages, rounds: list[Round], last: bool, chars: int
    ) -> Generator[Effect, Any, Verdict | Failed]:
        """The joiner's decision; when the plan was the `last`, an answer or why there is none."""
        missing = ""

        def ask(bad: Bad | None) -> Generator[Effect, Any, Reply]:
            tail = with_repair(bad[0], kit.prompt("join_repair", complaint=bad[1], last=last)) if bad else ()
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


def _written(asked: Think, work: Written) -> Generator[Effect, Any, Reply]:
    """The planner's reply. Its pieces and the results of its calls are taken in the order they come."""
    (ticket,) = yield from start(asked)
    while True:
        taken = yield from take()
        if taken.ticket == ticket and taken.reply is not None:
            yield from work.whole(taken.reply.text)
            return taken.reply
        if taken.ticket == ticket:
            yield from work.more(taken.piece, again=taken.again)
        elif work.mine(taken):
            yield from work.took(taken)


def _results(rounds: list[Round]) -> Iterator[str]:
    return (seen.text for round in rounds for seen in round.work.results.values())


def _reads_as_plan(text: str) -> bool:
    return bool(FORM.reader().feed(text + "\n"))


def _read_plan(kit: LoopContext, rounds: list[Round], text: str) -> Plan:
    """A plan that a person gave. Raises `Unreadable` for one that can't be carried out."""
    plan, remarks = FORM.read(text, kit.known)
    if lost := [remark.text for remark in remarks if remark.kind == "cut"]:
        raise Unreadable(f"This would not count: {'; '.join(lost)}.")
    before = tuple(step for round in rounds[:-1] for step in round.work.steps.values())
    if problems := Plan((*before, *plan.steps)).problems(kit.known, RESULTS.is_open):
        raise Unreadable(" ".join(problems))
    return plan


def _last_words(text: str) -> str | None:
    """The answer in the concluding reply; None when it decides nothing, or asks for more."""
    try:
        verdict = JOINER.read(text)
    except Unreadable:
        return None
    return verdict.text if verdict.kind == "finish" else None
