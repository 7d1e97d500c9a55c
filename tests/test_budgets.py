"""Limits in tokens, USD and calls, against endpoints that break off, never end, or return far more than was asked for.

The guarantee of docs/limits.md: a run exceeds a limit in tokens or USD by at most the error of the prompt estimate,
output beyond the requested `max_tokens`, and replies lost in transit. Everything received is counted.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import re
from base64 import b64encode
from collections.abc import Awaitable, Callable
from hashlib import sha512
from pathlib import Path
from typing import Any

import pytest

import plait
from cli_support import Shell
from faults_support import endpoint, plait_run, shell
from journal_rows import is_request, is_result
from models_server import Asked, Server, delta, event, whole_stream
from plait.core.errors import ConfigError
from plait.models.prices import Rate
from plait.models.wires import draft
from plait.runtime.costs import spending

__all__ = ["shell"]

PRICE = Rate("tokens", input=1.0, output=10.0)
"""USD per million tokens."""


def told(asked: Asked, output: int) -> dict[str, int]:
    """What an endpoint reports that counts a token for four bytes of the request."""
    return {"prompt_tokens": math.ceil(len(asked.raw) / 4), "completion_tokens": output}


def writing(tokens: int | None, text: str = "It is so.", finish: str = "stop") -> Callable[[Asked], Awaitable[None]]:
    """An endpoint that reports that many tokens a reply, or (None) as many as it was allowed."""

    async def handler(asked: Asked) -> None:
        output = asked.body.get("max_tokens", 1000) if tokens is None else tokens
        await asked.stream(whole_stream(text, finish=finish, usage=told(asked, output)))

    return handler


async def endless(asked: Asked) -> None:
    """A stream that never ends and never repeats itself."""
    await asked.begin()
    for i in itertools.count():
        await asked.piece(delta("".join(b64encode(sha512(f"{i} {j}".encode()).digest()).decode() for j in range(10))))


async def broken(asked: Asked) -> None:
    """A stream that breaks off after 400 characters."""
    await asked.begin()
    await asked.piece(delta("four" * 100))
    asked.writer.transport.abort()


async def run_at(
    handler: Callable[[Asked], Awaitable[None]], loop: Any = "tool_calling", question: str = "Is it so?", **options: Any
) -> tuple[plait.Run, Server]:
    """A run against an endpoint of that kind."""
    model = {key: options.pop(key) for key in ("rate", "params", "abilities") if key in options}
    async with Server(handler) as server:
        agent = plait.Agent(loop, model=server.model(**model), **options)
        return await agent.arun(question), server


async def test_a_reply_far_over_the_token_limit_is_stopped_and_says_by_how_much() -> None:
    run, server = await run_at(writing(100_000), limits=plait.Limits(tokens=500))
    assert run.status == "stopped" and run.outcome.limit == "tokens"  # type: ignore[union-attr]
    assert run.usage.output_tokens == 100_000 and run.answer == "It is so."
    assert f"{run.usage.tokens - 500:,} more than its limit of 500" in str(run.reason)
    assert 0 < server.asked[0].body["max_tokens"] < 500


async def test_a_reply_far_over_the_cost_limit_is_stopped_and_says_by_how_much() -> None:
    run, server = await run_at(writing(100_000), limits=plait.Limits(usd=0.001), rate=PRICE)
    assert run.status == "stopped" and run.outcome.limit == "usd"  # type: ignore[union-attr]
    assert run.cost_usd is not None and f"{run.cost_usd - 0.001:.5f} more than its limit" in str(run.reason)
    assert 0 < server.asked[0].body["max_tokens"] <= 100


@pytest.mark.parametrize("limits", [plait.Limits(tokens=3000), plait.Limits(usd=0.01)], ids=["tokens", "usd"])
async def test_an_endpoint_that_keeps_to_max_tokens_keeps_the_run_within_its_limit(limits: plait.Limits) -> None:
    # Each reply uses all that it may have, and is cut there.
    run, _ = await run_at(writing(None, finish="length"), limits=limits, rate=PRICE)
    assert run.status == "stopped" and "more than its limit" not in str(run.reason)
    assert run.usage.tokens <= (limits.tokens or 10**9) and (run.cost_usd or 0.0) <= (limits.usd or 1.0)


@pytest.mark.parametrize("limits", [plait.Limits(tokens=20_000), plait.Limits(usd=0.05)], ids=["tokens", "usd"])
async def test_steps_that_run_in_parallel_share_what_is_left(limits: plait.Limits) -> None:
    plan = "".join(f"Plan: ask\n#E{i} = LLM[Question {i}?]\n" for i in range(1, 21))

    async def handler(asked: Asked) -> None:
        text = plan if "Question 20?" not in str(asked.body) and "#E" in str(asked.body) else "It is so."
        output = 400 if text is plan else asked.body["max_tokens"]
        await asyncio.sleep(0.01)
        await asked.stream(whole_stream(text, usage=told(asked, output)))

    run, server = await run_at(handler, "rewoo", limits=limits, rate=PRICE)
    assert len(server.asked) > 15
    assert run.usage.tokens <= (limits.tokens or 10**9) and (run.cost_usd or 0.0) <= (limits.usd or 1.0)


async def test_a_stream_that_never_ends_is_cut_at_its_share_and_counted() -> None:
    run, server = await run_at(endless, limits=plait.Limits(tokens=2000))
    assert run.status == "stopped" and run.outcome.limit == "tokens"  # type: ignore[union-attr]
    assert run.usage.estimated and 0 < run.usage.tokens < 3 * 2000
    assert len(server.asked) <= 2


async def test_a_stream_that_never_ends_is_cut_without_a_limit_too_and_not_asked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(draft, "MOST_CHARS", 1 << 17)  # an eighth, because every piece is searched for repetitions
    run, server = await run_at(endless)
    assert run.status == "crashed" and "far more than any reply" in str(run.reason)
    assert len(server.asked) == 1 and 25_000 < run.usage.output_tokens < 40_000


async def test_a_stream_of_nothing_is_cut_after_two_mebibytes() -> None:
    async def handler(asked: Asked) -> None:
        await asked.begin()
        while True:
            await asked.piece(event({"choices": [{"index": 0, "delta": {"role": "assistant"}}]}) * 500)

    run, server = await run_at(handler)
    assert run.status == "crashed" and "far more than any reply" in str(run.reason)
    assert len(server.asked) == 1


@pytest.mark.parametrize(("most", "sent"), [(1, 1), (2, 2), (3, 3)])
async def test_a_call_limit_counts_requests(most: int, sent: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plait.runtime.performers.ask_model._pause", lambda why, failures: 0.0)
    run, server = await run_at(broken, limits=plait.Limits(calls=most, retries=3))
    assert len(server.asked) == sent
    assert run.status == "stopped" and run.outcome.limit == "calls"  # type: ignore[union-attr]


@pytest.mark.parametrize(("rate", "cost"), [(PRICE, True), (Rate(), False)], ids=["priced", "not priced"])
async def test_replies_that_broke_off_are_counted_and_an_unknown_cost_is_unknown(rate: Rate, cost: bool) -> None:
    run, server = await run_at(broken, limits=plait.Limits(retries=0), rate=rate)
    assert run.status == "crashed" and len(server.asked) == 1
    assert run.usage.estimated and run.usage.output_tokens == 100 and run.usage.input_tokens > 10
    assert (run.cost_usd is not None) == cost and run.cost_usd != 0.0
    (row,) = spending(run.timeline)
    assert (row.usage, row.cost_usd, row.retries) == (run.usage, run.cost_usd, 1)


async def test_a_call_that_was_cancelled_is_counted() -> None:
    async def handler(asked: Asked) -> None:
        await asked.begin()
        await asked.piece(delta("four" * 100))
        await asyncio.sleep(60)

    run, _ = await run_at(handler, limits=plait.Limits(seconds=0.5), rate=PRICE)
    assert run.status == "stopped" and run.usage.output_tokens == 100 and run.cost_usd
    got = [row.record for row in run.trace if is_result(row.record, "request")]
    assert [each.value.error for each in got] == ["cancelled"]


async def test_a_call_that_was_cancelled_before_its_reply_began_counts_its_prompt() -> None:
    run, _ = await run_at(lambda asked: asyncio.sleep(60), limits=plait.Limits(seconds=0.5), rate=PRICE)
    assert run.status == "stopped" and run.usage.output_tokens == 0
    assert run.usage.input_tokens > 10 and run.cost_usd


async def test_requests_that_the_endpoint_refused_cost_nothing() -> None:
    async def handler(asked: Asked) -> None:
        await asked.answer(401, {"error": {"message": "no key"}})

    run, _ = await run_at(handler, rate=PRICE)
    assert run.status == "crashed" and run.usage.tokens == 0 and run.cost_usd == 0.0


async def test_a_limit_in_usd_without_a_price_is_an_error_before_the_run() -> None:
    with pytest.raises(ConfigError, match="knows none for test:m"):
        await run_at(writing(10), limits=plait.Limits(usd=1.0))


async def test_a_prompt_that_alone_exceeds_the_limit_is_not_sent() -> None:
    run, server = await run_at(writing(10), question="word " * 1000, limits=plait.Limits(tokens=500))
    assert run.status == "stopped" and "500 tokens, does not cover another call (about 1," in str(run.reason)
    assert server.asked == []


async def test_the_limit_wins_over_a_longer_reply_that_was_set() -> None:
    _, server = await run_at(
        writing(10), limits=plait.Limits(tokens=500), params={"max_completion_tokens": 4000, "top_p": 1}
    )
    assert server.asked[0].body["max_completion_tokens"] < 500 and "max_tokens" not in server.asked[0].body


async def test_a_replay_sends_what_the_limit_asked_for(tmp_path: Path) -> None:
    async with Server(writing(None, finish="length")) as server:
        limits = plait.Limits(tokens=3000)
        agent = plait.Agent("tool_calling", model=server.model(), limits=limits, journal=tmp_path / "journal.db")
        run = await agent.arun("Is it so?")
        asked = [row.record for row in run.trace if is_request(row.record)]
        assert [each.asked.max_tokens for each in asked] == [each.body["max_tokens"] for each in server.asked]
        assert len(asked) > 1
    replayed = agent.replay(run.id)
    assert replayed.whole and replayed.requests == len(asked)


async def test_a_replay_counts_what_was_lost(tmp_path: Path) -> None:
    times = itertools.count()

    async def handler(asked: Asked) -> None:
        await (broken(asked) if next(times) == 0 else writing(5)(asked))

    async with Server(handler) as server:
        agent = plait.Agent("tool_calling", model=server.model(rate=PRICE), journal=tmp_path / "journal.db")
        agent = agent.using(limits=plait.Limits(tokens=150))
        run = await agent.arun("Is it so?")
    assert run.status == "stopped"
    assert agent.replay(run.id).outcome == run.outcome


async def test_a_resumed_run_compares_and_goes_on_with_what_the_limit_asked_for(tmp_path: Path) -> None:
    times = itertools.count()

    async def handler(asked: Asked) -> None:
        if next(times) == 1:
            await asked.answer(400, {"error": {"message": "not now"}})
        else:
            await asked.stream(whole_stream("It is so.", finish="length", usage=told(asked, 30)))

    async with Server(handler) as server:
        limits = plait.Limits(tokens=3000, retries=0)
        agent = plait.Agent("tool_calling", model=server.model(), limits=limits, journal=tmp_path / "journal.db")
        run = await agent.arun("Is it so?")
        assert run.status == "crashed"
        run = await agent.aresume(run.id)
    asked = [row.record for row in run.trace if is_request(row.record)]
    assert [each.asked.max_tokens for each in asked] == [each.body["max_tokens"] for each in server.asked]
    assert len(asked) == 3
    assert run.status == "stopped" and run.usage.tokens < 3000


def test_plait_run_exits_with_4_and_says_by_how_much(shell: Shell) -> None:
    with endpoint(writing(100_000)) as at:
        done = plait_run(shell, at, "--max-tokens", "500", "--loop", "tool_calling")
    assert (done.code, done.out) == (4, "It is so.\n")
    assert re.search(r"stopped: The run used 100,\d{3} tokens, 99,\d{3} more than its limit of 500\.", done.err)


@pytest.mark.parametrize("limits", [plait.Limits(tokens=900), plait.Limits(usd=0.0005)], ids=["tokens", "usd"])
async def test_the_reason_names_what_is_left_and_what_is_needed(limits: plait.Limits) -> None:
    run, _ = await run_at(writing(10), question="word " * 1000, limits=limits, rate=PRICE)
    found = re.search(r"The rest of the \w+, ([\d.,]+) \w+, does not cover .* \(about ([\d.,]+)\)", str(run.reason))
    assert found is not None, run.reason
    left, needed = (float(each.replace(",", "")) for each in found.groups())
    assert left < needed
