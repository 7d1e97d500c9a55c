"""Opens files by paths that models, users and configurations give, without harm to the journals of this process.

SQLite locks a journal with POSIX locks. When a process closes any descriptor of a file, it loses all its locks on that
file, and other processes then write at the same time. So no code of this process may open a file of a journal that is
open here. This module refuses such files by device and inode, whatever path or link leads to them.
"""

from __future__ import annotations

import errno
import os
import threading
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from plait.core.errors import ConfigError
from plait.core.text import decode_text

Inode: TypeAlias = tuple[int, int]

PARTS = ("", "-wal", "-shm", "-journal", "-owners")
"""The suffixes of a journal's files: the database, those of SQLite, and the locks of the processes."""
_places: set[str] = set()
"""The journals that this process has opened."""
_held: Counter[Inode] = Counter()
"""The files of open connections, which may have been moved since."""
_released: deque[Inode] = deque()
"""The files of closed connections, still counted in `_held`. The garbage collector may close a connection at any
moment, also while its thread holds `_guard`, so whoever closes one takes no lock."""
_guard = threading.Lock()


def protect_journal(path: Path) -> None:
    """Refuse the files of a journal from now on. Call it before SQLite opens the journal."""
    with _guard:
        _places.difference_update([place for place in _places if not os.path.exists(place)])
        _places.add(os.path.realpath(path))


def hold_inodes(path: Path) -> tuple[Inode, ...]:
    """Refuse the files of an open journal also when they have been moved. Returns what `release_inodes` takes."""
    with _guard:
        inodes = tuple(_find_inodes(os.path.realpath(path)))
        _take_released()
        _held.update(inodes)
    return inodes


def release_inodes(inodes: tuple[Inode, ...]) -> None:
    """Undo one `hold_inodes`, because the connection is closed."""
    _released.extend(inodes)


def _take_released() -> None:
    while _released:
        _held[_released.popleft()] -= 1


def _find_inodes(place: str) -> Iterator[Inode]:
    for part in PARTS:
        with suppress(OSError):
            found = os.stat(place + part)
            yield found.st_dev, found.st_ino


def _is_of_journal(info: os.stat_result) -> bool:
    inode = (info.st_dev, info.st_ino)
    _take_released()
    return _held[inode] > 0 or any(inode in _find_inodes(place) for place in _places)


def refuse_journal(path: str | Path, folder: int | None = None) -> None:
    """Raise `OSError` if a path leads to a file of a journal, or to where SQLite would look for one. `folder` is the
    descriptor of the folder that the path is relative to."""
    above, name = os.path.split(path)
    with _guard, suppress(FileNotFoundError):
        near = [place for place in _places if name.startswith(os.path.basename(place))]
        info = os.stat(above or ".", dir_fd=folder)
        is_part = any(
            name == os.path.basename(place) + part and os.path.samestat(info, os.stat(os.path.dirname(place)))
            for place in near
            for part in PARTS
        )
        if is_part or _is_of_journal(os.stat(path, dir_fd=folder)):
            raise OSError(errno.EBUSY, "it is a file of a journal that is in use", str(path))


@contextmanager
def open_file(path: str | Path, flags: int = 0, folder: int | None = None) -> Iterator[BufferedReader]:
    """Open a file to read it, with `flags` of `os.open`. Raises `OSError`, also for a file of a journal."""
    refuse_journal(path, folder)
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | flags, dir_fd=folder)
    try:
        with open(descriptor, "rb", closefd=False) as file:
            yield file
    finally:
        with _guard:  # a file that became a journal's meanwhile stays open, because of the locks
            if not _is_of_journal(os.fstat(descriptor)):
                os.close(descriptor)


def read_file(path: str | Path) -> bytes:
    """Return the content of a file. Raises `OSError`, also for a file of a journal."""
    with open_file(path) as file:
        return file.read()


def read_text(name: str) -> str:
    """Return the text of a file with its line ends, in whatever encoding it is. Raises `ConfigError`."""
    path = Path(name).expanduser()
    if path.is_dir():
        raise ConfigError(f"{name} is a folder.", hint="Name a file in it.")
    if not path.exists():
        raise ConfigError(f"There is no file {name}.", hint=f"Plait looked for {path.absolute()}.")
    try:
        text = decode_text(read_file(path))
    except OSError as why:
        raise ConfigError(f"{name} cannot be read: {why.strerror}.") from why
    if text is None:
        raise ConfigError(f"{name} is not text.", hint="Save it as text in UTF-8.")
    return text


def read_text_or_file(given: str) -> str:
    """Return a text: the words themselves (no file's name), or the content of `@FILE`. Raises `ConfigError`."""
    if os.path.isfile(given):
        raise ConfigError(f"{given!r} is a file, and not a text.", hint=f"@{given} is its text.")
    return read_text(given[1:]).strip() if given.startswith("@") else given


def read_json_object(name: str) -> dict[str, Any]:
    """Return the JSON object in a file, such as a JSON Schema. Raises `ConfigError` for anything else."""
    try:
        found = msgspec.json.decode(read_text(name))
    except msgspec.DecodeError as why:
        raise ConfigError(f"{name} is not JSON: {why}.", hint="Give a JSON Schema.") from None
    if not isinstance(found, dict):
        raise ConfigError(f"{name} holds no JSON object.", hint='Give a JSON Schema, such as {"type": "object"}.')
    return found
