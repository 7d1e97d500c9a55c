"""The tool `read_result`, which pages through and searches a result that was too long to be shown whole."""

from __future__ import annotations

from typing import Any

from plait.core.errors import ToolError
from plait.core.text import cut_text
from plait.runtime.calls.context import Context
from plait.tools.tool import tool

NAME = "read_result"
AROUND, HITS = 120, 20
"""Characters shown on each side of a hit, and the maximum number of hits."""


@tool(name=NAME, read_only=True)
def read_result(ctx: Context[Any], result: str, find: str = "", start: int = 0) -> str:
    """Shows a part of an earlier result that was too long, or the places in it that have some words.

    Args:
        result: The number of the result, from the note below it.
        find: A text to search for, upper and lower case alike; without it, the part from `start` is shown.
        start: The number of the first character.
    """
    if ctx.services is None:
        raise ToolError("This call belongs to no run.")
    text, room = ctx.services.find_result(result)
    start = max(start, 0)
    if start >= len(text):
        raise ToolError(f"The result has {len(text):,} characters; there is no character {start:,}.")
    if not find:
        end = min(start + room, len(text))
        more = f" Next: start={end}." if end < len(text) else ""
        return f"[Characters {start:,}-{end:,} of {len(text):,}.{more}]\n{text[start:end]}"
    folded, wanted = text.lower(), find.lower()
    hits: list[str] = []
    at = folded.find(wanted, start)
    while at >= 0 and len(hits) < HITS and sum(map(len, hits)) + 2 * AROUND + len(find) < room:
        around = " ".join(text[max(at - AROUND, 0) : at + len(find) + AROUND].split())
        hits.append(f"[character {at:,}] {around}")
        start = at + len(find)
        at = folded.find(wanted, start)
    more = f"[There are more. Next: start={start}.]" if at >= 0 else "[There are no more.]"
    return "\n".join([*hits, more] if hits else [f"Nothing from character {start:,} on has {cut_text(find, 80)!r}."])
