"""The questions of a run and of its child runs, which have records of their own."""

from __future__ import annotations

from contextlib import suppress

from plait.core.errors import UnknownRun
from plait.journal.entries import ChildRun, Question
from plait.journal.log import ENDED
from plait.journal.store import Journal
from plait.journal.timeline import Timeline


def find_open_questions(journal: Journal, run: str, timeline: Timeline | None = None) -> list[Question]:
    """Return the open questions of a run and of its unfinished child runs, in the order of their keys.

    Those of a child run stand in the place of the call that started it. `timeline` is the run's, if it is read already.
    Raises `JournalError`.
    """
    timeline = timeline or journal.timeline(run, bodies=False)
    found: list[tuple[tuple[int, int], list[Question]]] = [
        ((each.n, each.i), [each]) for each in timeline.open_questions
    ]
    found += [((each.n, each.i), _ask_child(journal, each)) for each in timeline.children if each.is_open]
    return [each for _, questions in sorted(found, key=lambda pair: pair[0]) for each in questions]


def read_answered_questions(journal: Journal, run: str) -> list[Question]:
    """Return the questions of a run and of its child runs that have an answer, in the order of the answers."""
    return [each for _, each in sorted(_read_answered(journal, run), key=lambda pair: pair[0])]


def _ask_child(journal: Journal, child: ChildRun) -> list[Question]:
    with suppress(UnknownRun):  # it has not begun, or was deleted
        if journal.run(child.run).status not in ENDED:
            return find_open_questions(journal, child.run)
    return []


def _read_answered(journal: Journal, run: str) -> list[tuple[float, Question]]:
    timeline = journal.timeline(run, bodies=False)
    answered = [each for each in timeline.moments if each.change == "answered"]
    found = [(each.at, each.entry) for each in answered if isinstance(each.entry, Question)]
    for child in timeline.children:
        with suppress(UnknownRun):
            found += _read_answered(journal, child.run)
    return found
