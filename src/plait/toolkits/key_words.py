"""Says which keys a table has, in few words: keys that differ in one place are told together.

`area of Ghent in km2, area of Lier in km2, mayor of Ghent, mayor of Lier` is said as `area of X in km2, mayor of X (X:
Ghent, Lier)`. It is shorter, and a small model does not recite it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

LEAST = 2
"""So many keys have to differ in one place to be told together."""
PLACE = "X"
"""Stands for what differs."""
_OF = " of "


def key_words(keys: Sequence[str]) -> str:
    """All keys, each whole or as one of a family."""
    families: dict[str, list[str]] = {}
    for key in keys:
        head, of, _ = key.partition(_OF)
        families.setdefault(head + of if of else key, []).append(key)
    told: dict[tuple[str, ...], list[str]] = {}
    for head, members in families.items():
        forms, names = _family(head, members)
        told.setdefault(names, []).extend(forms)
    return "; ".join(
        f"{', '.join(forms)} ({PLACE}: {', '.join(names)})" if names else ", ".join(forms)
        for names, forms in told.items()
    )


def _family(head: str, members: Sequence[str]) -> tuple[list[str], tuple[str, ...]]:
    """The members' one form with the names that stand in it, or the members and no names."""
    rest = [member[len(head) :] for member in members]
    if len(members) < LEAST or not head.endswith(_OF):
        return list(members), ()
    tail = _common_tail(rest)
    names = tuple(each[: len(each) - len(tail)] for each in rest)
    if not all(names) or len(set(names)) < len(names):
        return list(members), ()
    return [f"{head}{PLACE}{tail}"], names


def _common_tail(texts: Iterable[str]) -> str:
    """The words that all texts end in, from a small one on; none where one text consists of nothing else."""
    words = [text.split(" ") for text in texts]
    most = min(len(each) for each in words) - 1
    count = next((n for n in range(most, 0, -1) if len({tuple(each[-n:]) for each in words}) == 1), 0)
    tail = words[0][len(words[0]) - count :]
    while tail and tail[0][:1].isupper():  # belongs to a name: `Cor Bridge`
        tail = tail[1:]
    return "".join(f" {word}" for word in tail)
