"""Lenient inputs against guards: every form of an input, guard, loop and way into the runtime, drawn at random.

Then instructions of strangers by all parts of Plait: see `surfacing.py`.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import surfacing
from figures import Figures, line_of

from guard_cases import GUARDS, LOOPS, PATHS, cases, try_guard

A_JOURNAL = 500
"""Runs in one journal."""
FOR_EACH_SURFACE = 3
"""Cases of inputs for each run with a stranger's instruction."""


def run(count: int, seed: int, folder: Path) -> Figures:
    """Try so many cases: no guard is passed, and each tool gets what the guards saw."""
    every = cases()
    figures: Counter[str] = Counter()
    failures: list[str] = []
    reached: set[tuple[str, str, str]] = set()
    for k, case in enumerate(random.Random(seed).sample(every, min(count, len(every)))):
        guard, path, loop, *_ = case
        place = folder / str(k // A_JOURNAL)
        place.mkdir(exist_ok=True)
        try:
            tried = try_guard(case, place)
        except Exception as why:
            failures.append(f"{case}: {type(why).__name__}: {why}")
            continue
        figures.update(tried=1, reached=tried.reached, passed=bool(tried.fell), differed=bool(tried.differs))
        failures += [f"{case}: {each}" for each in (tried.fell, tried.differs) if each]
        if tried.reached:
            reached.add((guard, path, loop))
    line = line_of(
        **{name: figures[name] for name in ("tried", "reached", "passed", "differed")},
        combinations=len(reached),
        of=len(GUARDS) * len(PATHS) * len(LOOPS),
    )
    surfaces = surfacing.run(max(1, count // FOR_EACH_SURFACE), seed, folder)
    return Figures(f"{line}; {surfaces.line}", failures + surfaces.failures)
