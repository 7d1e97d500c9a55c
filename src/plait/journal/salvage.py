"""Copies what can be read of a damaged journal into a new one: `python -m plait.journal.salvage OLD NEW`.

A run is kept up to its first row that is lost, since what comes after can't be replayed. A run that lost
rows, or may have, is marked crashed: what its tools did after that point is not on the record any more.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NamedTuple

from plait.core.errors import JournalError
from plait.journal import codec, faults, opening, reader, schema
from plait.journal.records import RunHead
from plait.journal.writer import INSERTS

ROWS_A_PAGE = 100
"""More rows than stand in a page of the file: bounds the numbers that are tried behind a damaged part."""

_RUN = ", ".join(each.name for each in schema.RUNS.columns)
_EVENT = ", ".join(each.name for each in schema.EVENTS.columns[1:])


class Salvaged(NamedTuple):
    """What came of it: runs kept whole, runs cut or not ended, rows kept, and how many of the cut runs have
    lost their own row, so that question and settings are gone."""

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
            source.execute("PRAGMA writable_schema = ON")  # lets SQLite open a file that is too short
            source.execute("PRAGMA cell_size_check = ON")
            opening.check(source, old)
            opening.prepare(target, new)
            target.execute("BEGIN IMMEDIATE")
            result = _copy(source, target)
            target.execute("COMMIT")
            return result
    except (sqlite3.Error, JournalError) as error:
        new.unlink(missing_ok=True)
        if isinstance(error, JournalError):
            raise
        raise faults.translate(error, old) from None


def _copy(source: sqlite3.Connection, target: sqlite3.Connection) -> Salvaged:
    """Every run's rows, as far as they have no gap, then the runs. Tables are read number by number."""
    bound = _pages(source) * ROWS_A_PAGE
    newer = {"session": reader.has_sessions(source), "label": reader.has_results(source)}
    counts: dict[int, int] = {}
    times: dict[int, tuple[float, float]] = {}
    events = f"SELECT id, {_EVENT} FROM events NOT INDEXED WHERE id >= ? ORDER BY id"
    for _, *row in _scan(source, events, bound):
        n, seq, at = row[:3]
        if seq == counts.setdefault(n, 0):
            target.execute(INSERTS[1], row)
            counts[n] += 1
            times[n] = (times[n][0] if n in times else at, at)
    columns = [each.name for each in schema.RUNS.columns]
    run_columns = ", ".join(name if newer.get(name, True) else f"'' AS {name}" for name in columns)
    question = f"SELECT {run_columns} FROM runs NOT INDEXED WHERE n >= ? ORDER BY n"
    runs = {row[0]: dict(zip(columns, row, strict=True)) for row in _scan(source, question, bound)}
    lost = [n for n, count in counts.items() if count and n not in runs]
    ids = _ids(source) if lost else {}
    for n in lost:
        runs[n] = _stub(n, ids.get(n, f"lost-{n}"), *times[n])
    whole = 0
    for n, run in sorted(runs.items()):
        count = counts.get(n, 0)
        if run["outcome"] is not None and run["rows"] == count:
            whole += 1
        else:  # of a run that had not ended nobody knows how many rows there were
            reason = f"the journal was damaged: {count} records of this run could be read"
            outcome = codec.encode({"type": "crashed", "reason": reason, "error": "JournalError"}).decode()
            run |= {"status": "crashed", "owner": "", "outcome": outcome, "rows": count}
        places = ",".join("?" * len(run))
        target.execute(f"INSERT INTO runs ({_RUN}) VALUES ({places})", tuple(run.values()))
    if newer["label"]:
        for table in (schema.COMPARISONS, schema.RESULTS, schema.MARKS):
            places = ",".join("?" * len(table.columns))
            for _, *row in _scan(source, f"SELECT rowid, * FROM {table.name} WHERE rowid >= ? ORDER BY rowid", bound):
                target.execute(f"INSERT OR IGNORE INTO {table.name} VALUES ({places})", row)
    return Salvaged(whole, len(runs) - whole, sum(counts.values()), len(lost))


def _stub(n: int, name: str, started: float, updated: float) -> dict[str, Any]:
    """The row of a run whose own row is lost: its record still tells what it did."""
    head = RunHead(name, "(lost: the journal was damaged)", {"name": ""}, {})
    text = codec.encode(head).decode()
    values = (n, name, head.question, "", "crashed", "", "", 0, started, updated, None, text, None, "{}", "", "")
    return dict(zip((each.name for each in schema.RUNS.columns), values, strict=True))


def _ids(source: sqlite3.Connection) -> dict[int, str]:
    """Ids by number from the index, which may be whole where the table is not."""
    found: dict[int, str] = {}
    with suppress(sqlite3.DatabaseError):
        for n, name in source.execute("SELECT n, id FROM runs ORDER BY id"):
            found[n] = name
    return found


def _scan(source: sqlite3.Connection, question: str, bound: int) -> Iterator[tuple[Any, ...]]:
    """Rows in the order of their first column; what can't be read is stepped over, number by number."""
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
    """Pages of the file, as many as it has or had."""
    (pages,) = source.execute("PRAGMA page_count").fetchone()
    return int(pages)


def main(arguments: list[str]) -> int:
    """The command. Exit code 0, 1 when nothing could be done, 2 for wrong usage."""
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
