"""The loop breaker: notices that a run goes in circles, says so, and in the end stops it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
from msgspec import structs

from plait.core import Call, Execute, LimitNear, Note, Observation, Ran
from plait.journal import codec
from plait.runtime.guard import BREAKER, Entry, Guard
from plait.runtime.guards.last_act import LastAct

ERRORS_IN_A_ROW = 8

REMEMBERED = 2
"""Different calls that are still counted when the model no longer sees old results."""


class LoopBreaker(Guard):
    """Watches calls and their results.

    The same call with the same result is no progress, wherever in the run it comes: calls in turn (A, B, A, B) are
    caught as well, a poll whose result changes is not. Nor is it progress when a row of calls only look something up
    and were all made before, or when errors follow each other without one result between them. What one piece of code
    repeats counts once, where calling again does no harm: its author sees nothing of it before the piece has ended, and
    the limits of code end it. Calls of one turn are no repetitions of each other.

    `repeats` is how often the same call may bring the same result; 0 switches the breaker off.
    """

    name = "breaker"
    order = BREAKER
    points = (Call,)
    points_after = (Call, Execute, Note)
    holds_text = may_ask = holds_for_children = False
    sees_unbound = True

    def __init__(self, repeats: int) -> None:
        self._repeats = repeats
        self._act = LastAct()
        self._alike: dict[bytes, Call] = {}
        """How calls were bound first, by the model's words: computed defaults make no call new."""
        self._counted: set[tuple[str, str]] = set()
        self._seen: Counter[bytes] = Counter()
        self._last: dict[bytes, str] = {}
        self._errors = 0
        self._stale = 0  # calls in a row that brought nothing new
        self._in_code = False
        self._of_piece: set[bytes] = set()  # calls of this piece of code
        self._failed = False  # the last call of this piece did
        self._has_concluded = False  # a limit was near

    async def before(self, entry: Entry) -> Any:
        self._count_before(entry.key)
        if self._repeats and not self._has_concluded and not entry.changed_by:  # a changed call has passed
            words = codec.encode((entry.asked.tool, entry.asked.input))
            if why := self._find_circle(self._alike.get(words, entry.effect)):
                raise LimitNear("loop", why)
        return entry.effect

    async def after(self, entry: Entry, result: Any, fresh: bool) -> Any:
        self._has_concluded = self._has_concluded or isinstance(result, LimitNear)
        match entry.effect:
            case Execute() if isinstance(result, Ran):
                self._count_before(entry.key)
                self._in_code, self._failed = True, False
                self._of_piece.clear()
            case Note(kind="compacted"):  # the model no longer sees old results, and may call for them again
                self._count_before()
                self._last = dict(list(self._last.items())[-REMEMBERED:])
                self._seen = Counter({key: self._seen[key] for key in self._last})
                self._stale = 0
            case Call() if isinstance(result, Observation) and self._repeats:
                self._count_before(entry.key)
                if entry.id in self._counted:
                    return result
                self._act.add(entry, result)
                note = self._remark_on(_key(self._find_alike(entry)), result) if fresh else ""
                if note:
                    return structs.replace(result, note=f"{result.note} {note}".strip(), repeated=True)
        return result

    def holds_result(self, entry: Entry, result: Any) -> bool:
        if not self._repeats:
            return False
        if entry.started or not self._act.holds(entry.key):  # other results may count before this one
            return True
        return bool(self._remark_on(_key(self._find_alike(entry)), result))

    def _find_alike(self, entry: Entry) -> Call:
        """Return the call by which an ended call is counted. Of a changed one the record has only the model's words."""
        words = codec.encode((entry.asked.tool, entry.asked.input))
        return self._alike.setdefault(words, entry.asked if entry.changed_by else entry.effect)

    def _find_circle(self, call: Call) -> str:
        """Return why a call must not be made once more; "" if it may."""
        key = _key(call)
        is_new = key not in self._of_piece
        if self._seen[key] >= self._repeats and is_new:
            return f"the same call to '{call.tool}' brought the same result {self._seen[key]} times"
        if self._stale >= self._repeats and self._seen[key] and is_new:
            return f"{self._stale} calls in a row were made before and brought the same results"
        if self._errors >= ERRORS_IN_A_ROW and not self._failed:
            what = "pieces of code" if self._in_code else "calls"
            return f"{self._errors} {what} in a row brought nothing but errors"
        return ""

    def _count_before(self, key: str = "") -> None:
        """Count the results of the effect before this one."""
        for entry, observation in self._act.close(key):
            self._counted.add(entry.id)
            self._count(_key(self._find_alike(entry)), entry, observation)

    def _count(self, key: bytes, entry: Entry, observation: Observation) -> None:
        if observation.ok:
            self._errors = 0
        elif not self._failed:
            self._errors += 1
        self._failed = self._in_code and not observation.ok
        harmless = entry.tool is None or entry.tool.spec.repeatable
        before = self._last.pop(key, None)
        self._last[key] = observation.text  # in the order of the last results
        if before != observation.text:
            self._seen[key] = 1
            self._stale = 0
        elif key not in self._of_piece:
            self._seen[key] += 1
            self._stale = self._stale + 1 if harmless else 0
        if self._in_code and harmless:
            self._of_piece.add(key)

    def _remark_on(self, key: bytes, observation: Observation) -> str:
        """Return the note for the model about a result; "" for none."""
        if self._last.get(key) != observation.text or key in self._of_piece:
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
        ordinal = {2: "2nd", 3: "3rd"}.get(times, f"{times}th")
        return (
            f"This is the same call with the same result for the {ordinal} time; it will not change. "
            "Answer now, or do something else: the next repetition ends the run."
        )


def _key(call: Call) -> bytes:
    return msgspec.json.encode([call.tool, call.input], order="deterministic")
