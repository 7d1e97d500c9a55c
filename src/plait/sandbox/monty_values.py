"""Conversion of values into and out of Monty.

A handle goes in as an empty object, and Monty returns the same object. Monty shows an object as its class's name and
brackets. So the class is named by the handle's text and a mark, which Plait removes from all output.
"""

from __future__ import annotations

import datetime
import re
from typing import Any
from uuid import UUID, uuid4

from plait.core.artifacts import MARK as HANDLE
from plait.core.artifacts import ArtifactHandle
from plait.sandbox.monty_worker import library
from plait.sandbox.worker_values import Budget, clean

MARK = "\ue000"
"""Ends a handle's class name. A private-use character, which no text contains."""

MAX_DEPTH = 100
"""Maximum nesting of values that go in or out."""

_SINGLE = (bool, int, float, str, bytes, datetime.date, datetime.datetime, datetime.timedelta)
_OPAQUE = re.compile(
    r"<function '[^']*' at 0x[0-9a-f]+>|<(class|module|built-in function|method) '?[\w.<>]+'?>"
    r"|<coroutine [\w ().]+>|<[\w.]+ object( at 0x[0-9a-f]+)?>"
)
_RANGE = re.compile(r"range\((-?\d+), (-?\d+)(?:, (-?\d+))?\)")
_DEEPER = ("[...]", "(...)", "{...}")


def plain(text: str) -> str:
    """Return text from Monty with each handle shown by its text."""
    return text.replace(f"{MARK}()", "").replace(MARK, "") if MARK in text else text


class Unfit(TypeError):
    """Raised for a value that cannot pass. The message says what to do."""


class Values:
    """Convert values in and out. Remembers the handles of one session."""

    def __init__(self) -> None:
        self._monty = library()
        self._kinds: dict[str, Any] = {}
        self._inside: dict[ArtifactHandle, Any] = {}
        self._by_id: dict[UUID, ArtifactHandle] = {}

    def inward(self, value: Any, depth: int = 0) -> Any:
        """Return a value in Monty's form. Raises `Unfit`."""
        if depth > MAX_DEPTH:
            raise Unfit("the value is nested too deep")
        if isinstance(value, str):
            return clean(value)
        if value is None or isinstance(value, _SINGLE):
            return value
        if isinstance(value, ArtifactHandle):
            return self._boxed(value)
        if isinstance(value, dict):
            pairs = ((self.inward(k, depth + 1), self.inward(v, depth + 1)) for k, v in value.items())
            return dict(pairs)
        for kind in (list, tuple, set, frozenset):
            if isinstance(value, kind):
                return kind(self.inward(one, depth + 1) for one in value)
        if isinstance(value, bytearray):
            return bytes(value)
        return str(value)  # Monty has no Decimal, Fraction, time and UUID

    def outward(self, value: Any, budget: Budget, depth: int = 0) -> Any:
        """Return a value in the runtime's form. Raises `Unfit`, and `ValueError` if it is too large."""
        if depth > budget.depth:
            raise ValueError(f"a value nested more than {budget.depth} deep can't be passed on")
        budget.take(1)
        if isinstance(value, str):
            budget.bytes -= len(value)
            return self._text(value)
        if value is None or isinstance(value, _SINGLE):
            budget.bytes -= len(value) if isinstance(value, bytes) else 8
            return value
        if isinstance(value, MontyHandle):
            return value.handle
        if isinstance(value, self._monty.MontyClassProxy) and value.id in self._by_id:
            return self._by_id[value.id]
        if isinstance(value, dict):
            if HANDLE in value:
                raise Unfit(f"a dict with the key {HANDLE!r} can't be given to a tool: give the object itself")
            return {self.outward(k, budget, depth + 1): self.outward(v, budget, depth + 1) for k, v in value.items()}
        if isinstance(value, (list, set, frozenset)):
            kind = list if isinstance(value, list) else set
            return kind(self.outward(one, budget, depth + 1) for one in value)
        if isinstance(value, tuple):
            return tuple(self.outward(one, budget, depth + 1) for one in value)
        kind_name = str(getattr(value, "name", type(value).__name__))
        raise Unfit(_cant(f"{plain(kind_name)} object"))

    def _text(self, text: str) -> str | list[int]:
        # Monty returns the repr of an object that it cannot represent. So a repr of a handle counts as the handle.
        if len(text) < 300 and text[-1:] in (">", ")", "]", "}"):
            spread = _RANGE.fullmatch(text)
            if spread:
                numbers = range(*(int(n) for n in spread.groups() if n is not None))
                if len(numbers) > 100_000:
                    raise Unfit("a range this long can't be given to a tool: give its ends")
                return list(numbers)
            if MARK not in text and _OPAQUE.fullmatch(text):
                raise Unfit(_cant(text))
            if text in _DEEPER:
                raise Unfit("a value that holds itself, or is nested very deep, can't be given to a tool")
        return plain(text)

    def _boxed(self, handle: ArtifactHandle) -> Any:
        if handle not in self._inside:
            if handle.about not in self._kinds:
                kind = type(clean(" ".join(handle.about.split())) + MARK, (MontyHandle,), {})
                self._kinds[handle.about] = self._monty.ClassType(kind, id=uuid4())
            kind = self._kinds[handle.about]
            box = self._monty.ClassInstance(kind.value(handle), class_type=kind)
            self._inside[handle] = box
            self._by_id[box.id] = handle
        return self._inside[handle]


class MontyHandle:
    """Replaces a handle on our side while Monty holds its name."""

    __slots__ = ("handle",)

    def __init__(self, handle: ArtifactHandle) -> None:
        self.handle = handle


def _cant(what: str) -> str:
    return f"{what} can't be given to a tool: give it text, numbers, lists, dicts, dates, or what a tool gave you"
