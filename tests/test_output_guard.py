"""The guards of an output: objections to answers, their number, and calls that end the run."""

from __future__ import annotations

from typing import Any

import pytest

from guarded_run import GuardedRun, make_context
from plait.core import Answered, Call, CheckAnswer, Failed, Observation
from plait.runtime.agents.output import TEXT, OutputType
from plait.runtime.guard import GROUNDING, EndedByRefusal, Entry, Guard, Refuse
from plait.runtime.guards.output_check import make_output_guards

SMALL = {"type": "object", "properties": {"days": {"type": "integer"}}, "required": ["days"]}
CALL = Call("do", {})
TOO_MANY = "The answer is not accepted: at most 5 days"


class Watched:
    """An output whose check notes what it is called with."""

    def __init__(self, retries: int = 2) -> None:
        self.calls: list[int] = []
        self.near = False
        self.output = OutputType[Any](SMALL, [self.check], retries)

    def check(self, value: Any) -> str | None:
        self.calls.append(value["days"])
        return "at most 5 days" if value["days"] > 5 else None

    def guards(self) -> list[Guard]:
        return make_output_guards(self.output, make_context, lambda: self.near)


class Objects(Guard):
    """Objects to each answer that passed the guards before it."""

    points_after = (CheckAnswer,)

    def __init__(self, name: str, order: float) -> None:
        self._name, self.order = name, order  # type: ignore[misc]

    @property
    def name(self) -> str:
        return self._name

    async def after(self, entry: Entry, result: Any, fresh: bool) -> Any:
        return Refuse(f"{self._name} objects") if fresh and result == "" else result


async def test_an_answer_is_checked_by_its_type_then_by_the_users_checks_and_once() -> None:
    watched = Watched()
    run = GuardedRun(watched.guards())
    assert "answer.days is missing" in await run.check("1~0", "{}")
    assert await run.check("2~0", '{"days": 9}') == TOO_MANY
    assert await run.check("3~0", '{"days": 3}') == ""
    assert await run.check("3~1", '{"days": 3}') == ""
    assert await run.finish(Answered({"days": 3})) == Answered({"days": 3})
    assert watched.calls == [9, 3]
    assert [kind for kind, _ in run.remarks] == ["output", "output"]
    assert [key for key, _ in run.decisions] == ["1~0!output", "2~0!output"]


async def test_one_objection_more_than_the_model_may_answer_ends_the_run_also_after_a_resume() -> None:
    watched = Watched(retries=1)
    run = GuardedRun(watched.guards())
    assert await run.check("1~0", '{"days": 9}') == TOO_MANY
    run.think(1)
    watched.calls.clear()
    resumed = run.go_on(watched.guards())
    assert await resumed.check("1~0", '{"days": 9}') == TOO_MANY
    with pytest.raises(EndedByRefusal, match=r"^The answer does not fit: answer\.days is missing\.$") as why:
        await resumed.check("2~0", "{}")
    assert (why.value.kind, watched.calls) == ("output", [])
    assert [kind for kind, _ in resumed.remarks] == ["output"]
    replay = run.go_on([], replay=True)
    assert await replay.check("1~0", '{"days": 9}') == TOO_MANY


async def test_objections_of_others_count_those_of_grounding_do_not() -> None:
    for name, order, most in (("Hook", Guard.order, 3), ("grounding", GROUNDING, 9)):
        guards = make_output_guards(TEXT, make_context, lambda: False)
        run = GuardedRun([*guards, Objects(name, order)])
        count = 0
        try:
            while count < 9:
                count += 1
                assert await run.check(f"{count}~0", "x") == f"{name} objects"
        except EndedByRefusal:
            assert ("output", f"{name} objects") in run.remarks
        assert count == most


async def test_after_a_resume_objections_of_grounding_do_not_count_either() -> None:
    watched = Watched(retries=1)
    run = GuardedRun([*watched.guards(), Objects("grounding", GROUNDING)])
    assert await run.check("1~0", '{"days": 3}') == "grounding objects"
    run.think(1)
    resumed = run.go_on([*watched.guards(), Objects("grounding", GROUNDING)])
    assert await resumed.check("1~0", '{"days": 3}') == "grounding objects"
    assert await resumed.check("2~0", '{"days": 9}') == TOO_MANY


async def test_once_a_limit_is_near_nothing_is_objected() -> None:
    watched = Watched(retries=0)
    watched.near = True
    run = GuardedRun(watched.guards())
    assert await run.check("1~0", "{}") == ""
    assert (watched.calls, run.remarks, run.decisions) == ([], [], [])


async def test_a_loop_that_ended_without_a_check_fails_and_a_replay_does_not_check_again() -> None:
    watched = Watched()
    run = GuardedRun(watched.guards())
    failed = Failed(TOO_MANY, kind="output")
    assert await run.finish(Answered({"days": 9})) == failed
    assert await run.go_on(watched.guards(), replay=True, has_ended=True).finish(Answered({"days": 9})) == failed
    assert watched.calls == [9]


async def test_an_answer_that_an_earlier_process_accepted_is_not_checked_again() -> None:
    watched = Watched()
    run = GuardedRun(watched.guards())
    assert await run.check("1~0", '{"days": 3}') == ""
    run.think(1)
    resumed = run.go_on(watched.guards())
    assert await resumed.check("1~0", '{"days": 3}') == ""
    assert await resumed.finish(Answered({"days": 3})) == Answered({"days": 3})
    assert watched.calls == [3]


async def test_the_result_of_a_call_that_ends_the_run_is_checked_as_others_left_it() -> None:
    class Changes(Guard):
        points_after = (Call,)

        async def after(self, entry: Entry, result: Any, fresh: bool) -> Any:
            return Observation("nine", value={"days": 9}, ends=result.ends, outside=True) if fresh else result

    watched = Watched()
    fits = Observation("three", value={"days": 3}, ends="answer")
    run = GuardedRun(watched.guards())
    assert await run.call("1.0", CALL, fits) == fits
    assert await run.finish(Answered({"days": 3})) == Answered({"days": 3})
    assert watched.calls == [3]
    run = GuardedRun([*watched.guards(), Changes()])
    seen = await run.call("1.0", CALL, fits)
    assert seen.text == f"Error: the result of 'do' cannot be the answer. {TOO_MANY}\nThe result: nine"
    assert (seen.trouble, seen.ends, seen.outside) == ("raised", "", True)
    assert [(key, each.action) for key, each in run.decisions][-1] == ("1.0!output_after_hooks", "change")
    plain = Observation("nine", value={"days": 9})
    assert await GuardedRun(watched.guards()).call("1.0", CALL, plain) == plain


async def test_an_output_of_text_without_checks_only_counts_objections() -> None:
    [guard] = make_output_guards(TEXT, make_context, lambda: False)
    assert guard.points_after == (CheckAnswer,)
