"""Reads from a journal which calls are in doubt: those that began, and of which nobody knows whether they took
effect."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from msgspec import Struct

from plait.core import Call
from plait.core.errors import JournalError, UnknownRun
from plait.journal.keys import read_key
from plait.journal.records import RunHead, RunRow
from plait.journal.run_query import RunQuery
from plait.journal.store import Store, list_children, read_timeline
from plait.journal.timeline import Timeline


class CallInDoubt(Struct, frozen=True):
    """A call in doubt: its run, the key of its entry, and one form of the call, with the tool's own name."""

    run: str
    key: str
    call: Call


async def read_calls_in_doubt(store: Store, head: RunHead, timeline: Timeline) -> list[CallInDoubt]:
    """Return the calls in doubt of a run and its child runs; of a fork, also those of the child runs that its first
    steps started in the run that it comes from."""
    found, children = await _read_own(store, head, timeline)
    return found + await read_calls_of(store, children)


async def _read_own(store: Store, head: RunHead, timeline: Timeline) -> tuple[list[CallInDoubt], list[RunRow]]:
    """Return the calls in doubt of a run itself, and its child runs."""
    repeatable = {tool["name"] for tool in head.tools if tool.get("read_only") or tool.get("idempotent")}
    found = [
        CallInDoubt(head.run, each.key, call)
        for each in timeline.tool_calls
        if each.begun
        and each.call.tool not in repeatable
        and (each.observation is None or each.observation.trouble == "in_doubt")
        # The planned call has no computed defaults, which the next call may have otherwise.
        for call in ((each.call,) if each.changed_by else (each.call, each.planned))
    ]
    effects, name, parent = {each.n for each in timeline.tool_calls}, head.run, head.parent
    children: list[RunRow] = []
    while name:
        for row in await list_children(store, name):
            if row.head.caller is not None and read_key(row.head.caller.key).n in effects:
                children.append(row)
        name, parent = parent, ""
        with suppress(UnknownRun):  # deleted
            parent = (await store.find_run(name)).head.parent if name else ""
    return found, children


async def read_calls_of(store: Store, runs: Iterable[RunRow]) -> list[CallInDoubt]:
    """Return the calls in doubt of other runs and of their child runs; of those that go on, also those under way."""
    found, left, seen = list[CallInDoubt](), [*runs][::-1], set[str]()
    while left:  # without recursion: a journal from elsewhere may nest runs at any depth, or in a circle
        run = left.pop()
        is_new = run.head.run not in seen
        seen.add(run.head.run)
        if is_new and (run.outcome is None or run.totals.get("guards", {}).get("approvals")):
            timeline = await read_timeline(store, run.head.run, bodies=False)
            calls, children = await _read_own(store, run.head, timeline)
            found += calls
            left += children[::-1]
    return found


async def read_session_calls(store: Store, session: str, run: str) -> list[CallInDoubt] | JournalError:
    """Return the calls in doubt of the turns of a conversation but `run`; the error if one of them cannot be read."""
    try:
        rows = await store.list_runs(RunQuery(session=session, is_open=True, children=True))
        return await read_calls_of(store, [row for row in reversed(rows) if row.head.run != run])
    except JournalError as why:
        return why


def describe_doubt(call: Call) -> str:
    """Return the result of a call that is in doubt."""
    return (
        f"Error: the run was interrupted while '{call.tool}' was being called. Whether the call took effect is not "
        "known, and it was not repeated."
    )
