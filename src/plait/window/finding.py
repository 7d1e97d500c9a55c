"""Runs found in the journal: by how they ended, loop, agent, session, model, and by words of question and answer.

What is searched: the question and the answer (for a run without one, its reason), as they stand in the journal's table
of runs. Every word must occur in one of them, in whatever case. Thoughts, observations and requests are not searched.
"""

from __future__ import annotations

import re
import sqlite3
from typing import Any

from msgspec import Struct

from plait.core.errors import UsageError
from plait.journal import reader
from plait.journal.records import RunRow
from plait.journal.store import Journal
from plait.window.conversations import UNNAMED

PAGE = 40
"""Runs of one answer, unless said otherwise."""
MOST = 200
RECENT = 200
"""So many of the newest runs are watched for changes, beside those that were going on."""
LATELY = 5_000
"""So many of the newest runs are looked through for what is going on; a filter by status finds older ones."""
GOING = ("running", "waiting", "interrupted")
STATES = ("answered", "failed", "stopped", "cancelled", "waiting", "crashed", "running", "interrupted")

_NAME = re.compile(r"[^A-Za-z0-9._-]")
_ANSWER = "coalesce(json_extract(outcome, '$.answer'), json_extract(outcome, '$.reason'), '')"


class Wanted(Struct, frozen=True):
    """What runs are looked for; "" is all. `before` is the number of the last run of the page before, 0: the first."""

    words: str = ""
    status: str = ""
    loop: str = ""
    agent: str = ""
    session: str = ""
    model: str = ""
    before: int = 0
    limit: int = PAGE

    def __post_init__(self) -> None:
        if self.status and self.status not in STATES:
            raise UsageError(f"There is no status {self.status!r}.", hint=f"There are: {', '.join(STATES)}.")
        if not 1 <= self.limit <= MOST:
            raise UsageError(f"A page can't have {self.limit} runs.", hint=f"From 1 to {MOST}.")


class Found(Struct, frozen=True):
    """A run with its number in the journal, by which pages go on."""

    n: int
    row: RunRow


def find(journal: Journal, wanted: Wanted) -> tuple[list[Found], bool]:
    """The newest of the runs that are wanted, and whether there are more."""
    found: list[Found] = []
    try:
        with reader.reading(journal.path) as connection:
            where, values = _where(connection, wanted)
            for row in connection.execute(f"SELECT {reader.RUN} FROM runs {where} ORDER BY n DESC", values):
                one = Found(row[0], reader.run_row(row, journal.path))
                if wanted.status in ("running", "interrupted") and one.row.status != wanted.status:
                    continue
                if len(found) == wanted.limit:
                    return found, True
                found.append(one)
    except reader.NoJournal:
        return [], False
    return found, False


def live(journal: Journal, most: int = MOST) -> list[Found]:
    """The runs that are going on or wait for a person, the newest first; `LATELY` ones, so that it stays quick."""
    where = f"WHERE n > (SELECT max(n) FROM runs) - {LATELY} AND status IN ('running', 'waiting')"
    try:
        with reader.reading(journal.path) as connection:
            rows = connection.execute(
                f"SELECT {reader.RUN} FROM runs {where} ORDER BY n DESC LIMIT ?", (most,)
            ).fetchall()
    except reader.NoJournal:
        return []
    found = [Found(row[0], reader.run_row(row, journal.path)) for row in rows]
    return [each for each in found if each.row.status in ("running", "waiting")]


def choices(journal: Journal) -> dict[str, list[str]]:
    """What can be chosen among: the loops, sessions and models of all runs. Sessions that no client has named are too
    many to choose among: their runs have links to them."""
    models = "SELECT DISTINCT json_extract(value, '$.spec') FROM runs, json_each(head, '$.models')"
    found: dict[str, list[str]] = {"loops": [], "sessions": [], "models": []}
    try:
        with reader.reading(journal.path) as connection:
            for name, query in (
                ("loops", "SELECT DISTINCT strategy FROM runs"),
                ("sessions", "SELECT DISTINCT session FROM runs"),
                ("models", models),
            ):
                found[name] = [str(value) for (value,) in connection.execute(query) if value]
    except reader.NoJournal:
        pass
    found["sessions"] = [name for name in found["sessions"] if not UNNAMED.search(name)]
    return {name: sorted(values) for name, values in found.items()}


def changed(journal: Journal, known: dict[int, tuple[str, float]], after: int) -> tuple[list[Found], int]:
    """The runs that are new or changed since `known` (number: status, when it was last written) was filled, and the
    number of the newest. `after` is what that was the last time, 0 the first. Looks at the newest runs and at those
    that were going on."""
    watched = [n for n, (status, _) in known.items() if status in GOING]
    try:
        with reader.reading(journal.path) as connection:
            (newest,) = connection.execute("SELECT coalesce(max(n), 0) FROM runs").fetchone()
            marks = ",".join("?" * len(watched))
            where = f"n > ? OR n IN ({marks})"
            values = (min(after or newest, newest - RECENT), *watched)
            seen = connection.execute(f"SELECT n, status, updated FROM runs WHERE {where}", values).fetchall()
            moved = [n for n, status, updated in seen if known.get(n) != (status, updated)]
            known.update({n: (status, updated) for n, status, updated in seen})
            for n in [n for n, (status, _) in known.items() if n <= newest - RECENT and status not in GOING]:
                del known[n]  # it is not looked at again, and a page may be open for weeks
            found = []
            for n in moved:
                row = connection.execute(f"SELECT {reader.RUN} FROM runs WHERE n = ?", (n,)).fetchone()
                found.append(Found(n, reader.run_row(row, journal.path)))
    except reader.NoJournal:
        return [], after
    return found, newest


def children(journal: Journal, run: str) -> list[str]:
    """The runs that were forked from a run, the newest first."""
    with reader.reading(journal.path) as connection:
        found = connection.execute("SELECT id FROM runs WHERE parent = ? ORDER BY n DESC LIMIT 50", (run,)).fetchall()
    return [str(id) for (id,) in found]


def _where(connection: sqlite3.Connection, wanted: Wanted) -> tuple[str, list[Any]]:
    parts: list[str] = []
    values: list[Any] = []

    def add(part: str, *more: Any) -> None:
        parts.append(part)
        values.extend(more)

    if wanted.before:
        add("n < ?", wanted.before)
    if wanted.status:
        add("status = ?", "running" if wanted.status == "interrupted" else wanted.status)
    if wanted.loop:
        add("strategy = ?", wanted.loop)
    if wanted.session:
        add("session <> '' AND session = ?", wanted.session)
    if wanted.agent:
        # Labels of served runs are serve:OWNER:AGENT:KEY, and no name of an agent has a sign of GLOB's in it.
        add("label GLOB ?", f"serve:*:{_NAME.sub('/', wanted.agent)}:*")
    if wanted.model:
        has = "SELECT 1 FROM json_each(head, '$.models') WHERE json_extract(value, '$.spec') = ?"
        add(f"EXISTS ({has})", wanted.model)
    if words := wanted.words.casefold().split():
        connection.create_function("folded", 1, _folded, deterministic=True)
        for word in words:
            add(f"instr(folded(question || ' ' || {_ANSWER}), ?) > 0", word)
    return ("WHERE " + " AND ".join(parts) if parts else ""), values


def _folded(text: object) -> str:
    return str(text or "").casefold()
