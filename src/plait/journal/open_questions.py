"""The questions of a run and of its child runs, which have records of their own."""

from __future__ import annotations

from contextlib import suppress

from plait.core.errors import UnknownRun
from plait.journal.entries import ChildRun, Question
from plait.journal.store import ENDED, Store, read_timeline
from plait.journal.timeline import Timeline


async def find_open_questions(store: Store, run: str, timeline: Timeline | None = None) -> list[Question]:
    """Return the open questions of a run and of its unfinished child runs, in the order of their keys.

    Those of a child run stand in the place of the call that started it. `timeline` is the run's, if it is read already.
    Raises `JournalError`.
    """
    timeline = timeline or await read_timeline(store, run, bodies=False)
    found: list[tuple[tuple[int, int], list[Question]]] = [
        ((each.n, each.i), [each]) for each in timeline.open_questions
    ]
    found += [((each.n, each.i), await _ask_child(store, each)) for each in timeline.children if each.is_open]
    return [each for _, questions in sorted(found, key=lambda pair: pair[0]) for each in questions]


async def read_questions(store: Store, run: str) -> list[Question]:
    """Return all questions of a run and of its child runs, in the order in which they were answered, or else asked."""
    return [each for _, each in sorted(await _read_times(store, run), key=lambda pair: pair[0])]


async def _ask_child(store: Store, child: ChildRun) -> list[Question]:
    with suppress(UnknownRun):  # it has not begun, or was deleted
        if (await store.find_run(child.run)).status not in ENDED:
            return await find_open_questions(store, child.run)
    return []


async def _read_times(store: Store, run: str) -> list[tuple[float, Question]]:
    """Return the questions, each with the time of its last change."""
    timeline = await read_timeline(store, run, bodies=False)
    changed = {each.entry.key: each.at for each in timeline.moments if isinstance(each.entry, Question)}
    found = [(changed[each.key], each) for each in timeline.questions]
    for child in timeline.children:
        with suppress(UnknownRun):
            found += await _read_times(store, child.run)
    return found
