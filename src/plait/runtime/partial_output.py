"""Follows a typed answer while the model writes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from plait.runtime.output import OutputType


class PartialAnswer:
    """The answer in one reply, as far as it is written. `show` gets each new value."""

    def __init__(self, output: OutputType[Any], show: Callable[[Any], None]) -> None:
        self._output, self._show = output, show
        self._text = ""
        self._last: Any = None

    def add(self, text: str) -> None:
        """Add the next part of the answer's text."""
        self._text += text
        value = self._output.make_partial(self._text)
        try:
            is_new = value is not None and bool(value != self._last)
        except Exception:  # the user's own comparison, of a half value
            is_new = True
        if is_new:
            self._last = value
            self._show(value)
