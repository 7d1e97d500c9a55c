"""Vectors stored on disk, so that a text is embedded once for all processes of a user.

One SQLite file with one row per vector, under the embedder's name and the text's sha256. It holds no texts. It is only
a cache: if the file is damaged, Plait moves it aside and starts a new one; if it cannot be used, Plait does without.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import zlib
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from plait.user_folders import cache_folder

if TYPE_CHECKING:
    from plait.search.embedders import Embedder, Vectors

SIZE = 200_000_000
"""Maximum bytes of stored vectors: 130,000 of the default embedder. Beyond it the oldest quarter is deleted."""
BATCH = 512
"""Texts that are embedded before their vectors are stored; an interruption loses at most these."""

_WAIT_SECONDS = 5.0
_VERSION = 1
_UNAVAILABLE = {
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_CANTOPEN,
}
_SCHEMA = """
create table if not exists vectors (
    embedder text not null, text blob not null, vector blob not null, primary key (embedder, text)
)
"""
_Result = TypeVar("_Result")


def default_cache_file() -> Path:
    """Return `embeddings.db` in `PLAIT_CACHE`, else in `plait` in the user's cache folder."""
    if folder := os.environ.get("PLAIT_CACHE"):
        return Path(folder).expanduser() / "embeddings.db"
    return cache_folder() / "embeddings.db"


class VectorCache:
    """A file of vectors that any number of processes and threads may share. `path` defaults to `default_cache_file()`.
    Nothing is created before the first use. Each use opens the file again, so threads and forks are safe."""

    def __init__(self, path: str | Path | None = None, *, size: int = SIZE) -> None:
        self.path = Path(path) if path is not None else default_cache_file()
        self.size = size

    def get(self, name: str, texts: Sequence[str]) -> list[Vectors | None]:
        """Return the stored vector of each text under an embedder's name, or None."""
        import numpy as np

        query = "select vector from vectors where embedder = ? and text = ?"
        keys = [_hash(text) for text in texts]
        rows = self._use(lambda db: [db.execute(query, (name, key)).fetchone() for key in keys])
        found: list[Vectors | None] = []
        for row in rows or [None] * len(keys):
            data = row[0] if row and isinstance(row[0], bytes) else b""
            whole = len(data) > 4 and len(data) % 4 == 0 and _checksum(data[4:]) == data[:4]
            found.append(np.frombuffer(data, dtype="<f4", offset=4) if whole else None)
        return found

    def put(self, name: str, texts: Sequence[str], vectors: Vectors) -> None:
        """Store vectors, one row per text, under an embedder's name."""
        rows = []
        for text, vector in zip(texts, vectors, strict=True):
            data = vector.astype("<f4").tobytes()
            rows.append((name, _hash(text), _checksum(data) + data))
        self._use(lambda db: self._write(db, rows))

    def _use(self, work: Callable[[sqlite3.Connection], _Result]) -> _Result | None:
        """Return what `work` returns, or None if the file cannot be used now."""
        for _ in range(2):
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                with closing(sqlite3.connect(self.path, timeout=_WAIT_SECONDS)) as db, db:
                    (version,) = db.execute("pragma user_version").fetchone()
                    if version != _VERSION:
                        if version:
                            raise sqlite3.DatabaseError(f"version {version}")
                        db.execute(_SCHEMA)
                        db.execute(f"pragma user_version = {_VERSION}")
                    db.execute("pragma synchronous = off")
                    return work(db)
            except sqlite3.Error as error:
                if (getattr(error, "sqlite_errorcode", 0) & 0xFF) in _UNAVAILABLE:
                    return None
                # Moved, not deleted: a path that the user gave may be another file.
                with suppress(OSError):
                    os.replace(self.path, f"{self.path}.damaged")
                    Path(f"{self.path}-journal").unlink(missing_ok=True)
            except OSError:
                return None
        return None

    def _write(self, db: sqlite3.Connection, rows: list[tuple[str, bytes, bytes]]) -> None:
        db.execute("begin immediate")
        db.executemany("insert or replace into vectors values (?, ?, ?)", rows)
        while True:
            pages, free, size = (
                db.execute(f"pragma {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
            )
            if (pages - free) * size <= self.size:
                break
            oldest = "select rowid from vectors order by rowid limit (select count(*) / 4 + 1 from vectors)"
            if not db.execute(f"delete from vectors where rowid in ({oldest})").rowcount:
                break


class CachedEmbedder:
    """An embedder that looks into a cache first. If its name is "", nothing is cached."""

    def __init__(self, embedder: Embedder, cache: VectorCache) -> None:
        self.embedder = embedder
        self.cache = cache

    @property
    def name(self) -> str:
        return self.embedder.name

    @property
    def dim(self) -> int:
        return self.embedder.dim

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Embed the texts without a stored vector, and store the new vectors in batches."""
        import numpy as np

        if not self.name or not texts:
            return self.embedder.embed(texts)
        unique = list(dict.fromkeys(texts))
        found = dict(zip(unique, self.cache.get(self.name, unique), strict=True))
        lengths = {len(vector) for vector in found.values() if vector is not None}
        wanted = self.dim or (lengths.pop() if len(lengths) == 1 else 0)
        missing = [text for text, vector in found.items() if vector is None or len(vector) != wanted]
        for at in range(0, len(missing), BATCH):
            batch = missing[at : at + BATCH]
            vectors = self.embedder.embed(batch)
            found.update(zip(batch, vectors, strict=True))
            self.cache.put(self.name, batch, vectors)
        return np.stack([vector for text in texts if (vector := found[text]) is not None])


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def _checksum(data: bytes) -> bytes:
    return zlib.crc32(data).to_bytes(4, "little")
