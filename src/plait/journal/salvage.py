"""Copies the readable part of a damaged journal into a new one: `python -m plait.journal.salvage OLD NEW`.

Each run is copied up to its first lost row, because later rows cannot be replayed. A run that lost rows, or may have,
is marked crashed, because the record no longer says what its tools did after that point.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NamedTuple

from plait.core.errors import JournalError
from plait.journal import chain, codec, delta, effects, faults, opening, schema
from plait.journal.records import RunHead
from plait.journal.writer import INSERTS

ROWS_A_PAGE = 100
"""More rows than fit in a page of the file. Limits the numbers that are tried after a damaged part."""

_RUN = ", ".join(each.name for each in schema.RUNS.columns)
_EVENT = ", ".join(each.name for each in schema.EVENTS.columns[1:])


class Salvaged(NamedTuple):
    """The result: runs copied whole, runs cut or not ended, rows copied, and how many cut runs lost their own row (with
    question and settings)."""

    whole: int
    cut: int
    rows: int
    lost: int


def salvage(old: Path, new: Path) -> Salvaged:
    """Copy all that can be read from `old` to `new`, which must not exist. Raises JournalError."""
    if new.exists():
        raise JournalError(f"{new} exists already.", hint="Name a file that does not exist yet.")
    if not old.is_file():
        raise JournalError(f"There is no file {old}.", hint="Name the damaged journal.")
    try:
        with (
            closing(sqlite3.connect(f"{old.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)) as source,
            closing(sqlite3.connect(new, isolation_level=None)) as target,
        ):
            source.execute("PRAGMA writable_schema = ON")  # lets SQLite open a truncated file
            source.execute("PRAGMA cell_size_check = ON")
            opening.check(source, old)
            opening.prepare(target, new)
            target.execute("BEGIN IMMEDIATE")
            result = _copy(source, target)
            target.execute("COMMIT")
            effects.copy_files(old, new)
            return result
    except (sqlite3.Error, JournalError) as error:
        new.unlink(missing_ok=True)
        if isinstance(error, JournalError):
            raise
        raise faults.translate(error, old) from None


def _copy(source: sqlite3.Connection, target: sqlite3.Connection) -> Salvaged:
    """Copy every run with its rows, up to the first damaged row. Reads tables number by number."""
    bound = _pages(source) * ROWS_A_PAGE
    columns = [each.name for each in schema.RUNS.columns]
    question = f"SELECT {_RUN} FROM runs NOT INDEXED WHERE n >= ? ORDER BY n"
    found = [dict(zip(columns, row, strict=True)) for row in _scan(source, question, bound)]
    runs = {run["n"]: run for run in found if _is_whole(run)}
    ids = {run["n"]: str(run["id"]) for run in found if run["n"] not in runs} | _ids(source)
    kept: dict[int, list[tuple[Any, ...]]] = {}
    ended: set[int] = set()
    events = f"SELECT id, {_EVENT} FROM events NOT INDEXED WHERE id >= ? ORDER BY id"
    for _, n, *row in _scan(source, events, bound):
        rows = kept.setdefault(n, [])
        before = rows[-1][-1] if rows else runs[n]["digest"] if n in runs else None
        if n in ended or row[0] != len(rows) or not (_is_readable(row) if before is None else _fits(before, row)):
            ended.add(n)
        else:
            rows.append(tuple(row))
    lost = [n for n, rows in kept.items() if rows and n not in runs]
    for n in lost:
        runs[n] = _stub(n, ids.get(n, f"lost-{n}"), kept[n][0][1], kept[n][-1][1])
    whole = 0
    for n, run in sorted(runs.items()):
        rows = kept.get(n, [])
        if run["outcome"] is not None and run["rows"] == len(rows):
            whole += 1
        else:  # a run that had not ended: the number of its rows is unknown
            reason = f"the journal was damaged: {len(rows)} records of this run could be read"
            outcome = codec.encode({"type": "crashed", "reason": reason, "error": "JournalError"}).decode()
            run |= {"status": "crashed", "owner": "", "outcome": outcome, "rows": len(rows)}
            run["state"] = chain.digest_of_state(run["digest"], "crashed", "", len(rows), outcome, run["totals"])
        places = ",".join("?" * len(run))
        target.execute(f"INSERT INTO runs ({_RUN}) VALUES ({places})", tuple(run.values()))
        digest = run["digest"]
        for each in rows:  # if the run's own row is lost, the rows get new digests
            digest = chain.digest_of_row(digest, each[:-1])
            target.execute(INSERTS[1], (n, *each[:-1], digest))
    for table in (schema.COMPARISONS, schema.RESULTS, schema.RATINGS, schema.CONTENTS):
        places = ",".join("?" * len(table.columns))
        for _, *row in _scan(source, f"SELECT rowid, * FROM {table.name} WHERE rowid >= ? ORDER BY rowid", bound):
            target.execute(f"INSERT OR IGNORE INTO {table.name} VALUES ({places})", row)
    return Salvaged(whole, len(runs) - whole, sum(map(len, kept.values())), len(lost))


def _is_whole(run: dict[str, Any]) -> bool:
    """Return whether the run's settings are unchanged. How it ended is checked when it is read."""
    begun = [run[name] for name in ("id", "question", "loop", "parent", "fork_at", "head", "session")]
    state = [run[name] for name in ("digest", "status", "owner", "rows", "outcome", "totals")]
    return _same(run["digest"], chain.digest_of_run, begun) and _same(run["state"], chain.digest_of_state, state)


def _fits(before: bytes, row: list[Any]) -> bool:
    return _same(row[-1], chain.digest_of_row, (before, row[:-1]))


def _is_readable(row: list[Any]) -> bool:
    """Return whether a row that no digest covers holds a record. It is the first one of a run whose own row is lost."""
    _, _, _, data, _, *coded, _ = row
    try:
        codec.decode_record(data)
        delta.decode(delta.Coded(*coded), None)
    except (JournalError, delta.Unrestorable, TypeError, AttributeError):
        return False
    return True


def _same(digest: bytes, made: Callable[..., bytes], values: Sequence[Any]) -> bool:
    try:
        return made(*values) == digest
    except (TypeError, ValueError):  # a column has a value of another type
        return False


def _stub(n: int, name: str, started: float, updated: float) -> dict[str, Any]:
    """Return a row for a run whose own row is lost. The record still says what the run did."""
    head = RunHead(name, "(lost: the journal was damaged)", {"name": ""}, {})
    text = codec.encode(head).decode()
    digest = chain.digest_of_run(name, head.question, "", "", 0, text, "")
    values = (n, name, head.question, "", "crashed", "", "", 0, started, updated, None, text, None, "{}", "", "", "")
    return dict(zip((each.name for each in schema.RUNS.columns), (*values, digest, b""), strict=True))


def _ids(source: sqlite3.Connection) -> dict[int, str]:
    """Return ids by number from the index, which may be intact when the table is not."""
    found: dict[int, str] = {}
    with suppress(sqlite3.DatabaseError):
        for n, name in source.execute("SELECT n, id FROM runs ORDER BY id"):
            found[n] = name
    return found


def _scan(source: sqlite3.Connection, question: str, bound: int) -> Iterator[tuple[Any, ...]]:
    """Yield rows in the order of their first column. Skips unreadable ones, number by number."""
    start = 1
    while start <= bound:
        try:
            for row in source.execute(question, (start,)):
                yield row
                start = row[0] + 1
            return
        except sqlite3.DatabaseError:
            start += 1


def _pages(source: sqlite3.Connection) -> int:
    """Return the number of pages that the file has or had."""
    (pages,) = source.execute("PRAGMA page_count").fetchone()
    return int(pages)


def main(arguments: list[str]) -> int:
    """Run the command. Exit code 0; 1 if nothing could be copied, 2 for wrong usage."""
    if len(arguments) != 2:
        print("Usage: python -m plait.journal.salvage DAMAGED.db NEW.db", file=sys.stderr)
        return 2
    try:
        done = salvage(Path(arguments[0]), Path(arguments[1]))
    except JournalError as error:
        print(error, file=sys.stderr)
        return 1
    print(
        f"{done.rows} records of {done.whole + done.cut} runs copied to {arguments[1]}: "
        f"{done.whole} runs whole, {done.cut} cut or not ended (marked crashed), "
        f"{done.lost} of those without question and settings.",
        file=sys.stderr,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
