"""What a plan is expected to take is what it takes, where what is assumed holds; and it says what it assumes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import plait
from plait.core import Plan, Reply, Step, Usage
from plait.core.errors import ConfigError
from plait.core.events import Observed
from plait.models.prices import Rate
from plait.runtime.planning.plan_estimate import HIGH, LOW, USUAL, Expected

PLAN = """\
Plan: What the first page says.
#E1 = read[first]
Plan: What the second page says.
#E2 = read[second]
Plan: What both have in common.
#E3 = LLM[Compare: #E1 And: #E2]
"""
QUESTION = "What do the two pages have in common?"


@plait.tool(read_only=True)
def read(page: str) -> str:
    "Reads a page."
    return ("word " * (USUAL.evidence // 5))[: USUAL.evidence]


def scripted(plan: str = PLAN, usage: Usage | None = None, **options: Any) -> plait.Scripted:
    """A planner, a worker and a solver whose replies have the lengths that are assumed to be usual."""
    planner = Reply(plan, usage=usage or Usage())
    return plait.Scripted(
        {"plan": [planner], "work": ["w" * 4 * USUAL.work], "solve": ["s" * 4 * USUAL.solve]}, **options
    )


def agent(tmp_path: Path, model: Any = None, **options: Any) -> plait.Agent:
    return plait.Agent("rewoo", model=model or scripted(), tools=[read], journal=tmp_path / "journal.db", **options)


def test_where_results_are_as_long_as_assumed_the_estimate_is_what_the_run_takes(tmp_path: Path) -> None:
    made = agent(tmp_path).plan(QUESTION)
    assert made.plan is not None and made.expected is not None
    run = agent(tmp_path).with_plan(made.plan).run(QUESTION)
    assert run.status == "answered"
    foreseen = made.expected.usual
    assert (made.expected.calls, made.expected.tool_calls) == (2, 2) == (run.calls, 2)
    # The scripted model's tokens are a quarter of the characters of its requests, as is assumed without a
    # planner that reports its tokens; what differs is rounding and the worker's evidence of 120 characters.
    assert foreseen.input_tokens == pytest.approx(run.usage.input_tokens, rel=0.1)
    assert foreseen.output_tokens == run.usage.output_tokens
    assert made.expected.low.input_tokens < run.usage.input_tokens < made.expected.high.input_tokens


def test_the_second_time_lengths_are_those_of_the_first(tmp_path: Path) -> None:
    @plait.tool(name="read", read_only=True)
    def short(page: str) -> str:
        "Reads a page."
        return page * (2 if page == "first" else 4)

    model = plait.Scripted(
        {"plan": [PLAN], "work": ["They agree on one thing."], "solve": ["Nothing, but for one word."]}
    )
    asked = plait.Agent("rewoo", model=model, tools=[short], journal=tmp_path / "journal.db")
    before = asked.plan(QUESTION).expected
    run = asked.run(QUESTION)
    after = asked.plan(QUESTION).expected
    assert before is not None and after is not None
    assert before.results == {"read": (USUAL.evidence, 0)}
    assert after.results == {"read": ((10 + 24) // 2, 2)}
    plan, work, solve = (each for each in run.phases if not each.is_work)
    assert plan.phase == "plan"
    assert after.usual.output_tokens == work.usage.output_tokens + solve.usage.output_tokens
    assert after.usual.input_tokens == pytest.approx(work.usage.input_tokens + solve.usage.input_tokens, rel=0.1)
    assert before.usual.input_tokens > 1.5 * after.usual.input_tokens
    # Shortest and longest of what was seen, and no wider.
    assert after.low.input_tokens < after.usual.input_tokens < after.high.input_tokens < before.high.input_tokens / 3


def test_a_failed_call_counts_by_what_the_solver_is_shown_of_it(tmp_path: Path) -> None:
    @plait.tool(name="read", read_only=True)
    def broken(page: str) -> str:
        "Reads a page."
        raise ValueError("no page")

    asked = plait.Agent("rewoo", model=scripted(), tools=[broken], journal=tmp_path / "journal.db")
    run = asked.run(QUESTION)
    (shown, _) = (event.observation.text for event in run.events if isinstance(event, Observed))
    found = asked.plan(QUESTION).expected
    assert found is not None
    assert found.results == {"read": (len(f"no evidence ({shown})"), 2)}


def test_a_phases_tokens_of_a_character_are_learned_from_its_own_requests(tmp_path: Path) -> None:
    # An endpoint that adds 500 tokens to each request: a system prompt of its own, say.
    def added(text: str) -> Any:
        return lambda think: Reply(text, usage=Usage(500 + sum(len(m.content) for m in think.messages) // 4, 10))

    model = plait.Scripted({"plan": [added(PLAN)], "work": [added("w")], "solve": [added("s")]})
    asked = agent(tmp_path, model)
    before = asked.plan(QUESTION).expected
    run = asked.run(QUESTION)
    after = asked.plan(QUESTION).expected
    assert before is not None and after is not None
    actual = sum(each.usage.input_tokens for each in run.phases if each.phase in ("work", "solve"))
    assert before.usual.input_tokens < 0.75 * actual
    assert after.usual.input_tokens == pytest.approx(actual, rel=0.05)


def test_nothing_but_the_planner_is_asked_and_no_tool_runs(tmp_path: Path) -> None:
    ran = []

    @plait.tool(name="read")
    def recording(page: str) -> str:
        "Reads a page."
        ran.append(page)
        return "x"

    asked = plait.Agent("rewoo", model=scripted(), tools=[recording], journal=tmp_path / "j.db")
    made = asked.plan(QUESTION)
    assert (made.run.status, made.run.calls, ran) == ("answered", 1, [])
    assert made.plan is not None
    assert [step.id for step in made.plan.calls] == ["E1", "E2", "E3"]


def test_characters_become_tokens_at_the_rate_of_the_planners_own_call(tmp_path: Path) -> None:
    def foreseen(usage: Usage) -> Expected:
        # Without a step that asks the model: its reply is assumed in tokens, whatever the rate.
        found = agent(tmp_path, scripted(PLAN.partition("Plan: What both")[0], usage)).plan(QUESTION).expected
        assert found is not None
        return found

    few, many = foreseen(Usage(100, 50)), foreseen(Usage(300, 50))
    assert many.usual.input_tokens == pytest.approx(3 * few.usual.input_tokens, rel=0.02)
    assert few.spent is not None
    assert (few.spent.usage.input_tokens, few.spent.usage.output_tokens) == (100, 50)
    # A provider that reports nothing calibrates nothing.
    assert foreseen(Usage(1, 1, estimated=True)) != few
    assert foreseen(Usage()).usual.input_tokens > few.usual.input_tokens


def test_each_phase_is_priced_at_its_own_models_rate(tmp_path: Path) -> None:
    dear = scripted(name="dear", rate=Rate("tokens", 10.0, 30.0, source="test"))
    cheap = scripted(name="cheap", rate=Rate("tokens", 1.0, 2.0, source="test"))
    asked = agent(tmp_path, cheap, models={"solve": dear})
    found = asked.plan(QUESTION).expected
    assert found is not None
    work, solve = found.phases
    assert (work.phase, work.model, solve.phase, solve.model) == ("work", "scripted:cheap", "solve", "scripted:dear")
    assert work.usual.usd == pytest.approx((work.usual.input_tokens + 2 * work.usual.output_tokens) / 1e6)
    assert solve.usual.usd == pytest.approx((10 * solve.usual.input_tokens + 30 * solve.usual.output_tokens) / 1e6)
    assert found.usual.usd == pytest.approx((work.usual.usd or 0) + (solve.usual.usd or 0))
    assert found.low.usd is not None and found.usual.usd is not None and found.high.usd is not None
    assert found.low.usd < found.usual.usd < found.high.usd
    assert found.spent is not None and found.spent.cost_usd is not None


def test_a_price_that_is_not_known_is_none_and_never_0(tmp_path: Path) -> None:
    known = scripted(name="known", rate=Rate("tokens", 1.0, 2.0, source="test"))
    found = agent(tmp_path, known, models={"solve": scripted()}).plan(QUESTION).expected
    assert found is not None
    assert [each.usual.usd is None for each in found.phases] == [False, True]
    assert found.usual.usd is None
    assert found.json()["cost_usd"] is None


def test_electricity_is_priced_by_the_planners_own_pace_and_not_guessed_for_another_model(tmp_path: Path) -> None:
    watts = Rate("watts", watts=3_600_000.0, tariff=1.0, source="test")
    own, other = scripted(rate=watts, delay=0.05, usage=Usage(100, 100)), scripted(name="other", rate=watts)
    found = agent(tmp_path, own, models={"solve": other}).plan(QUESTION).expected
    assert found is not None and found.spent is not None
    work, solve = found.phases
    pace = found.spent.seconds / 200
    # 1 USD a second at that tariff.
    assert work.usual.usd == pytest.approx((work.usual.input_tokens + work.usual.output_tokens) * pace, rel=0.05)
    assert solve.usual.usd is None


def test_steps_whose_evidence_is_kept_are_not_counted_and_shown_as_they_are(tmp_path: Path) -> None:
    asked = agent(tmp_path)
    plan = asked.plan(QUESTION).plan
    assert plan is not None
    whole = asked.estimate(QUESTION, plan)
    kept = asked.estimate(QUESTION, Plan(plan.steps, {"E1": "x" * 4000, "E3": "y"}))
    assert (whole.calls, whole.tool_calls) == (2, 2)
    assert (kept.calls, kept.tool_calls) == (1, 1)
    assert kept.phases[-1].usual.input_tokens > whole.phases[-1].usual.input_tokens + 800
    nothing_open = asked.estimate(QUESTION, Plan(plan.steps, {"E1": "a", "E2": "b", "E3": "c"}))
    assert (nothing_open.calls, nothing_open.tool_calls) == (1, 0)
    # Of the requests all is known then: only the reply is not.
    assert nothing_open.low.input_tokens == nothing_open.high.input_tokens


def test_evidence_in_the_range_is_cut_where_the_run_would_cut_it(tmp_path: Path) -> None:
    asked = agent(tmp_path, limits=plait.Limits(observation_chars=300))
    wide = agent(tmp_path).estimate(QUESTION, PLAN)
    narrow = asked.estimate(QUESTION, PLAN)
    assert narrow.low == wide.low
    assert narrow.high.input_tokens < wide.high.input_tokens / 2


def test_the_json_has_the_sums_and_the_assumptions_are_ordered(tmp_path: Path) -> None:
    found = agent(tmp_path).estimate(QUESTION, PLAN)
    told = found.json()
    assert told["calls"] == sum(each["calls"] for each in told["phases"]) == 2
    for name in ("input_tokens", "output_tokens"):
        assert told["low"][name] < told[name] < told["high"][name]
        assert told[name] == sum(each[name] for each in told["phases"])
    assert told["spent"] is None
    assert LOW.evidence < USUAL.evidence < HIGH.evidence


def test_a_plan_that_cannot_be_carried_out_has_no_price(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"Step E1 uses 'raed'.*Correct it"):
        agent(tmp_path).estimate(QUESTION, "Plan: x\n#E1 = raed[first]")
    with pytest.raises(ConfigError, match="E1 names E2, which comes only later"):
        agent(tmp_path).with_plan(Plan((Step("E1", "read", "#E2"), Step("E2", "read", "x"))))


def test_only_a_loop_that_plans_can_be_asked_for_a_plan(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"needs a loop that plans first, and 'react' does not. Use --loop rewoo"):
        plait.Agent("react", model=scripted(), journal=False).plan(QUESTION)
    with pytest.raises(ConfigError, match="'json' makes no plan that could be approved"):
        plait.Agent("json", model=scripted(), journal=False, approve="plan")


def test_where_no_plan_can_be_made_there_is_none_and_the_run_says_why(tmp_path: Path) -> None:
    asked = plait.Agent("rewoo", model=plait.Scripted(["I can't.", "No."]), tools=[read], journal=False)
    made = asked.plan(QUESTION)
    assert (made.plan, made.expected, made.run.status) == (None, None, "failed")
    assert "no call in your plan" in (made.run.reason or "")
