"""The runs of a journal for the viewer's list: searched, active, changed, and forked.

A search covers the question and the answer (without an answer, the reason). Thoughts, observations and requests are not
searched.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from plait.core.errors import ConfigError
from plait.journal.records import RunRow
from plait.journal.run_query import RunQuery
from plait.journal.served_runs import UNNAMED
from plait.journal.store import Journal, NoJournal, wait_for

PAGE = 40
"""Runs on one page by default."""
MOST = 200
RECENT = 200
"""Number of the newest runs that are watched for changes, besides the active ones."""
UNFINISHED = ("running", "waiting", "interrupted")


def find_runs(journal: Journal, query: RunQuery) -> tuple[list[RunRow], bool]:
    """Return the first runs that match, and whether there are more. Raises `ConfigError`."""
    if not 1 <= query.limit <= MOST:
        raise ConfigError(f"A page can't have {query.limit} runs.", hint=f"Use 1 to {MOST}.")
    found = journal.find(replace(query, limit=query.limit + 1))
    return found[: query.limit], len(found) > query.limit


def find_unfinished(journal: Journal, label: str = "") -> list[RunRow]:
    """Return the active and the waiting runs, newest first; at most `MOST` of each. `label`: see `RunQuery`."""
    queries = [RunQuery(status=status, limit=MOST, label=label) for status in ("running", "waiting")]
    return sorted((row for query in queries for row in journal.find(query)), key=lambda row: -row.n)


def list_choices(journal: Journal, label: str = "") -> dict[str, list[str]]:
    """Return the values that a filter offers (`Store.list_values`). Leaves out sessions that clients did not name."""
    try:
        found = wait_for(journal.store.list_values(label))
    except NoJournal:
        found = {name: [] for name in ("loops", "sessions", "models", "agents", "users", "tags")}
    return {**found, "sessions": [name for name in found["sessions"] if not UNNAMED.search(name)]}


def find_changed(journal: Journal, known: dict[int, Any], after: int, label: str = "") -> tuple[list[RunRow], int]:
    """Return the runs that are new or changed, the oldest first, and the number of the newest run. `known` maps each
    run to what was seen of it, and is updated. `after` is the number that the last call returned, 0 at first. The
    search covers the newest runs and those that were unfinished. `label`: see `RunQuery`."""
    recent = journal.find(RunQuery(children=True, limit=RECENT, label=label))
    newest = recent[0].n if recent else after
    if recent and recent[-1].n > after > 0:  # more have begun since than are read at once
        recent += journal.find(RunQuery(children=True, before=recent[-1].n, limit=recent[-1].n - after, label=label))
    watched = {n for n, (status, *_) in known.items() if status in UNFINISHED} - {row.n for row in recent}
    rows = {row.n: row for row in [*recent, *find_numbered(journal, tuple(watched))]}
    moved = [n for n, row in rows.items() if known.get(n) != (row.status, row.updated, row.grade, row.rating)]
    known.update({n: (row.status, row.updated, row.grade, row.rating) for n, row in rows.items()})
    for n in [n for n, (status, *_) in known.items() if n <= newest - RECENT and status not in UNFINISHED]:
        del known[n]  # it is not watched any more, and a page may be open for weeks
    return [rows[n] for n in sorted(moved) if rows[n].head.caller is None], newest


def find_numbered(journal: Journal, numbers: tuple[int, ...]) -> list[RunRow]:
    """Return the runs with these numbers, the newest first."""
    return journal.find(RunQuery(numbers=numbers)) if numbers else []
