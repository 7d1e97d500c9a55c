"""What all stores decide in the same way: who may claim a run, and which run a user means."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from msgspec import structs

from plait.core.errors import JournalError, SessionBusy, UnknownRun
from plait.journal.owner import Life, owner_of_this_process
from plait.journal.records import LastTurn, NoteRecord, RunHead, RunRow
from plait.journal.store import ENDED, RecordAndBody


def require_claimable(run: RunRow, life: Life, is_going_here: bool, force: bool) -> None:
    """Raise `JournalError` if a run may not be claimed. `life` is that of its process, `is_going_here`: this process
    performs it."""
    name = run.head.run
    if run.status in ENDED:
        fork = " ".join(("plait fork", name, *run.head.agent_words, "--at N"))
        hint = f"`plait show {name}` shows it. `{fork}` starts a new run from step N."
        raise JournalError(f"Run {name} has ended ({run.status}): it cannot be resumed.", hint=hint)
    if not run.owner:
        return
    host, pid, *_ = (*run.owner.split(":"), "?")
    if life == "elsewhere" and not force:
        raise JournalError(
            f"Run {name} belongs to a process on host {host}, and this machine cannot tell whether it still runs.",
            hint="If it does not, take the run over with --force (in Python: force=True).",
        )
    here = run.owner == owner_of_this_process()
    if life == "alive" and (not here or is_going_here):
        where = "this very process" if here else f"process {pid} on host {host}"
        raise JournalError(f"Run {name} is still going on, in {where}.", hint="Wait for its end, or stop it first.")


def require_turn(head: RunHead, after: LastTurn, last: LastTurn, status: str) -> None:
    """Raise `SessionBusy` if a run can't be the turn after the one that was read as the last. `last` is the last one
    now, its `status` "queued", or "running" if its process lives; else ""."""
    if status or last != after:
        raise SessionBusy(head.session, last.run, status)


def require_schema(place: object, version: int, reader: int, known: int, oldest: int = 0) -> None:
    """Raise `JournalError` if this Plait, with the schema `known`, can't use a journal. `reader` is the oldest schema
    whose Plait can use it, `oldest` the oldest that can be migrated."""
    if version > known and reader > known:
        raise JournalError(
            f"The journal {place} was written by a newer Plait (schema {version}, this one knows {known}).",
            hint="Upgrade Plait (pip install -U plait), or give another journal with --journal.",
        )
    if version < known:
        hint = "`plait journal migrate` brings it up to date, while no older Plait uses it."
        if version < oldest:
            hint = "Move the file away: the next run makes a new one. Or give another file with --journal."
        said = f"The journal {place} has the schema {version} of an earlier Plait, and this one uses {known}."
        raise JournalError(said, hint=hint)


def mark_lost(records: Sequence[RecordAndBody], lost: str) -> list[RecordAndBody]:
    """Return the records of a claim; the note of a resume says why rows may be missing, if they may."""
    return [
        (structs.replace(record, value=structs.replace(record.value, lost=lost)), body)
        if lost and isinstance(record, NoteRecord) and record.kind == "resumed"
        else (record, body)
        for record, body in records
    ]


def no_runs() -> UnknownRun:
    """Return the error for a journal without runs."""
    return UnknownRun("There is no run in the journal yet.", hint="`plait run` makes one.")


def several_runs(prefix: str, ids: Sequence[str]) -> UnknownRun:
    """Return the error for a prefix with which several ids begin; `ids` are five at most."""
    some = ", ".join(ids) + ("" if len(ids) < 5 else " ...")
    return UnknownRun(f"More than one run begins with {prefix!r}: {some}.", hint="Write more of the id.")


def unknown_run(prefix: str, newest: Iterable[str]) -> UnknownRun:
    """Return the error for a prefix that no run has. `newest` are ids of which it may be a mistyped one."""
    known = list(newest)
    # Ids of one day share their first half, so only a mistyped sign or two makes an id near.
    starts = {each[: len(prefix)]: each for each in reversed(known)}
    near = [starts[each] for each in difflib.get_close_matches(prefix, starts, cutoff=0.85)]
    near = near or [each for each in known if len(prefix) >= 4 and prefix in each][:3]
    hint = f"Did you mean {' or '.join(near)}? " if near else "" if known else "It has no runs yet. "
    hint = f"{hint}`plait runs` lists them."
    return UnknownRun(f"There is no run {prefix!r} in the journal; it may have been deleted.", hint=hint)
