"""The runs of a journal for the viewer's list: searched, active, changed, and forked.

A search covers the question and the answer (without an answer, the reason) in the journal's table of runs. Each word
must occur in one of them, in upper or lower case. Thoughts, observations and requests are not searched.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from msgspec import Struct

from plait.core.errors import ConfigError
from plait.journal import reader
from plait.journal.records import RunRow
from plait.journal.store import Journal
from plait.server.conversations import UNNAMED

PAGE = 40
"""Runs on one page by default."""
MOST = 200
RECENT = 200
"""Number of the newest runs that are watched for changes, besides the active ones."""
LATELY = 5_000
"""Number of the newest runs that are searched for active ones. A filter by status finds older ones."""
STATES = ("answered", "failed", "stopped", "cancelled", "waiting", "crashed", "running", "interrupted")
UNFINISHED = ("running", "waiting", "interrupted")

_NAME = re.compile(r"[^A-Za-z0-9._-]")
_ANSWER = "coalesce(json_extract(outcome, '$.answer'), json_extract(outcome, '$.reason'), '')"


class RunFilter(Struct, frozen=True):
    """Which runs to list; "" matches all. `before` is the number of the last run on the page before, or 0."""

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
            raise ConfigError(f"There is no status {self.status!r}.", hint=f"Use one of: {', '.join(STATES)}.")
        if not 1 <= self.limit <= MOST:
            raise ConfigError(f"A page can't have {self.limit} runs.", hint=f"Use 1 to {MOST}.")

    @property
    def is_plain(self) -> bool:
        """Return whether this is the first page of all runs."""
        return not any((self.words, self.status, self.loop, self.agent, self.session, self.model, self.before))


class NumberedRun(Struct, frozen=True):
    """A run and its number in the journal, which marks where a page continues."""

    n: int
    row: RunRow


def find_runs(journal: Journal, wanted: RunFilter) -> tuple[list[NumberedRun], bool]:
    """Return the newest runs that match, and whether there are more."""
    found: list[NumberedRun] = []
    try:
        with reader.reading(journal.path) as connection:
            where, values = _condition(connection, wanted)
            for one in _read(connection, journal, f"{where} ORDER BY n DESC", values):
                if wanted.status in ("running", "interrupted") and one.row.status != wanted.status:
                    continue
                if len(found) == wanted.limit:
                    return found, True
                found.append(one)
    except reader.NoJournal:
        pass
    return found, False


def find_unfinished(journal: Journal) -> list[NumberedRun]:
    """Return the active and waiting runs, newest first, among the `LATELY` newest ones."""
    where = f"WHERE caller = '' AND n > (SELECT max(n) FROM runs) - {LATELY} AND status IN ('running', 'waiting')"
    try:
        with reader.reading(journal.path) as connection:
            found = list(_read(connection, journal, f"{where} ORDER BY n DESC LIMIT ?", (MOST,)))
    except reader.NoJournal:
        return []
    return [each for each in found if each.row.status in ("running", "waiting")]


def list_choices(journal: Journal) -> dict[str, list[str]]:
    """Return the loops, sessions and models that a filter offers. Leaves out sessions that clients did not name."""
    queries = {
        "loops": "SELECT DISTINCT loop FROM runs",
        "sessions": "SELECT DISTINCT session FROM runs",
        "models": "SELECT DISTINCT json_extract(value, '$.spec') FROM runs, json_each(head, '$.models')",
    }
    found: dict[str, list[str]] = {name: [] for name in queries}
    try:
        with reader.reading(journal.path) as connection:
            for name, query in queries.items():
                values = sorted(str(value) for (value,) in connection.execute(query) if value)
                found[name] = [value for value in values if name != "sessions" or not UNNAMED.search(value)]
    except reader.NoJournal:
        pass
    return found


def find_changed(journal: Journal, known: dict[int, tuple[str, float]], after: int) -> tuple[list[NumberedRun], int]:
    """Return the runs that are new or changed, and the number of the newest run.

    `known` maps each run to its status and last write, and is updated. `after` is the number that the last call
    returned, 0 at first. The search covers the newest runs and those that were unfinished.
    """
    watched = [n for n, (status, _) in known.items() if status in UNFINISHED]
    try:
        with reader.reading(journal.path) as connection:
            graded = "coalesce((SELECT at FROM results WHERE label <> '' AND cell = label AND run = runs.id), 0)"
            (newest,) = connection.execute("SELECT coalesce(max(n), 0) FROM runs").fetchone()
            states = connection.execute(
                f"SELECT n, status, max(updated, {graded}) FROM runs WHERE n > ? OR n IN ({_marks(watched)})",
                (min(after or newest, newest - RECENT), *watched),
            ).fetchall()
            moved = [n for n, status, updated in states if known.get(n) != (status, updated)]
            known.update({n: (status, updated) for n, status, updated in states})
            for n in [n for n, (status, _) in known.items() if n <= newest - RECENT and status not in UNFINISHED]:
                del known[n]  # it is not watched any more, and a page may be open for weeks
            where = f"WHERE caller = '' AND n IN ({_marks(moved)}) ORDER BY n"
            return list(_read(connection, journal, where, moved)), newest
    except reader.NoJournal:
        return [], after


def find_numbered(journal: Journal, numbers: Collection[int]) -> list[NumberedRun]:
    with reader.reading(journal.path) as connection:
        return list(_read(connection, journal, f"WHERE n IN ({_marks(numbers)})", tuple(numbers)))


def find_forks(journal: Journal, run: str) -> list[str]:
    """Return the ids of the runs that were forked from a run, the newest first."""
    with reader.reading(journal.path) as connection:
        found = connection.execute("SELECT id FROM runs WHERE parent = ? ORDER BY n DESC LIMIT 50", (run,)).fetchall()
    return [str(id) for (id,) in found]


def _read(
    connection: sqlite3.Connection, journal: Journal, condition: str, values: Sequence[Any]
) -> Iterator[NumberedRun]:
    for row in connection.execute(f"SELECT {reader.RUN} FROM runs {condition}", values):
        yield NumberedRun(row[0], reader.run_row(row, journal.path))


def _marks(values: Collection[Any]) -> str:
    return ",".join("?" * len(values))


def _condition(connection: sqlite3.Connection, wanted: RunFilter) -> tuple[str, list[Any]]:
    words = wanted.words.casefold().split()
    if words:
        connection.create_function("folded", 1, lambda text: str(text or "").casefold(), deterministic=True)
    has_model = "SELECT 1 FROM json_each(head, '$.models') WHERE json_extract(value, '$.spec') = ?"
    conditions = [
        ("n < ?", wanted.before),
        ("status = ?", "running" if wanted.status == "interrupted" else wanted.status),
        ("loop = ?", wanted.loop),
        ("session <> '' AND session = ?", wanted.session),
        # The labels of served runs are serve:OWNER:AGENT:KEY. An agent's name cannot contain a GLOB character.
        ("label GLOB ?", wanted.agent and f"serve:*:{_NAME.sub('/', wanted.agent)}:*"),
        (f"EXISTS ({has_model})", wanted.model),
        *((f"instr(folded(question || ' ' || {_ANSWER}), ?) > 0", word) for word in words),
    ]
    used = [(condition, value) for condition, value in conditions if value]
    where = "WHERE " + " AND ".join(["caller = ''", *(condition for condition, _ in used)])
    return where, [value for _, value in used]
