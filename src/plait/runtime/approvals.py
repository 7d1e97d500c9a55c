"""The questions that a run waits with. Each has an id, and an answer names its question.

The id is a digest of the run, the effect, the call's place in it, the question and the call's exact input. So an answer
that arrives twice, late or from another window never answers a later question.
"""

from __future__ import annotations

import base64
import hashlib
import re

from plait.core import Call, Waiting
from plait.core.errors import StaleAnswer
from plait.journal import codec
from plait.journal.records import Waits
from plait.journal.timeline import Question, Timeline

LENGTH = 8
"""Characters of an id: 40 bits."""


def question_id(run: str, n: int, i: int, kind: str, text: str, call: Call | None) -> str:
    """Return the id of a question about call `i` of effect `n`. `call` is None if the question is not about a call."""
    about = None if call is None else (call.tool, call.input)
    asked = codec.encode((run, n, i, kind, text, about))
    return base64.b32encode(hashlib.sha256(asked).digest()).decode()[:LENGTH].lower()


def waiting_with(asked: Waits | Question) -> Waiting:
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


def open_question(run: str, timeline: Timeline, id: str | None) -> Question:
    """Return the open question with that id. Raises `StaleAnswer`, which names the open questions."""
    still = timeline.open_questions
    found = next((asked for asked in still if asked.question == id), None)
    if found is not None:
        return found
    if not still and id is None:
        why = f"Run {run} does not wait for an answer."
    elif id is None:
        why = f"The answer names no question of run {run}."
    elif any(asked.question == id for asked in timeline.questions):
        why = f"Question {id} of run {run} was answered before."
    else:
        why = f"Run {run} asks no question {id!r}."
    raise StaleAnswer(why, run=run, waits=[waiting_with(asked) for asked in still])
