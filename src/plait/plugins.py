"""What other installed packages offer: their entry points."""

from __future__ import annotations

import sys
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points


def plugins(group: str) -> tuple[EntryPoint, ...]:
    """The entry points of a group. To look through all packages takes some 50 ms, so it is done once."""
    return _found(group, tuple(sys.path))


@lru_cache(maxsize=32)
def _found(group: str, path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    return tuple(entry_points(group=group))
