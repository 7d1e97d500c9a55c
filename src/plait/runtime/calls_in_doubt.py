"""Reads from a journal which calls are in doubt: those that began, and of which nobody knows whether they took
effect."""

from __future__ import annotations

from contextlib import suppress

from plait.core import Call
from plait.core.errors import UnknownRun
from plait.journal.keys import read_key
from plait.journal.records import RunHead, RunRow
from plait.journal.store import Journal
from plait.journal.timeline import Timeline


def read_calls_in_doubt(journal: Journal, head: RunHead, timeline: Timeline) -> list[Call]:
    """Return the calls in doubt of a run and its child runs; of a fork, also those of the child runs that its first
    steps started in the run that it comes from."""
    repeatable = {tool["name"] for tool in head.tools if tool.get("read_only") or tool.get("idempotent")}
    found = [
        call
        for each in timeline.tool_calls
        if each.begun
        and each.call.tool not in repeatable
        and (each.observation is None or each.observation.trouble == "in_doubt")
        # The planned call has no computed defaults, which the next call may have otherwise.
        for call in ((each.call,) if each.changed_by else (each.call, each.planned))
    ]
    effects, name, parent = {each.n for each in timeline.tool_calls}, head.run, head.parent
    while name:
        for row in journal.children(name):
            if row.head.caller is not None and read_key(row.head.caller.key).n in effects:
                found += read_calls_of(journal, row)
        name, parent = parent, ""
        with suppress(UnknownRun):  # deleted
            parent = journal.head(name).parent if name else ""
    return found


def read_calls_of(journal: Journal, run: RunRow) -> list[Call]:
    """Return the calls in doubt of another run and of its child runs; if it goes on, also those under way."""
    if run.outcome is not None and not run.totals.get("guards", {}).get("approvals"):
        return []
    return read_calls_in_doubt(journal, run.head, journal.timeline(run.head.run, bodies=False))
