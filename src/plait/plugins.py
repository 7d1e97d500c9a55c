"""What other installed packages offer: their entry points."""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


def plugins(group: str) -> tuple[EntryPoint, ...]:
    """The entry points of a group. To look through all packages takes some 50 ms, so it is done once for all groups."""
    return tuple(_read_entry_points(tuple(sys.path)).select(group=group))


@lru_cache(maxsize=32)
def _read_entry_points(path: tuple[str, ...]) -> Any:
    from importlib.metadata import entry_points  # 20 ms

    return entry_points()
