"""Kills runs with each feature in each loop, on both stores, with SIGKILL at every point, a third of them twice;
resumes and replays them. Prints how many kills each feature had in each loop."""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from figures import Figures, line_of

from feature_kills import Resumed, kill_feature, perform_feature
from feature_scenarios import CASES, FEATURES
from loop_scripts import LOOPS
from postgres_server import PostgresServer, find_binaries

FIGURES = ("kills", "effects", "in_doubt", "repeated", "lost", "differing")


def run(count: int, seed: int, folder: Path) -> Figures:
    """Kill so many runs: all points of all features come before any comes again. In SQLite."""
    return kill_runs(count, seed, folder, "SQLite")


def run_in_postgres(count: int, seed: int, folder: Path) -> Figures:
    """The same with a journal in PostgreSQL."""
    if find_binaries() is None:
        return Figures("features in PostgreSQL skipped: there are no binaries")
    server = PostgresServer().start()
    os.environ["KILL_ADDRESS"] = server.address
    try:
        return kill_runs(count, seed, folder, "PostgreSQL")
    finally:
        del os.environ["KILL_ADDRESS"]
        server.remove()


def kill_runs(count: int, seed: int, folder: Path, store: str) -> Figures:
    """Kill so many runs in one store, in two processes at once."""
    chance = random.Random(seed)
    total, failures = Counter[str](), list[str]()
    table = Counter[tuple[str, str]]()

    def count_points(number: int, feature: str, loop: str) -> int:
        return len(perform_feature(folder / f"whole-{number}", feature, loop)["points"])

    def kill(number: int, feature: str, loop: str, kills: tuple[int, ...]) -> Resumed:
        place = folder / str(number)
        try:
            return kill_feature(place, feature, loop, *kills)
        except Exception as why:
            return Resumed(wrong=[f"{feature}, {loop}, killed {kills}: {type(why).__name__}: {why}"])
        finally:
            shutil.rmtree(place, ignore_errors=True)

    with ThreadPoolExecutor(2) as pool:
        cases = chance.sample(CASES, min(len(CASES), count))
        sizes = pool.map(lambda case: count_points(case[0], *case[1]), enumerate(cases))
        points = [(case, at) for case, size in zip(cases, sizes, strict=True) for at in range(1, size + 1)]
        total["points"] = len(points)
        drawn: list[tuple[tuple[str, str], int]] = []
        while len(drawn) < count:
            first = [(case, chance.choice([at for other, at in points if other == case])) for case in cases]
            drawn += [*first, *chance.sample(points, len(points))][: count - len(drawn)]
        later = [(chance.randint(1, 12),) if chance.random() < 1 / 3 else () for _ in drawn]
        all_kills = [(at, *more) for (_, at), more in zip(drawn, later, strict=True)]
        found = pool.map(kill, range(count), *zip(*(case for case, _ in drawn), strict=True), all_kills)
        for (case, _), each in zip(drawn, found, strict=True):
            table[case] += each.kills
            total.update({name: getattr(each, name) for name in FIGURES})
            failures += each.wrong
    print(f"\nkills of runs with a feature, by loop, journal in {store}:")
    print(f"{'':24}{''.join(f'{loop:>14}' for loop in LOOPS)}")
    for feature in FEATURES:
        print(f"{feature:24}{''.join(f'{table[feature, loop]:>14}' for loop in LOOPS)}")
    line = line_of(cases=len(cases), points=total["points"], **{name: total[name] for name in FIGURES})
    return Figures(f"features in {store}: {line}", failures)
