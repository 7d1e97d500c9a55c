"""Runs all loops under limits against endpoints that break off, never end, ignore `max_tokens` or send far too much.

Every run must end by itself, none may be *answered* beyond its limit, and requests keep to a limit in calls.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from unittest import mock

from figures import Figures, line_of

import plait
from loop_scripts import LOOPS
from models_server import Asked, Server, delta, event
from plait.core.errors import PlaitError
from test_budgets import PRICE, broken, endless, writing


async def nothing(asked: Asked) -> None:
    """A stream of chunks without text."""
    await asked.begin()
    while True:
        await asked.piece(event({"choices": [{"index": 0, "delta": {"role": "assistant"}}]}) * 500)


async def repeats(asked: Asked) -> None:
    """The same line for ever."""
    await asked.begin()
    for _ in itertools.count():
        await asked.piece(delta("and then\n" * 50))


async def fails(asked: Asked) -> None:
    """An error of the server, each time."""
    await asked.answer(500, {"error": {"message": "the engine is on fire"}})


async def garbage(asked: Asked) -> None:
    """Bytes that are no reply."""
    await asked.answer(200, b"\xff\x00{]", kind="application/json")


async def left(fault: Callable[[Asked], Awaitable[None]], asked: Asked) -> None:
    """Let the client go away in the middle, as it should."""
    with contextlib.suppress(ConnectionError):
        await fault(asked)


FAULTS = {
    "breaks off": broken,
    "never ends": endless,
    "sends nothing for ever": nothing,
    "repeats a line for ever": repeats,
    "sends 100,000 tokens": writing(100_000),
    "ignores max_tokens": writing(3_000, "Thought: x\nFinal Answer: It is so."),
    "uses all of max_tokens": writing(None, finish="length"),
    "answers 500": fails,
    "sends garbage": garbage,
}
LIMITS = [
    plait.Limits(tokens=500, retries=2),
    plait.Limits(tokens=3_000, retries=2),
    plait.Limits(usd=0.001, retries=2),
    plait.Limits(calls=2, retries=3),
    plait.Limits(calls=4, tokens=5_000, retries=1),
]


def run(count: int, seed: int, folder: Path) -> Figures:
    """Make so many runs: each fault with each loop and limit in an order by chance."""
    cases = list(itertools.product(FAULTS, LOOPS, LIMITS))
    random.Random(seed).shuffle(cases)
    with mock.patch("plait.runtime.performers.ask_model._pause", lambda why, failures: 0.0):
        return asyncio.run(all_of([cases[at % len(cases)] for at in range(count)], folder))


async def all_of(cases: list[tuple[str, str, plait.Limits]], folder: Path) -> Figures:
    requests = over = answered_over = 0
    failures: list[str] = []
    for fault, loop, limits in cases:
        async with Server(partial(left, FAULTS[fault])) as server:
            agent = plait.Agent(loop, model=server.model(rate=PRICE), limits=limits, journal=folder / "j.db")
            name = f"{loop} against an endpoint that {fault}, {limits}"
            try:
                async with asyncio.timeout(60):
                    made = await agent.arun("Is it so?")
            except TimeoutError:
                failures.append(f"{name}: no end within a minute")
                continue
            except PlaitError as why:
                failures.append(f"{name}: {type(why).__name__}: {why}")
                continue
            requests += len(server.asked)
            is_over = bool(
                (limits.tokens and made.usage.tokens > limits.tokens)
                or (limits.usd and (made.cost_usd or 0) > limits.usd)
            )
            over += is_over
            if is_over and made.status == "answered":
                answered_over += 1
                failures.append(f"{name}: answered with {made.usage.tokens} tokens, {made.cost_usd} USD")
            if limits.calls and len(server.asked) > limits.calls:
                failures.append(f"{name}: {len(server.asked)} requests")
    figures = line_of(
        runs=len(cases), requests=requests, over_limit=over, answered_over_limit=answered_over, wrong=len(failures)
    )
    return Figures(figures, failures)
