"""Labels in a picture of points: where each may stand, and which points lie under others.

Everything is in shares of the picture's width and height, from 0 to 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import TypeAlias

Spot: TypeAlias = tuple[float, float]
Box: TypeAlias = tuple[float, float, float, float]
"""Left, right, bottom, top."""

_SIZE = (0.045, 0.06)
"""Width and height of a circle."""
_NEAR = (0.03, 0.04)
"""Nearer than these shares of the width and height, one circle hides the number in another."""
_LETTER, _LINE = 0.016, 0.045
"""How much of the width a letter takes, and of the height a line, in a picture of common width."""
_ASIDE, _ABOVE = 0.027, 0.041
"""How far from the middle of its circle a label begins, and how far above its middle is."""
PLACES = {"ru": (1, 1), "lu": (-1, 1), "rd": (1, -1), "ld": (-1, -1)}
"""Where a label may stand at its circle: right or left, up or down."""


def hidden(spots: Sequence[Spot], best: Sequence[int]) -> dict[int, int]:
    """Each point that lies under another, and which; those on the frontier come first and are never hidden."""
    leads = list(best)
    under: dict[int, int] = {}
    for i, (x, y) in enumerate(spots):
        if i in best:
            continue
        near = (k for k in leads if abs(spots[k][0] - x) < _NEAR[0] and abs(spots[k][1] - y) < _NEAR[1])
        lead = next(near, None)
        if lead is None:
            leads.append(i)
        else:
            under[i] = lead
    return under


def placed(labels: Mapping[int, Sequence[str]], spots: Sequence[Spot]) -> dict[int, tuple[str, str]]:
    """A place and the words for each label that has room: in the picture, over no circle and no other label.

    `labels` come in the order of their worth; of each the first words are taken that have room somewhere.
    """
    taken: list[Box] = [(x - _SIZE[0] / 2, x + _SIZE[0] / 2, y - _SIZE[1] / 2, y + _SIZE[1] / 2) for x, y in spots]
    found: dict[int, tuple[str, str]] = {}
    for i, choice in labels.items():
        for words, (place, (side, up)) in product(choice, PLACES.items()):
            room = _box(spots[i], side, up, len(words))
            if room[0] >= 0 and room[1] <= 1 and not any(_overlap(room, other) for other in taken):
                found[i] = place, words
                taken.append(room)
                break
    return found


def _box(spot: Spot, side: int, up: int, letters: int) -> Box:
    near, far = spot[0] + side * _ASIDE, spot[0] + side * (_ASIDE + _LETTER * letters)
    bottom = spot[1] + up * _ABOVE - _LINE / 2
    return min(near, far), max(near, far), bottom, bottom + _LINE


def _overlap(a: Box, b: Box) -> bool:
    return a[0] < b[1] and b[0] < a[1] and a[2] < b[3] and b[2] < a[3]
