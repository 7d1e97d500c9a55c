"""A long text in pieces that a messenger takes."""

from __future__ import annotations


def pieces(text: str, most: int) -> list[str]:
    """The text in pieces of at most `most` characters, parted at paragraphs, lines, sentences or words where it can be.

    Joined, they are the text but for the white space where they part. Nothing gives no piece.
    """
    found: list[str] = []
    rest = text
    while len(rest) > most:
        at = 0
        for mark in ("\n\n", "\n", ". ", " "):
            place = rest.rfind(mark, most // 2, most - len(mark) + 1)
            if place > 0:
                at = place + len(mark)
                break
        at = at or most
        found.append(rest[:at].rstrip())
        rest = rest[at:].lstrip()
    return [piece for piece in (*found, rest) if piece]
