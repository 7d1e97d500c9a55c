"""Recommendation: the cheapest row that meets a demand, how sure that is, and the agent that it names."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import plait
from conftest import CAMPAIGN, for_each
from plait import loops
from plait.core.errors import ConfigError
from plait.journal.results import Results as Comparisons
from plait.journal.store import Journal
from plait.lab.recommend import read_rows
from plait.lab.recommend.choose import count_more_tasks, probability_of_share, show_short


def row(loop: str = "react", model: str = "local", successes: int = 30, n: int = 32, **more: Any) -> dict[str, Any]:
    """A row as `plait compare --json` prints it; one model for all phases of the loop."""
    try:
        phases = loops.loop_from(loop).phases
    except ConfigError:
        phases = ("act",)
    usual = {
        "loop": loop,
        "models": dict.fromkeys(phases, model),
        "success": successes / n if n else 0.0,
        "successes": successes,
        "n": n,
        "tasks": n,
        "interval": [0.5, 0.99],
        "steps": 3.0,
        "calls": 3.0,
        "tokens": 1000.0,
        "seconds": 2.0,
        "seconds_p90": 4.0,
        "cost_usd": 0.001,
    }
    return {**usual, **more}


def table(*rows: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"name": "sums", "suite": "basics:report", "tasks": 32, "rows": list(rows), "pairs": [], **more}


def chosen(recommendation: plait.Recommendation) -> str:
    assert recommendation.chosen is not None, str(recommendation)
    return recommendation.chosen.row.loop


@pytest.mark.parametrize("changed", ["fell_back", "calls_as_text"])
def test_a_row_whose_runs_changed_their_loop_is_chosen_only_when_asked(changed: str) -> None:
    results = table(row("rewoo", cost_usd=0.0001, **{changed: 3}), row("react"))
    recommendation = plait.recommend(results)
    assert chosen(recommendation) == "react"
    assert "Not chosen, because runs continued as another loop or wrote tool calls as text: rewoo with local." in str(
        recommendation
    )
    assert chosen(plait.recommend(results, include_changed=True)) == "rewoo"


# --- how sure


def tail(k: int, n: int, x: float, pieces: int = 20_000) -> float:
    """The tail of the same distribution by Simpson's rule: what the binomial sum must agree with."""

    def density(p: float) -> float:
        return math.comb(n, k) * (n + 1) * p**k * (1 - p) ** (n - k)

    step = (1 - x) / pieces
    inner = sum((4 if at % 2 else 2) * density(x + at * step) for at in range(1, pieces))
    return (density(x) + inner + density(1.0)) * step / 3


@for_each("x", [0.0, 0.01, 0.3, 0.5, 0.8, 0.99, 1.0])
@for_each("n", [0, 1, 7, 40])
def test_all_right_none_right_and_nothing_seen_have_closed_forms(n: int, x: float) -> None:
    assert probability_of_share(n, n, x) == pytest.approx(1 - x ** (n + 1), abs=1e-13)
    assert probability_of_share(0, n, x) == pytest.approx((1 - x) ** (n + 1), abs=1e-13)


@for_each(("k", "n"), [(27, 32), (1, 3), (5, 10), (70, 100), (299, 300), (10, 500)])
@for_each("x", [0.02, 0.5, 0.8, 0.95])
def test_it_is_the_integral_of_the_beta_distribution(k: int, n: int, x: float) -> None:
    assert probability_of_share(k, n, x) == pytest.approx(tail(k, n, x), abs=1e-9)


@given(st.integers(0, 60), st.integers(0, 60), st.integers(1, 99))
def test_it_is_the_exact_binomial_sum(k: int, more: int, hundredths: int) -> None:
    n, x = k + more, Fraction(hundredths, 100)
    exact = sum(math.comb(n + 1, i) * x**i * (1 - x) ** (n + 1 - i) for i in range(k + 1))
    assert probability_of_share(k, n, hundredths / 100) == pytest.approx(float(exact), abs=1e-12)


def test_it_holds_for_numbers_at_which_powers_vanish() -> None:
    assert probability_of_share(50_000, 100_000, 0.5) == pytest.approx(0.5, abs=0.002)
    assert probability_of_share(81_000, 100_000, 0.8) > 1 - 1e-12
    assert 0 <= probability_of_share(79_000, 100_000, 0.8) < 1e-12


@pytest.mark.parametrize(
    ("share", "n", "at_least"), [(27 / 32, 32, 0.8), (0.9, 10, 0.8), (1.0, 3, 0.95), (0.6, 5, 0.5)]
)
def test_so_many_more_tasks_are_about_enough(share: float, n: int, at_least: float) -> None:
    more = count_more_tasks(share, n, at_least)
    assert more is not None

    def after(tasks: int) -> float:
        return probability_of_share(math.floor(share * tasks + 1e-9), tasks, at_least)

    assert after(n + more) >= 0.95 > after(n + more - 1)
    # Found by counting up instead: the first number that is enough. Successes are whole, so the two may be apart.
    first = next(tasks for tasks in range(n, 10_000) if after(tasks) >= 0.95)
    assert first - n <= more <= (first - n) * 1.25 + 6


def test_no_number_of_tasks_makes_a_share_sure_that_is_not_above_the_demand() -> None:
    assert count_more_tasks(0.8, 30, 0.8) is None
    assert count_more_tasks(0.80001, 30, 0.8) is None  # millions
    assert count_more_tasks(0.99, 400, 0.8) == 0


# --- which row


def test_the_cheapest_that_meets_the_demand_is_named_and_the_next() -> None:
    rows = [
        row("react", successes=31, cost_usd=0.004),
        row("json", successes=28, cost_usd=0.002),
        row("rewoo", successes=27, cost_usd=0.003),
        row("tool_calling", successes=20, cost_usd=0.001),
    ]
    recommendation = plait.recommend(table(*rows), at_least=0.8)
    assert chosen(recommendation) == "json"
    assert recommendation.runner_up is not None and recommendation.runner_up.row.loop == "rewoo"
    assert [each.row.loop for each in recommendation.cheaper] == ["tool_calling"]
    assert [each.row.loop for each in recommendation.candidates] == ["tool_calling", "json", "rewoo", "react"]
    assert recommendation.candidates[0].unmet == ("success",)
    assert recommendation.chosen is not None and recommendation.chosen.sure == probability_of_share(28, 32, 0.8)
    assert recommendation.cheaper[0].sure == probability_of_share(20, 32, 0.8) > 0


def test_of_equal_price_the_fewest_tokens_decide_then_the_seconds() -> None:
    rows = [
        row("react", cost_usd=0.0, tokens=900, seconds=1),
        row("json", cost_usd=0.0, tokens=800, seconds=3),
        row("rewoo", cost_usd=0.0, tokens=800, seconds=2),
    ]
    recommendation = plait.recommend(table(*rows))
    assert [each.row.loop for each in recommendation.candidates] == ["rewoo", "json", "react"]
    unknown = [{**each, "cost_usd": None} for each in rows]
    assert chosen(plait.recommend(table(*unknown))) == "rewoo"


def test_a_price_that_is_not_known_meets_no_budget_and_stands_behind_those_that_are() -> None:
    both = table(row("react", cost_usd=None, tokens=1), row("json", cost_usd=0.5))
    assert chosen(plait.recommend(both)) == "json"
    assert "A price that is not known stands last: react with local." in str(plait.recommend(both))
    recommendation = plait.recommend(both, usd=0.1)
    assert recommendation.chosen is None
    assert {each.row.loop: each.unmet for each in recommendation.candidates} == {
        "json": ("usd",),
        "react": ("price",),
    }
    assert "A price that is not known meets no budget: react with local." in str(recommendation)


@for_each(
    ("demand", "met"),
    [
        ({"usd": 0.001}, True),
        ({"usd": 0.0009}, False),
        ({"seconds": 2.0}, True),
        ({"seconds": 1.9}, False),
        ({"tokens": 1000}, True),
        ({"tokens": 999}, False),
        ({"at_least": 0.9375}, True),
        ({"at_least": 0.938}, False),
        ({"usd": 0}, False),
    ],
)
def test_each_demand_is_met_up_to_its_bound(demand: dict[str, float], met: bool) -> None:
    recommendation = plait.recommend(table(row(successes=30, n=32)), **demand)
    assert (recommendation.chosen is not None) is met
    assert plait.recommend(table(row(cost_usd=0.0)), usd=0).chosen is not None


def test_a_share_that_is_just_what_is_asked_is_not_lost_to_rounding() -> None:
    for of in range(1, 200, 1 if CAMPAIGN else 13):
        for right in range(of + 1):
            found = plait.recommend(table(row(successes=right, n=of)), at_least=right / of)
            assert found.chosen is not None, (right, of)


def test_where_none_meets_it_those_that_miss_only_one_part_are_told() -> None:
    rows = [
        row("react", successes=28, cost_usd=0.009),
        row("json", successes=29, cost_usd=0.005),
        row("tool_calling", successes=24, cost_usd=0.001),
        row("rewoo", successes=20, cost_usd=0.0005),
        row("phased", successes=26, cost_usd=0.002),
        row("mine", successes=32, cost_usd=0.002),
    ]
    recommendation = plait.recommend(table(*rows), usd=0.001)
    assert {part: each.row.loop for part, each in recommendation.nearest.items()} == {
        "success": "tool_calling",
        "usd": "phased",
    }


def test_where_every_row_misses_several_parts_the_best_in_each_is_told() -> None:
    rows = [
        row("react", successes=24, cost_usd=0.009, seconds=3),
        row("json", successes=16, cost_usd=0.001, seconds=9),
        row("rewoo", successes=8, cost_usd=0.002, seconds=1),
    ]
    recommendation = plait.recommend(table(*rows), at_least=0.9, usd=0.0001, seconds=0.5)
    assert recommendation.chosen is None and recommendation.runner_up is None
    assert {part: each.row.loop for part, each in recommendation.nearest.items()} == {
        "success": "react",
        "usd": "json",
        "seconds": "rewoo",
    }
    said = str(recommendation)
    assert said.startswith("No row of sums meets the demand: at least 90 % of the tasks, at most 0.0001 USD a run")
    assert "Nearest in seconds: rewoo with local: 25 % of 32 tasks" in said


def test_repeats_of_a_task_count_as_no_further_evidence() -> None:
    once = plait.recommend(table(row(successes=27, n=32))).chosen
    three_times = plait.recommend(table(row(successes=81, n=96, tasks=32))).chosen
    assert once is not None and three_times is not None
    assert three_times.sure == once.sure == probability_of_share(27, 32, 0.8)
    assert three_times.row.success == 81 / 96
    odd = plait.recommend(table(row(successes=83, n=96, tasks=32))).chosen
    assert odd is not None and odd.sure == probability_of_share(27, 32, 0.8), "27.7 of 32 count as 27"
    assert "84 % of 32 tasks in 96 runs" in str(plait.recommend(table(row(successes=81, n=96, tasks=32))))


def test_the_words_are_those_of_the_numbers() -> None:
    recommendation = plait.recommend(
        table(row("rewoo", successes=27, interval=[0.682, 0.931], cost_usd=0.0012, tokens=1240))
    )
    first, second = str(recommendation).splitlines()
    assert first == (
        "rewoo with local: 84 % of 32 tasks (68-93); 67 % likely that its true success rate is 80 % or more; "
        "a run takes 0.0012 USD, 1,240 tokens, 2.0 s."
    )
    assert probability_of_share(27, 32, 0.8) == pytest.approx(0.67, abs=0.005)
    assert recommendation.thin
    assert recommendation.more_tasks is not None and 100 < recommendation.more_tasks < 300
    assert second.startswith("This is thin evidence: 32 tasks. About ") and "95 % sure" in second


@for_each(
    ("number", "said"),
    [
        (0.0, "0"),
        (0.0000123, "0.000012"),
        (0.00119, "0.0012"),
        (3.44, "3.4"),
        (21.4, "21"),
        (123.0, "123"),
        (9999.5, "10,000"),
    ],
)
def test_numbers_are_told_plainly(number: float, said: str) -> None:
    assert show_short(number) == said


def test_a_price_that_is_not_known_is_said_of_the_row() -> None:
    assert "a run takes 1,000 tokens, 2.0 s; its price is unknown." in str(plait.recommend(table(row(cost_usd=None))))


def test_thin_evidence_is_few_tasks_or_little_certainty() -> None:
    assert not plait.recommend(table(row(successes=32))).thin
    assert plait.recommend(table(row(successes=9, n=9)), at_least=0.5).thin
    assert not plait.recommend(table(row(successes=10, n=10)), at_least=0.5).thin
    hardly = plait.recommend(table(row(successes=8, n=10)), at_least=0.8)
    assert hardly.thin and hardly.more_tasks is None
    assert "no number of tasks would make it 95 % sure" in str(hardly)


def test_certainty_is_never_told_as_whole() -> None:
    said = str(plait.recommend(table(row(successes=500, n=500), row("json", successes=0, n=500, cost_usd=0.0))))
    assert "more than 99 % likely" in said and "less than 1 % likely" in said


def test_a_loop_that_is_not_here_is_not_advised_and_is_said() -> None:
    rows = [
        row("mine", cost_usd=0.0),
        row("react(colour=red)", cost_usd=0.0),
        row("rewoo", models={"plan": "local"}, cost_usd=0.0),
        row("react(dialect=lines)", cost_usd=0.1),
    ]
    recommendation = plait.recommend(table(*rows))
    assert chosen(recommendation) == "react(dialect=lines)"
    said = str(recommendation)
    assert "Can't be run here: mine with local: There is no loop 'mine'." in said
    assert "has no option 'colour'" in said and "It names no model for the phase" in said
    assert all(each.unmet == ("here",) for each in recommendation.candidates[:3])


def test_a_row_without_runs_and_an_unfinished_comparison_are_said() -> None:
    recommendation = plait.recommend(
        table(row(n=0, successes=0), row("json"), unfinished="the budget of 1 USD is used up")
    )
    assert chosen(recommendation) == "json"
    assert "The comparison is not finished: the budget of 1 USD is used up." in str(recommendation)
    assert plait.recommend(table(row(n=0, successes=0)), at_least=0).chosen is None


# --- what results may be


def test_a_file_a_mapping_and_an_object_with_rows_are_the_same_results(tmp_path: Path) -> None:
    @dataclass
    class Line:
        loop: str
        models: dict[str, str]
        successes: int
        n: int
        cost_usd: float | None

    @dataclass
    class Table:
        rows: list[Line]

    given = table(row("react"), row("json", cost_usd=None))
    place = tmp_path / "table.json"
    place.write_text(json.dumps(given, indent=3))
    for each in (place, str(place), given):
        assert read_rows(each) == read_rows(given)
    assert read_rows({**given, "rows": given["rows"][:1]}).digest != read_rows(given).digest
    lines = Table([Line("react", {"act": "local"}, 30, 32, 0.5)])
    (only,) = read_rows(lines).rows
    assert (only.loop, only.evidence, only.cost_usd) == ("react", (30, 32), 0.5)


async def test_a_comparison_in_the_journal_is_found_by_its_name(tmp_path: Path) -> None:
    journal = Journal.at(tmp_path / "journal.db")
    kept = Comparisons(journal.store)
    await kept.save("sums", {}, table(row("react")))
    await kept.save("begun", {})
    assert chosen(plait.recommend("sums", journal=journal.place)) == "react"
    with pytest.raises(ConfigError, match="has no table yet"):
        plait.recommend("begun", journal=journal.place)
    with pytest.raises(ConfigError, match=r"There is no file other\. .*sums"):
        plait.recommend("other", journal=journal.place)


def test_a_comparison_its_file_and_its_journal_are_the_same_results(tmp_path: Path) -> None:
    from msgspec import structs

    from lab_results import comparison
    from plait.lab.report import as_object

    made = comparison({"react": ["++", "++", "+-"], "json": ["--", "+-", "++"]})
    made = structs.replace(
        made, contenders=tuple(structs.replace(each, models={"act": "local"}) for each in made.contenders)
    )
    (tmp_path / "table.json").write_text(json.dumps(as_object(made)))
    recommendation = plait.recommend(made, at_least=0.6)
    assert chosen(recommendation) == "react" and recommendation.chosen is not None
    assert recommendation.chosen.row.evidence == (2, 3), "5 of 6 runs of 3 tasks"
    assert (recommendation.name, recommendation.suite) == ("trial", "towns")
    assert read_rows(made).digest == read_rows(tmp_path / "table.json").digest


def test_an_advice_stands_for_what_it_was_made_from() -> None:
    first = plait.recommend(table(row("react", successes=31, cost_usd=0.9), row("json", successes=28, cost_usd=0.1)))
    again = plait.recommend(first, at_least=0.95)
    assert (chosen(first), chosen(again)) == ("json", "react")
    assert again.digest == first.digest


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("nowhere.json", "There is no file nowhere.json"),
        ({}, "no list of `rows`"),
        ({"rows": "react"}, "no list of `rows`"),
        ({"rows": []}, "there is no row"),
        (17, "no list of `rows`"),
        ({"rows": [7]}, "a row is int"),
        (table({"loop": "react"}), "row 1: Object missing required field"),
        (table(row(), row(successes=33, n=32)), "row 2: 33 successes of 32 runs"),
        (table(row(seconds=math.nan)), "row 1: tokens, seconds, USD"),
        (table(row(cost_usd=-1.0)), "row 1: tokens, seconds, USD"),
        (table(row(cost_usd="free")), "row 1: Expected `float"),
        (table(row(models={})), "row 1: it names no model"),
    ],
)
def test_what_is_no_results_is_said(given: Any, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError) as error:
        plait.recommend(given, journal=tmp_path / "journal.db")
    assert said in str(error.value)


@pytest.mark.parametrize("text", ["", "no", '{"rows": [', "[" * 100_000, "\x00"])
def test_a_file_that_is_no_json_is_said(text: str, tmp_path: Path) -> None:
    place = tmp_path / "table.json"
    place.write_text(text)
    with pytest.raises(ConfigError, match="is not JSON"):
        plait.recommend(place)


@pytest.mark.parametrize(
    "parts", [{"at_least": 1.1}, {"at_least": math.nan}, {"usd": -1}, {"seconds": math.inf}, {"tokens": True}]
)
def test_a_demand_that_cant_be_is_refused(parts: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(parts))):
        plait.Demand(**parts)
    with pytest.raises(ConfigError, match=next(iter(parts))):
        plait.recommend(table(row()), **parts)


# --- an agent whose loop is chosen

ONE = "scripted:one.json"
TWO = "scripted:two.json"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    replies = ["Thought: I know it.\nFinal Answer: forty-two"]
    for spec in (ONE, TWO):
        Path(spec.partition(":")[2]).write_text(json.dumps(replies))
    rows = [
        row("react(dialect=lines)", ONE, successes=28, cost_usd=0.1),
        row("react", TWO, successes=32, cost_usd=0.2),
        row("rewoo", ONE, successes=31, cost_usd=0.3, models={"plan": ONE, "work": ONE, "solve": TWO}),
    ]
    Path("table.json").write_text(json.dumps(table(*rows)))
    return tmp_path


def test_the_recommended_agent_has_the_loop_its_options_and_the_models(folder: Path) -> None:
    agent = plait.recommend("table.json").agent
    assert agent.loop == plait.ReAct(dialect="lines") and agent.model == ONE
    run = agent.using(journal="j.db").run("What is it?")
    assert (run.status, run.answer) == ("answered", "forty-two")
    stricter = plait.recommend("table.json", at_least=0.95).agent
    assert stricter.loop == plait.ReAct() and stricter.model == TWO


def test_a_recommended_agent_has_a_model_for_each_phase(folder: Path) -> None:
    agent = plait.recommend("table.json", only={"solve": TWO}).agent
    assert agent.loop == plait.ReWOO() and agent.models == {"plan": ONE, "work": ONE, "solve": TWO}


def test_without_a_row_that_meets_the_demand_there_is_no_agent(folder: Path) -> None:
    with pytest.raises(ConfigError, match="meets the demand"):
        _ = plait.recommend("table.json", plait.Demand(1.0, usd=0.1)).agent
    with pytest.raises(ConfigError, match=r"no row with the model local\..*react with scripted:two.json"):
        plait.recommend("table.json", only={"": "local"})


# --- words of loops


@pytest.mark.parametrize(
    "loop",
    [
        plait.ReAct(),
        plait.ReAct(dialect="lines", constrain=True),
        plait.LLMCompiler(fallback="", max_tokens=7),
        plait.CodeAct(),
    ],
)
def test_a_loop_is_read_back_from_its_word(loop: Any) -> None:
    assert loops.loop_from(loops.word_of(loop)) == loop


def test_every_loop_is_read_back_from_its_word() -> None:
    for name in loops.OURS:
        assert loops.word_of(loops.loop_from(f" {name}() ")) == name


@for_each("word", ["", "re act", "react(", "react(dialect)", "(x=1)", "react(dialect=lines"])
def test_a_word_that_is_none_is_refused(word: str) -> None:
    with pytest.raises(ConfigError):
        loops.loop_from(word)


def test_rows_that_differ_at_the_end_of_long_texts_have_the_names_of_the_comparison() -> None:
    texts = [
        {"instructions": f"You answer questions about the orders of a shop. Be {how}."} for how in ("brief", "long")
    ]
    rows = [row(texts=each, who=f"local · @{at}.txt", agent="bot") for at, each in enumerate(texts)]
    names = [str(plait.recommend(table(each))).split(":")[0] for each in rows]
    assert names == ["react with local · @0.txt", "react with local · @1.txt"]
    assert "react with local" in str(plait.recommend(table(row())))
