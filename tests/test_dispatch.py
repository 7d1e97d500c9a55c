"""Steps that start the moment what they name is there: names of results, waiting for a person, limits."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

import plait
from conftest import for_each
from plait.core import (
    Act,
    Answered,
    Call,
    Effect,
    LimitNear,
    LoopContext,
    LoopRun,
    Observation,
    OneKind,
    Plan,
    Splitter,
    Step,
    Stopped,
    Task,
    Think,
    ToolSpec,
    think,
    user,
)
from plait.loops.plan import Dispatch
from plait.loops.references import EVIDENCE, RESULTS


def seen(**texts: str) -> dict[str, Observation]:
    return {id: Observation(text) for id, text in texts.items()}


# -- names of results


def test_a_name_is_a_whole_token() -> None:
    results = seen(E1="one", E10="ten")
    assert EVIDENCE.fill("#E1 and #E10, #E1.", results) == "one and ten, one."
    assert EVIDENCE.find_ids("#E10 #E1 #E1x") == ("E10", "E1")


def test_a_result_that_holds_a_name_stays_as_it_is() -> None:
    assert EVIDENCE.fill("#E1 / #E2", seen(E1="see #E2", E2="2")) == "see #E2 / 2"


def test_names_are_filled_at_any_depth_and_a_list_stays_a_list() -> None:
    results = {"E1": Observation("[1, 2]", value=[1, 2]), "E2": Observation("7", value=7)}
    assert EVIDENCE.fill({"of": "#E1", "n": ["#E2", "x#E1"], "k": 3}, results) == {
        "of": [1, 2],
        "n": ["7", "x[1, 2]"],
        "k": 3,
    }


def test_an_amount_of_dollars_is_no_name() -> None:
    assert RESULTS.find_ids("$1 $1.50 $1,200 ${3} $2.") == ("1", "3", "2")


@given(st.recursive(st.text() | st.integers() | st.none(), lambda inner: st.lists(inner, max_size=3)))
def test_what_names_nothing_is_left_alone(value: Any) -> None:
    if not EVIDENCE.find_ids(value):
        assert EVIDENCE.fill(value, seen(E1="one")) == value


@for_each(
    ("text", "steps", "expected"),
    [
        ("$5", "12", ["5"]),  # alone: it can only be a reference
        ("$5 * 3", "12", ["5"]),
        ("round($5 / 3)", "12", ["5"]),
        ("a lunch under ${5}", "12", ["5"]),
        ("a lunch under $5", "12", []),
        ("a lunch under $5", "12345", ["5"]),
        ("$1 and $2 and $9 of tax", "12", ["1", "2"]),
        ("$50", "12", []),
        ("$50", ["50"], ["50"]),
        ("$1,200 and $1.50 and $5k and US$1", "15", []),
    ],
)
def test_a_number_with_a_dollar_sign_is_a_reference_where_a_step_has_it_or_nothing_else_can_be_meant(
    text: str, steps: Any, expected: list[str]
) -> None:
    assert list(RESULTS.meant(text, steps)) == expected


def test_an_amount_that_the_question_names_is_no_reference_to_a_step_that_there_is_not() -> None:
    question = "A pencil costs $5. What do 12 pencils cost?"
    assert RESULTS.meant("12 * $5", "12", question) == ()
    assert RESULTS.meant("12 * $5", "12", "A pencil costs $50.") == ("5",)
    assert RESULTS.meant("12 * $5", "12345", question) == ("5",)


def test_only_what_a_step_needs_is_put_into_its_input() -> None:
    step = Step("3", "search", "$1 under $2", needs=("1",))
    results = {"1": Observation("lunch"), "2": Observation("dinner")}
    assert RESULTS.fill_step(step, results) == "lunch under $2"


# -- a plan's problems


def test_what_is_wrong_with_a_plan_is_said_in_words() -> None:
    plan = Plan(
        (
            Step("E1", "look", "x"),
            Step("E1", "look", "y"),
            Step("E2", "nothing", "#E9", needs=("E9",)),
            Step("E3", "look", "#E4", needs=("E4",)),
            Step("E4", "look", "z"),
        )
    )
    assert plan.problems([ToolSpec("look", "Looks.")]) == [
        "Step E1 is given twice.",
        "Step E2 uses 'nothing', which is no tool. There are: look.",
        "Step E2 names E9, which no step gives.",
        "Step E3 names E4, which comes only later.",
    ]


def test_steps_that_wait_for_each_other_are_named() -> None:
    plan = Plan((Step("E1", "t", needs=("E2",)), Step("E2", "t", needs=("E1",))))
    assert "These steps wait for each other: E1 -> E2 -> E1." in plan.problems([ToolSpec("t", "Does.")]) or (
        "These steps wait for each other: E2 -> E1 -> E2." in plan.problems([ToolSpec("t", "Does.")])
    )


# -- a loop that is nothing but a plan


@dataclass(frozen=True)
class Graph:
    """Carries out (id, tool, needs); the tool "" is a model call. Answers with the results in order of ending."""

    steps: tuple[tuple[str, str, tuple[str, ...]], ...] = ()

    name: ClassVar[str] = "graph"
    phases: ClassVar[tuple[str, ...]] = ("work", "end")
    prompts: ClassVar[dict[str, str]] = {"none": ""}

    def run(self, task: Task, context: LoopContext) -> LoopRun:
        try:
            yield from think("end", (user("begin"),))
            work = yield from self._work()
        except LimitNear as near:
            reply = yield from think("end", (user("conclude"),))
            return Stopped(near.limit, near.detail, reply.text)
        return Answered({id: observation.text for id, observation in work.results.items()})

    def _work(self) -> Generator[Effect, Any, Dispatch]:
        def begin(step: Step, results: Any) -> Think | Act:
            if not step.tool:
                return Think("work", (user(step.id),))
            return Act((Call(step.tool, step.id + "".join(results[need].text for need in step.needs)),))

        work = Dispatch(begin)
        yield from work.add(*(Step(id, tool, needs=needs) for id, tool, needs in self.steps))
        yield from work.finish()
        return work

    def splitter(self, phase: str) -> Splitter:
        return OneKind("thought")


def test_each_step_starts_when_what_it_names_is_there(journal: Path) -> None:
    running, most = 0, 0
    began: list[str] = []

    @plait.tool
    async def slow(text: str) -> str:
        """Takes a while."""
        nonlocal running, most
        began.append(text)
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.3 if text == "a" else 0.05)
        running -= 1
        return f"<{text}>"

    loop = Graph((("a", "slow", ()), ("b", "slow", ()), ("c", "slow", ("b",)), ("d", "slow", ("a", "c"))))
    agent = plait.Agent(loop, model=plait.Scripted(["x"] * 9), tools=[slow], journal=journal)
    run = agent.run("go")
    # c does not wait for a, though both stand before it.
    assert run.answer == {"b": "<b>", "c": "<c<b>>", "a": "<a>", "d": "<d<a><c<b>>>"}
    assert began == ["a", "b", "c<b>", "d<a><c<b>>"] and most == 2
    assert agent.replay(run.id).whole


def test_while_one_call_waits_for_leave_the_others_go_on(journal: Path) -> None:
    made: list[str] = []

    @plait.tool(read_only=True)
    async def look(text: str) -> str:
        """Looks."""
        await asyncio.sleep(0.1)
        made.append(text)
        return text

    @plait.tool
    def send(text: str) -> str:
        """Sends."""
        made.append(text)
        return f"sent {text}"

    loop = Graph(
        (("a", "send", ()), ("b", "look", ()), ("c", "look", ("b",)), ("d", "send", ()), ("e", "look", ("a",)))
    )
    agent = plait.Agent(loop, model=plait.Scripted(["x"] * 9), tools=[look, send], journal=journal, approve="effects")
    run = agent.run("go")
    assert run.status == "waiting" and made == ["b", "cb"]
    again = agent.resume(run, "yes")
    assert again.status == "waiting" and made == ["b", "cb", "a", "esent a"]
    last = agent.resume(again, "no, not that")
    assert last.status == "answered" and made == ["b", "cb", "a", "esent a"]
    assert "not that" in last.answer["d"]
    assert agent.replay(run.id).whole


def by_what_is_asked() -> plait.Scripted:
    return plait.Scripted([lambda effect: f"said to {effect.messages[0].content}"] * 20, by_turn=False)


def test_model_calls_side_by_side_leave_the_one_in_reserve_alone() -> None:
    loop = Graph(tuple((str(i), "", ()) for i in range(6)))
    agent = plait.Agent(
        loop,
        model=by_what_is_asked(),
        limits=plait.Limits(calls=4),
        journal=False,
    )
    run = agent.run("go")
    assert run.status == "stopped" and run.answer == "said to conclude", run.outcome
    assert run.calls <= 4


@pytest.mark.parametrize("steps", [2, 3])
def test_a_step_limit_met_by_a_started_call_lets_the_loop_conclude(steps: int) -> None:
    loop = Graph(tuple((str(i), "", ()) for i in range(5)))
    run = plait.Agent(loop, model=by_what_is_asked(), limits=plait.Limits(steps=steps), journal=False).run("go")
    assert (run.status, run.outcome.limit, run.answer) == ("stopped", "steps", "said to conclude")  # type: ignore[union-attr]


# -- forks of a run that started steps and took their results


PLAN = "Plan: a\n#E1 = look[one]\nPlan: b\n#E2 = LLM[say #E1]\nPlan: c\n#E3 = look[#E2]\n"


@pytest.mark.parametrize(
    ("at", "looked", "answer"),
    [(1, ["new"], "from new"), (2, ["said anew"], "from one said anew"), (3, [], "from one said")],
)
def test_a_fork_takes_over_the_steps_before_it_and_no_others(
    at: int, looked: list[str], answer: str, journal: Path
) -> None:
    made: list[str] = []

    @plait.tool
    def look(text: str) -> str:
        """Looks."""
        made.append(text)
        return text

    def solve(effect: Think) -> str:
        text = effect.messages[0].content
        return "from " + " ".join(word for word in ("new", "one", "said anew", "said") if f"Evidence: {word}\n" in text)

    before = plait.Scripted({"plan": [PLAN], "work": ["said"], "solve": [solve]})
    agent = plait.Agent("rewoo", model=before, tools=[look], journal=journal)
    run = agent.run("What?")
    assert made == ["one", "said"] and run.steps == 3
    made.clear()
    after = plait.Scripted({"plan": ["Plan: d\n#E1 = look[new]\n"], "work": ["said anew"], "solve": [solve]})
    forked = agent.using(model=after)
    run = forked.fork(run.id, at=at)
    assert (run.status, run.answer, made) == ("answered", answer, looked), run.reason
    assert forked.replay(run.id).whole
