"""A long text made short, with its head, its tail, and a word about what is missing between them."""

from __future__ import annotations


def shorten(text: str, limit: int) -> tuple[str, int]:
    """At most `limit` characters of `text`, and how many characters were left out (0: it is whole).

    Two thirds of the room go to the head and the rest to the tail, where results and errors tend to
    stand; between them a line says how many characters are missing. A limit too small for that line
    keeps the head alone. Raises ValueError for a negative limit.
    """
    if limit < 0:
        raise ValueError(f"A limit of {limit} characters can't be kept; give 0 or more.")
    if len(text) <= limit:
        return text, 0
    # The note's length depends on the number in it: measure it with the longest number it can hold.
    room = limit - len(_note(len(text)))
    if room < 2:
        return text[:limit], len(text) - limit
    head = (room * 2 + 2) // 3
    tail = room - head
    cut = len(text) - room
    return text[:head] + _note(cut) + text[len(text) - tail :], cut


def _note(count: int) -> str:
    return f"\n[... {count} characters left out here ...]\n"
