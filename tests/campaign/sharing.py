"""Many processes on one journal run agents, die, and resume each other's runs."""

from __future__ import annotations

from pathlib import Path

from figures import Figures

import shared_journal


def run(count: int, seed: int, folder: Path) -> Figures:
    """Let so many processes work at once."""
    found = shared_journal.share(count, seed, folder)
    return Figures(str(found), found.wrong)
