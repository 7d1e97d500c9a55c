"""What other installed packages offer: their entry points."""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


def plugins(group: str) -> tuple[EntryPoint, ...]:
    """The entry points of a group. To look through all packages takes some 50 ms, so it is done once."""
    return _found(group, tuple(sys.path))


@lru_cache(maxsize=32)
def _found(group: str, path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    from importlib.metadata import entry_points  # 20 ms

    return tuple(entry_points(group=group))
