"""Flips, cuts and zeroes bytes of a killed run's journal and write-ahead log, then resumes it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from figures import Figures, line_of

import journal_damage


def run(count: int, seed: int, folder: Path) -> Figures:
    """Damage so many files."""
    results = journal_damage.run(count, seed)
    ended = Counter(result.ended for _, result in results)
    wrong = [(case, result) for case, result in results if result.wrong]
    figures = line_of(
        damaged=len(results),
        cut=sum(result.is_cut for _, result in results),
        repeated=sum("repeated" in result.wrong for _, result in wrong),
        not_reported=sum("not reported" in result.wrong for _, result in wrong),
        **dict(sorted(ended.items())),
    )
    return Figures(figures, [f"{result.wrong}: {case} {result.reported}" for case, result in wrong])
