"""Removes invented values from the text that a model is shown of itself; otherwise it soon treats them as known."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import structs

from plait.core import UNKNOWN, CheckGrounding, Effects, Observation
from plait.loops.format import CODE, Turn

_NUMBERED = r"(?<!thought )(?<!action )(?<!observation )"
_ALONE = re.compile(r"[:\[,]\s*$")  # text before a value of JSON that is not a text


def find_ungrounded(text: str = "", **more: Any) -> Effects[tuple[str, ...]]:
    """Return the values that the model invented in text, code or planned calls. `more`: see `CheckGrounding`."""
    found: tuple[str, ...] = yield CheckGrounding(text, **more)
    return found and tuple(value.rpartition(": ")[2] for value in found)


def find_ungrounded_in_turn(turn: Turn) -> Effects[tuple[str, ...]]:
    """Return the values that the model invented in a turn. Call it before running anything: a result that was computed
    with such a value would confirm it."""
    call = turn.call
    if call is not None and call.tool == CODE:
        found = yield from find_ungrounded(turn.thought, code=str(call.input))
    else:
        words = f"{turn.thought}\n{turn.answer}" if turn.answered else turn.thought
        found = yield from find_ungrounded(words, calls=(call,) if call is not None else ())
    # Without the numbers of labels: `OBSERVATION 12`.
    return found and tuple(value for value in found if strike_values(turn.kept, [value]) != turn.kept)


def strike_from_turn(found: Sequence[str], turn: Turn, seen: Observation) -> tuple[Turn, Observation]:
    """Return a turn without its invented values, and the observation with a remark about them."""
    found = [value for value in found if seen.trouble == "refused" or strike_values(seen.text, [value]) == seen.text]
    if not found:
        return turn, seen
    if seen.trouble != "refused":
        said = f"Struck out of what you wrote, as nothing has given it: {', '.join(found)}. Look it up by name."
        seen = structs.replace(seen, note=f"{seen.note} {said}".strip())
    kept, reply = strike_values(turn.kept, found), strike_values(turn.reply, found)
    return structs.replace(turn, kept=kept, reply=reply), seen


def strike_values(text: str, found: Iterable[str]) -> str:
    """Remove these values from the text; the numbers of its labels stay."""
    for value in sorted(found, key=len, reverse=True):
        text = re.sub(rf"{_NUMBERED}(?<![\w.]){re.escape(value)}(?!\w|[.,]\d)", _blank, text, flags=re.I)
    return text


def _blank(match: re.Match[str]) -> str:
    before, after = match.string[: match.start()], match.string[match.end() :]
    bare = _ALONE.search(before[-20:]) and re.match(r"\s*[,}\]]", after)
    return "null" if bare else UNKNOWN
