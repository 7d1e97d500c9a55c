"""Chance that is the same every time: a generator of random numbers for a seed and what it is for."""

from __future__ import annotations

import hashlib
import random


def chance(*of: object) -> random.Random:
    """Random numbers that depend on nothing but what is named."""
    told = "\x1f".join(map(str, of)).encode()
    return random.Random(int.from_bytes(hashlib.blake2b(told, digest_size=8).digest(), "big"))
