"""What the `verify` of a tool answers: whether an earlier call took effect. Any other answer means: not known."""

from __future__ import annotations

from typing import Any

from msgspec import Struct


class TookEffect(Struct, frozen=True):
    """The earlier call took effect, and `result` is its result, as the tool would have returned it."""

    result: Any = None


class NoEffect(Struct, frozen=True):
    """The earlier call has had no effect so far. `closed`: nor will it, because `verify` has closed its key; whoever
    uses the key later is refused."""

    closed: bool = False
