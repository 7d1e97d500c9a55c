"""What a call costs: exact, in every way a price can be given, and never 0 for what is not known."""

from __future__ import annotations

import subprocess
import sys
import time
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import for_each
from plait.core import Usage
from plait.core.errors import ConfigError
from plait.models.prices import LOCAL, UNKNOWN, Rate, Tier, bundled_rate, find_by_name, total


def test_tokens_with_and_without_cache():
    rate = Rate("tokens", 1.25, 10.0, 0.125)
    assert rate.cost(Usage(1000, 100)) == 0.00225
    assert rate.cost(Usage(1000, 100, cached_tokens=1000)) == 0.001125
    assert Rate("tokens", 1.25, 10.0).cost(Usage(1000, 100, 1000)) == 0.00225


def test_a_long_request_pays_the_long_price_for_all_of_it():
    rate = Rate("tokens", 1.0, 2.0, 0.1, tiers=(Tier(200_000, 2.0, 4.0, 0.2),))
    assert rate.cost(Usage(200_000, 1000)) == 0.202
    assert rate.cost(Usage(200_001, 1000)) == pytest.approx(0.404002)


def test_electricity_by_tokens_and_by_time():
    assert Rate("per_1k", per_1k_tokens=0.0002).cost(Usage(1500, 500)) == 0.0004
    # 65 W for an hour at 0.30 USD a kWh
    assert Rate("watts", watts=65, tariff=0.3).cost(Usage(9, 9), 3600) == 0.0195


def test_what_is_not_known_has_no_cost():
    assert UNKNOWN.cost(Usage(10, 10), 5) is None
    assert not UNKNOWN.is_known
    assert LOCAL.cost(Usage(10, 10), 5) == 0.0
    assert "electricity not counted" in LOCAL.source


@given(
    st.integers(0, 10**7),
    st.integers(0, 10**6),
    st.integers(0, 10**7),
    st.integers(0, 10**5),
    st.integers(0, 10**5),
)
def test_a_cost_is_the_exact_one_rounded_to_a_billionth(read, written, cached, price, out):
    rate = Rate("tokens", price / 1000, out / 1000, price / 10000)
    cached = min(cached, read)
    exact = (read - cached) * Fraction(price, 1000) + cached * Fraction(price, 10000) + written * Fraction(out, 1000)
    found = rate.cost(Usage(read, written, cached))
    assert abs(Fraction(round(found * 10**9), 10**9) - exact / 10**6) <= Fraction(1, 2 * 10**9)


@given(st.lists(st.integers(0, 10**12), max_size=50))
def test_rows_add_up_to_the_total_exactly(nanos):
    costs = [nano / 10**9 for nano in nanos]
    assert total(costs) == sum(nanos) / 10**9


def test_a_total_with_something_unknown_is_unknown():
    assert total([0.1, None]) is None
    assert total([]) == 0.0
    assert total([0.1] * 10) == 1.0


@pytest.mark.parametrize(
    "given, kind",
    [
        ({"input": 1, "output": 2}, "tokens"),
        ({"input": 1, "output": 2, "cached": 0.1}, "tokens"),
        ({"per_1k_tokens": 0.001}, "per_1k"),
        ({"watts": 65, "tariff": 0.3}, "watts"),
    ],
)
def test_a_price_as_the_user_writes_it(given, kind):
    rate = Rate.from_mapping(given, "plait.toml: prices.x")
    assert rate.kind == kind
    assert rate.source == "plait.toml: prices.x"
    assert Rate.from_mapping({**given, "source": "bill", "date": "2026-11-01"}, "x").source == "bill"


@for_each(
    "given",
    [
        {}, {"input": 1}, {"input": 1, "output": -1}, {"input": "1", "output": 2}, {"watts": 65}, 3,
        {"input": True, "output": 1}, {"input": float("nan"), "output": 1},
        {"input": 1, "output": 2, "watts": 3},
    ],
)  # fmt: skip
def test_a_wrong_price_is_refused_with_its_place(given):
    with pytest.raises(ConfigError, match=r"prices\.x"):
        Rate.from_mapping(given, "plait.toml: prices.x")


def test_the_bundled_table_knows_usual_models_and_says_where_from():
    rate = bundled_rate("openai", "gpt-4o-mini", date="2026-11-01")
    assert (rate.input, rate.output, rate.cached) == (0.15, 0.6, 0.075)
    assert "genai-prices" in rate.source
    assert rate.date == "2026-11-01"
    assert bundled_rate("gemini", "gemini-2.5-pro").tiers


def test_prices_that_depend_on_the_date():
    assert bundled_rate("openrouter", "openai/gpt-4o", date="2026-10-01").cached is None
    assert bundled_rate("openrouter", "openai/gpt-4o", date="2026-11-01").cached == 1.25


def test_a_process_that_runs_for_weeks_uses_the_price_of_the_day(monkeypatch: pytest.MonkeyPatch) -> None:
    for day in ("2026-10-01", "2026-11-01"):
        monkeypatch.setattr("plait.models.prices.gmtime", lambda day=day: time.strptime(day, "%Y-%m-%d"))
        rate = bundled_rate("openrouter", "openai/gpt-4o")
        assert (rate.date, rate.cached) == (day, 1.25 if day == "2026-11-01" else None)


@pytest.mark.parametrize("provider", ["openai", "nobody"])
def test_an_unknown_model_has_no_price(provider):
    assert bundled_rate(provider, "no-such-model-at-all") == UNKNOWN


def test_own_prices_win_the_nearer_the_name():
    own = {"openai:*": Rate("tokens", 1), "openai:gpt-4o": Rate("tokens", 2), "gpt-4o": Rate("tokens", 3)}
    assert [find_by_name((f"openai:{name}", name), own).input for name in ("gpt-4o", "gpt-5")] == [2, 1]
    assert find_by_name(("groq:gpt-4o", "gpt-4o"), own).input == 3
    assert find_by_name(("groq:llama", "llama"), own) is None


def test_local_and_own_prices_do_not_load_the_table():
    code = (
        "import sys; from plait.models.resolve import resolve; from plait.models.config import ModelConfig\n"
        "resolve('local'); resolve('ollama:x', env={})\n"
        "own = ModelConfig.from_mapping({'prices': {'x': {'input': 1, 'output': 2}}})\n"
        "resolve('openai:x', own, env={'OPENAI_API_KEY': 'k'})\n"
        "print([m for m in ('genai_prices', 'aiohttp', 'pydantic') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
