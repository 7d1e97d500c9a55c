"""The questions that a run waits with, of its own and of its child runs. An answer names its question by an id.

The id is a digest of the run and the question's key, which has a digest of what the question is about. So an answer
that arrives twice, late or from another window never answers a later question.
"""

from __future__ import annotations

import re

from plait.core import Waiting
from plait.core.errors import StaleAnswer
from plait.journal.entries import Question
from plait.journal.open_questions import find_open_questions, read_questions
from plait.journal.store import Store


def waiting_with(asked: Question) -> Waiting:
    """Return the outcome of a run that waits with a question."""
    about = (asked.call.tool, asked.call.input) if asked.call is not None else ("", None)
    return Waiting(asked.kind, asked.text, asked.question, *about)


def without_id(answer: str, id: str) -> str | None:
    """Remove the question's id from an answer's first line, as in `yes k3f9x2ab`. Returns None if the id is absent."""
    first, end, rest = answer.partition("\n")
    rest_of_line, found = re.subn(
        rf"(?<!\w){re.escape(id)}(?!\w)[,.:;]?[ \t]?", "", first, count=1, flags=re.IGNORECASE
    )
    return (rest_of_line + end + rest).strip() if id and found else None


async def require_open_question(store: Store, run: str, id: str | None) -> Question:
    """Return the open question with that id, of the run or of a child run (`Question.run`). Raises `StaleAnswer`, which
    names the open questions."""
    still = await find_open_questions(store, run)
    found = next((asked for asked in still if asked.question == id), None)
    if found is not None:
        return found
    if not still and id is None:
        why = f"Run {run} does not wait for an answer."
    elif id is None:
        why = f"The answer names no question of run {run}."
    elif any(asked.question == id for asked in await read_questions(store, run)):
        why = f"Question {id} of run {run} was answered before."
    else:
        why = f"Run {run} asks no question {id!r}."
    raise StaleAnswer(why, run=run, waits=[waiting_with(asked) for asked in still])
