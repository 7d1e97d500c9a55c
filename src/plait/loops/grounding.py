"""What a model made up is struck out of what it is shown of its own words: else it soon takes it for known."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import structs

from plait.core import UNKNOWN, Effects, Observation, check_grounding
from plait.loops.format import CODE, Turn

_NUMBERED = r"(?<!thought )(?<!action )(?<!observation )"
_ALONE = re.compile(r"[:\[,]\s*$")  # what stands before a value of JSON that is no text


def find_ungrounded(text: str = "", **more: Any) -> Effects[tuple[str, ...]]:
    """The values that the model made up in words, in code or in calls that it plans; `more` is what `doubt` takes."""
    return tuple(value.rpartition(": ")[2] for value in (yield from check_grounding(text, **more)))


def find_ungrounded_in_turn(turn: Turn) -> Effects[tuple[str, ...]]:
    """The values that the model made up in a turn. To be asked before anything is done: a result that was computed with
    such a value would vouch for it."""
    call = turn.call
    if call is not None and call.tool == CODE:
        return _own(turn, (yield from find_ungrounded(turn.thought, code=str(call.input))))
    words = f"{turn.thought}\n{turn.answer}" if turn.answered else turn.thought
    return _own(turn, (yield from find_ungrounded(words, calls=[call] if call is not None else ())))


def _own(turn: Turn, found: Iterable[str]) -> tuple[str, ...]:
    """Those that are no numbers of labels: `OBSERVATION 12`."""
    return tuple(value for value in found if strike_values(turn.kept, [value]) != turn.kept)


def strike_from_turn(found: Sequence[str], turn: Turn, seen: Observation) -> tuple[Turn, Observation]:
    """A turn without the values that were found in it, and what was observed with a word about them."""
    found = [value for value in found if seen.trouble == "refused" or strike_values(seen.text, [value]) == seen.text]
    if not found:
        return turn, seen
    if seen.trouble != "refused":
        said = f"Struck out of what you wrote, as nothing has given it: {', '.join(found)}. Look it up by name."
        seen = structs.replace(seen, note=f"{seen.note} {said}".strip())
    return structs.replace(turn, kept=strike_values(turn.kept, found)), seen


def strike_values(text: str, found: Iterable[str]) -> str:
    """The text with those values struck out; the numbers of its labels stay."""
    for value in sorted(found, key=len, reverse=True):
        text = re.sub(rf"{_NUMBERED}(?<![\w.]){re.escape(value)}(?!\w|[.,]\d)", _blank, text, flags=re.I)
    return text


def _blank(match: re.Match[str]) -> str:
    before, after = match.string[: match.start()], match.string[match.end() :]
    bare = _ALONE.search(before[-20:]) and re.match(r"\s*[,}\]]", after)
    return "null" if bare else UNKNOWN
