"""Answers of the user to the questions of a run: how they are read, and how a run asks while it goes on."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import structs

from plait.core.errors import ConfigError
from plait.journal.entries import Question
from plait.journal.records import Decision, ResultRecord
from plait.runtime.approvals import waiting_with
from plait.runtime.background import call_either
from plait.runtime.calls.bound_calls import CallBinder
from plait.tools.user_code import show_error

if TYPE_CHECKING:
    from plait.runtime.engine import Engine

TRIES = 5
"""Number of times that Plait asks a user at a terminal again after an unreadable edit. Then the run waits."""

YES = frozenset({"yes", "y", "ok", "approve", "approved"})
"""Words that approve, alone. Other words refuse."""

NO = frozenset({"", "no", "n", "refuse", "refused"})
"""Words that refuse and give no reason."""

EDITED = re.compile(r"edit[:\s]\s*(\S.*)", re.IGNORECASE | re.DOTALL)
"""May be an edit of a call; the new input follows."""


def read_answer(answer: str, asked: Question, binder: CallBinder | None) -> str | Decision:
    """Return what is recorded of the user's answer to a question: its text, for an approval a decision.

    For an approval: yes, ok and approve approve, `edit JSON` approves a call with that input, and any other text
    refuses and is the reason. `binder` checks an edited input; None for the call of a child run, which checks it
    itself. Raises `ConfigError` for an edit that does not fit, no words, a yes with more: the question stays open."""
    if asked.kind != "approval":
        return answer
    call = asked.call
    if edit := EDITED.fullmatch(answer.strip()):
        if call is None:
            raise ConfigError("Only a tool call can be edited.", hint="Answer yes or no, or no with a reason.")
        try:
            given = msgspec.json.decode(edit[1])
        except msgspec.DecodeError as why:
            if edit[1][0] in '{["':  # other text is plain words: "edit the text first"
                hint = 'Such as: edit {"text": "..."}'
                raise ConfigError(f"The edited input is no JSON: {why}.", hint=hint) from None
        else:
            if binder is None:
                return Decision("edit", given, by_user=True)
            bound = binder.bind(structs.replace(call, input=given, by_code=False))
            if bound.error:
                raise ConfigError(f"The edited input does not fit. {bound.error}")
            return Decision("edit", given, bound=bound.call.input, by_user=True)
    if not answer.strip() or begins_with_yes(answer):
        what = "begins with a yes, but only yes alone approves" if answer.strip() else "is empty"
        raise ConfigError(f"The answer {what}.", hint="Say yes alone, no, or no and why.")
    word = answer.strip().lower().rstrip(".!")
    if word in YES:
        return Decision("yes", by_user=True)
    return Decision("refuse", text="" if word in NO else answer, by_user=True)


def begins_with_yes(answer: str) -> bool:
    """Return whether an answer is a yes with more words, which may take it back."""
    first, *more = answer.lower().split() or [""]
    return bool(more) and first.strip(",.;:!-") in YES


def record_answer(question: Question, value: str | Decision, by: str = "") -> ResultRecord:
    """Return the row that holds an answer, and the name of the user who gave it."""
    work = "question" if isinstance(value, str) else "decision"
    return ResultRecord(question.key, question.step, work, value, by=by, at=time.time())


async def answer_live(engine: Engine, questions: Sequence[Question]) -> Sequence[Question]:
    """Ask the user at the terminal, if there is one, and record the answers. Returns the questions that stay open.
    Questions of child runs are asked by these. Raises `ConfigError` if the function `on_wait` returns no text."""
    if engine.run_spec.on_wait is None or any(each.run != engine.run_id for each in questions):
        return questions
    for i, question in enumerate(questions):
        value = await _ask(engine, question)
        if value is None:
            return questions[i:]
        await engine.journal.write(record_answer(question, value))
    return ()


async def _ask(engine: Engine, question: Question) -> str | Decision | None:
    waiting = waiting_with(question)
    for _ in range(TRIES):
        answer: Any = None
        try:
            with engine.clock.counted(waiting=1):  # the run's time stands still meanwhile
                assert engine.run_spec.on_wait is not None
                answer = await call_either(engine.run_spec.on_wait, waiting)
        except (Exception, SystemExit) as why:
            hint = "It gets a Waiting and returns a text or None. Correct it, then resume the run."
            raise ConfigError(f"The function on_wait= failed: {show_error(why)}.", hint=hint) from why
        if answer is None:
            return None
        if not isinstance(answer, str):
            hint = 'Return a text, such as "yes", or None.'
            raise ConfigError(f"The function on_wait= returned {answer!r}.", hint=hint)
        try:
            return read_answer(answer, question, engine.binder)
        except ConfigError as why:  # ask again, and say what was wrong
            waiting = structs.replace(waiting, reason=f"{why}\n{question.text}")
    return None
