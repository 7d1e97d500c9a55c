"""The rules of guards (docs/architecture.md) about limits and child runs.

Each test is named after its rule. The rules of the chain itself are in test_guard_chain.py.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec import structs

import plait
from core_runs import (
    DELEGATE,
    HELP,
    LOOK,
    PAY,
    RUN,
    WORLD,
    Disk,
    Steps,
    Tried,
    agent_of,
    asks_model,
    calls,
    child_of,
    did,
    each_point,
    payer,
    texts,
    tried,
    with_child,
)
from plait.core import Call, LimitNear, LoopRun, Think
from plait.core.effects import Act, Start, WaitNext, ask
from plait.journal.records import IntentRecord, ResultRecord
from plait.runtime.guard import Attempt, Entry, Guard, StartChild


@pytest.fixture(autouse=True)
def _empty_world() -> None:
    WORLD.clear()


def thinks(question: str) -> LoopRun:
    """The loop of a child run that asks its model three times."""
    for n in range(3):
        yield asks_model(f"{question}{n}")
    return "done"  # type: ignore[return-value]


def requests_of(disk: Disk) -> list[Any]:
    return [each.asked for run in disk.runs for each in disk.records(run, IntentRecord) if each.work == "request"]


# -- limits


def test_limits_guard_each_attempt_and_may_shorten_the_reply_which_encodes_again() -> None:
    def walk() -> LoopRun:
        return (yield asks_model("q")).text  # type: ignore[return-value]

    run = tried(walk, limits=plait.Limits(tokens=100))
    assert run.go().answer == "x"
    request, body = requests_of(run.disk)[0], run.disk.rows()[0].body
    assert 0 < request.max_tokens < 100 and str(request.max_tokens).encode() in (body or b"")
    assert run.replay().requests == 1


def test_a_started_effect_cannot_use_the_reserved_model_call() -> None:
    def walk() -> LoopRun:
        yield Start((asks_model("a"), asks_model("b")))
        found: list[str] = []
        for _ in range(2):
            try:
                taken = yield WaitNext()
                found.append(taken.reply.text)
            except LimitNear as why:
                found.append(why.limit)
        found.append((yield asks_model("c")).text)  # this is the reserved one
        return found  # type: ignore[return-value]

    run = tried(walk, limits=plait.Limits(calls=2))
    ended = run.go()
    assert ended.status == "stopped" and sorted(ended.answer) == ["calls", "x", "x"]
    assert len(requests_of(run.disk)) == 2 and run.replay().whole


def test_limits_follow_the_record_after_every_kill_also_of_attempts_and_children() -> None:
    def walk() -> LoopRun:
        yield asks_model("q")
        return texts((yield Act((HELP, PAY))))  # type: ignore[return-value]

    for run, _ in each_point(lambda: with_child(walk, thinks, limits=plait.Limits(calls=20, children=2))):
        run.finish()
        totals = run.disk.runs[RUN].totals
        assert totals["tree"]["requests"] == run.count_requests(), totals
        assert totals["tree"]["runs"] == 2
        assert run.replay().whole


def test_totals_count_the_tool_calls_of_the_tree_after_every_kill() -> None:
    def child(question: str) -> LoopRun:
        return texts((yield Act((LOOK, PAY))))  # type: ignore[return-value]

    for run, _ in each_point(lambda: with_child(calls(HELP, LOOK), child)):
        run.finish()
        begun = [(id, each) for id, each in run.tool_calls().items() if each.begun]
        totals = run.disk.runs[RUN].totals
        assert totals["tree"]["tool_calls"] == len(begun) == 4
        assert totals["tool_calls"] == sum(name == RUN for (name, _), _ in begun) == 2


def test_a_resumed_run_counts_an_unfinished_child_before_it_admits_anything() -> None:
    """The child has used what the limit allows. The call that waited is admitted again before the walk comes to it."""
    admitted: list[str] = []

    class Watches(Guard):
        points = (StartChild,)

        async def before(self, entry: Entry) -> Any:
            admitted.append(entry.run)
            return entry.effect

    def child(question: str) -> LoopRun:
        if question == "who?":
            return (yield from ask("Which Ann?"))  # type: ignore[return-value]
        return "done"  # type: ignore[return-value]

    other = Call("delegate", {"question": "other"})
    limits = plait.Limits(children=1)
    run = with_child(calls(other, HELP), child, Watches, limits=limits, approve=lambda call: call.tool == "delegate")
    run.go()
    assert len(run.disk.runs) == 2, "the child that asks has begun"
    assert run.go("yes").status == "waiting"
    assert len(run.disk.runs) == 2 and len(admitted) == 1
    assert run.go("Ann B.").answer == ["raised", "Ann B."]


def test_recorded_work_is_told_before_the_walk_and_telling_it_twice_changes_nothing() -> None:
    told: list[tuple[str, tuple[str, str]]] = []

    class Watches(Guard):
        points = (Call,)

        async def before(self, entry: Entry) -> Any:
            told.append(("before", entry.id))
            return entry.effect

        async def after(self, entry: Entry, result: Any, fresh: bool) -> Any:
            told.append(("after", entry.id))
            return result

        def recall(self, entry: Entry, result: Any) -> None:
            told.append(("recall", entry.id))

    def walk() -> LoopRun:
        yield Act((LOOK,))
        return texts((yield Act((PAY, LOOK))))  # type: ignore[return-value]

    run = tried(walk, Watches, approve="effects")
    run.go()
    told.clear()
    run.go("yes")
    assert told[:2] == [("recall", (RUN, "0.0")), ("recall", (RUN, "1.1"))]
    assert told.index(("before", (RUN, "1.0"))) > 1


class Knows(Guard):
    """Notes which entries it has heard of. It holds for child runs, too."""

    points = (Think, Attempt, Call, StartChild)
    known: set[tuple[str, str]]
    on_record: frozenset[tuple[str, str]] = frozenset()
    """What must be known before anything new is admitted."""

    def start(self, context: Any) -> Guard:
        self.known = set()
        return self

    async def before(self, entry: Entry) -> Any:
        assert self.on_record <= self.known, f"{entry.id} is admitted, and unknown is {self.on_record - self.known}"
        self.known.add(entry.id)
        return entry.effect

    def recall(self, entry: Entry, result: Any) -> None:
        self.known.add(entry.id)


def test_a_guard_of_the_tree_knows_all_recorded_work_of_child_runs_before_anything_new_is_admitted() -> None:
    """After each kill, also those in the middle of the second child, when the first has ended."""

    def child(question: str) -> LoopRun:
        yield asks_model(question)
        yield Act((LOOK, Call("pay", {"amount": len(question)})))
        return (yield asks_model(f"{question}?")).text  # type: ignore[return-value]

    def walk() -> LoopRun:
        yield Act((HELP,))
        return texts((yield Act((LOOK, Call("helper", {"question": "and who?"})))))  # type: ignore[return-value]

    begun = 0
    for run, is_dead in each_point(lambda: with_child(walk, child, Knows)):
        on_record = frozenset(
            (name, each.key)
            for name in run.disk.runs
            for each in run.disk.records(name, IntentRecord | ResultRecord)  # type: ignore[arg-type]
            if each.work in ("request", "think", "call", "child")
        )
        begun += is_dead and len(run.disk.runs) == 3

        def make(on_record: frozenset[tuple[str, str]] = on_record) -> Knows:
            guard = Knows()
            guard.on_record = on_record
            return guard

        run.make_guards = lambda make=make: [make()]  # type: ignore[misc]
        assert run.finish().answer == ["522250", "x"]
    assert begun > 5


def test_an_answer_to_a_child_that_was_interrupted_loses_nothing_of_what_it_used() -> None:
    def child(question: str) -> LoopRun:
        yield asks_model("q")
        return texts((yield Act((PAY,))))  # type: ignore[return-value]

    def make() -> Tried:
        limits = plait.Limits(calls=9)
        return with_child(calls(DELEGATE), child, limits=limits, approve=lambda call: call.tool == "pay")

    answered = 0
    for run, _ in each_point(make):
        for point in range(1, 20):  # the next process dies right after it has recorded the answer, or later
            other = Tried(run.make_agent, run.make_guards, run.disk.copy())
            if not other.questions or not other.die(point, "yes"):
                break
            assert other.finish(["yes"]).answer in (["in_doubt"], ["raised"])
            answered += 1
            assert other.disk.runs[RUN].totals["tree"]["requests"] == other.count_requests()
    assert answered


def test_a_child_whose_start_is_on_record_counts_before_the_walk_comes_to_it() -> None:
    """The second call was quick to start its child, and died before the child's first row. Now the first is quick."""
    slow = 0

    def make() -> Tried:
        def make_agent() -> plait.Agent[Any]:
            child = agent_of(Steps(thinks, asks=True))

            @plait.tool(read_only=True)
            async def helper(ctx: plait.Context[Any], number: int) -> str:
                """Have it done."""
                for _ in range(50 if number == slow else 0):
                    await asyncio.sleep(0)
                return str((await ctx.arun(child, f"{number}")).answer)

            acts = calls(Call("helper", {"number": 0}), Call("helper", {"number": 1}))
            return agent_of(acts, tools=[helper], limits=plait.Limits(children=1))

        return Tried(make_agent)

    for run, _ in each_point(make):
        slow = 1
        assert sorted(run.finish().answer) == ["done", "raised"]
        assert len(run.disk.runs) == 2
        slow = 0


def test_parallel_children_cannot_exceed_a_limit_of_their_parent() -> None:
    acts = calls(*(Call("helper", {"question": f"{n}?"}) for n in range(5)))
    run = with_child(acts, thinks, limits=plait.Limits(calls=6))
    run.pause = lambda: 1
    run.go()
    assert run.count_requests() <= 6 and run.replay().whole


# -- child runs


def test_a_child_obeys_the_approvals_of_its_parent() -> None:
    run = with_child(calls(HELP), payer, approve="effects")
    assert run.go().status == "waiting" and not did()
    assert [(each.run, each.guard) for each in run.questions] == [(child_of(run.disk), "approvals")]
    run.go("yes")
    assert did() == ["5 to Ann"]


def test_a_child_obeys_the_taint_of_its_parent() -> None:
    def walk() -> LoopRun:
        yield Act((Call("browse", {"page": "x"}),))
        return texts((yield Act((HELP,))))  # type: ignore[return-value]

    run = with_child(walk, payer, taint="ask")
    assert run.go().status == "waiting" and not did()
    assert "outside" in str(run.questions[0].text)


class Lowers(plait.Hook):
    """Lowers payments, in the run and below it."""

    def before_tool(self, context: Any, call: Call) -> Any:
        if call.tool == "pay":
            return structs.replace(call, input={**call.input, "amount": 1})
        return None

    def before_answer(self, context: Any, answer: Any) -> Any:
        return f"{answer}!"


def test_a_child_obeys_its_ancestors_hooks_on_calls_under_a_name_with_a_prefix_but_not_those_on_answers() -> None:
    def walk() -> LoopRun:
        return texts((yield Act((HELP,))))[0]  # type: ignore[return-value]

    run = with_child(walk, lambda question: "".join((yield from payer(question))), Lowers)
    answer = run.go().answer
    assert did() == ["1 to Ann"] and answer.count("!") == 1
    owners = [key for key in run.disk.keys(child_of(run.disk), ResultRecord) if "?" in key or "!" in key]
    assert owners == ["0.0?^Lowers"]
    assert run.replay().whole


def test_guards_of_one_name_are_joined_approvals_to_the_stricter() -> None:
    """The child's own approvals ask for nothing, those of its parent for everything; and the other way round."""
    for above, own in (("always", "never"), ("never", "always")):
        run = with_child(calls(HELP), payer, approve=above, child_settings={"approve": own})
        run.finish(["yes", "yes"])
        asked = [key for key in run.disk.keys(child_of(run.disk), IntentRecord) if "?" in key]
        assert asked == ["0.0?approvals"]


def test_an_ended_child_is_not_walked_again_and_its_end_carries_what_its_parents_guards_must_know() -> None:
    def child(question: str) -> LoopRun:
        walks.append(question)
        return texts((yield Act((Call("browse", {"page": "x"}),))))  # type: ignore[return-value]

    def walk() -> LoopRun:
        yield Act((HELP,))
        return texts((yield Act((PAY,))))  # type: ignore[return-value]

    walks: list[str] = []
    run = with_child(walk, child, taint="ask")
    assert run.go().status == "waiting" and len(walks) == 1
    end = next(each.value for each in run.disk.records(kind=ResultRecord) if each.work == "child")
    assert end.totals["guards"]["taint"]
    assert run.go().status == "waiting" and len(walks) == 1, "from the record"
    assert run.go("no").answer == ["refused"] and run.replay().whole
