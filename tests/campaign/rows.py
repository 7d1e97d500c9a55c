"""Kills the runs of all scenarios right before and after each write to the journal; half of them once more, in a later
process; and answers their questions in an order by chance. Those with dependencies, files and `verify` also get SIGTERM
there, and both signals at random times."""

from __future__ import annotations

import random
import shutil
import statistics
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from figures import Figures, line_of

from lifecycle_scenarios import LIFECYCLES
from row_kills import SCENARIOS, Ended, find_faults, kill_points, perform
from step_scenarios import VERIFIED

LAST_PROCESS, LAST_WRITE = 3, 12
"""How many processes after the first kill, and at which of their writes, the second kill comes at most."""


def run(count: int, seed: int, folder: Path) -> Figures:
    """Perform so many runs, each with a kill. All points of all scenarios come before any comes again."""
    return perform_scenarios(sorted(SCENARIOS), count, seed, folder)


def run_lifecycles(count: int, seed: int, folder: Path) -> Figures:
    """Perform so many runs: with SIGKILL at all points, then with SIGTERM there, and both at any time."""
    return perform_scenarios([*LIFECYCLES, *VERIFIED], count, seed, folder, signals=True)


def perform_scenarios(scenarios: list[str], count: int, seed: int, folder: Path, *, signals: bool = False) -> Figures:
    """Perform so many runs of these scenarios, each with a kill."""
    chance = random.Random(seed)
    figures: Counter[str] = Counter()
    failures: list[str] = []
    with ThreadPoolExecutor(2) as pool:

        def perform_all(cases: list[tuple[str, dict[int, str], int | None]]) -> list[Ended]:
            places = [folder / f"{figures['runs']}-{i}" for i in range(len(cases))]
            found = []
            for case, result in zip(cases, pool.map(try_case, places, cases), strict=True):
                known = SCENARIOS[case[0]].wrong
                faults = result if isinstance(result, list) else find_faults(result)
                figures.update(runs=1, known_faults=bool(faults and known))
                failures.extend(faults if not known else [])
                if isinstance(result, Ended):
                    found.append(result)
                    figures.update(
                        kills=result.kills,
                        questions=len(result.questions),
                        effects=result.effects.total(),
                        in_doubt=len(result.last.get("in_doubt", ())),
                        sigterm=result.terms,
                        verified=sum(line.startswith("verify ") for line in result.tally),
                        files=len(result.last.get("files", ())),
                        closed=sum(line.startswith("close ") for line in result.tally),
                        repeated=result.repeated,
                        lost=result.lost,
                    )
            return found

        names = chance.sample(scenarios, min(len(scenarios), max(2, count // 8)))
        undisturbed = perform_all([(name, {}, None) for name in names])
        points = [(each.name, point) for each in undisturbed for point in kill_points(each)]
        usual = statistics.median(seconds for each in undisturbed for seconds in each.seconds) if undisturbed else 0
        drawn: list[tuple[str, dict[int, str]]] = []
        while points and len(drawn) < count:
            given = points if not signals or not drawn else [with_signal(chance, *each, usual) for each in points]
            drawn += chance.sample(given, min(len(given), count - len(drawn)))
        cases = [(name, kill_again(chance, point), chance.randint(0, 99)) for name, point in drawn]
        for start in range(0, len(cases), 50):
            perform_all(cases[start : start + 50])
    more = ("sigterm", "verified", "files", "closed") if signals else ()
    names_ = ("runs", "kills", *more, "questions", "effects", "in_doubt", "repeated", "lost", "known_faults")
    return Figures(line_of(scenarios=len(names), **{name: figures[name] for name in names_}), failures)


def with_signal(chance: random.Random, name: str, points: dict[int, str], usual: float) -> tuple[str, dict[int, str]]:
    """Return a case with SIGTERM at its points in place of SIGKILL; or with either signal at any time, if a process
    takes this many seconds."""
    if chance.random() < 0.5:
        return name, {at: f"{point}:TERM" for at, point in points.items()}
    return name, {at: f"time:{chance.uniform(0, usual * 1.2):.4f}{chance.choice(['', ':TERM'])}" for at in points}


def kill_again(chance: random.Random, point: dict[int, str]) -> dict[int, str]:
    """Return the point, and in half of the cases another one in a later process."""
    if chance.random() < 0.5:
        return point
    later = max(point) + chance.randint(1, LAST_PROCESS)
    return {**point, later: f"{chance.choice(['before', 'after'])}:{chance.randint(1, LAST_WRITE)}"}


def try_case(place: Path, case: tuple[str, dict[int, str], int | None]) -> Ended | list[str]:
    """Return how a run ended, or what broke it."""
    name, kills, seed = case
    try:
        return perform(place, name, kills, seed)
    except Exception as why:
        return [f"{name}, killed {kills}, order {seed}: {type(why).__name__}: {why}"]
    finally:
        shutil.rmtree(place, ignore_errors=True)
