"""The loop breaker: notices that a run goes in circles, says so, and in the end stops it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

from plait.core import Call, Observation
from plait.tools import Toolset

ERRORS_IN_A_ROW = 8

REMEMBERED = 2
"""Different calls that are still counted when the model no longer sees old results."""


class Breaker:
    """Watches calls, their results, and answers that were not taken.

    The same call with the same result is no progress, wherever in the run it comes: calls in turn (A, B, A, B) are
    caught as well, a poll whose result changes is not. Nor is it progress when a row of calls only look something up
    and were all made before, when errors follow each other without one result between them, or when an answer is given
    again that was not taken. What one piece of code repeats counts once, where calling again does no harm: its author
    sees nothing of it before the piece has ended, and the limits of code end it.
    """

    def __init__(self, repeats: int, tools: Toolset) -> None:
        self._repeats, self._tools = repeats, tools
        self._seen: Counter[bytes] = Counter()
        self._last: dict[bytes, str] = {}
        self._errors = 0
        self._stale = 0  # calls in a row that brought nothing new
        self._in_code = False
        self._counted: set[bytes] = set()  # calls of this piece of code
        self._failed = False  # the last call of this piece did
        self._answers: Counter[bytes] = Counter()  # those that were not taken

    def forget_calls(self) -> None:
        """Start the counts again, except for the last calls."""
        self._last = dict(list(self._last.items())[-REMEMBERED:])
        self._seen = Counter({key: self._seen[key] for key in self._last})
        self._stale = 0

    def piece(self) -> None:
        """A piece of code begins."""
        self._in_code, self._failed = True, False
        self._counted.clear()

    def before(self, call: Call) -> str:
        """Why this call must not be made once more; "" when it may."""
        if not self._repeats:
            return ""
        key = _key(call)
        if self._seen[key] >= self._repeats and key not in self._counted:
            return f"the same call to '{call.tool}' brought the same result {self._seen[key]} times"
        if self._stale >= self._repeats and self._seen[key] and key not in self._counted:
            return f"{self._stale} calls in a row were made before and brought the same results"
        if self._errors >= ERRORS_IN_A_ROW and not self._failed:
            what = "pieces of code" if self._in_code else "calls"
            return f"{self._errors} {what} in a row brought nothing but errors"
        return ""

    def refuse_answer(self, answer: Any) -> str:
        """An answer is not taken: why it need not be given once more; "" when it may."""
        key = msgspec.json.encode(answer, order="deterministic")
        self._answers[key] += 1
        if self._repeats and self._answers[key] >= self._repeats:
            return f"the same answer was not taken {self._answers[key]} times"
        return ""

    def after(self, call: Call, observation: Observation) -> None:
        """Count a result, fresh or recorded."""
        if not self._repeats:
            return
        if observation.ok:
            self._errors = 0
        elif not self._failed:
            self._errors += 1
        self._failed = self._in_code and not observation.ok
        key = _key(call)
        tool = self._tools.get(call.tool)
        harmless = tool is None or tool.spec.repeatable
        before = self._last.pop(key, None)
        self._last[key] = observation.text  # in the order of the last results
        if before != observation.text:
            self._seen[key] = 1
            self._stale = 0
        elif key not in self._counted:
            self._seen[key] += 1
            self._stale = self._stale + 1 if harmless else 0
        if self._in_code and harmless:
            self._counted.add(key)

    def remark(self, call: Call, observation: Observation) -> str:
        """Return the note for the model about the next result; "" for none."""
        if not self._repeats or self._last.get(key := _key(call)) != observation.text or key in self._counted:
            return ""
        times = self._seen[key] + 1
        if times < 2:
            return ""
        if times < self._repeats and not observation.ok:
            return "You made exactly this call before: it fails the same way each time. Do something else."
        if times < self._repeats:
            return (
                "You made exactly this call before and the result is the same. If what you have seen answers the task, "
                "answer now; if not, call for what is still missing."
            )
        return (
            f"This is the same call with the same result for the {_ordinal(times)} time; it will not change. "
            "Answer now, or do something else: the next repetition ends the run."
        )


def _key(call: Call) -> bytes:
    return msgspec.json.encode([call.tool, call.input], order="deterministic")


def _ordinal(number: int) -> str:
    return {2: "2nd", 3: "3rd"}.get(number, f"{number}th")
