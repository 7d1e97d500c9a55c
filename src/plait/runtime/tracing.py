"""The interface by which a run informs an observer: it runs, asks a model, calls a tool, runs code.

Theory of operation. The runtime opens a span around each thing that it *performs*; what is fed back from the record
is not performed and has none. It knows these protocols only. `UNWATCHED` is the usual observer: one object that does
nothing, so that a run which nobody observes makes no span and imports nothing. `plait.telemetry` has the other one.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeAlias

if TYPE_CHECKING:
    from plait.core import Call, Observation, Outcome, Ran, Reply, Think
    from plait.core.errors import ModelError
    from plait.journal.records import RunHead
    from plait.models.base import Model, Request
    from plait.runtime.phase_models import Phases
    from plait.tools import Toolset

Scrub: TypeAlias = Callable[[bytes], bytes]
"""Replaces secrets, as on the record."""


class Span(Protocol):
    """Something that goes on between enter and exit. An exception that passes is its error; it is not held up."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class ModelSpan(Span, Protocol):
    """A model is asked, with all attempts at it."""

    def record_attempt(self, request: Request) -> None:
        """An attempt goes out."""
        ...

    def record_failure(self, why: ModelError) -> None:
        """An attempt brought no reply."""
        ...

    def record_fallback(self, model: Model) -> None:
        """The run asks this model from here, because the one before cannot be used."""
        ...

    def record_reply(self, reply: Reply, model: str) -> None:
        """The reply; `model` is what answered, as it names itself ("" where it does not)."""
        ...


class ToolSpan(Span, Protocol):
    """A tool is called."""

    def record_result(self, observation: Observation) -> None:
        """What came of it."""
        ...


class CodeSpan(Span, Protocol):
    """A piece of code runs, to its end or to the calls that it waits for."""

    def ran(self, ran: Ran) -> None:
        """What came of it."""
        ...


class RunSpan(Span, Protocol):
    """A run is performed, or gone on with."""

    def model(self, step: int, think: Think, model: Model) -> ModelSpan:
        """For one model call."""
        ...

    def tool(self, step: int, call: Call, tools: Toolset) -> ToolSpan:
        """For one tool call."""
        ...

    def code(self, step: int, code: str | None) -> CodeSpan:
        """For one piece of code; None where a piece goes on."""
        ...

    def record_outcome(self, outcome: Outcome, steps: int) -> None:
        """How the run ended, or that it waits."""
        ...


class Tracer(Protocol):
    """Observes runs."""

    def run(self, head: RunHead, phases: Phases, scrub: Scrub, *, resumed: bool) -> RunSpan:
        """For one run."""
        ...


class _Nothing:
    """Every span at once, and none."""

    __slots__ = ()

    def run(self, *_: Any, **__: Any) -> Self:
        return self

    def record_attempt(self, *_: object) -> None:
        return

    __enter__ = model = tool = code = run
    __exit__ = record_failure = record_fallback = record_reply = record_result = record_attempt
    ran = record_outcome = record_attempt


UNWATCHED = _Nothing()
"""Observes nothing. It is a `Tracer` and a span of every kind."""
