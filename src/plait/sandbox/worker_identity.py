"""An `id()` without addresses: objects get numbers in the order in which code asks for them. Stdlib only.

An object keeps its number while it lives, and no other object ever gets it. So a restored session gives the same
numbers on any machine.
"""

from __future__ import annotations

import builtins
import sys
import weakref
from typing import Any

FIRST, STEP = 0x7F0000000010, 48
"""Numbers that look like addresses."""

FREED_BYTES = 1 << 20
"""Plait drops unreferenced objects when they may take this many bytes."""

_address = builtins.id


class Identities:
    """Number objects. An object without weak references is held until this is the only reference to it."""

    def __init__(self) -> None:
        self.made = 0
        self.numbers: dict[int, tuple[int, Any]] = {}  # by address: the number, and what keeps the entry valid
        self.held, self.limit = 0, FREED_BYTES

    def __call__(self, value: Any) -> int:
        address = _address(value)
        known = self.numbers.get(address)
        if known is not None:
            return known[0]
        number = FIRST + STEP * self.made
        self.made += 1
        try:
            keeper: Any = weakref.ref(value, lambda _: self.numbers.pop(address, None))
        except TypeError:
            keeper = value
            self.held += 200 + sys.getsizeof(value, 0)
        self.numbers[address] = (number, keeper)
        if self.held > self.limit:
            self._let_go()
        return number

    def _let_go(self) -> None:
        """Drop the entries of objects that are not referenced anywhere."""
        self.held = 0
        for address in list(self.numbers):
            keeper = self.numbers[address][1]
            if isinstance(keeper, weakref.ref):
                continue
            if sys.getrefcount(keeper) <= 3:  # references of the entry, the name and the argument
                del self.numbers[address]
            else:
                self.held += 200 + sys.getsizeof(keeper, 0)
        self.limit = max(FREED_BYTES, 2 * self.held)


def install() -> None:
    """Replace `id` with these numbers."""
    number = Identities().__call__

    def id(obj: Any, /) -> int:
        return number(obj)

    builtins.id = id
