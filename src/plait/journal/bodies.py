"""Stores a request body as the difference from the one before, so a run of n steps takes O(n) space, not O(n²).

Theory of operation. A loop's prompt grows in one place: messages are added near the end of the body, or
one string in it grows; what stands before and behind stays. So a body is kept as three things: how many
bytes it shares with the start of its base (`head`), how many with its end (`tail`), and the bytes between.
The base is the request before it in the same run and phase. There are no anchors in between: a body kept whole
every k steps would make the space O(n²/k) again, and a run is read from its start anyway.

What is kept is compressed where that pays. zlib's time is mostly for clearing its tables (about 55 us with
the default 32 kB window, 6 us with a 4 kB one), so a small body gets a small window.
"""

from __future__ import annotations

import zlib
from typing import NamedTuple

from plait.journal.records import IntentRecord, Record, RequestRecord

PACK_FROM = 2000
"""Bytes from which a body is compressed: below, a page of the file is shared by several rows anyway."""

SMALL = 12_000
"""Bytes up to which the 4 kB window is quicker than the 32 kB one and about as good."""

WINDOW = 256
"""Bytes that are compared at once."""

WORTH = 32
"""Shared bytes from which telling a body from its base saves anything."""


MAX_BODY = 64 << 20
"""Bytes of the longest body that is restored (64 MiB). In a journal from elsewhere, few bytes may unpack to many."""


def find_phase(record: Record) -> str | None:
    """Return the phase whose last request is the base of a row's body; None: the body has no base, and is none."""
    is_request = isinstance(record, IntentRecord) and isinstance(record.asked, RequestRecord)
    return record.asked.phase if is_request else None  # type: ignore[union-attr]


class Coded(NamedTuple):
    """A body as stored: the columns `head`, `tail`, `packed` and `body`. `head` is None without a base."""

    head: int | None
    tail: int | None
    packed: int | None
    body: bytes


NO_BODY = (None, None, None, None)
"""The columns of a record without a body."""


class Unrestorable(Exception):
    """A stored body does not fit its base: the file is damaged."""


def shared_head(a: bytes, b: bytes) -> int:
    """Length of the longest common prefix. Each step is one memcmp; the last bytes are compared as one number."""
    low, high = 0, min(len(a), len(b))
    middle = max(0, high - WINDOW)  # bodies grow at their end
    while high - low > WINDOW:
        if b.startswith(a[low:middle], low):
            low = middle
        else:
            high = middle
        middle = (low + high + 1) // 2
    differing = int.from_bytes(a[low:high]) ^ int.from_bytes(b[low:high])
    return high - (differing.bit_length() + 7) // 8


def shared_tail(a: bytes, b: bytes, max_length: int) -> int:
    """Length of the longest common suffix, `max_length` bytes at the longest."""
    low, high = 0, max_length
    middle = min(max_length, WINDOW)
    while high - low > WINDOW:
        if b.endswith(a[len(a) - middle : len(a) - low], 0, len(b) - low):
            low = middle
        else:
            high = middle
        middle = (low + high + 1) // 2
    end_a, end_b = a[len(a) - high : len(a) - low], b[len(b) - high : len(b) - low]
    differing = int.from_bytes(end_a) ^ int.from_bytes(end_b)
    return low + ((differing & -differing).bit_length() - 1) // 8 if differing else high


def pack(body: bytes) -> tuple[int | None, bytes]:
    """`packed` and the bytes to store: compressed if the body is long enough and it saves an eighth."""
    if len(body) < PACK_FROM:
        return None, body
    if len(body) <= SMALL:
        machine = zlib.compressobj(1, zlib.DEFLATED, 12, 4)
        small = machine.compress(body) + machine.flush()
    else:
        small = zlib.compress(body, 1)
    return (1, small) if len(small) < len(body) - len(body) // 8 else (None, body)


def encode(body: bytes, base: bytes | None = None) -> Coded:
    """Return the stored form of `body`: its difference from `base` if that is shorter."""
    if base is not None:
        head = shared_head(base, body)
        tail = shared_tail(base, body, min(len(base), len(body)) - head)
        if head + tail >= WORTH:
            packed, between = pack(body[head : len(body) - tail])
            return Coded(head, tail, packed, between)
    packed, whole = pack(body)
    return Coded(None, None, packed, whole)


def decode(coded: Coded, base: bytes | None = None) -> bytes:
    """The exact body. Raises `Unrestorable` when base or bytes are not what they were."""
    between = coded.body
    if coded.packed:
        machine = zlib.decompressobj()
        try:
            between = machine.decompress(between, MAX_BODY + 1)
        except zlib.error as error:
            raise Unrestorable(str(error)) from None
        if len(between) <= MAX_BODY and not machine.eof:
            raise Unrestorable("its compressed bytes are cut short")
    head, tail = coded.head or 0, coded.tail or 0
    if head + len(between) + tail > MAX_BODY:
        raise Unrestorable(f"its body is longer than {MAX_BODY >> 20} MiB")
    if coded.head is None:
        return between
    if base is None or min(head, tail) < 0 or head + tail > len(base):
        raise Unrestorable("the body that it refers to is not there")
    return base[:head] + between + base[len(base) - tail :]
