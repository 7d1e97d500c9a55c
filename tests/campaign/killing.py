"""Kills runs of all loops on all wires, runs with hooks, and trees of runs, with SIGKILL at every point, and a third of
their resumes; resumes them."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TypeAlias

from figures import Figures, line_of

from crash_support import CASES, TREES, Killed, kill_and_resume, run_script
from models_server import Server
from postgres_server import PostgresServer, find_binaries
from profile_matrix import ONE_OF_EACH_WIRE, PROFILES

Endpoint: TypeAlias = tuple[str, ...]
"""The profile and the address of a model; nothing for a scripted one, and "hooks" for a scripted one with hooks."""


def run(count: int, seed: int, folder: Path) -> Figures:
    """Kill until there were so many kills: every loop with every wire, at points in an order by chance, and again."""

    async def main() -> Figures:
        async with AsyncExitStack() as stack:
            endpoints: list[Endpoint] = [(), ("hooks",)]
            for name in ONE_OF_EACH_WIRE.values():
                server = await stack.enter_async_context(Server(PROFILES[name].server()))
                endpoints.append((name, server.url))
            return await asyncio.to_thread(kill_runs, count, seed, folder, endpoints)

    return asyncio.run(main())


def run_in_postgres(count: int, seed: int, folder: Path) -> Figures:
    """The same with a journal in PostgreSQL, and scripted models alone."""
    if find_binaries() is None:
        return Figures("kills in PostgreSQL skipped: there are no binaries")
    server = PostgresServer().start()
    os.environ["KILL_ADDRESS"] = server.address
    try:
        return kill_runs(count, seed, folder, [(), ("hooks",)])
    finally:
        del os.environ["KILL_ADDRESS"]
        server.remove()


def kill_runs(count: int, seed: int, folder: Path, endpoints: list[Endpoint]) -> Figures:
    """Kill runs with these models, in two processes at once."""
    chance = random.Random(seed)
    points: dict[tuple[str, Endpoint], int] = {}
    total, number, failures = Killed(), 0, []

    def count_points(loop: str, endpoint: Endpoint) -> int:
        if (loop, endpoint) not in points:
            place = folder / f"{loop}-points-{len(points)}"
            points[loop, endpoint] = len(run_script(place, loop, 0, *endpoint)["points"])
        return points[loop, endpoint]

    def one(loop: str, endpoint: Endpoint, point: int, later: tuple[int, ...], number: int) -> Killed:
        place = folder / f"{loop}-{number}"
        try:
            found = kill_and_resume(place, loop, point, *later, endpoint=endpoint)
            if found.repeated or found.lost:
                found.wrong = found.wrong or f"{loop} {point} {later} {endpoint}: {found}"
        except Exception as why:
            found = Killed(wrong=f"{loop} {point} {later} {endpoint}: {type(why).__name__}: {why}")
        shutil.rmtree(place, ignore_errors=True)
        return found

    with ThreadPoolExecutor(2) as pool:
        while total.kills < count and number < 2 * count + 100:
            cases = []
            for i, loop in enumerate(CASES):
                # Each pair of a loop and an endpoint comes in turn. The models of a tree are scripted.
                endpoint = endpoints[(number // len(CASES) + i) % len(endpoints)] if loop not in TREES else ()
                point = chance.randint(1, count_points(loop, endpoint))
                later = (chance.randint(1, 12),) if chance.random() < 1 / 3 else ()
                number += 1
                cases.append((loop, endpoint, point, later, number))
            for found in pool.map(lambda case: one(*case), cases):
                for name in ("kills", "resumed", "effects", "in_doubt", "repeated", "lost"):
                    setattr(total, name, getattr(total, name) + getattr(found, name))
                failures += [found.wrong] if found.wrong else []
    figures = line_of(
        kills=total.kills,
        resumed=total.resumed,
        effects=total.effects,
        in_doubt=total.in_doubt,
        repeated=total.repeated,
        lost=total.lost,
    )
    return Figures(figures, failures)
