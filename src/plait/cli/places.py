"""Where the record is, said by flag, environment or `plait.toml`; imports little, for commands that only read."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from plait.config import RunDefaults


def journal_file(flag: str | None, said: RunDefaults | None = None) -> str | None:
    """The journal's file; None for the default one."""
    named = flag or os.environ.get("PLAIT_JOURNAL")
    if named:
        return named
    if said is None:
        from plait.config import load

        said = load().run
    return said.journal
