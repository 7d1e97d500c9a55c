"""What day it is."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from plait.tools.tool import Tool, tool


def date(*, now: Callable[[], datetime] | None = None) -> tuple[Tool, ...]:
    """The tool `get_current_date`. `now` is the clock; this machine's, in its time zone, where none is given."""

    @tool(read_only=True)
    def get_current_date() -> str:
        """Today's date: year, month, day, and the weekday."""
        return (now or datetime.now)().strftime("%Y-%m-%d (%A)")

    return (get_current_date,)
