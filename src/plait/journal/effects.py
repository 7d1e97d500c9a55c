"""How far a run had come with effects that must not be repeated: a small file for each run, outside SQLite.

Theory of operation. A journal can lose its last rows without an error: one flipped byte in the write-ahead log hides
all rows behind it, and a machine that loses power loses what was not synced. A resumed run would then repeat calls
that had taken effect. So before such a call begins, one line is added to the run's file in the folder JOURNAL-effects,
and the file is synced to the disk. A line names the row that stands last in the journal, that row's digest, and a
digest of the call. When the run is claimed, file and journal are compared:

- the file fits: nothing is lost;
- a line names a row that the journal does not have: its call is lost, and stays in doubt;
- the file is missing, damaged, or names another digest: any call may be lost.

The file of a run whose tools may all be repeated is never made, so that such runs cost nothing. A file is made when
its run begins, and removed when the run ends for good. So a missing file always means doubt. Each line ends with a
digest that covers the lines before it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import threading
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct, structs

from plait.core import Call
from plait.core.errors import JournalError
from plait.journal import codec
from plait.journal.records import NoteRecord, Record, Resumption, RunHead
from plait.user_files import EFFECTS

_NAME = re.compile(r"[0-9A-Za-z_-]{1,100}")


class Lost(Struct, frozen=True, omit_defaults=True):
    """The journal has lost rows of a run, or may have: what of its calls is in doubt.

    `why` says what was found. `calls` are digests of calls that began and are not in the journal.
    """

    why: str
    calls: tuple[str, ...] = ()

    def noted_in(self, record: Record) -> Record:
        """The record that begins a resumed run, with what is in doubt; any other record as it is."""
        if not isinstance(record, NoteRecord) or not isinstance(resumed := record.value, Resumption):
            return record
        return structs.replace(record, value=structs.replace(resumed, lost=self.why, lost_calls=self.calls))


class Mark(NamedTuple):
    """A call that is about to begin: the last row in the journal, that row's digest, the call's digest."""

    seq: int
    row: str
    call: str


def digest_of_call(run: str, call: Call) -> str:
    """Tells a call of a run from its others, without holding its input."""
    text = codec.encode([call.tool, call.input])
    return hashlib.blake2b(text, digest_size=16, key=run.encode("utf-8", "surrogatepass")[:64]).hexdigest()


def has_effects(head: RunHead) -> bool:
    """Does the run have a tool whose calls must not be repeated?"""
    return any(not (tool.get("read_only") or tool.get("idempotent")) for tool in head.tools)


def folder_of(journal: Path) -> Path:
    """Where the files of a journal's runs are."""
    return journal.with_name(journal.name + EFFECTS)


class EffectsFile:
    """The file of one run. Every method raises `JournalError` when the file can't be used.

    `is_new`: the run begins now, so there is no file yet.
    """

    def __init__(self, journal: Path, run: str, *, is_new: bool = False) -> None:
        self._journal = journal
        self._is_there = not is_new
        self.run = run
        self._last = b""
        self._lock = threading.Lock()

    @cached_property
    def path(self) -> Path:
        """The file."""
        # The file is in the folder, also for an odd run id of a foreign journal.
        named = _NAME.fullmatch(self.run)
        name = self.run if named else hashlib.blake2b(self.run.encode("utf-8", "replace")).hexdigest()[:40]
        return folder_of(self._journal) / name

    def start(self, rows: int) -> None:
        """Make the file anew, for a run of so many rows: no line stands for a call in these. Not synced: a file that is
        lost means doubt."""
        line = self._line(f"effects 1 {rows}", b"")
        try:
            self.path.parent.mkdir(mode=0o700, exist_ok=True)
            new = self.path.with_name(self.path.name + ".new")
            descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(line)
            os.replace(new, self.path)
            self._is_there = True
        except OSError as error:
            raise self._failed(error) from None
        self._last = line

    def add(self, marks: Sequence[Mark]) -> None:
        """Add a line for each call, and sync the file. Blocking: it takes as long as the disk does."""
        with self._lock:
            if not self.path.exists():  # of a run that was begun without such tools
                self.start(min(mark.seq for mark in marks) + 1)
            lines, last = [], self._last
            for mark in marks:
                last = self._line(f"call {mark.seq} {mark.row} {mark.call}", last)
                lines.append(last)
            try:
                descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
                try:
                    os.write(descriptor, b"".join(lines))
                    getattr(os, "fdatasync", os.fsync)(descriptor)
                finally:
                    os.close(descriptor)
            except OSError as error:
                raise self._failed(error) from None
            self._last = last

    def compare(self, rows: Sequence[str]) -> Lost | None:
        """What is in doubt of a run whose rows have these digests, in order; None: the journal has lost nothing."""
        try:
            lines = self.path.read_bytes().splitlines(keepends=True)
        except FileNotFoundError:
            return Lost(f"The file {self.path}, which says how far this run had come, is missing.")
        except OSError as error:
            return Lost(f"The file {self.path}, which says how far this run had come, can't be read: {error.strerror}.")
        marks: list[Mark] = []
        base, last, damaged = 0, b"", False
        for i, line in enumerate(lines):
            words = line.decode("ascii", "replace").split()
            # A line that was damaged makes the next one look so: what can be read of them is taken all the same.
            damaged |= line != self._line(" ".join(words[:-1]), last)
            last = line
            match words:
                case ["effects", "1", number, _] if i == 0 and number.isdigit():
                    base = int(number)
                case ["call", seq, row, call, _] if i > 0 and seq.isdigit():
                    marks.append(Mark(int(seq), row, call))
                case _:
                    damaged = True
        self._last = last
        lost = [mark for mark in marks if mark.seq >= len(rows)]
        calls = tuple(mark.call for mark in lost)
        if not lines or damaged:
            return Lost(f"The file {self.path}, which says how far this run had come, is damaged.", calls)
        if lost or base > len(rows):
            had = max([base, *(mark.seq + 1 for mark in lost)])
            return Lost(
                f"The journal has lost rows of this run: it had at least {had}, and {len(rows)} are left.", calls
            )
        if any(rows[mark.seq] != mark.row for mark in marks):
            return Lost(f"The journal has other rows of this run than the file {self.path} names.")
        return None

    def remove(self) -> None:
        """Remove the file; nothing when there is none."""
        if self._is_there:
            with contextlib.suppress(OSError):
                self.path.unlink(missing_ok=True)

    def _line(self, text: str, before: bytes) -> bytes:
        check = hashlib.blake2b(f"{self.run} {text}".encode("utf-8", "replace") + before, digest_size=8).hexdigest()
        return f"{text} {check}\n".encode()

    def _failed(self, error: OSError) -> JournalError:
        return JournalError(
            f"The file {self.path}, which says how far a run has come, can't be written: {error.strerror or error}.",
            hint="Free some space or change its permissions, then resume the run.",
        )


def copy_files(old: Path, new: Path) -> None:
    """Copy the files of one journal's runs to beside another journal."""
    if folder_of(old).is_dir():
        shutil.copytree(folder_of(old), folder_of(new), dirs_exist_ok=True)
