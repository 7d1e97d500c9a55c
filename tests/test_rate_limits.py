"""Rate limits of endpoints: when a request may go, and how a run waits."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import plait
from models_server import Asked, Server, completion
from plait.core.errors import ConfigError
from plait.models import rate_limits
from plait.models.config import EndpointConfig, ModelConfig
from plait.models.rate_limits import RateLimit, RateLimiter
from plait.models.resolve import resolve
from plait.runtime.limits import Limits


class FakeTime:
    def __init__(self) -> None:
        self.now = 100.0

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


def limiter(time: FakeTime, requests: int | None = None, tokens: int | None = None) -> RateLimiter:
    return RateLimiter(RateLimit(requests, tokens), lambda: time.now, time.sleep)


def times(queue: RateLimiter, time: FakeTime, *tokens: int) -> list[float]:
    async def main() -> list[float]:
        return [(await queue.wait(each)).at - 100.0 for each in tokens]

    return asyncio.run(main())


def test_no_minute_has_more_requests() -> None:
    time = FakeTime()
    assert times(limiter(time, requests=2), time, *[0] * 5) == [0, 0, 60, 60, 120]


def test_no_minute_has_more_tokens() -> None:
    time = FakeTime()
    assert times(limiter(time, tokens=100), time, 60, 40, 10, 500, 1) == [0, 0, 60, 120, 180]


def test_the_tokens_of_the_reply_replace_the_estimate() -> None:
    time = FakeTime()
    queue = limiter(time, tokens=100)

    async def main() -> None:
        turn = await queue.wait(90)
        turn.settle(10)
        assert (await queue.wait(90)).at == 100
        assert (await queue.wait(1)).at == 160

    asyncio.run(main())


def test_a_cancelled_wait_gives_its_place_back() -> None:
    async def main() -> None:
        queue = RateLimiter(RateLimit(requests_per_minute=1))
        await queue.wait(0)
        waits: list[float] = []
        task = asyncio.ensure_future(queue.wait(0, waits.append))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(queue._turns) == 1 and waits[0] == pytest.approx(60, abs=1)

    asyncio.run(main())


async def reply(asked: Asked) -> None:
    await asked.answer(200, completion("Thought: I know.\nFinal Answer: done"))


def test_runs_share_the_limit_and_the_wait_is_no_time_of_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rate_limits, "MINUTE", 1.5)

    async def main() -> None:
        async with Server(reply) as server:
            model = server.model(rate_limit=RateLimit(requests_per_minute=1))
            agent = plait.Agent("react", model=model, journal=tmp_path / "runs.db")
            await agent.using(model=server.model()).arun("Nothing?")  # the first request of a process imports a lot
            runs = await asyncio.gather(agent.arun("One?"), agent.arun("Two?"))
            second = max(runs, key=lambda run: run.seconds)
            assert second.seconds > 1.0 > sum(part.seconds for part in second.phases)
            notes = [event.text for event in second.events if getattr(event, "kind", "") == "rate_limit"]
            assert len(notes) == 1 and "1 requests per minute" in notes[0]
            assert agent.replay(second.id).whole

    asyncio.run(main())


def test_the_time_limit_of_a_run_ends_the_wait(tmp_path: Path) -> None:
    async def main() -> None:
        async with Server(reply) as server:
            model = server.model(rate_limit=RateLimit(requests_per_minute=1))
            agent = plait.Agent("react", model=model, journal=tmp_path / "runs.db")
            await agent.arun("One?")
            run = await agent.using(limits=Limits(seconds=0.5)).arun("Two?")
            assert (run.status, len(server.asked)) == ("stopped", 1)

    asyncio.run(main())


def test_the_limits_of_an_endpoint_in_python_are_checked() -> None:
    config = ModelConfig(endpoints={"mine": EndpointConfig(base_url="http://127.0.0.1:1/v1", requests_per_minute=0)})
    with pytest.raises(ConfigError, match=r"endpoint.requests_per_minute should be 1 or more, not 0"):
        resolve("mine:m", config)


def test_the_limits_in_a_file() -> None:
    endpoint: dict[str, Any] = {"base_url": "http://127.0.0.1:1/v1", "model": "m"}
    config = ModelConfig.from_mapping(
        {
            "endpoints": {"gpu": {**endpoint, "requests_per_minute": 60}},
            "rate_limits": {"openai": {"tokens_per_minute": 1000}},
        }
    )
    assert resolve("gpu", config).rate_limit == RateLimit(60)  # type: ignore[attr-defined]
    openai = resolve("openai:gpt-5", config, env={"OPENAI_API_KEY": "sk-1234567890"})
    assert openai.rate_limit == RateLimit(None, 1000)  # type: ignore[attr-defined]
    for wrong, said in [
        ({"endpoints": {"gpu": {**endpoint, "requests_per_minute": 0}}}, "requests_per_minute should be"),
        ({"rate_limits": {"nobody": {}}}, "is not known"),
        ({"endpoints": {"gpu": endpoint}, "rate_limits": {"gpu": {}}}, "in its own table"),
        ({"rate_limits": {"openai": {"requests": 1}}}, "no setting"),
    ]:
        with pytest.raises(ConfigError, match=said):
            ModelConfig.from_mapping(wrong)
