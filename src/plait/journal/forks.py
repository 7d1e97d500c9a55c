"""Forks: which rows of a run a new one takes over, and what it changes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from plait.core import Observation
from plait.core.errors import ConfigError
from plait.journal.entries import ToolCall
from plait.journal.keys import read_key
from plait.journal.records import NoteRecord, RaisedRecord, Record, ResultRecord, Row, RunHead
from plait.journal.timeline import Timeline

EDITED = "edited"
"""The kind of the note before a result that the user replaced. It has the key of the call."""


def select_rows_before(rows: Sequence[Row], at: int) -> tuple[list[Row], int]:
    """Return the rows that a fork from step `at` takes over, and the number of the last step.

    A question without an answer, and the approval of a call that was not made, are for the run that asked: a fork asks
    anew. What a loop did after a limit was near is not taken over either: a fork has limits of its own. Child runs that
    have not ended stay with the run that started them.
    """
    of_loop = [row for row in rows if not isinstance(row.record, NoteRecord) or _is_kept(row.record)]
    raised = [row for row in rows if isinstance(row.record, RaisedRecord) and row.record.kind in _LIMITS]
    near = raised[0] if raised else None
    kept = [row for row in of_loop if row.record.step < at and not (near is not None and _is_after(row, near))]
    timeline = Timeline(kept)
    unanswered = {each.key for each in timeline.questions if each.answer is None}
    unended = {each.key for each in timeline.children if each.end is None}
    made = {each.key for each in timeline.tool_calls if each.begun or each.observation is not None}
    used = [row for row in kept if row.record.key not in unanswered | unended and _is_of_made_call(row.record, made)]
    return used, max((row.record.step for row in of_loop if not isinstance(row.record, NoteRecord)), default=0)


def replace_results(rows: Sequence[Row], results: Mapping[str, str], at: int) -> list[Row]:
    """Return the rows that a fork from step `at` takes over, with other results of calls: texts by the calls' keys.

    From the last of these calls on, what its step did with the result is left out, if `at` is the next step: the fork
    does it anew. What guards decided about the old results is left out too. Raises `ConfigError` for a call that the
    rows lack, that was not made, or whose result is not known.
    """
    calls = {each.key: each for each in Timeline(rows).tool_calls}
    for key, text in results.items():
        call = calls.get(key)
        if call is None:
            known = ", ".join(f"{each.key} ({each.planned.tool})" for each in calls.values() if is_editable(each))
            hint = f"Calls with a result: {known}." if known else "There is none."
            raise ConfigError(f"There is no call {key!r} before step {at}.", hint=hint)
        if not is_editable(call):
            why = "was not made" if call.observation is not None else "has no result"
            hint = f"Fork from step {call.step} to make it again."
            raise ConfigError(f"The result of call {key} ({call.planned.tool}) can't be replaced: it {why}.", hint=hint)
        if not isinstance(text, str):
            raise ConfigError(f"The new result of call {key} is {type(text).__name__}.", hint="Give a text.")
    last = max((read_key(key).n for key in results), default=-1)
    end = next((row.seq for row in reversed(rows) if row.record.key in results), -1)
    is_last_step = any(calls[key].step == at - 1 for key in results)
    made: list[Row] = []
    for row in rows:
        record, at_key = row.record, read_key(row.record.key)
        if is_last_step and record.step == at - 1 and (at_key.n > last or (at_key.n < 0 and row.seq > end)):
            continue
        if at_key.mark == "!" and at_key.owner in results:
            continue
        if isinstance(record, ResultRecord) and record.key in results:
            call = calls[record.key]
            said = f"The user replaced the result of '{call.planned.tool}' in this fork."
            made.append(Row(row.seq, row.at, NoteRecord(record.key, record.step, EDITED, said)))
            withheld = call.changed_result is not None and call.changed_result.trouble == "refused"
            record = replace(record, value=_edit(record.value, results[record.key]), value_is_text=False)
            row = Row(row.seq, row.at, record, None if withheld else row.body)
        made.append(row)
    return made


def is_editable(call: ToolCall) -> bool:
    """Return whether a fork can have another result of a call: it was made, and its result is known."""
    return call.begun and call.observation is not None


def _edit(made: Observation, text: str) -> Observation:
    """Return a result with another text. A value that was no text is read from it, if it is JSON. Whoever edits it may
    paste anything, so it counts as content from outside."""
    value: Any = text
    if made.value is not None and not isinstance(made.value, str):
        with suppress(ValueError, RecursionError):
            value = json.loads(text)
    return Observation(text, value=value, seconds=made.seconds, outside=True)


def describe_changes(parent: RunHead, fork: RunHead, results: Mapping[str, str]) -> list[str]:
    """Return what a fork changes, in words such as "instructions", "limits.steps" or "the result of call 0.0"."""
    found = [name for name in ("question", "loop", "models") if getattr(parent, name) != getattr(fork, name)]
    for name in ("instructions", "system", "prompts", "settings", "limits"):
        before, after = parent.settings.get(name) or {}, fork.settings.get(name) or {}
        if isinstance(before, dict) and isinstance(after, dict):
            found += [f"{name}.{each}" for each in {**before, **after} if before.get(each) != after.get(each)]
        elif before != after:
            found.append(name)
    return [*found, *(f"the result of call {key}" for key in results)]


def _is_kept(note: NoteRecord) -> bool:
    """Return whether a fork takes over a note: those of the loop, and about results that were replaced."""
    return read_key(note.key).note >= 0 or note.kind == EDITED


_LIMITS = ("LimitNear", "LimitReached")


def _is_after(row: Row, near: Row) -> bool:
    """Say whether a row is that of the limit, or of an effect after it. Results of earlier effects may come later."""
    n = read_key(row.record.key).n
    return row.seq > near.seq if n < 0 else n >= read_key(near.record.key).n


def _is_of_made_call(record: Record, made: set[str]) -> bool:
    """Return False for what was decided about a call that was not made."""
    key = read_key(record.key)
    return not key.mark or key.i < 0 or f"{key.n}.{key.i}" in made
