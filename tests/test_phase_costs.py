"""Exact costs with cached reads, cache writes, reasoning, service tiers and costs that the provider reports."""

from __future__ import annotations

import asyncio
import csv
import io
import json
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import plait
from cli_support import Shell
from conftest import DATA, for_each
from models_server import Asked, Server, completion
from plait.core import Reply, Think, Usage, user
from plait.core.events import Noted
from plait.models import http
from plait.models.base import Abilities, Response
from plait.models.config import ModelConfig
from plait.models.prices import NANO, UNKNOWN, Rate, Tier, bundled_rate, describe_rate
from plait.models.resolve import resolve
from plait.models.scripted import Scripted
from plait.models.wires.refusals import Target
from plait.models.wires.replies import decode
from plait.models.wires.wire import CHAT, load_wire
from plait.runtime.run import Run
from test_spending import LIST, adds_up, look, row

THINK = Think("act", (user("q"),))
PLAIN = Abilities(stream=False)


def read_reply(usage: dict[str, Any], **more: Any) -> Reply:
    body = json.dumps({**completion("x"), "usage": usage, **more}).encode()
    return decode(Response(200, body), THINK, load_wire(CHAT), Target("http://host/v1", "m"))


# --- three providers in three phases


@dataclass(frozen=True)
class Provider:
    """What a provider bills: the usage it reports, its prices, and the expected tokens and nano-USD."""

    text: str
    usage: dict[str, Any]
    rate: Rate
    used: Usage
    parts: tuple[tuple[int, str], ...]
    """Tokens, and their price in USD per 1,000,000 tokens."""

    @property
    def nanos(self) -> int:
        return round(sum(count * Fraction(price) * 1000 for count, price in self.parts))


PROVIDERS = {
    # OpenAI: reads and writes are in the details; both are part of the prompt.
    "reason": Provider(
        "I look for a and b.",
        {
            "prompt_tokens": 4_321,
            "completion_tokens": 777,
            "prompt_tokens_details": {"cached_tokens": 1_024, "cache_write_tokens": 3_001},
            "completion_tokens_details": {"reasoning_tokens": 640},
        },
        Rate("tokens", 1.25, 10.0, 0.125, 1.5625),
        Usage(4_321, 777, 1_024, 3_001, 640),
        ((296, "1.25"), (1_024, "0.125"), (3_001, "1.5625"), (777, "10")),
    ),
    # DeepSeek: hits and misses, no writes.
    "react": Provider(
        LIST,
        {
            "prompt_tokens": 1_111,
            "completion_tokens": 53,
            "prompt_cache_hit_tokens": 896,
            "prompt_cache_miss_tokens": 215,
        },
        Rate("tokens", 0.27, 1.1, 0.07),
        Usage(1_111, 53, 896),
        ((215, "0.27"), (896, "0.07"), (53, "1.1")),
    ),
    # Anthropic, behind a compatible endpoint: its own count leaves out what was read from or written to a cache.
    "reply": Provider(
        "They are known.",
        {
            "input_tokens": 37,
            "output_tokens": 19,
            "cache_read_input_tokens": 2_048,
            "cache_creation_input_tokens": 411,
            "output_tokens_details": {"thinking_tokens": 7},
        },
        Rate("tokens", 3.0, 15.0, 0.3, 3.75, tiers=(Tier(2_000, 6.0, 22.5, 0.6, 7.5),)),
        Usage(2_496, 19, 2_048, 411, 7),
        ((37, "6"), (2_048, "0.6"), (411, "7.5"), (19, "22.5")),
    ),
}


def saying(provider: Provider, **more: Any) -> Callable[[Asked], Awaitable[None]]:
    async def handler(asked: Asked) -> None:
        await asked.answer(200, {**completion(provider.text), "usage": provider.usage, **more})

    return handler


async def run_phased(journal: Path) -> tuple[plait.Agent, Run]:
    async with AsyncExitStack() as stack:
        models = {}
        for phase, provider in PROVIDERS.items():
            server = await stack.enter_async_context(Server(saying(provider)))
            models[phase] = server.model(spec=f"{phase}-host:m", rate=provider.rate, abilities=PLAIN)
        agent = plait.Agent(plait.Phased(), models=models, tools=[look], journal=journal)
        run = await agent.arun("What is so?")
        assert run.status == "answered", run.reason
        await http.close()
        return agent, run


def test_phased_with_three_providers_costs_each_phase_exactly(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    agent, run = asyncio.run(run_phased(tmp_path / "journal.db"))
    agent.replay(run.id)
    for phase, provider in PROVIDERS.items():
        found = row(run, phase)
        assert (found.usage, found.nanos) == (provider.used, provider.nanos), phase
    adds_up(run)
    assert run.cost_usd is not None
    assert round(run.cost_usd * NANO) == sum(provider.nanos for provider in PROVIDERS.values())

    (cells,) = csv.DictReader(io.StringIO(shell("costs", run.id, "--csv", "--tokens").out))
    assert (cells["cached"], cells["cache writes"]) == ("50.1%", "43.0%")  # 3,968 and 3,412 of 7,928
    assert (cells["reply cached"], cells["reply cache writes"], cells["reason reasoning"]) == ("2048", "411", "640")
    found = json.loads(shell("costs", run.id, "--json").out)[0]
    assert found["in_all"]["usage"] == {
        "input_tokens": 7_928,
        "output_tokens": 849,
        "cached_tokens": 3_968,
        "cache_write_tokens": 3_412,
        "reasoning_tokens": 647,
        "estimated": False,
        "cache_write_1h_tokens": 0,
    }
    assert found["in_all"]["cached_share"] == 3_968 / 7_928
    assert [round(phase["cost_usd"] * NANO) for phase in found["phases"] if phase["model"]] == [
        provider.nanos for provider in PROVIDERS.values()
    ]
    shown = shell("show", run.id).out
    assert "2,496 + 19 tokens (2,048 cached, 411 cache writes, 7 reasoning)" in shown
    head = next(line for line in shown.splitlines() if line.startswith("phase "))
    kinds = "phase model calls input cached cache writes output reasoning seconds USD"
    assert head.split() == kinds.split()


def test_scripted_replies_carry_cache_writes_and_reasoning(tmp_path: Path) -> None:
    used = Usage(1_000, 100, 300, 200, 40)
    model = Scripted([Reply("Final Answer: a", usage=used)], rate=Rate("tokens", 2.0, 8.0, 0.2, 2.5))
    run = plait.Agent("react", model=model, journal=tmp_path / "journal.db").run("So?")
    assert (run.usage, run.cost_usd) == (used, 0.00236)


def test_the_share_of_cached_tokens_without_tokens_is_absent(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    model = Scripted([Reply("Final Answer: a", usage=Usage(0, 5))], rate=UNKNOWN)
    run = plait.Agent("react", model=model, journal=tmp_path / "journal.db").run("So?")
    (cells,) = csv.DictReader(io.StringIO(shell("costs", run.id, "--csv").out))
    assert cells["cached"] == "" and "cache writes" not in cells


# --- usage and costs as providers report them


@for_each(
    ("usage", "expected"),
    [
        ({"prompt_tokens": 9, "completion_tokens": 2, "cached_tokens": 4}, Usage(9, 2, 4)),
        (
            {"prompt_tokens": 9, "completion_tokens": 2, "num_cached_tokens": 4},
            Usage(9, 2),
        ),  # Mistral: always the prompt minus one
        ({"input_tokens": 9, "output_tokens": 2, "cache_creation_input_tokens": 5}, Usage(14, 2, 0, 5)),
        ({"input_tokens": 9, "output_tokens": 2, "cache_read_input_tokens": None}, Usage(9, 2)),
        # More cached tokens than tokens can't be: the parts stay within the whole.
        (
            {
                "prompt_tokens": 9,
                "completion_tokens": 2,
                "prompt_tokens_details": {"cached_tokens": 8, "cache_write_tokens": 7},
            },
            Usage(9, 2, 8, 1),
        ),
        (
            {"prompt_tokens": 9, "completion_tokens": 2, "completion_tokens_details": {"reasoning_tokens": 7}},
            Usage(9, 2, 0, 0, 2),
        ),
        # xAI: the reasoning stands beside the completion and in the total.
        (
            {
                "prompt_tokens": 9,
                "completion_tokens": 2,
                "total_tokens": 61,
                "completion_tokens_details": {"reasoning_tokens": 50},
            },
            Usage(9, 52, 0, 0, 50),
        ),
    ],
)
def test_usage_of_each_dialect(usage: dict[str, Any], expected: Usage) -> None:
    assert read_reply(usage).usage == expected


TOKENS = {"prompt_tokens": 9, "completion_tokens": 2}


@for_each(
    ("reported", "usd"),
    [
        ({"cost": 7.79e-05}, 7.79e-05),
        ({"cost": 0}, 0.0),
        ({"cost": 0.00000000049}, 0.0),
        ({"cost_in_usd_ticks": 37_756_000}, 0.0037756),
        ({"cost": {"input_tokens_cost": 0.1, "total_cost": 0.3}}, 0.3),
        ({"cost": 0.001, "is_byok": True, "cost_details": {"upstream_inference_cost": 0.02}}, 0.021),
        ({"cost": 0.001, "is_byok": True}, None),
        ({"cost": None}, None),
        ({"cost": "free"}, None),
        ({"cost": -1}, None),
    ],
)
def test_a_cost_that_the_provider_reports(reported: dict[str, Any], usd: float | None) -> None:
    reply = read_reply({**TOKENS, **reported})
    assert (reply.cost, reply.cost_reported) == (usd, usd is not None)


def answer_once(journal: Path, usage: dict[str, Any], rate: Rate, **more: Any) -> Run:
    async def main() -> Run:
        provider = Provider("Final Answer: a", usage, rate, Usage(), ())
        async with Server(saying(provider, **more)) as server:
            model = server.model(spec="openai:gpt-5@service_tier=auto", rate=rate, abilities=PLAIN)
            run = await plait.Agent("react", model=model, journal=journal).arun("So?")
            await http.close()
            return run

    run = asyncio.run(main())
    assert run.status == "answered", run.reason
    return run


@pytest.mark.parametrize("rate", [Rate("tokens", 100.0, 100.0), UNKNOWN], ids=["priced", "not priced"])
def test_the_provider_s_own_cost_wins_over_prices_and_says_so(tmp_path: Path, rate: Rate) -> None:
    shell = Shell(tmp_path)
    run = answer_once(tmp_path / "journal.db", {**TOKENS, "cost": 0.000123456}, rate)
    assert (run.cost_usd, run.phases[0].costs_reported) == (0.000123456, 1)
    shown = shell("costs", run.id, "--rates").out
    assert "openai:gpt-5@service_tier=auto: cost reported by the provider" in shown


# --- service tiers

ORDINARY, FLEX = Rate("tokens", 2.0, 8.0), Rate("tokens", 1.0, 4.0)


def notes_of(run: Run) -> list[str]:
    return [event.text for event in run.events if isinstance(event, Noted) and event.kind == "price"]


def test_a_service_tier_with_a_price_changes_the_cost(tmp_path: Path) -> None:
    rate = ORDINARY.add_service_tiers({"flex": FLEX}, "")
    run = answer_once(tmp_path / "journal.db", TOKENS, rate, service_tier="flex")
    assert (run.cost_usd, notes_of(run)) == (FLEX.cost(Usage(9, 2)), [])


def test_a_service_tier_without_a_price_is_noted(tmp_path: Path) -> None:
    run = answer_once(tmp_path / "journal.db", TOKENS, ORDINARY, service_tier="priority")
    (note,) = notes_of(run)
    assert run.cost_usd == ORDINARY.cost(Usage(9, 2))
    assert "service tier 'priority'" in note and '[prices."openai:gpt-5@service_tier=priority"]' in note


@pytest.mark.parametrize("tier", [None, "default", "standard", "on_demand"])
def test_an_ordinary_service_tier_has_the_ordinary_price(tmp_path: Path, tier: str | None) -> None:
    run = answer_once(tmp_path / "journal.db", TOKENS, ORDINARY, service_tier=tier)
    assert (run.cost_usd, notes_of(run)) == (ORDINARY.cost(Usage(9, 2)), [])


def test_prices_of_service_tiers_from_plait_toml() -> None:
    settings = {
        "prices": {
            "openai:gpt-5": {"input": 2, "output": 8},
            "openai:gpt-5@service_tier=flex": {"input": 1, "output": 4, "cache_write": 1.5},
            "openai:*@service_tier=priority": {"input": 4, "output": 16},
        }
    }
    config, used = ModelConfig.from_mapping(settings), Usage(1_000_000, 0)
    plain = resolve("openai:gpt-5", config, env={"OPENAI_API_KEY": "k"}).rate
    flex = resolve("openai:gpt-5@service_tier=flex", config, env={"OPENAI_API_KEY": "k"}).rate
    asked = [plain.cost(used, 0.0, tier) for tier in ("", "default", "flex", "priority", "batch")]
    assert asked == [2.0, 2.0, 1.0, 4.0, 2.0]
    asked = [flex.cost(used, 0.0, tier) for tier in ("", "default", "flex", "priority")]
    assert asked == [1.0, 2.0, 1.0, 4.0], "a reply without a tier has the requested one"
    assert flex.cost(Usage(1_000_000, 0, 0, 1_000_000)) == 1.5
    assert "service tier priority: 4 in, 16 out" in describe_rate(plain)
    other = resolve("openai:gpt-4o", config, env={"OPENAI_API_KEY": "k"}).rate
    assert (other.has_service_tier("flex"), other.has_service_tier("priority")) == (False, True)


# --- prices of cache writes


def test_prices_of_cache_writes_come_from_the_table() -> None:
    rate = bundled_rate("anthropic", "claude-sonnet-4-5", date="2026-01-31")
    assert (rate.input, rate.cached, rate.cache_write) == (3.0, 0.3, 3.75)
    assert rate.tiers[0].cache_write == 7.5
    assert "3.75 cache write" in describe_rate(rate)


def test_cache_writes_without_a_price_cost_the_same_as_input() -> None:
    rate = Rate.from_mapping({"input": 3, "output": 15, "cached": 0.3}, "x")
    assert rate.cost(Usage(1_000, 0, 100, 900)) == 0.00273


# --- recordings of providers

RECORDED = sorted((DATA / "wires").glob("*/*.json"))


@pytest.mark.skipif(not RECORDED, reason="needs the recordings beside the checkout")
def test_recorded_replies_count_what_the_provider_reports() -> None:
    read: dict[str, int] = {}
    for path in RECORDED:
        for each in json.loads(path.read_text()):
            if not each["path"].endswith("/chat/completions") or int(each["status"]) != 200:
                continue
            body = each["sse"].encode() if "sse" in each else json.dumps(each["response"]).encode()
            try:
                reply = decode(Response(200, body), THINK, load_wire(CHAT), Target("http://host/v1", "m"))
            except plait.core.errors.ModelError:
                continue  # an error inside the body
            used, reported = reply.usage, each.get("response", {}).get("usage")
            assert used.cached_tokens + used.cache_write_tokens <= used.input_tokens
            assert used.reasoning_tokens <= used.output_tokens
            read[path.parent.name] = read.get(path.parent.name, 0) + 1
            if not reported:
                continue
            details, written = reported.get("prompt_tokens_details"), reported.get("completion_tokens_details")
            assert used.tokens == reported["total_tokens"] and not used.estimated, path
            stored = (details or {}).get("cache_write_tokens", 0)  # may name tokens that were also read from the cache
            assert used.cache_write_tokens == min(stored, used.input_tokens - used.cached_tokens), path
            assert used.reasoning_tokens == ((written or {}).get("reasoning_tokens") or 0), path
            cost = reported.get("cost")
            if reported.get("is_byok"):
                cost += reported["cost_details"]["upstream_inference_cost"]
            assert reply.cost == (None if cost is None else round(cost, 9)), path
    assert len(read) >= 8, read
