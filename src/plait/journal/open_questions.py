"""The questions of a run and of its child runs, which have records of their own."""

from __future__ import annotations

from contextlib import suppress

from plait.core.errors import UnknownRun
from plait.journal.entries import ChildRun, Question
from plait.journal.store import ENDED, Store, read_timeline
from plait.journal.timeline import Timeline


async def find_open_questions(store: Store, run: str, timeline: Timeline | None = None) -> list[Question]:
    """Return the open questions of a run and of its unfinished child runs, in the order of their keys. Those of a child
    run stand in the place of the call that started it. `timeline` is the run's, if it is read already. Raises
    `JournalError`."""
    found, seen = list[Question](), {run}
    left = _list_open(timeline or await read_timeline(store, run, bodies=False))
    while left:  # without recursion: a journal from elsewhere may nest runs at any depth, or in a circle
        each = left.pop()
        if isinstance(each, Question):
            found.append(each)
        elif each.run not in seen:
            seen.add(each.run)
            with suppress(UnknownRun):  # it has not begun, or was deleted
                if (await store.find_run(each.run)).status not in ENDED:
                    left += _list_open(await read_timeline(store, each.run, bodies=False))
    return found


async def read_questions(store: Store, run: str) -> list[Question]:
    """Return all questions of a run and of its child runs, in the order in which they were answered, or else asked."""
    return [each for _, each in await read_question_times(store, run)]


async def read_question_times(store: Store, run: str) -> list[tuple[float, Question]]:
    """Return the questions of `read_questions`, each with the time at which it was answered, or else asked."""
    timelines, seen = [await read_timeline(store, run, bodies=False)], {run}
    found: list[tuple[float, Question]] = []
    for timeline in timelines:
        changed = {each.entry.key: each.at for each in timeline.moments if isinstance(each.entry, Question)}
        found += [(changed[each.key], each) for each in timeline.questions]
        for child in timeline.children:
            if child.run not in seen:
                seen.add(child.run)
                with suppress(UnknownRun):
                    timelines.append(await read_timeline(store, child.run, bodies=False))
    return sorted(found, key=lambda pair: pair[0])


def _list_open(timeline: Timeline) -> list[Question | ChildRun]:
    """Return the open questions and child runs of a run, the last first."""
    found: list[Question | ChildRun] = [*timeline.open_questions]
    found += [each for each in timeline.children if each.is_open]
    return sorted(found, key=lambda each: (each.n, each.i))[::-1]
