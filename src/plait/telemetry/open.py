"""A span that is open: the current one from enter to exit."""

from __future__ import annotations

from asyncio import CancelledError
from types import TracebackType
from typing import Any, Self

from opentelemetry import context
from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context

from plait.telemetry import names
from plait.telemetry.guard import quiet
from plait.telemetry.instruments import Instruments
from plait.telemetry.texts import Texts


class Open:
    """A span that is current from enter to exit."""

    def __init__(self, made: Instruments, texts: Texts, name: str, kind: SpanKind, known: dict[str, Any]) -> None:
        self._made, self._texts = made, texts
        self._name, self._kind = texts.plain(name), kind
        self._known: dict[str, Any] = {key: texts.value(each) for key, each in known.items() if each not in (None, "")}
        self._span: Any = None
        self._token: Any = None

    def __enter__(self) -> Self:
        self._begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(error)

    @quiet
    def _begin(self) -> None:
        self._span = self._made.tracer.start_span(self._name, kind=self._kind, attributes=self._known)
        self._token = context.attach(set_span_in_context(self._span))

    @quiet
    def _end(self, error: BaseException | None) -> None:
        try:
            if isinstance(error, CancelledError):
                self._set({names.CANCELLED: True})
            elif error is not None:
                self._failed(type(error).__name__, str(error))
        finally:
            if self._token is not None:
                context.detach(self._token)
            if self._span is not None:
                self._span.end()

    def _failed(self, kind: str, words: str) -> None:
        """The operation ended in an error. Its words may hold content, its kind never does."""
        self._set({names.ERROR_TYPE: kind})
        self._span.set_status(Status(StatusCode.ERROR, self._texts.words(words)))

    def _set(self, known: dict[str, Any]) -> None:
        for key, value in known.items():
            if value not in (None, ""):
                self._span.set_attribute(key, self._texts.value(value))

    @property
    def _wanted(self) -> bool:
        """The span is recorded, not left out by a sampler."""
        return self._span is not None and bool(self._span.is_recording())
