"""Spans and metrics of runs, model calls, tool calls and code, made with OpenTelemetry's API.

`runtime/tracing.py` describes the protocol. An open span is the current one, so traces of a tool or an HTTP library are
below it. The names of the conventions are written here because they are still in development; a test compares them with
the conventions' package. Plait's own names begin with `plait.`.
"""

from __future__ import annotations

import builtins
import functools
import logging
import re
import time
from asyncio import CancelledError
from collections.abc import Callable
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar, cast

from opentelemetry import metrics, trace
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import SpanKind, Status, StatusCode, TracerProvider

from plait import __version__
from plait.core import Call, Observation, Outcome, Ran, Reply, Think, Usage
from plait.core.errors import ModelError
from plait.journal.records import RunHead
from plait.models.base import Model, Request
from plait.models.prices import total
from plait.runtime.phase_models import Phases
from plait.runtime.tracing import UNWATCHED, Scrub
from plait.telemetry.attributes import (
    model_attributes,
    provider_name,
    request_attributes,
    sum_attributes,
    usage_attributes,
)
from plait.telemetry.content import (
    FINISH_REASONS,
    SpanContent,
    format_answer,
    format_question,
    format_reply,
    format_request,
)
from plait.tools import Toolset

SCHEMA = "https://opentelemetry.io/schemas/1.42.0"
TOKEN_BOUNDARIES = [4**n for n in range(14)]
SECOND_BOUNDARIES = [0.01 * 2**n for n in range(14)]
"""The histograms' boundaries that the conventions recommend."""

_RAISED = re.compile(r"Error: (\w+)")

P = ParamSpec("P")
R = TypeVar("R")
logger = logging.getLogger("plait")


def isolated(method: Callable[P, R]) -> Callable[P, R]:
    """Isolate runs from telemetry errors: log an error at level DEBUG, and return a span that does nothing."""

    @functools.wraps(method)
    def call_safely(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(*args, **kwargs)
        except Exception:
            logger.debug("telemetry failed", exc_info=True)
            return cast(R, UNWATCHED)

    return call_safely


class OtelTracer:
    """Trace runs with the given providers, or the global ones. `content`: include questions, answers and other
    texts."""

    def __init__(
        self, content: bool, tracer_provider: TracerProvider | None = None, meter_provider: MeterProvider | None = None
    ) -> None:
        self._content = content
        tracers = tracer_provider or trace.get_tracer_provider()
        self.tracer = tracers.get_tracer("plait", __version__, schema_url=SCHEMA)
        meter = (meter_provider or metrics.get_meter_provider()).get_meter("plait", __version__, schema_url=SCHEMA)
        self.tokens = meter.create_histogram(
            "gen_ai.client.token.usage",
            unit="{token}",
            description="Number of input and output tokens used.",
            explicit_bucket_boundaries_advisory=TOKEN_BOUNDARIES,
        )
        self.seconds = meter.create_histogram(
            "gen_ai.client.operation.duration",
            unit="s",
            description="GenAI operation duration.",
            explicit_bucket_boundaries_advisory=SECOND_BOUNDARIES,
        )

    @isolated
    def run(self, head: RunHead, phases: Phases, scrub: Scrub, *, resumed: bool) -> OtelRunSpan:
        return OtelRunSpan(self, SpanContent(scrub, wanted=self._content), head, phases, resumed=resumed)


class OtelSpan:
    """A span that is current from enter to exit. Attributes that are None or "" are left out."""

    def __init__(
        self,
        tracer: OtelTracer,
        content: SpanContent,
        name: str,
        attributes: dict[str, Any],
        kind: SpanKind = SpanKind.INTERNAL,
    ) -> None:
        self._tracer, self._content = tracer, content
        self._name, self._kind = content.clean_text(name), kind
        self._attributes = self._clean(attributes)
        self._span: Any = None
        self._scope: Any = None
        self._began = 0.0

    def __enter__(self) -> Self:
        self._start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end(error)

    @isolated
    def _start(self) -> None:
        self._began = time.perf_counter()
        self._scope = self._tracer.tracer.start_as_current_span(
            self._name,
            kind=self._kind,
            attributes=self._attributes,
            record_exception=False,
            set_status_on_exception=False,
        )
        self._span = self._scope.__enter__()

    @isolated
    def _end(self, error: BaseException | None) -> None:
        try:
            if isinstance(error, CancelledError):
                self._set({"plait.cancelled": True})
            elif error is not None:
                self._set_error(type(error).__name__, str(error))
        finally:
            if self._span is not None:
                self._scope.__exit__(None, None, None)

    def _set_error(self, kind: str, text: str) -> None:
        """Mark the operation as failed. The text may quote content; the kind never does."""
        self._set({"error.type": kind})
        self._span.set_status(
            Status(StatusCode.ERROR, self._content.clean_text(text) if self._content.wanted else None)
        )

    def _set(self, attributes: dict[str, Any]) -> None:
        self._span.set_attributes(self._clean(attributes))

    def _set_content(self, name: str, value: Any) -> None:
        if self._content.wanted:
            self._set({name: self._content.clean_json(value)})

    def _clean(self, attributes: dict[str, Any]) -> dict[str, Any]:
        return {name: self._content.clean_value(value) for name, value in attributes.items() if value not in (None, "")}

    @property
    def _is_recorded(self) -> bool:
        """Return whether the span is recorded: an SDK is present and no sampler left it out."""
        return self._span is not None and bool(self._span.is_recording())


class OtelRunSpan(OtelSpan):
    """The span of a run. Its tokens and USD are those of the model calls made while it is open."""

    def __init__(
        self, tracer: OtelTracer, content: SpanContent, head: RunHead, phases: Phases, *, resumed: bool
    ) -> None:
        self.session = head.session
        self._head = head
        self._usage, self._costs = Usage(), list[float | None]()
        loop = str(head.loop.get("name", ""))
        described = list(phases.describe().values())
        providers = {provider_name(each) for each in described}
        models = {str(each.get("name", "")) for each in described}
        attributes = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.provider.name": providers.pop() if len(providers) == 1 else "plait",
            "gen_ai.agent.name": loop,
            "gen_ai.conversation.id": head.session,
            "gen_ai.request.model": models.pop() if len(models) == 1 else "",
            "plait.run.id": head.run,
            "plait.run.resumed": resumed,
            "plait.run.parent": head.parent,
            "plait.run.fork_at": head.fork_at or None,
            "plait.run.label": head.label,
        }
        super().__init__(tracer, content, f"invoke_agent {loop}", attributes)

    @isolated
    def _start(self) -> None:
        super()._start()
        if self._is_recorded:
            self._set_content("gen_ai.input.messages", format_question(self._head.history, self._head.question))

    @isolated
    def model(self, step: int, think: Think, model: Model) -> OtelModelSpan:
        return OtelModelSpan(self, step, think, model)

    @isolated
    def tool(self, step: int, call: Call, tools: Toolset) -> OtelToolSpan:
        return OtelToolSpan(self, step, call, tools)

    @isolated
    def code(self, step: int, code: str | None) -> OtelCodeSpan:
        return OtelCodeSpan(self, step, code)

    @isolated
    def record_outcome(self, outcome: Outcome, steps: int) -> None:
        """Record how the run ended. A run that answered, waits or was cancelled is not an error."""
        if not self._is_recorded:
            return
        limit = getattr(outcome, "limit", "")
        self._set({"plait.run.status": outcome.status, "plait.run.steps": steps, "plait.run.limit": limit})
        if self._costs:
            self._set(sum_attributes(self._usage, total(self._costs)))
        if outcome.answer is not None:
            self._set_content("gen_ai.output.messages", format_answer(outcome.answer))
        if outcome.status in ("crashed", "failed") or (outcome.status == "stopped" and outcome.answer is None):
            kind = getattr(outcome, "error", "") or getattr(outcome, "kind", "") or f"limit_{limit}"
            self._set_error(kind, outcome.reason or "")


class OtelPartSpan(OtelSpan):
    """A span below a run's."""

    def __init__(
        self, run: OtelRunSpan, step: int, name: str, attributes: dict[str, Any], kind: SpanKind = SpanKind.INTERNAL
    ) -> None:
        attributes = {**attributes, "gen_ai.conversation.id": run.session, "plait.step": step}
        super().__init__(run._tracer, run._content, name, attributes, kind)


class OtelModelSpan(OtelPartSpan):
    """The span of a model call with all its attempts. Each failed attempt is an event."""

    def __init__(self, run: OtelRunSpan, step: int, think: Think, model: Model) -> None:
        operation = "chat" if think.messages else "text_completion"
        self._metric_key = {"gen_ai.operation.name": operation, **model_attributes(model)}
        attributes = {
            **self._metric_key,
            "plait.phase": think.phase,
            "plait.model.spec": model.spec,
            "plait.repair": think.repair or None,
        }
        kind = SpanKind.CLIENT if "server.address" in attributes else SpanKind.INTERNAL
        super().__init__(run, step, f"{operation} {model.name}", attributes, kind)
        self._run = run
        self._think = think
        self._attempts = 0
        self._error = ""

    @isolated
    def record_attempt(self, request: Request) -> None:
        self._attempts += 1
        if not self._is_recorded:
            return
        body = self._content.read_body(request.body)
        self._set({**request_attributes(body, request.path), "plait.attempts": self._attempts})
        if self._attempts == 1 and self._content.wanted:
            self._set_content("gen_ai.input.messages", format_request(self._think))
        if body.get("tools"):
            self._set_content("gen_ai.tool.definitions", body["tools"])

    @isolated
    def record_failure(self, why: ModelError) -> None:
        event: dict[str, Any] = {"plait.attempt": self._attempts, "error.type": type(why).__name__}
        if why.response is not None and why.response.status:
            event["http.response.status_code"] = why.response.status
        if self._content.wanted:
            event["plait.message"] = self._content.clean_text(str(why))
        self._span.add_event("plait.attempt_failed", event)

    @isolated
    def record_fallback(self, model: Model) -> None:
        self._metric_key |= model_attributes(model)
        if self._is_recorded:
            self._set({**self._metric_key, "plait.model.spec": model.spec})

    @isolated
    def record_reply(self, reply: Reply, model: str) -> None:
        self._run._usage += reply.usage
        self._run._costs.append(reply.cost)
        answered = {"gen_ai.response.model": model} if model else {}
        self._metric_key |= answered
        for kind, count in (("input", reply.usage.input_tokens), ("output", reply.usage.output_tokens)):
            self._tracer.tokens.record(count, {**self._metric_key, "gen_ai.token.type": kind})
        if not self._is_recorded:
            return
        finish = {**FINISH_REASONS, "calls": "tool_calls"}.get(reply.finish, reply.finish)
        finished = {"gen_ai.response.finish_reasons": [finish]}
        self._set({**answered, **finished, **usage_attributes(reply.usage, reply.cost)})
        self._set_content("gen_ai.output.messages", format_reply(reply))

    def _set_error(self, kind: str, text: str) -> None:
        self._error = kind
        super()._set_error(kind, text)

    @isolated
    def _end(self, error: BaseException | None) -> None:
        super()._end(error)
        if not isinstance(error, CancelledError):
            failed = {"error.type": self._error} if self._error else {}
            self._tracer.seconds.record(time.perf_counter() - self._began, {**self._metric_key, **failed})


class OtelToolSpan(OtelPartSpan):
    def __init__(self, run: OtelRunSpan, step: int, call: Call, tools: Toolset) -> None:
        tool = tools.get(call.tool)
        # The name of an unknown tool is the model's own text.
        name = call.tool if tool is not None or run._content.wanted else "_OTHER"
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": name,
            "gen_ai.tool.type": "function",
            "gen_ai.tool.call.id": call.id,
            "gen_ai.tool.description": tool.spec.description if tool is not None else "",
        }
        if run._content.wanted and call.input is not None:
            attributes["gen_ai.tool.call.arguments"] = run._content.clean_json(call.input)
        super().__init__(run, step, f"execute_tool {name}", attributes)

    @isolated
    def record_result(self, observation: Observation) -> None:
        if not self._is_recorded:
            return
        self._set_content(
            "gen_ai.tool.call.result", observation.text if observation.value is None else observation.value
        )
        if observation.trouble:
            self._set({"plait.tool.trouble": observation.trouble})
            raised = _RAISED.match(observation.text) if observation.trouble == "raised" else None
            found = getattr(builtins, raised[1], None) if raised else None
            is_python = isinstance(found, type) and issubclass(found, BaseException)
            self._set_error(raised[1] if raised and is_python else observation.trouble, observation.text)


class OtelCodeSpan(OtelPartSpan):
    """The span of a piece of code, until it ends or waits for calls. The spans of the calls are beside it."""

    def __init__(self, run: OtelRunSpan, step: int, code: str | None) -> None:
        attributes: dict[str, Any] = {"plait.code.goes_on": code is None}
        if run._content.wanted and code is not None:
            attributes["plait.code"] = run._content.clean_text(code)
        super().__init__(run, step, "execute_code", attributes)

    @isolated
    def ran(self, ran: Ran) -> None:
        if not self._is_recorded:
            return
        self._set({"plait.code.calls": len(ran.calls)})
        if self._content.wanted:
            self._set({"plait.code.output": self._content.clean_text(ran.output)})
        if ran.error is not None:
            # The model writes the code, so it may also have named the exception.
            kind = ran.error.type if isinstance(getattr(builtins, ran.error.type, None), type) else "raised"
            self._set_error("limit" if ran.error.limit else kind, ran.error.message)
