"""Holds back an answer until the calls in the background have ended, so that the model sees their results before."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from plait.core import CheckAnswer
from plait.runtime.guard import LIMITS, Entry, Guard, Refuse

WAITED = "Calls in the background have ended since. Their results come with this request: read them, then answer."
"""What the model reads in place of an accepted answer."""


class BackgroundGuard(Guard):
    """Refuses an answer once after calls in the background. `wait` waits for them, and says whether there is one.
    `is_near` says whether a limit is near: then the last model call has their results."""

    name = "background"
    order = LIMITS + 8
    points = (CheckAnswer,)
    holds_text = holds_for_children = False

    def __init__(self, wait: Callable[[], Awaitable[bool]], is_near: Callable[[], bool]) -> None:
        self._wait, self._is_near = wait, is_near

    async def before(self, entry: Entry) -> Any:
        return entry.effect if self._is_near() or not await self._wait() else Refuse(WAITED)
