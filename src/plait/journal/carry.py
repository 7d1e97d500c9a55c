"""Carries ended runs from one store to another, with their times and exact bodies.

carried = await pack(store, run)        # plain values, ready for `msgspec.msgpack`
await other.add([carried])              # adds the run; repeating it changes nothing
"""

from __future__ import annotations

from plait.core.errors import JournalError
from plait.journal import codec
from plait.journal.run_query import RunQuery
from plait.journal.store import ENDED, CarriedRun, Store


async def pack(store: Store, run: str) -> CarriedRun:
    """Return a run with its record. Raises `JournalError` if the run has not ended, is damaged or does not exist."""
    while True:
        row = await store.find_run(run)
        if row.outcome is None:
            raise JournalError(f"Run {row.head.run} has not ended ({row.status}): it can't be carried over yet.")
        rows = await store.read_rows(row.head.run)
        if (await store.find_run(row.head.run)).updated == row.updated:
            break  # else it waited, and went on meanwhile
    carried = tuple([(each.at, codec.encode_record(each.record).decode(), each.body) for each in rows])
    contents = await store.read_contents(row.head.files)
    head = codec.encode(row.head).decode()
    return CarriedRun(head, row.status, row.outcome, row.totals, row.started, row.updated, carried, contents)


KINDS = ("result", "comparison", "rating")
"""What is kept about runs."""


async def copy(source: Store, target: Store) -> tuple[int, list[str]]:
    """Copy the ended runs of a store with their child runs, ratings and comparisons into another.

    Returns how many of its runs are there now, and the ids of those that have not ended: these stay, because a run must
    never go on in two places. Repeating it copies what is missing. Raises `JournalError` if another run has an id."""
    rows = await source.list_runs(RunQuery(children=True))
    tops = {row.head.run: row for row in rows if row.head.caller is None}
    of_tree: dict[str, list[str]] = {run: [run] for run in reversed(tops)}
    top_of = {run: run for run in tops}
    for row in reversed(rows):  # the oldest first: a child begins after its parent
        if row.head.caller is not None and (top := top_of.get(row.head.caller.run)) is not None:
            top_of[row.head.run] = top
            of_tree[top].append(row.head.run)
    left = [run for run, row in tops.items() if row.status not in ENDED]
    for run in left:
        del of_tree[run]
    count = 0
    for family in of_tree.values():
        if not await target.add([await pack(source, run) for run in family]):
            hint = "The journals have different runs of this name. Nothing of this run was copied."
            raise JournalError(f"Another run {family[0]}, or a child of it, is in {target.place}.", hint=hint)
        count += len(family)
    for kind in KINDS:
        for each in await source.list_kept(kind):
            await target.keep(kind, each.key, each.run, each.data, replace=False)
    return count, left
