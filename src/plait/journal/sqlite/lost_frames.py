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
_MOST = 1 << 16
"""Frames that are looked at. A -wal file has some thousand, but one from elsewhere may have any length."""
_EFFECT = re.compile(rb'effect\{"type":"intent"')
"""The columns kind and data of an effect's intent as they stand in a page, behind its time, a big-endian float."""


def has_lost_effects(connection: sqlite3.Connection, path: Path) -> bool:
    """Return whether the -wal file of a journal has an intent of an effect that SQLite does not read from it. Reading
    that file drops no lock: SQLite holds them on others. Raises sqlite3.Error."""
    times: set[float] = set()
    with suppress(OSError), path.with_name(path.name + "-wal").open("rb", buffering=0) as file:
        start = file.read(_HEADER + _FRAME)
        if len(start) < _HEADER + _FRAME:
            return False
        # The first frame is always of the newest round; older ones, with other salts, may stand behind the last.
        salts = {start[16:24], start[_HEADER + 8 : _HEADER + 16]}
        (page,) = connection.execute("PRAGMA page_size").fetchone()
        _, read, _ = connection.execute("PRAGMA wal_checkpoint").fetchone()
        for number in range(max(read, 0), _MOST):
            file.seek(_HEADER + number * (_FRAME + page))
            if len(frame := file.read(_FRAME)) < _FRAME:
                break
            if frame[8:16] in salts:
                held = bytes(8) + file.read(page)
                times.update(struct.unpack_from(">d", held, each.start() - 8)[0] for each in _EFFECT.finditer(held))
    if not times:
        return False
    return not times <= {at for (at,) in connection.execute("SELECT at FROM events WHERE kind = 'effect'")}
