"""Carries ended runs from one store to another, with their times and exact bodies.

carried = await pack(store, run)        # plain values, ready for `msgspec.msgpack`
await other.add([carried])              # adds the run; repeating it changes nothing
"""

from __future__ import annotations

from plait.core.errors import JournalError
from plait.journal import codec
from plait.journal.notes import MEMORIES, Notes
from plait.journal.records import RunRow
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


async def copy(source: Store, target: Store) -> tuple[int, list[str], list[str]]:
    """Copy the ended runs of a store with their child runs, ratings, comparisons and memories into another.

    Returns how many of its runs are there now, the ids of those that can still go on, and what hindered others, a
    sentence each. A run that can go on stays, because it must never go on in two places. Repeating it copies what is
    missing. Raises `JournalError` if a store cannot be used."""
    rows = await source.list_runs(RunQuery(children=True))
    families: dict[str, list[RunRow]] = {}
    top_of: dict[str, str] = {}
    for row in reversed(rows):  # the oldest first: a child begins after its parent
        run, caller = row.head.run, row.head.caller
        top_of[run] = top = run if caller is None else top_of.get(caller.run, run)
        families.setdefault(top, []).append(row)
    count, left, wrong = 0, list[str](), list[str]()
    for top, family in families.items():
        if family[0].status not in ENDED or any(row.outcome is None for row in family):
            left.append(top)
            continue
        try:
            carried = [await pack(source, row.head.run) for row in family]
        except JournalError as why:  # a damaged run: the others are copied
            wrong.append(why.message)
            continue
        if await target.add(carried):
            count += len(family)
        else:
            wrong.append(f"Another run {top}, or a child of it, is in {target.place}: it was not copied.")
    memories = [each.kind for each in await Notes(source).list_memories()]
    for kind in ("result", "comparison", "rating", MEMORIES, *memories):
        for each in await source.list_kept(kind):
            await target.keep(kind, each.key, each.run, each.data, replace=False)
    return count, left, wrong
