"""Follows a typed answer while the model writes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from plait.core import OutputSpec, Think
from plait.core.output import FINAL_ANSWER
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


def find_answer_tool(think: Think, spec: OutputSpec | None) -> str:
    """Return the name of the tool that takes the typed answer; "" if the request offers none."""
    if spec is None:
        return ""
    offered = [tool.name for tool in think.tools if tool.parameters == spec.request_schema]
    return FINAL_ANSWER if FINAL_ANSWER in offered else ""


def is_only_answer(think: Think, spec: OutputSpec | None) -> bool:
    """Return whether the whole text of a reply is the typed answer, because its schema is that of the answer."""
    return spec is not None and think.schema is not None and think.schema == spec.request_schema
