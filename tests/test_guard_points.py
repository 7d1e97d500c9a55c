"""The rules of guards (docs/architecture.md) about what they see of an entry, and about answers.

Each test is named after its rule.
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
    asker,
    asks_model,
    calls,
    did,
    each_point,
    texts,
    tried,
    until_limit,
    with_child,
)
from plait.core import Call, CheckAnswer, LimitNear, LoopRun, Observation, Think
from plait.core.effects import Act, Start, WaitNext
from plait.journal.memory import MemoryLog
from plait.journal.records import ResultRecord, RunHead
from plait.runtime.chain import Chain
from plait.runtime.guard import AskApproval, Entry, Finish, Guard, StartChild
from plait.runtime.run_journal import RunJournal


@pytest.fixture(autouse=True)
def _empty_world() -> None:
    WORLD.clear()


class Lowers(plait.Hook):
    """Lowers payments, in the run and below it."""

    def before_tool(self, context: Any, call: Call) -> Any:
        if call.tool == "pay":
            return structs.replace(call, input={**call.input, "amount": 1})
        return None

    def before_answer(self, context: Any, answer: Any) -> Any:
        return f"{answer}!"


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
    assert "before Call" not in seen and [each for each in seen if each != "after Think"] == [
        "before Think",
        "after Call",
    ]


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
    assert run.disk.keys(kind=ResultRecord) == ["0~0!Objects"] and run.replay().whole


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
    assert told == ["LimitNear", "LimitNear"]  # the guard that raised it, and another one


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
        assert run.replay().whole and run.disk.runs[RUN].outcome
