"""`id()` without addresses: the objects that code asks for are numbered in order. Stdlib only.

The number of an object stays while the object lives, and no other object ever has it. So a session that is restored
gives the same numbers, on any machine.
"""

from __future__ import annotations

import builtins
import sys
import weakref
from typing import Any

FIRST, STEP = 0x7F0000000010, 48
"""Numbers that look like addresses."""

FREED_BYTES = 1 << 20
"""Objects that nothing else holds are let go of when so many bytes of them may be there."""

_address = builtins.id


class Identities:
    """Numbers objects. An object that weak references can't follow is held until it is the only reference to it."""

    def __init__(self) -> None:
        self.made = 0
        self.numbers: dict[int, tuple[int, Any]] = {}  # by address: the number, and what keeps the entry true
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
        """Drop the entries of objects that nothing else holds."""
        self.held = 0
        for address in list(self.numbers):
            keeper = self.numbers[address][1]
            if isinstance(keeper, weakref.ref):
                continue
            if sys.getrefcount(keeper) <= 3:  # the entry's, the name's, the argument's
                del self.numbers[address]
            else:
                self.held += 200 + sys.getsizeof(keeper, 0)
        self.limit = max(FREED_BYTES, 2 * self.held)


def install() -> None:
    """Put the numbers in place of `id`."""
    number = Identities().__call__

    def id(obj: Any, /) -> int:
        return number(obj)

    builtins.id = id
