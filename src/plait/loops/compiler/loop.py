"""LLMCompiler: a plan of numbered calls that runs while it is being written, then a joiner.

After Kim et al. 2023 (arXiv:2312.04511). A planner writes calls that name each other's results (`$1`). Each call starts
as soon as it is written and its inputs exist. When it is done, a joiner answers, or says what is missing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, cast

from msgspec import structs

from plait.core import (
    Answered,
    Effects,
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
    ask_for_rest,
    assistant,
    check_answer,
    continue_turn,
    is_going_round,
    join_replies,
    note,
    start,
    think,
    user,
    wait_next,
)
from plait.loops.asking import BadReply, Rejected, ask_until_read, is_typed_answer, read_reply
from plait.loops.compaction import fit_prompt
from plait.loops.compiler.format import FORM
from plait.loops.compiler.joiner import JOINER, Joiner, Verdict
from plait.loops.compiler.pages import Pages, Round
from plait.loops.compiler.reader import JOIN
from plait.loops.compiler.streamed_plan import StreamedPlan
from plait.loops.fallback import fall_back
from plait.loops.format import Unreadable
from plait.loops.plan import ask_approval
from plait.loops.references import RESULTS
from plait.loops.registry import CheckedOptions
from plait.loops.tool_descriptions import add_search_results, offered_tools


@dataclass(frozen=True)
class LLMCompiler(CheckedOptions):
    """LLMCompiler: calls start while the plan is still being written.

    `replans`: how many further plans the joiner may request. `fallback`: the loop to use if the first plan has no call;
    "": fail instead. `constrain`: send the grammars with every request (otherwise only with a second attempt).
    `max_parse_errors`: plans without a call, or unreadable replies of the joiner, in a row. `max_plan_steps`: maximum
    steps of a plan. `max_tokens`: limit for one reply.
    """

    replans: int = 2
    fallback: str = "react"
    constrain: bool = False
    max_parse_errors: int = 2
    max_plan_steps: int = 20
    max_tokens: int | None = None

    name: ClassVar[str] = "compiler"
    phases: ClassVar[tuple[str, ...]] = ("plan", "join")
    shared_prompts: ClassVar[tuple[str, ...]] = ("plan",)
    links_calls: ClassVar[bool] = True
    reserved: ClassVar[tuple[str, ...]] = (JOIN,)
    reply_words: ClassVar[tuple[str, ...]] = ("join()", "$1")
    tool_names: ClassVar[str] = "call"
    makes_plan: ClassVar[bool] = True

    def run(self, task: Task, context: LoopContext) -> LoopRun:
        pages, rounds, chars = Pages(task, context), list[Round](), context.observation_chars
        try:
            while True:
                first = not rounds
                earlier = {id: step for round in rounds for id, step in round.work.steps.items()}
                results = rounds[-1].work.results if rounds else {}
                options: dict[str, Any] = {
                    "held": context.approve_plan,
                    "most": self.max_plan_steps,
                    "question": task.question,
                }
                work = StreamedPlan(context.known_tools, earlier, results, **options)
                rounds.append(Round(work))
                failed, chars = yield from fit_prompt(partial(self._make_plan, context, pages, rounds), chars)
                if failed and (work.steps or (first and not self.fallback)):
                    return cast(Failed, failed)
                if failed and first:
                    return (yield from fall_back(self.fallback, task, context, f"There is no plan. {failed.reason}"))
                yield from work.finish()
                last = len(rounds) > self.replans or not (first or work.steps)
                verdict, chars = yield from fit_prompt(partial(self._ask_joiner, context, pages, rounds, last), chars)
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
            answer, _ = yield from fit_prompt(partial(self._conclude, pages, rounds, limit.detail), chars)
            return Stopped(limit.limit, limit.detail, answer)

    def splitter(self, phase: str) -> Splitter:
        return FORM.stream() if phase == "plan" else JOINER.stream()

    def _make_plan(self, context: LoopContext, pages: Pages, rounds: list[Round], chars: int) -> Effects[Failed | None]:
        """Make a plan and start its calls; return why there is none, or None."""
        head = pages.plan(rounds[:-1], chars)
        made = yield from self._ask_planner(context, rounds, head)
        if made or not context.approve_plan or not rounds[-1].work.plan.calls:
            return made
        said: list[Message] = []

        def replan(plan: Plan, words: str) -> Effects[Plan | Outcome]:
            said.extend((assistant(FORM.show(plan)), user(context.prompt("feedback", words=words))))
            failed = yield from self._ask_planner(context, rounds, (*head, *said))
            return failed or rounds[-1].work.plan

        def read(text: str) -> Plan:
            plan, remarks = FORM.read(text, tools=context.known_tools)
            if lost := [remark.text for remark in remarks if remark.kind == "cut"]:
                raise Unreadable(f"This would not count: {'; '.join(lost)}.")
            before = tuple(step for round in rounds[:-1] for step in round.work.steps.values())
            if problems := Plan((*before, *plan.steps)).problems(context.known_tools, RESULTS.is_open):
                raise Unreadable(" ".join(problems))
            return plan

        def is_plan(text: str) -> bool:
            return bool(FORM.reader().feed(text + "\n"))

        plan = yield from ask_approval(rounds[-1].work.plan, FORM.show, is_plan, read, replan)
        if not isinstance(plan, Plan):
            return cast(Failed, plan)
        yield from rounds[-1].work.start_plan(plan)
        return None

    def _ask_planner(
        self, context: LoopContext, rounds: list[Round], head: tuple[Message, ...]
    ) -> Effects[Failed | None]:
        """Request a plan; start its calls while it is written, unless the user has to see it first."""
        most, work = self.max_parse_errors, rounds[-1].work
        work.restart()

        def ask(bad: BadReply | None) -> Effects[Reply]:
            if bad:
                work.restart()
            tail = bad.ask_again(context.prompt("repair", complaint=bad.complaint)) if bad else ()
            held = self.constrain or bool(bad)
            seen = (each.with_note for round in rounds for each in round.work.results.values())
            asked = Think(
                "plan",
                (*head, *tail),
                stop=(f"\n{work.next + self.max_plan_steps + 1}. ",),
                grammar=FORM.grammar(offered_tools(context, seen), most=self.max_plan_steps) if held else None,
                max_tokens=self.max_tokens,
                repair=bool(bad),
                resample=bool(bad and bad.resample),
                watch=True,
            )
            return (yield from _stream_plan(asked, work))

        def read(reply: Reply, miss: int) -> Effects[None]:
            faults = "; ".join(work.faults)
            if not work.steps and not work.reader.ended:
                yield from note("unreadable", f"plan {miss} of {most} has no call")
                raise Rejected(faults or reply.only_reasoning or "there is no call in it and no join()")
            if work.faults and miss < most:
                yield from note("unreadable", f"plan {miss} of {most} can't be carried out: {faults}")
                raise Rejected((yield from add_search_results(context, faults)))
            if reply.how_cut:
                yield from note("cut", f"The plan {reply.how_cut}: the calls that are complete are made.")
            yield from work.release()

        def describe_failure(bad: BadReply) -> str:
            return f"{most} plans in a row had no call. {bad.reply.only_reasoning}".rstrip()

        return (yield from ask_until_read(ask, read, most, failure=describe_failure))

    def _ask_joiner(
        self, context: LoopContext, pages: Pages, rounds: list[Round], last: bool, chars: int
    ) -> Effects[Verdict | Failed]:
        """Return the joiner's decision; after the `last` plan, an answer or why there is none."""
        missing = ""

        def ask(unfit: BadReply | None, bad: BadReply | None) -> Effects[Reply]:
            tail = unfit.ask_again(unfit.complaint) if unfit else ()
            if bad:
                tail += bad.ask_again(context.prompt("join_repair", complaint=bad.complaint, last=last))
            grammar = Joiner(last).grammar() if self.constrain or bad else None
            messages = (*pages.join(rounds, chars, last=last), *tail)
            warmer = any(each is not None and each.resample for each in (bad, unfit))
            options: dict[str, Any] = {"max_tokens": self.max_tokens, "repair": bool(tail), "resample": warmer}
            return think("join", messages, grammar=grammar, is_answer=partial(is_typed_answer, context), **options)

        def read(text: str) -> Verdict:
            nonlocal missing
            verdict = JOINER.read(text)
            if last and verdict.kind == "replan":
                missing = verdict.text
                raise Unreadable("There will be no further plan. Finish with what the results say.")
            rounds[-1].said = text
            return verdict

        def ask_for_verdict(unfit: BadReply | None) -> Effects[Verdict | Failed]:
            return ask_until_read(partial(ask, unfit), partial(read_reply, read=read), self.max_parse_errors)

        def check(verdict: Verdict | Failed, miss: int) -> Effects[Verdict | Failed]:
            if isinstance(verdict, Failed) or verdict.kind == "replan":
                return verdict
            if against := (yield from check_answer(verdict.text, only_output=True)):
                raise Rejected(against, rounds[-1].said, counts=False)
            return verdict

        # An answer that does not fit the output is asked for again, with as many tries at a decision as the first one.
        verdict = yield from ask_until_read(ask_for_verdict, check)
        if missing and isinstance(verdict, Failed):
            return Failed(f"No further plan was allowed, and this was still missing: {missing}")
        return verdict

    def _conclude(self, pages: Pages, rounds: list[Round], reason: str, chars: int) -> Effects[str | None]:
        """Return the answer when one model call is left; None if the joiner decides nothing, or asks for more."""
        messages = pages.conclude(rounds, chars, reason)
        reply: Reply = yield Think("join", messages, max_tokens=self.max_tokens, repair=True)
        try:
            verdict = JOINER.read(reply.text)
        except Unreadable:
            return None
        return verdict.text if verdict.kind == "finish" else None


def _stream_plan(asked: Think, work: StreamedPlan) -> Effects[Reply]:
    """Return the planner's reply; process its pieces and the results of its calls in the order they arrive. The rest of
    a plan that was cut is requested once."""
    first: Reply | None = None
    (ticket,) = yield from start(asked)
    while True:
        taken = yield from wait_next()
        if taken.ticket == ticket and taken.reply is not None:
            reply = yield from continue_turn(asked, taken.reply)
            reply = join_replies(first, reply) if first is not None else reply
            rest = ask_for_rest(asked, reply)
            if first is not None or rest is None or work.reader.ended or is_going_round(reply.text):
                yield from work.read_whole(reply.text)
                return reply
            first = reply
            (ticket,) = yield from start(structs.replace(rest, watch=False))
        elif taken.ticket == ticket:
            yield from work.read_piece(taken.piece, again=taken.again)
        elif taken.ticket in work.open:
            yield from work.end_with(taken)
