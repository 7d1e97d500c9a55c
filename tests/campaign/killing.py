"""Kills runs of all loops and trees of runs with SIGKILL at every point, a third of their resumes as well, and resumes
them."""

from __future__ import annotations

import random
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from figures import Figures, line_of

from crash_support import CASES, Killed, kill_and_resume, run_script


def run(count: int, seed: int, folder: Path) -> Figures:
    """Kill until there were so many kills: loop by loop, at points in an order by chance, and again."""
    chance = random.Random(seed)
    points = {loop: len(run_script(folder / loop, loop)["points"]) for loop in CASES}
    total, number, failures = Killed(), 0, []

    def one(loop: str, point: int, later: tuple[int, ...], number: int) -> Killed:
        place = folder / f"{loop}-{number}"
        try:
            found = kill_and_resume(place, loop, point, *later)
            if found.repeated or found.lost:
                found.wrong = found.wrong or f"{loop} {point} {later}: {found}"
        except Exception as why:
            found = Killed(wrong=f"{loop} {point} {later}: {type(why).__name__}: {why}")
        shutil.rmtree(place, ignore_errors=True)
        return found

    with ThreadPoolExecutor(2) as pool:
        while total.kills < count and number < 2 * count + 100:
            cases = []
            for loop in CASES:
                point = chance.randint(1, points[loop])
                later = (chance.randint(1, 12),) if chance.random() < 1 / 3 else ()
                number += 1
                cases.append((loop, point, later, number))
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
