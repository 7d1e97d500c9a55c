"""Finds the effects that a damaged -wal file hides.

SQLite reads a -wal file up to the first frame whose check sum is wrong, and leaves out all behind it without an error.
After a loss of power that is right: those frames were not synced. But a bit that flips on the disk hides synced rows
too, and a run that went on without them would repeat its effects. So whoever opens the file for writing looks for
intents of effects behind the last frame that SQLite reads. Format: https://www.sqlite.org/fileformat2.html#walformat
"""

from __future__ import annotations

import re
import sqlite3
import struct
from contextlib import suppress
from pathlib import Path

_HEADER, _FRAME = 32, 24
"""Bytes of the header of the file, and of that of each frame before its page."""
_EFFECT = re.compile(rb'(.{8})effect\{"type":"intent"', re.DOTALL)
"""The columns at, kind and data of an effect's intent as they stand in a page, the time as a big-endian float."""


def has_lost_effects(connection: sqlite3.Connection, path: Path) -> bool:
    """Return whether the -wal file of a journal has an intent of an effect that SQLite does not read from it.

    Reading that file drops no lock: SQLite holds them on others. Raises sqlite3.Error.
    """
    frames = b""
    with suppress(OSError):
        frames = path.with_name(path.name + "-wal").read_bytes()
    (page,) = connection.execute("PRAGMA page_size").fetchone()
    size = _FRAME + page
    # The first frame is always of the newest round; older ones, with other salts, may stand behind the last.
    salts = {frames[16:24], frames[_HEADER + 8 : _HEADER + 16]}
    starts = [at for at in range(_HEADER, len(frames) - size + 1, size) if frames[at + 8 : at + 16] in salts]
    if not starts:
        return False
    _, read, _ = connection.execute("PRAGMA wal_checkpoint").fetchone()
    hidden = (frames[at : at + size] for at in starts if at >= _HEADER + read * size)
    times = {struct.unpack(">d", at)[0] for frame in hidden for at in _EFFECT.findall(frame)}
    known = "SELECT 1 FROM events WHERE at = ? AND kind = 'effect'"
    return any(connection.execute(known, (at,)).fetchone() is None for at in times)
