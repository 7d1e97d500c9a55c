"""The loop breaker: notices that a run goes in circles, says so, and in the end stops it."""

from __future__ import annotations

from collections import Counter

import msgspec

from plait.core import Call, Observation

ERRORS_IN_A_ROW = 8


class Breaker:
    """Watches calls and their results.

    The same call with the same result is no progress, wherever in the run it comes: calls in turn
    (A, B, A, B) are caught as well, a poll whose result changes is not. Neither are errors that follow
    each other without one result between them.
    """

    def __init__(self, repeats: int) -> None:
        self._repeats = repeats
        self._seen: Counter[bytes] = Counter()
        self._last: dict[bytes, str] = {}
        self._errors = 0

    def before(self, call: Call) -> str:
        """Why this call must not be made once more; "" when it may."""
        if not self._repeats:
            return ""
        key = _key(call)
        if self._seen[key] >= self._repeats:
            return f"the same call to '{call.tool}' brought the same result {self._seen[key]} times"
        if self._errors >= ERRORS_IN_A_ROW:
            return f"{self._errors} calls in a row brought nothing but errors"
        return ""

    def after(self, call: Call, observation: Observation) -> None:
        """Count a result, fresh or recorded."""
        if not self._repeats:
            return
        self._errors = 0 if observation.ok else self._errors + 1
        key = _key(call)
        if self._last.get(key) == observation.text:
            self._seen[key] += 1
        else:
            self._last[key] = observation.text
            self._seen[key] = 1

    def remark(self, call: Call, observation: Observation) -> str:
        """What to say to the model about a result that is about to be counted, "" when nothing."""
        if not self._repeats or self._last.get(key := _key(call)) != observation.text:
            return ""
        times = self._seen[key] + 1
        if times < 2:
            return ""
        if times < self._repeats:
            return (
                "You made exactly this call before and the result is the same. "
                "Use what you know, or try something different."
            )
        return (
            f"This is the same call with the same result for the {_ordinal(times)} time; it will not change. "
            "Answer now, or do something else: the next repetition ends the run."
        )


def _key(call: Call) -> bytes:
    return msgspec.json.encode([call.tool, call.input], order="deterministic")


def _ordinal(number: int) -> str:
    return {2: "2nd", 3: "3rd"}.get(number, f"{number}th")
