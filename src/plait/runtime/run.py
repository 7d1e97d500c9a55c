"""What a run gives back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from plait.core import Event, Loop, Outcome, Status, Usage, Waiting
from plait.core.errors import JournalError
from plait.journal.records import Row
from plait.journal.timeline import Timeline
from plait.runtime.costs import PhaseSpending, spending
from plait.runtime.recorded_events import make_events


class Run(Struct, frozen=True, kw_only=True):
    """One run as it stands: how it ended, what it used, and its trace.

    `answer` is any JSON value, text for most loops; None unless there is one. `reason` says why a run has
    no answer, or had to answer early. `seconds` is wall time, `cost_usd` None where a price is not known.
    `models` maps each phase of the loop to the model it asks.
    """

    id: str
    outcome: Outcome
    loop: str
    steps: int
    calls: int
    usage: Usage
    cost_usd: float | None
    seconds: float
    models: dict[str, str]
    question: str
    rows: Callable[[], Sequence[Row]]
    """Reads the trace; `trace` is the same, read."""
    loop_object: Loop | None = None
    """The loop itself, None if it is not known."""

    @property
    def status(self) -> Status:
        """answered, failed, stopped, cancelled, waiting or crashed."""
        return self.outcome.status

    @property
    def answer(self) -> Any:
        """The answer, None when there is none."""
        return self.outcome.answer

    @property
    def reason(self) -> str | None:
        """Why there is no answer, or why it came early; None for a plain answer."""
        return self.outcome.reason

    @property
    def trace(self) -> tuple[Row, ...]:
        """Every row that the journal has of the run, in order."""
        return tuple(self.rows())

    @property
    def timeline(self) -> Timeline:
        """The record as typed values: model calls, tool calls, pieces of code, questions, notes."""
        return Timeline(self.rows())

    @property
    def events(self) -> list[Event]:
        """What happened, as the events one would have seen, each text in one piece."""
        return make_events(self.timeline, self.loop_object)

    @property
    def phases(self) -> tuple[PhaseSpending, ...]:
        """What each phase spent on each model, tool calls included, in the order of their first use.

        The rows' usage, USD and model calls add up to the run's exactly. Read off the record as it is now, as
        `trace` is: when the run was resumed since, take those of the `Run` that came of it. Raises `JournalError`
        where the record can't be read.
        """
        return spending(self.timeline)

    def json(self) -> dict[str, Any]:
        """The run as `plait run --json` prints it; `phases` is None where the record can't be read."""
        try:
            phases = [row.json() for row in self.phases]
        except JournalError:  # the run's end must be told whatever became of its record
            phases = None
        return {
            "run": self.id,
            "status": self.status,
            "answer": self.answer,
            "reason": self.reason,
            "waits": waits_of(self.outcome),
            "loop": self.loop,
            "steps": self.steps,
            "calls": self.calls,
            "usage": {
                "input_tokens": self.usage.input_tokens,
                "output_tokens": self.usage.output_tokens,
                "cached_tokens": self.usage.cached_tokens,
                "estimated": self.usage.estimated,
            },
            "cost_usd": self.cost_usd,
            "seconds": self.seconds,
            "models": self.models,
            "phases": phases,
        }


def waits_of(outcome: Outcome | None) -> dict[str, str] | None:
    """What a run waits for, as JSON shows it: the kind, and the id of the question that an answer names."""
    return {"kind": outcome.kind, "question": outcome.question} if isinstance(outcome, Waiting) else None


def run_of(
    run: str,
    outcome: Outcome,
    totals: dict[str, Any],
    *,
    question: str,
    loop: str,
    models: dict[str, str],
    rows: Callable[[], Sequence[Row]],
    loop_object: Loop | None = None,
) -> Run:
    """A run from its parts, as the engine or the journal has them."""
    return Run(
        id=run,
        outcome=outcome,
        loop=loop,
        steps=totals.get("steps", 0),
        calls=totals.get("calls", 0),
        usage=Usage(
            totals.get("input_tokens", 0),
            totals.get("output_tokens", 0),
            totals.get("cached_tokens", 0),
            totals.get("estimated", False),
        ),
        cost_usd=totals.get("cost_usd"),
        seconds=totals.get("seconds", 0.0),
        models=models,
        question=question,
        rows=rows,
        loop_object=loop_object,
    )
