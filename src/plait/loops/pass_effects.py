"""Passes the effects of one generator on to the caller, and their results back."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from plait.core import Effect, Effects

T = TypeVar("T")


def pass_effects(
    steps: Effects[T],
    first: Effect | None = None,
    *,
    change: Callable[[Effect], Effect] | None = None,
    on_result: Callable[[Effect, Any], None] | None = None,
) -> Effects[T]:
    """Run `steps`. Yield what `change` makes of each effect, and call `on_result(effect, result)` with its result.
    `first` is the effect that `steps` has yielded already; None if it has not begun."""
    advance: Callable[[], Effect] = partial(next, steps)
    while True:
        try:
            effect, first = advance() if first is None else first, None
        except StopIteration as end:
            value: T = end.value
            return value
        try:
            result: Any = yield effect if change is None else change(effect)
        except Exception as thrown:
            advance = partial(steps.throw, thrown)
        else:
            if on_result is not None:
                on_result(effect, result)
            advance = partial(steps.send, result)
