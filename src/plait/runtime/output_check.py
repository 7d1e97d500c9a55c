"""Checks the answers of one run against its output type and the user's own checks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import structs

from plait.core import Answered, Call, Failed, Note, Observation, Outcome, Stopped
from plait.runtime.context import Context
from plait.runtime.output import remove_request
from plait.runtime.run_context import RunContext


class OutputRejected(Exception):
    """Raised when the model has given too many answers that do not fit the output. The text is the last objection,
    without the request to the model."""


def find_objection(run_context: RunContext, answer: Any) -> str:
    """Return what speaks against an answer of the run: its type, then the user's checks; "" if it fits."""
    run_spec = run_context.run_spec
    context = Context(run_spec.deps, run_context.log.run, run_context.meter.steps, run_spec.session)
    return run_spec.output.find_objection(answer, context)


def check_as_answer(run_context: RunContext, call: Call, observation: Observation) -> Observation:
    """Return the observation that ends the run, or an error for the model if its result can't be the answer."""
    objection = find_objection(run_context, observation.value)
    if not objection:
        return structs.replace(observation, ends="answer")
    text = f"Error: the result of '{call.tool}' cannot be the answer. {objection}\nThe result: {observation.text}"
    return Observation(text, trouble="raised", seconds=observation.seconds, outside=observation.outside)


class OutputCheck:
    """The checks of one run. Each objection becomes a note of the journal, which `add_note` writes.

    A replay takes the objections from the notes, because the user's functions may not give the same result again.
    `next_note` and `next_effect` are always the numbers that the run's next note and effect will get.
    """

    def __init__(self, run_context: RunContext, add_note: Callable[[Note], None]) -> None:
        self._context, self._add_note = run_context, add_note
        self._output = run_context.run_spec.output
        self._accepted: tuple[Any, ...] = ()
        """The last answer that fits."""
        self._objections = 0

    def check(self, answer: Any, next_note: int, next_effect: int) -> str:
        """Return the objection to an answer; "" if it fits, or if a limit leaves no call to write another one.

        Raises `OutputRejected` for one objection more than the model may answer.
        """
        if self._accepted == (answer,) or self._context.meter.near is not None:
            return ""
        if (objection := self._recorded_objection(next_note, next_effect)) is None:
            objection = find_objection(self._context, answer)
        if not objection:
            self._accepted = (answer,)
            return ""
        return self.count_objection(objection)

    def count_objection(self, objection: str) -> str:
        """Note an objection to an answer, also one of a hook, and return it. Raises `OutputRejected` like `check`."""
        self._add_note(Note("output", objection))
        self._objections += 1
        if self._objections > self._output.retries:
            raise OutputRejected(remove_request(objection))
        return objection

    def end_with(self, outcome: Outcome, next_note: int, next_effect: int) -> Outcome:
        """Return the outcome with the JSON value of its answer. A loop may have ended without a check."""
        match outcome:
            case Answered(answer=answer):
                if objection := self.check(answer, next_note, next_effect):
                    return Failed(remove_request(objection), kind="output")
                return Answered(self._output.read(answer))
            case Stopped(answer=answer) if answer is not None and self._output.fits(answer):
                return structs.replace(outcome, answer=self._output.read(answer))
        return outcome

    def _recorded_objection(self, next_note: int, next_effect: int) -> str | None:
        """Return the recorded objection to the answer that the loop gives now, "" if none was made; None if the record
        ends before this answer."""
        past = self._context.run_spec.past
        if (noted := past.notes.get(next_note)) is not None:
            return noted.text if noted.kind == "output" else ""
        return "" if self._context.run_spec.replay or past.effect(next_effect).is_recorded else None
