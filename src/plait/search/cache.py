"""Vectors kept on disk, so that a text is embedded once for all processes of a user.

Theory of operation. One SQLite file in WAL mode, a row a vector, under the embedder's name and the text's sha256: the
texts themselves are not in it. It is only a cache. So a file that is damaged is put aside and made anew, a row whose
checksum is wrong counts as absent, a file that can't be written or is locked for long is done without, and nothing
here ever raises because of the file. Above its size the oldest quarter goes.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import threading
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from plait.search.base import Embedder, Vectors

SIZE = 200_000_000
"""Bytes that a cache may take: 130,000 vectors of the default embedder."""

AT_ONCE = 512
"""Texts that are embedded before their vectors are kept: so much is lost by an interruption at most."""

_WAIT = 5.0
_NOT_NOW = {
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_CANTOPEN,
}
_Found = TypeVar("_Found")
_inherited: list[sqlite3.Connection] = []
"""Connections that a fork brought along: closing one would let go of its parent's locks."""
_SCHEMA = """
create table if not exists vectors (
    embedder text not null,
    text blob not null,
    vector blob not null,
    primary key (embedder, text)
)
"""
_VERSION = 1


def cache_file() -> Path:
    """`embeddings.db` in `PLAIT_CACHE`, else in `plait` in the user's cache folder."""
    if own := os.environ.get("PLAIT_CACHE"):
        return Path(own).expanduser() / "embeddings.db"
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "plait" / "embeddings.db"


class Cache:
    """A file of vectors; any number of processes and threads may share it. `path` is `cache_file()` if not given.

    Nothing is opened or made before the first use.
    """

    def __init__(self, path: str | Path | None = None, *, size: int = SIZE) -> None:
        self.path = Path(path) if path is not None else cache_file()
        self.size = size
        self._connection: sqlite3.Connection | None = None
        self._process = 0
        self._file = 0
        self._lock = threading.Lock()

    def get(self, name: str, texts: Sequence[str]) -> list[Vectors | None]:
        """The kept vector of each text under an embedder's name, None where there is none."""
        import numpy as np

        keys = [_key(text) for text in texts]
        with self._lock:
            rows = self._within(lambda db: _read(db, name, keys)) or {}
        found: list[Vectors | None] = []
        for key in keys:
            data = rows.get(key, b"")
            whole = len(data) > 4 and len(data) % 4 == 0 and zlib.crc32(data[4:]).to_bytes(4, "little") == data[:4]
            found.append(np.frombuffer(data, dtype="<f4", offset=4) if whole else None)
        return found

    def put(self, name: str, texts: Sequence[str], vectors: Vectors) -> None:
        """Keep the vectors (a row a text) under an embedder's name."""
        rows = []
        for text, vector in zip(texts, vectors, strict=True):
            data = vector.astype("<f4").tobytes()
            rows.append((name, _key(text), zlib.crc32(data).to_bytes(4, "little") + data))
        with self._lock:
            self._within(lambda db: self._write(db, rows))

    def close(self) -> None:
        """Close the file. The next use opens it again."""
        with self._lock:
            self._close()

    def __enter__(self) -> Cache:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _within(self, work: Callable[[sqlite3.Connection], _Found]) -> _Found | None:
        """What `work` finds; None where the file can't be used now."""
        for _ in range(2):
            try:
                return work(self._open())
            except sqlite3.Error as error:
                self._close()
                if (getattr(error, "sqlite_errorcode", 0) & 0xFF) in _NOT_NOW:
                    return None
                self._throw_away()
            except OSError:
                return None
        return None

    def _open(self) -> sqlite3.Connection:
        if self._connection is not None and self._process != os.getpid():
            _inherited.append(self._connection)
            self._connection = None
        if self._connection is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            db = sqlite3.connect(self.path, timeout=_WAIT, isolation_level=None, check_same_thread=False)
            self._connection, self._process = db, os.getpid()
            self._file = _inode(self.path)
            (version,) = db.execute("pragma user_version").fetchone()
            if version not in (0, _VERSION):
                raise sqlite3.DatabaseError(f"version {version}")
            db.execute("pragma journal_mode = wal")
            db.execute("pragma synchronous = normal")
            db.execute("pragma journal_size_limit = 8000000")
            db.execute(_SCHEMA)
            db.execute(f"pragma user_version = {_VERSION}")
        return self._connection

    def _close(self) -> None:
        if self._connection is not None:
            if self._process == os.getpid():
                with suppress(sqlite3.Error):
                    self._connection.close()
            else:
                _inherited.append(self._connection)
            self._connection = None

    def _throw_away(self) -> None:
        # Put aside, not deleted: a path given by hand may hold something else.
        with suppress(OSError):
            if _inode(self.path) == self._file:  # else another process did it already
                os.replace(self.path, f"{self.path}.damaged")
                for end in ("-wal", "-shm"):
                    Path(f"{self.path}{end}").unlink(missing_ok=True)

    def _write(self, db: sqlite3.Connection, rows: list[tuple[str, bytes, bytes]]) -> None:
        db.execute("begin immediate")
        try:
            db.executemany("insert or replace into vectors (embedder, text, vector) values (?, ?, ?)", rows)
            while _used(db) > self.size:
                few = "select rowid from vectors order by rowid limit (select count(*) / 4 + 1 from vectors)"
                if not db.execute(f"delete from vectors where rowid in ({few})").rowcount:
                    break
            db.execute("commit")
        except BaseException:
            with suppress(sqlite3.Error):
                db.execute("rollback")
            raise


class Cached:
    """An embedder that looks into a cache first. One without a name is asked every time."""

    def __init__(self, embedder: Embedder, cache: Cache) -> None:
        self.embedder = embedder
        self.cache = cache

    @property
    def name(self) -> str:
        return self.embedder.name

    @property
    def dim(self) -> int:
        return self.embedder.dim

    def embed(self, texts: Sequence[str]) -> Vectors:
        """As the embedder's own; it is asked for what is not kept, `AT_ONCE` texts a time, each kept at once."""
        import numpy as np

        if not self.name or not texts:
            return self.embedder.embed(texts)
        once = list(dict.fromkeys(texts))
        found = dict(zip(once, self.cache.get(self.name, once), strict=True))
        lengths = {len(vector) for vector in found.values() if vector is not None}
        wanted = self.dim or (lengths.pop() if len(lengths) == 1 else 0)
        absent = [text for text, vector in found.items() if vector is None or len(vector) != wanted]
        for at in range(0, len(absent), AT_ONCE):
            some = absent[at : at + AT_ONCE]
            vectors = self.embedder.embed(some)
            found.update(zip(some, vectors, strict=True))
            self.cache.put(self.name, some, vectors)
        return np.stack([vector for text in texts if (vector := found[text]) is not None])


def _key(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def _read(db: sqlite3.Connection, name: str, keys: list[bytes]) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    for at in range(0, len(keys), 500):
        some = keys[at : at + 500]
        marks = ", ".join("?" * len(some))
        query = f"select text, vector from vectors where embedder = ? and text in ({marks})"
        found.update((text, vector) for text, vector in db.execute(query, (name, *some)) if isinstance(vector, bytes))
    return found


def _used(db: sqlite3.Connection) -> int:
    pages, free, size = (
        db.execute(f"pragma {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
    )
    return int((pages - free) * size)


def _inode(path: Path) -> int:
    try:
        return path.stat().st_ino
    except OSError:
        return 0
