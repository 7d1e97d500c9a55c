"""Carries ended runs from one store to another, with their times and exact bodies.

carried = await pack(store, run)        # plain values, ready for `msgspec.msgpack`
await other.add([carried])              # adds the run; repeating it changes nothing
"""

from __future__ import annotations

from plait.core.errors import JournalError
from plait.journal import codec
from plait.journal.store import CarriedRun, Store


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
