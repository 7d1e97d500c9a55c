"""Digests of rows: each row's digest covers its columns and the digest of the row before it.

So a damaged row, a missing row and a row of another run are found when a run is read. The chain of a run's record
begins with the digest of what its own row in `runs` was begun with.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

SIZE = 16
"""Bytes of a digest."""


def digest_of_run(id: str, question: str, loop: str, parent: str, fork_at: int, head: str, session: str) -> bytes:
    """The digest of what never changes in a run's own row."""
    return _digest(b"", (id, question, loop, parent, fork_at, head, session))


def digest_of_state(run: bytes, status: str, owner: str, rows: int | None, outcome: str | None, totals: str) -> bytes:
    """The digest of what changes in a run's own row: when it begins, is claimed, and ends."""
    return _digest(run, (status, owner, rows, outcome, totals))


def digest_of_row(before: bytes, columns: Sequence[Any]) -> bytes:
    """The digest of a row of the record: `columns` are seq, at, kind, data, base, head, tail, packed, body.

    It is `_digest` written out for these columns, because a run does it for every record.
    """
    seq, at, kind, data, base, head, tail, packed, body = columns
    try:
        kind, data = kind.encode("utf-8", "surrogatepass"), data.encode("utf-8", "surrogatepass")
        size = None if body is None else str(len(body))
        shape = f"[{seq!r}, {at!r}, '{len(kind)}', '{len(data)}', {base!r}, {head!r}, {tail!r}, {packed!r}, {size!r}]"
        whole = b"".join((before, shape.encode(), kind, data, body or b""))
    except (AttributeError, TypeError):  # a damaged row: a column of another type
        return _digest(before, columns)
    return hashlib.blake2b(whole, digest_size=SIZE).digest()


def _digest(before: bytes, values: Sequence[Any]) -> bytes:
    texts = [each.encode("utf-8", "surrogatepass") if isinstance(each, str) else each for each in values]
    # Lengths are texts here, so that they differ from numbers.
    shape = repr([str(len(each)) if isinstance(each, bytes) else each for each in texts])
    made = hashlib.blake2b(before + shape.encode(), digest_size=SIZE)
    for each in texts:
        if isinstance(each, bytes):
            made.update(each)
    return made.digest()
