"""Data sets: suite files in one folder, to which people add runs, and which they also edit by hand.

A data set is a file of JSON lines, as `plait compare NAME.jsonl` reads it. Only the line that is meant is written anew:
all others stay byte for byte, also those that are no JSON.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import stat
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import msgspec
from msgspec import structs

from plait.core.errors import ConfigError
from plait.user_files import open_file, refuse_journal

GraderWord: TypeAlias = Literal["exact", "number", "f1", "yesno", "has", "contains"]
"""The graders that a page offers: none loads code or asks a model."""
GRADERS: tuple[str, ...] = get_args(GraderWord)
LARGEST = 32_000_000
"""Bytes of a data set."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_DEVICES = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])", re.IGNORECASE)


class DataSets:
    """The data sets of a folder. Every method raises `ConfigError`, which names the file and the line."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()

    def list(self) -> list[dict[str, Any]]:
        """Return the names of the data sets, each with its number of tasks."""
        found = []
        for name in self._list_names():
            try:
                tasks, problems = read_lines(self.read_file(name))
            except ConfigError as why:
                tasks, problems = [], [why.message]
            found.append({"name": name, "tasks": len(tasks), "problem": "".join(problems[:1])})
        return found

    def find_expected(self) -> dict[str, dict[str, Any]]:
        """Return the tasks of all data sets by their questions, those that a simple grader can judge."""
        found: dict[str, dict[str, Any]] = {}
        for name in self._list_names():
            with suppress(ConfigError):
                for task in read_lines(self.read_file(name))[0]:
                    if (task["grader"] or "exact") in GRADERS and task["answer"] is not None:
                        found.setdefault(task["question"], task)
        return found

    def _list_names(self) -> Iterable[str]:
        return sorted(each.stem for each in self.folder.glob("*.jsonl") if _NAME.fullmatch(each.stem))

    def read(self, name: str) -> dict[str, Any]:
        """Return the tasks of a data set, each with its line and a digest of it, and what is wrong with other lines."""
        tasks, problems = read_lines(self.read_file(name))
        questions = Counter(each["question"] for each in tasks)
        twice = [question for question, count in questions.items() if count > 1]
        return {"name": name, "file": str(self._path(name)), "tasks": tasks, "problems": problems, "twice": twice}

    def add(self, name: str, task: dict[str, Any]) -> int:
        """Add a task to a data set, which is made if it is not there. Returns how many tasks already ask the same."""
        with self._locked():
            data = self.read_file(name) if os.path.lexists(self._path(name)) else b""
            same = sum(1 for each in read_lines(data)[0] if each["question"] == task["question"].strip())
            line = msgspec.json.encode({key: value for key, value in task.items() if value not in ("", None)})
            self._write(name, data + (b"\n" if data and not data.endswith(b"\n") else b"") + line + b"\n")
        return same

    def change(self, name: str, line: int, digest: str, fields: dict[str, Any] | None) -> bool:
        """Set fields of the task in a line, or remove the task (None). Returns False, and changes nothing, if the line
        is another one than that of the digest."""
        with self._locked():
            lines = self.read_file(name).splitlines(keepends=True)
            if not 0 < line <= len(lines) or digest_of(lines[line - 1]) != digest:
                return False
            if fields is None:
                del lines[line - 1]
            else:
                lines[line - 1] = msgspec.json.encode({**msgspec.json.decode(lines[line - 1]), **fields}) + b"\n"
            self._write(name, b"".join(lines))
        return True

    def _path(self, name: str) -> Path:
        if not _NAME.fullmatch(name) or _DEVICES.fullmatch(name):
            raise ConfigError(f"{name!r} can't be the name of a data set.", hint="Use letters, digits, '_' and '-'.")
        return self.folder / f"{name}.jsonl"

    def read_file(self, name: str) -> bytes:
        """Return the file of a data set as it is."""
        path = self._path(name)
        try:
            with open_file(path, os.O_NOFOLLOW | os.O_NONBLOCK) as file:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    raise ConfigError(f"{path.name} is no file.", hint="Remove it, or choose another name.")
                data = file.read(LARGEST + 1)
        except FileNotFoundError:
            raise ConfigError(f"There is no data set {name!r}.", hint=f"Plait looked in {self.folder}.") from None
        except OSError as why:
            hint = "A data set is a plain file, and not a link."
            raise ConfigError(f"{path.name} can't be read: {why.strerror}.", hint=hint) from None
        if len(data) > LARGEST or data.lstrip()[:1] == b"[":
            what = "is too large" if len(data) > LARGEST else "is a JSON list, and not JSON lines"
            raise ConfigError(f"{path.name} {what}.", hint="Edit it by hand.")
        return data

    def _write(self, name: str, data: bytes) -> None:
        if len(data) > LARGEST:
            raise ConfigError(f"{name}.jsonl would have more than {LARGEST:,} bytes.", hint="Begin another data set.")
        path = self._path(name)
        written = path.with_name(f".{name}.{os.getpid()}.new")
        try:
            refuse_journal(path)
            with open(os.open(written, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o644), "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(written, path)
        except OSError as why:
            with suppress(OSError):
                written.unlink()
            raise ConfigError(f"{path.name} can't be written: {why.strerror}.", hint="It is as it was.") from None

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock of the folder, against other threads and processes."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = os.open(self.folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        except OSError as why:
            raise ConfigError(f"The folder {self.folder} can't be written: {why.strerror}.") from None
        with os.fdopen(lock):
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


class DatasetLine(msgspec.Struct):
    """What a page reads of a line; other fields stay as they are."""

    question: str
    answer: Any = None
    grader: Any = None
    note: Any = None
    run: Any = None


def read_lines(data: bytes) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the tasks in JSON lines, and what is wrong with other lines, a sentence each. No grader is loaded."""
    tasks, problems = list[dict[str, Any]](), list[str]()
    for number, line in enumerate(data.splitlines(keepends=True), 1):
        if line.strip():
            try:
                task = msgspec.json.decode(line, type=DatasetLine)
            except (ValueError, RecursionError) as why:
                problems.append(f"Line {number} is no task: {why}.")
            else:
                task.question = task.question.strip()
                tasks.append({"line": number, "digest": digest_of(line), **structs.asdict(task)})
    return tasks, problems


def digest_of(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()[:16]
