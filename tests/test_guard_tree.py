"""The rules of guards (docs/architecture.md) about child runs, limits, taint, answers and streams.

Each test is named after its rule. The rules of the chain itself are in test_guard_chain.py.
"""

from __future__ import annotations

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
    Process,
    Tried,
    asker,
    asks_model,
    calls,
    child_of,
    did,
    each_point,
    payer,
    texts,
    tried,
    until_limit,
    with_child,
)
from plait.core import Call, CheckAnswer, LimitNear, LoopRun, Observation, Think
from plait.core.effects import Act, Start, WaitNext, ask
from plait.journal.memory import MemoryLog
from plait.journal.records import Intent, Result, RunHead
from plait.runtime.chain import Chain
from plait.runtime.guard import AskApproval, Entry, Finish, Guard, StartChild
from plait.runtime.run_journal import RunJournal


@pytest.fixture(autouse=True)
def _empty_world() -> None:
    WORLD.clear()


def thinks(question: str) -> LoopRun:
    """The loop of a child run that asks its model three times."""
    for n in range(3):
        yield asks_model(f"{question}{n}")
    return "done"  # type: ignore[return-value]


def requests_of(disk: Disk) -> list[Any]:
    return [each.asked for run in disk.runs for each in disk.records(run, Intent) if each.work == "request"]


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
    owners = [key for key in run.disk.keys(child_of(run.disk), Result) if "?" in key or "!" in key]
    assert owners == ["0.0?^Lowers"]
    assert run.replay().whole


def test_guards_of_one_name_are_joined_approvals_to_the_stricter() -> None:
    """The child's own approvals ask for nothing, those of its parent for everything; and the other way round."""
    for above, own in (("always", "never"), ("never", "always")):
        run = with_child(calls(HELP), payer, approve=above, child_settings={"approve": own})
        run.finish(["yes", "yes"])
        asked = [key for key in run.disk.keys(child_of(run.disk), Intent) if "?" in key]
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
    end = next(each.value for each in run.disk.records(kind=Result) if each.work == "child")
    assert end.totals["guards"]["taint"]
    assert run.go().status == "waiting" and len(walks) == 1, "from the record"
    assert run.go("no").answer == ["refused"] and run.replay().whole


# -- what guards see


def test_an_entry_says_who_asks_for_it_and_how() -> None:
    seen: dict[str, Entry] = {}

    class Watches(Guard):
        points = (Call, Think, StartChild)

        async def before(self, entry: Entry) -> Any:
            seen[entry.key.partition(":")[0]] = structs_of(entry)
            return entry.effect

    def structs_of(entry: Entry) -> Any:
        return (type(entry.effect).__name__, entry.tool and entry.tool.name, entry.fixed, entry.started, entry.by_tool)

    def walk() -> LoopRun:
        yield Act((PAY,), fixed=True)
        yield Start((Act((LOOK,)), asks_model("q")))
        yield WaitNext()
        yield WaitNext()
        return None  # type: ignore[return-value]

    tried(walk, Watches).go()
    assert seen == {
        "0.0": ("Call", "pay", True, False, False),
        "2.0": ("Call", "look", False, True, False),
        "3": ("Think", None, False, True, False),
    }


def test_a_guard_acts_only_at_the_points_that_it_declares() -> None:
    seen: list[str] = []

    class Watches(Guard):
        points = (Think,)
        points_after = (Call,)

        async def before(self, entry: Entry) -> Any:
            seen.append(f"before {type(entry.effect).__name__}")
            return entry.effect

        async def after(self, entry: Entry, result: Any, fresh: bool) -> Any:
            seen.append(f"after {type(entry.effect).__name__}")
            return result

    def walk() -> LoopRun:
        yield asks_model("q")
        yield Act((LOOK,))
        return None  # type: ignore[return-value]

    tried(walk, Watches).go()
    assert "before Call" not in seen and [each for each in seen if each != "after Think"] == ["before Think", "after Call"]


@pytest.mark.parametrize(
    ("points", "holds_text", "holds"),
    [((Call,), True, False), ((Think,), True, True), ((Think,), False, False), ((CheckAnswer,), True, False)],
)
def test_the_text_of_a_reply_is_held_back_only_where_a_guard_looks_at_whole_replies(
    points: Any, holds_text: bool, holds: bool
) -> None:
    guard = type("G", (Guard,), {"points": (), "points_after": points, "holds_text": holds_text})()
    log = MemoryLog(RunHead(RUN, "q", {"name": "steps"}, {}))
    assert Chain([guard], RunJournal(log)).holds_text(Think) is holds


def test_only_approvals_asks_about_a_call_and_one_question_names_all_reasons() -> None:
    def walk() -> LoopRun:
        yield Act((Call("browse", {"page": "x"}),))
        return texts((yield Act((PAY,))))  # type: ignore[return-value]

    run = tried(walk, taint="ask", grounding="ask", approve="effects")
    run.go()
    run.go("yes")  # the page stands nowhere
    assert len(run.questions) == 1 and run.questions[0].guard == "approvals"
    text = run.questions[0].text
    assert "content from outside" in text and "amount: 5" in text
    assert run.go("yes").answer == ["paid 5"]


def test_a_planned_call_is_not_asked_about_because_of_what_came_later() -> None:
    def walk() -> LoopRun:
        yield Act((Call("browse", {"page": "x"}),))
        return texts((yield Act((PAY,), fixed=True)))  # type: ignore[return-value]

    assert tried(walk, taint="ask").go().answer == ["paid 5"]


def test_a_call_that_cannot_be_bound_passes_no_before_and_every_after_sees_the_raw_input() -> None:
    seen: list[Any] = []

    class Watches(Guard):
        points = (Call,)

        async def before(self, entry: Entry) -> Any:
            seen.append("before")
            return entry.effect

        async def after(self, entry: Entry, result: Any, fresh: bool) -> Any:
            seen.append(entry.effect.input)
            return result

    tried(calls(Call("pay", {"amount": "much"})), Watches).go()
    assert seen == [{"amount": "much"}]


# -- answers


def test_a_changed_answer_replaces_the_runs_answer() -> None:
    def walk() -> LoopRun:
        yield CheckAnswer("x")
        return "x"  # type: ignore[return-value]

    for run, _ in each_point(lambda: tried(walk, Lowers)):
        assert run.finish().answer == "x!"
        assert run.replay().whole


def test_a_refused_check_is_the_objection_that_the_loop_gets() -> None:
    class Objects(Guard):
        points_after = (CheckAnswer,)

        async def after(self, entry: Entry, result: Any, fresh: bool) -> Any:
            return plait.Refuse("not good enough") if fresh and entry.effect.answer == "x" else result

    def walk() -> LoopRun:
        first = yield CheckAnswer("x")
        second = yield CheckAnswer("y")
        return [first, second]  # type: ignore[return-value]

    run = tried(walk, Objects)
    assert run.go().answer == ["not good enough", ""]
    assert run.disk.keys(kind=Result) == ["0~0!Objects"] and run.replay().whole


def test_a_question_about_the_end_waits_and_is_answered_in_another_process() -> None:
    class Asks(Guard):
        points_after = (Finish,)

        async def after(self, entry: Entry, result: Any, fresh: bool) -> Any:
            return AskApproval("Is that all?") if fresh else result

    for run, _ in each_point(lambda: tried(calls(PAY), Asks)):
        waiting = run.go()
        assert waiting.status == "waiting" and [each.key.partition("@")[0] for each in run.questions] == ["!Asks"]
        assert run.go("yes").answer in (["paid 5"], ["in_doubt"])
        assert run.replay().whole and len(did()) <= 1


def test_a_guard_changes_no_state_because_of_what_it_raises_and_is_told_the_signals_that_reach_the_loop() -> None:
    told: list[str] = []

    class Enough(Guard):
        points = (Call,)

        async def before(self, entry: Entry) -> Any:
            raise LimitNear("enough", "it is enough")

        async def after(self, entry: Entry, result: Any, fresh: bool) -> Any:
            told.append(type(result).__name__)
            return result

    class Watches(Enough):
        points = (Act,)

        async def before(self, entry: Entry) -> Any:
            return entry.effect

    run = tried(lambda: until_limit(calls(PAY)()), Enough, Watches)
    run.go()
    assert told == ["LimitNear"]


def test_hidden_results_of_a_child_stay_hidden_after_every_kill() -> None:
    class Hides(Guard):
        points_after = (Call,)

        async def after(self, entry: Entry, result: Any, fresh: bool) -> Any:
            if fresh and isinstance(result, Observation) and entry.effect.tool == "look":
                return structs.replace(result, text="***", value="***")
            return result

        def for_child(self, own: Guard | None) -> Guard:
            return self

    def child(question: str) -> LoopRun:
        return texts((yield Act((LOOK,))))  # type: ignore[return-value]

    for run, _ in each_point(lambda: with_child(calls(HELP), child, Hides)):
        assert "522250" not in str(run.finish().answer)
        assert run.replay().whole


def test_a_question_of_a_child_is_asked_beside_those_of_its_parent_and_each_order_of_answers_ends_the_same() -> None:
    def make() -> Any:
        return with_child(calls(PAY, HELP, DELEGATE), asker, approve=lambda call: call.tool == "pay")

    for order in ((0, 0), (1, 0)):
        WORLD.clear()
        run = make()
        run.go()
        assert len(run.questions) == 2
        answers: dict[bool, str] = {True: "yes", False: "Ann B."}
        for which in order:
            ended = run.go(answers[run.questions[which].guard == "approvals"], which)
        assert ended.answer == ["paid 5", "Ann B.", "raised"] and did() == ["5 to Ann"]
        assert run.replay().whole and Process(run.disk).run(RUN).outcome

