"""Flips, cuts and zeroes bytes of the journal of killed runs, then resumes and replays all of them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from figures import Figures, line_of

import journal_damage


def run(count: int, seed: int, folder: Path) -> Figures:
    """Damage so many files."""
    results = journal_damage.run(count, seed)
    ends = Counter(end for _, result in results for end in result.ends)
    wrong = [(case, result) for case, result in results if result.wrong]
    figures = line_of(
        damaged=len(results),
        runs=ends.total(),
        hidden=sum(result.hidden for _, result in results),
        made_again=sum(result.again for _, result in results),
        wrong=len(wrong),
        **dict(sorted(ends.items())),
    )
    return Figures(figures, [f"{result.wrong}: {case} {result.reported}" for case, result in wrong])
