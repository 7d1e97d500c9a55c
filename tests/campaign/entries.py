"""Random runs of the core, killed at random points and answered by other processes (tests/core_fuzz.py).

Nothing is repeated, no limit is exceeded, and replays without guards end as the runs did. To know that the fuzzer sees
what it should, each rule of `core_mutations.MUTATIONS` is undone afterwards: some seed must then break a promise.
"""

from __future__ import annotations

from pathlib import Path

from figures import Figures, line_of

from core_fuzz import Fuzzed
from core_mutations import MUTATIONS, find_broken_promise

MUTATION_FROM = 500
"""Seeds from which on the mutations are tried as well, each with as many seeds as it needs, up to that number."""


def run(count: int, seed: int, folder: Path) -> Figures:
    """Try so many seeds."""
    failures: list[str] = []
    processes = deaths = 0
    for each in range(seed, seed + count):
        fuzzed = Fuzzed(each)
        try:
            processes += fuzzed.run()
        except Exception as why:
            failures.append(f"seed {each}: {type(why).__name__}: {why}")
        deaths += fuzzed.deaths
    tried = MUTATIONS if count >= MUTATION_FROM else []
    unseen = [undo.__name__ for undo, hint in tried if not find_broken_promise(undo, hint, count)]
    failures += [f"nothing is wrong without a rule: {name}" for name in unseen]
    line = line_of(
        seeds=count,
        processes=processes,
        deaths=deaths,
        failed=len(failures) - len(unseen),
        rules_undone=len(tried),
        unseen=len(unseen),
    )
    return Figures(line, failures)
