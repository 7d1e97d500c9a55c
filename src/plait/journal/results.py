"""The lab's data in a store: comparisons, results of cells, and users' ratings of runs.

A cell's run has the cell as its label from its first row. So if a process dies between the run's end and its result,
the lab finds the run again and does not repeat it. The id of the run is kept before the run begins, and the first one
stands. So of all processes that compare the same, on any machines, one begins it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec
from msgspec import Struct, structs

from plait.core.errors import ConfigError, JournalError
from plait.journal import codec, redaction
from plait.journal.records import RunRow
from plait.journal.run_query import RunQuery
from plait.journal.store import KeptRecord, Store, find_runs

T = TypeVar("T")


class KeptComparison(Struct, frozen=True, kw_only=True):
    """A stored comparison: what was compared (`head`) and the last computed table (None: not yet), both JSON. `started`
    is when it was first requested, `updated` when it was last written."""

    name: str = ""
    started: float
    updated: float = 0.0
    head: dict[str, Any]
    summary: dict[str, Any] | None = None


class KeptRun(Struct, frozen=True):
    """The run of a cell, and the process that was to begin it."""

    run: str
    owner: str


class Rating(Struct, frozen=True):
    """A user's opinion of a run. `by` is the user's name, "" if nobody knows it."""

    run: str
    good: bool
    at: float
    why: str = ""
    by: str = ""


class Results:
    """Comparisons, results and ratings of a store. Every method raises `JournalError` if it cannot be used."""

    def __init__(self, store: Store) -> None:
        self.store = store

    # -- results

    async def find_runs(self, labels: Iterable[str]) -> dict[str, list[RunRow]]:
        """Return the runs with these labels, newest first."""
        found: dict[str, list[RunRow]] = {}
        wanted = tuple(labels)
        for row in await find_runs(self.store, RunQuery(labels=wanted, children=True)) if wanted else ():
            found.setdefault(row.head.label, []).append(row)
        return found

    async def read(self, cells: Iterable[str]) -> dict[str, bytes]:
        """Return the JSON results of those cells that are finished."""
        return {each.key: each.data for each in await self.store.list_kept("result", cells)}

    async def keep(self, cell: str, run: str, data: bytes, *, secrets: Iterable[str] = ()) -> None:
        """Store the JSON result of a cell. A cell that has a result keeps the first."""
        await self.store.keep("result", cell, run, redaction.scrubber(secrets)(data), replace=False)

    async def assign(self, cell: str, run: str, owner: str) -> KeptRun:
        """Return the run that a cell has or will have: `run`, of the process `owner`, unless there is one already."""
        await self.store.keep("cell", cell, run, codec.encode(KeptRun(run, owner)), replace=False)
        return (await self.find_assigned([cell]))[cell]

    async def find_assigned(self, cells: Iterable[str]) -> dict[str, KeptRun]:
        """Return the runs that cells have or will have."""
        return {each.key: _read(each, KeptRun) for each in await self.store.list_kept("cell", cells)}

    async def forget(self, cells: Iterable[str]) -> None:
        """Remove the results of these cells and the labels of their runs, so that they run again. The runs stay."""
        forgotten = tuple(cells)
        await self.store.forget("cell", forgotten)
        await self.store.forget("result", forgotten, labels=True)

    # -- comparisons

    async def save(self, name: str, head: dict[str, Any], summary: dict[str, Any] | None = None) -> None:
        """Store a comparison, or replace it. Without a `summary` it keeps the one that it has."""
        kept = {"started": time.time(), "head": head, "summary": summary}
        for before in map(_read_comparison, await self.store.list_kept("comparison", [name])):
            kept |= {"started": before.started, "summary": before.summary if summary is None else summary}
        await self.store.keep("comparison", name, "", codec.encode(kept))

    async def list_comparisons(self) -> list[KeptComparison]:
        """Return all comparisons, newest first."""
        found = [_read_comparison(each) for each in await self.store.list_kept("comparison")]
        return sorted(found, key=lambda each: -each.started)

    async def list_progress(self, suite: str = "") -> list[dict[str, Any]]:
        """Return for each comparison (of a suite), newest first, its name, suite and loops, and how many cells are
        finished."""
        return [
            {
                "name": each.name,
                "suite": each.head["suite"]["word"],
                "started": each.started,
                "finished": len(await self.read(each.head["cells"])),
                "cells": len(each.head["cells"]),
                "loops": list(dict.fromkeys(row["loop"] for row in each.head["contenders"])),
            }
            for each in await self.list_comparisons()
            if suite in ("", each.head["suite"]["word"])
        ]

    async def find_comparison(self, name: str) -> KeptComparison:
        """Return the comparison named `name`, or the only one whose name begins with it. "last" is the newest.

        Raises `ConfigError`, which lists the comparisons.
        """
        known = await self.list_comparisons()
        found = [each for each in known if each.name == name] or [each for each in known if each.name.startswith(name)]
        if name == "last" and known:
            return known[0]
        if len(found) == 1:
            return found[0]
        names = ", ".join(each.name for each in (found or known)[:8])
        if found:
            raise ConfigError(f"More than one comparison begins with {name!r}: {names}.", hint="Write more of it.")
        hint = f"There are: {names}." if names else "`plait compare` makes one."
        raise ConfigError(f"There is no comparison {name!r} in the journal {self.store.place}.", hint=hint)

    # -- ratings

    async def rate(self, run: str, good: bool, why: str = "", by: str = "") -> Rating:
        """Store a user's rating of a run, in place of an earlier one. Raises `UnknownRun`."""
        rating = Rating((await self.store.find_run(run)).head.run, good, time.time(), why, by)
        await self.store.keep("rating", rating.run, rating.run, codec.encode(_Judgement(good, why, by)))
        return rating

    async def list_ratings(self, runs: Iterable[str] | None = None) -> dict[str, Rating]:
        """Return the ratings of these runs, or of all."""
        found = await self.store.list_kept("rating", runs)
        kept = {each.key: (each, _read(each, _Judgement)) for each in found}
        return {run: Rating(run, said.good, each.at, said.why, said.by) for run, (each, said) in kept.items()}


class _Judgement(Struct, omit_defaults=True):
    good: bool
    why: str = ""
    by: str = ""


def _read_comparison(kept: KeptRecord) -> KeptComparison:
    return structs.replace(_read(kept, KeptComparison), name=kept.key, updated=kept.at)


def _read(kept: KeptRecord, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(kept.data, type=kind)
    except (ValueError, RecursionError) as why:  # msgspec's errors are ValueErrors
        raise JournalError(f"What the journal keeps about {kept.key!r} can't be read: {why}.") from None
