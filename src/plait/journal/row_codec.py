"""The rows of runs as stores keep them: their columns, check sums, and exact bodies.

Each row has a CRC-32 of its columns, so that a damaged one is found when it is read. Numbers without gaps show that
none is missing. The database answers for what it has confirmed: no row tells whether later ones were lost."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from plait.core import Attachment
from plait.core.attachments import with_names
from plait.core.errors import JournalError
from plait.core.secrets import Scrubber
from plait.journal import bodies, codec
from plait.journal.records import Record, Row, RunHead, RunRow, SessionTurn

RowColumns: TypeAlias = tuple[int, float, str, str, int | None, int | None, int | None, int | None, bytes | None, int]
"""seq, at, kind, data, base, head, tail, packed, body, crc."""

READ_AT_MOST, KEEP_AT_MOST = 32 << 30, 1 << 30
"""Bytes of all bodies of a run: restored one after another (32 GiB), and in memory at once (1 GiB)."""

_YEAR_10000 = 253_402_300_800


def read_time(value: object) -> float:
    """Return a stored time, in seconds since 1970; 0 for what is none, as a journal from elsewhere may have."""
    return float(value) if isinstance(value, int | float) and 0 <= value < _YEAR_10000 else 0.0


def damaged_rows(place: object, run: str, rows: str) -> JournalError:
    """Return the error for rows of a run that were changed or damaged."""
    hint = "It can't be resumed or replayed; other runs can. `plait journal check` names all damaged ones."
    return JournalError(f"The journal {place} is damaged: of run {run}, {rows}.", hint=hint)


def read_run(row: Mapping[str, Any], *, is_left: bool) -> RunRow:
    """Return a run as listed, of its stored columns. One that is running is "interrupted" if its process left it."""
    status, outcome, grade = row["status"], row["outcome"], row["grade"]
    return RunRow(
        codec.decode_head(row["head"]),
        "interrupted" if status == "running" and is_left else status,
        codec.decode_plain(outcome) if outcome else None,
        codec.decode_plain(row["totals"]),
        read_time(row["started"]),
        read_time(row["updated"]),
        row["owner"],
        codec.decode_plain(grade) if grade else None,
        row["n"],
        row["rating"] or "",
    )


def read_turn(
    number: int, run: str, question: str, files: tuple[Attachment, ...], outcome: str | None, started: Any, updated: Any
) -> SessionTurn:
    """Return a turn of a conversation, of its stored columns."""
    answer = codec.decode_plain(outcome).get("answer") if outcome else None
    said = answer if answer is None or isinstance(answer, str) else codec.encode(answer).decode()
    asked = with_names(question, files)
    return SessionTurn(number, run, asked, said, read_time(started), attachments=files, updated=updated)


def check_content(attachment: Attachment, body: bytes | None, place: object) -> bytes:
    """Return the stored bytes of an attached file. Raises `JournalError` when they are missing or damaged."""
    # A text may differ from its digest, because secrets in it are replaced.
    if body is None or (attachment.kind != "text" and hashlib.sha256(body).hexdigest() != attachment.digest):
        what = "is not in" if body is None else "is damaged in"
        hint = "The run can be shown, but not resumed, forked or replayed. Ask the question again with the file."
        raise JournalError(f"The attached file {attachment} {what} the journal {place}.", hint=hint)
    return body


def scrub_contents(head: RunHead, contents: Mapping[str, bytes], scrubber: Scrubber) -> dict[str, bytes]:
    """Return the attached files that a run begins with, by digest, secrets in texts replaced."""
    files = {each.digest: each for each in head.files if each.digest in contents} if contents else {}
    return {name: scrubber(contents[name]) if each.kind == "text" else contents[name] for name, each in files.items()}


# -- check sums


def crc_of_begun(begun: Sequence[Any]) -> int:
    """Return the check sum of what a run's own row began with: the columns id, question, loop, parent, fork_at, head
    and session."""
    return zlib.crc32(repr(tuple(begun)).encode("utf-8", "surrogatepass"))


def crc_of_state(begun: int, status: str, owner: str, rows: int | None, outcome: str | None, totals: str) -> int:
    """Return the check sum of a run's own row; `begun` is that of what it began with."""
    return zlib.crc32(repr((status, owner, rows, outcome, totals)).encode("utf-8", "surrogatepass"), begun)


def crc_of_row(begun: int, columns: Sequence[Any]) -> int:
    """Return the check sum of a row: `columns` are seq, at, kind, data, base, head, tail, packed and body."""
    *others, body = columns
    whole = repr(others).encode("utf-8", "surrogatepass")
    return zlib.crc32(body, zlib.crc32(whole, begun)) if body is not None else zlib.crc32(whole, begun)


# -- writing


class BegunRun(NamedTuple):
    """The columns of a run that never change, secrets replaced; `tags` is a JSON list. The first seven are in the check
    sum."""

    id: str
    question: str
    loop: str
    parent: str
    fork_at: int
    head: str
    session: str
    label: str
    caller: str
    user: str
    agent: str
    tags: str

    @property
    def crc(self) -> int:
        """The check sum of what the run begins with."""
        return crc_of_begun(self[:7])


def describe_run(head: RunHead, scrubber: Scrubber) -> BegunRun:
    """Return the columns of a run that begins."""
    question, loop, session, user, agent = (
        scrubber(each.encode("utf-8", "replace")).decode()
        for each in (head.question, str(head.loop.get("name", "")), head.session, head.user, head.agent)
    )
    tags, text = (scrubber(codec.encode(each)).decode() for each in (head.tags, head))
    caller = head.caller.run if head.caller is not None else ""
    return BegunRun(
        head.run, question, loop, head.parent, head.fork_at, text, session, head.label, caller, user, agent, tags
    )


class RowWriter:
    """Makes the columns of a run's rows, at its next places. `seq` is the next one, `last` by phase the place and bytes
    of its last request, `begun` the check sum of what the run began with."""

    def __init__(
        self,
        scrubber: Scrubber,
        clock: Callable[[], float],
        begun: int,
        seq: int = 0,
        last: dict[str, tuple[int, bytes]] | None = None,
    ) -> None:
        self.scrub: Callable[[bytes], bytes] = scrubber
        self.seq = seq
        self.begun = begun
        self._clock = clock
        self._has_secrets = bool(scrubber)
        self._last = last if last is not None else {}

    def make_rows(self, records: Iterable[tuple[Record, bytes | None]], *, durable: bool = False) -> list[RowColumns]:
        """Return the rows of records, at the run's next places."""
        return [self._make_row(record, body, durable) for record, body in records]

    def _make_row(self, record: Record, body: bytes | None, durable: bool) -> RowColumns:
        seq = self.seq
        data = codec.encode_record(record)
        if self._has_secrets:
            data = self.scrub(data)
        self.seq = seq + 1
        base: int | None = None
        coded: tuple[int | None, int | None, int | None, bytes | None] = bodies.NO_BODY
        if body is not None:
            if self._has_secrets:
                body = self.scrub(body)
            if (phase := bodies.find_phase(record)) is not None:
                before = self._last.get(phase)
                self._last[phase] = (seq, body)
                coded = bodies.encode(body, before[1] if before else None)
                if before is not None and coded[0] is not None:
                    base = before[0]
            else:
                coded = bodies.encode(body)
        kind = str(record.__struct_config__.tag)
        if durable and kind == "intent":
            kind = "effect"  # `lost_frames` looks for it
        # A float, as the database gives the time back.
        columns = (seq, float(self._clock()), kind, data.decode(), base, *coded)
        return (*columns, crc_of_row(self.begun, columns))

    def make_ending(self, status: str, outcome: dict[str, Any], totals: dict[str, Any]) -> tuple[str, str, int, int]:
        """Return the outcome and the totals as JSON, the number of rows and the check sum of the run's own row at its
        end."""
        texts = self.scrub(codec.encode(outcome)).decode(), self.scrub(codec.encode(totals)).decode()
        return (*texts, self.seq, crc_of_state(self.begun, status, "", self.seq, *texts))


# -- reading


class Bodies:
    """Restores bodies in the order of rows. Keeps only the last of each phase, to save memory. `limit`: how many bytes
    they may have together, because each can repeat the one before."""

    def __init__(self, limit: int = READ_AT_MOST) -> None:
        self._left, self._limit = limit, limit
        self.last: dict[str, tuple[int, bytes]] = {}

    def restore(self, record: Record, seq: int, base: int | None, coded: tuple[Any, ...]) -> bytes | None:
        """Return the exact body of a row. Raises `bodies.Unrestorable`."""
        head, tail, packed, stored = coded
        if stored is None:
            return None
        phase = bodies.find_phase(record)
        before = self.last.get(phase) if phase is not None else None
        if base is not None and (before is None or before[0] != base):
            raise bodies.Unrestorable("the body that it refers to is not there")
        body = bodies.decode(bodies.Coded(head, tail, packed, stored), before[1] if before else None)
        self._left -= len(body)
        if self._left < 0:
            raise bodies.Unrestorable(f"the bodies up to it are longer than {self._limit >> 30} GiB")
        if phase is not None:
            self.last[phase] = (seq, body)
        return body


class RowReader:
    """Checks and restores a run's rows in order. `begun` is the check sum of what the run began with. Without
    `restored` the rows have no bodies."""

    def __init__(self, begun: int, restored: Bodies | None) -> None:
        self.bad: list[str] = []
        """What is damaged or missing."""
        self._begun, self._restored, self._place = begun, restored, 0

    def read(self, columns: Sequence[Any]) -> Row | None:
        """Return the next row, of the columns that `RowColumns` names; None from the first damaged one on. Its kind and
        data may be bytes, because damaged ones are not UTF-8."""
        seq, at, kind, data, base, *coded, crc = columns
        try:
            if isinstance(kind, bytes):
                kind, data = kind.decode("utf-8", "surrogatepass"), data.decode("utf-8", "surrogatepass")
            is_whole = crc_of_row(self._begun, (seq, at, kind, data, base, *coded)) == crc
        except (UnicodeDecodeError, AttributeError, TypeError):
            is_whole = False
        if seq == self._place and not is_whole:
            self.bad.append(f"row {seq} is damaged")
        elif seq != self._place:
            self.bad.append(self._name_missing(seq))
        self._place = seq + 1
        if self.bad:
            return None
        try:
            record = codec.decode_record(data)
            body = self._restored.restore(record, seq, base, tuple(coded)) if self._restored is not None else None
            return Row(seq, read_time(at), record, body)
        except (bodies.Unrestorable, JournalError) as why:
            self.bad.append(f"row {seq} can't be read ({why})")
            return None

    def end(self, count: int | None) -> str:
        """Return what is wrong with the run, "" for nothing. `count` is how many rows it has if it has ended."""
        if not self.bad and count is not None and count != self._place:
            self.bad.append(self._name_missing(count))
        return ", ".join(self.bad)

    def break_off(self) -> None:
        """The rows from here on cannot be read."""
        self.bad.append(f"the rows from {self._place} on can't be read")

    def _name_missing(self, end: int) -> str:
        first = self._place
        return f"rows {first} to {end - 1} are missing" if end > first + 1 else f"row {first} is missing"
