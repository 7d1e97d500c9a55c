"""The calls in doubt that a tree of runs shares: those that began, and of which nobody knows whether they took effect.

A run at the top makes the object, and its child runs use the same one. A resumed run begins with what is on record of
its tree. The earlier turns of a session are read when the first call with effects is to be made.
"""

from __future__ import annotations

from contextlib import suppress

from plait.core import Call
from plait.core.errors import UnknownRun
from plait.journal.keys import read_key
from plait.journal.records import RunHead, RunRow
from plait.journal.store import Journal
from plait.journal.timeline import Timeline


class CallsInDoubt:
    """Collects the calls in doubt. `tree` are those of the runs of this tree."""

    def __init__(self) -> None:
        self.tree: list[Call] = []
        self._earlier: list[Call] = []
        self.unread: list[tuple[Journal, str, str]] = []
        """Sessions whose earlier turns are not read yet: the journal, the session, and the run that belongs to it."""

    def read_all(self) -> list[Call]:
        """Return all calls in doubt, with their tools' own names. Raises `JournalError` for an unreadable turn."""
        for journal, session, run in self.unread:
            self._earlier += [call for row in journal.open_turns(session, run) for call in read_calls_of(journal, row)]
        self.unread.clear()
        return [*self._earlier, *self.tree]


def read_calls_in_doubt(journal: Journal, head: RunHead, timeline: Timeline) -> list[Call]:
    """Return the calls in doubt of a run and its child runs; of a fork, also those of the child runs that its first
    steps started in the run that it comes from."""
    repeatable = {tool["name"] for tool in head.tools if tool.get("read_only") or tool.get("idempotent")}
    found = [
        call
        for each in timeline.tool_calls
        if each.begun
        and each.call.tool not in repeatable
        and (not each.waits if each.observation is None else each.observation.trouble == "in_doubt")
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
