"""Loses power while runs call tools with effects, and resumes them."""

from __future__ import annotations

import shutil
from pathlib import Path

from figures import Figures

import power_loss


def run(count: int, seed: int, folder: Path) -> Figures:
    """Lose power so many times; a tenth as often with commits that are not synced, which must repeat effects."""
    if shutil.which("strace") is None:
        return Figures("skipped: strace is not installed")
    results = power_loss.lose_power(count, seed, folder)
    (unsynced := folder / "unsynced").mkdir()
    broken = power_loss.lose_power(max(10, count // 10), seed, unsynced, unsynced=True)
    failures = [text for each in results for text in each.wrong]
    if not any(each.wrong for each in broken):
        failures.append("without syncs nothing was wrong: the check cannot fail")
    return Figures(f"{power_loss.describe(results)} · unsynced: {power_loss.describe(broken)}", failures)
