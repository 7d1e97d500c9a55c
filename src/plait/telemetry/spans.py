"""Spans of runs, model calls, tools and code; what `runtime/tracing.py` describes, made with OpenTelemetry's API.

Theory of operation. A span is the current one while it is open, so that what a tool or an HTTP library traces by itself
stands below it, and a run stands below whatever its caller had open. Texts pass the run's scrubber first. Nothing that
goes wrong in here reaches the run: it is said to the log, at level DEBUG.
"""

from __future__ import annotations

import builtins
import re
from asyncio import CancelledError
from types import TracebackType
from typing import Any, Self

from opentelemetry import context
from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context

from plait.core import Call, Observation, Outcome, Ran, Reply, Think, Usage
from plait.core.errors import ModelError
from plait.journal.records import RunHead
from plait.models.base import Model, Request
from plait.models.prices import total
from plait.runtime.asking import Phases
from plait.runtime.tracing import Scrub
from plait.telemetry import messages, names
from plait.telemetry.facts import of_model, of_request, provider_of
from plait.telemetry.guard import opened, quiet
from plait.telemetry.instruments import Instruments
from plait.telemetry.setting import Settings
from plait.telemetry.texts import Texts
from plait.tools import Toolset

_RAISED = re.compile(r"Error: (\w+)")


class Observer:
    """Observes runs. Raises `UsageError` where there is nothing to make spans with."""

    def __init__(self, settings: Settings, tracers: Any = None, meters: Any = None) -> None:
        self._content = settings.content
        self._made = Instruments.found(settings, tracers, meters)

    @opened
    def run(self, head: RunHead, phases: Phases, scrub: Scrub, *, resumed: bool) -> OpenRun:
        """The span of one run."""
        return OpenRun(self._made, Texts(scrub, content=self._content), head, phases, resumed=resumed)


class _Open:
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


class OpenRun(_Open):
    """A run. Its tokens and USD are those of the model calls made while it is open."""

    def __init__(self, made: Instruments, texts: Texts, head: RunHead, phases: Phases, *, resumed: bool) -> None:
        self._session = head.session
        self._usage, self._costs = Usage(), list[float | None]()
        loop = str(head.strategy.get("name", ""))
        asked = list(phases.describe().values())
        providers = {provider_of(each) for each in asked}
        models = {str(each.get("name", "")) for each in asked}
        known = {
            names.OPERATION: names.INVOKE_AGENT,
            names.PROVIDER: providers.pop() if len(providers) == 1 else "plait",
            names.AGENT: loop,
            names.CONVERSATION: head.session,
            names.REQUEST_MODEL: models.pop() if len(models) == 1 else "",
            names.RUN: head.run,
            names.RUN_RESUMED: resumed,
            names.RUN_PARENT: head.parent,
            names.RUN_FORK_AT: head.fork_at or None,
            names.RUN_LABEL: head.label,
        }
        if texts.content:
            known[names.INPUT_MESSAGES] = texts.json(messages.asked(head.history, head.question))
        super().__init__(made, texts, f"{names.INVOKE_AGENT} {loop}", SpanKind.INTERNAL, known)

    @opened
    def model(self, step: int, think: Think, model: Model) -> OpenModel:
        """The span of a model call."""
        return OpenModel(self, step, think, model)

    @opened
    def tool(self, step: int, call: Call, tools: Toolset) -> OpenTool:
        """The span of a tool call."""
        return OpenTool(self, step, call, tools)

    @opened
    def code(self, step: int, code: str | None) -> OpenCode:
        """The span of a piece of code."""
        return OpenCode(self, step, code)

    def spent(self, reply: Reply) -> None:
        """A model call of the run is over."""
        self._usage += reply.usage
        self._costs.append(reply.cost)

    @quiet
    def ended(self, outcome: Outcome, steps: int) -> None:
        """How the run ended. An answer is no error, nor is a run that waits or was cancelled."""
        if not self._wanted:
            return
        limit = getattr(outcome, "limit", "")
        self._set({names.RUN_STATUS: outcome.status, names.RUN_STEPS: steps, names.LIMIT: limit})
        if self._costs:
            self._set(usage_of(self._usage, total(self._costs)))
        if outcome.answer is not None and self._texts.content:
            self._set({names.OUTPUT_MESSAGES: self._texts.json(messages.answered(outcome.answer))})
        if outcome.status in ("crashed", "failed") or (outcome.status == "stopped" and outcome.answer is None):
            kind = getattr(outcome, "error", "") or getattr(outcome, "kind", "") or f"limit_{limit}"
            self._failed(kind, outcome.reason or "")


class _Part(_Open):
    """A span below a run's."""

    def __init__(self, run: OpenRun, name: str, kind: SpanKind, known: dict[str, Any], step: int) -> None:
        self._run = run
        known = {**known, names.CONVERSATION: run._session, names.STEP: step}
        super().__init__(run._made, run._texts, name, kind, known)


class OpenModel(_Part):
    """A model call with its attempts: each that failed is an event."""

    def __init__(self, run: OpenRun, step: int, think: Think, model: Model) -> None:
        operation = names.CHAT if think.messages else names.COMPLETION
        self._key = {names.OPERATION: operation, **of_model(model)}
        remote = names.SERVER_ADDRESS in self._key
        known = {
            **self._key,
            names.PHASE: think.phase,
            names.MODEL_SPEC: model.spec,
            names.REPAIR: think.repair or None,
        }
        kind = SpanKind.CLIENT if remote else SpanKind.INTERNAL
        super().__init__(run, f"{operation} {model.name}", kind, known, step)
        self._attempts = 0
        self._began = 0.0
        self._error = ""

    def _begin(self) -> None:
        super()._begin()
        self._began = self._made.clock()

    @quiet
    def asked(self, request: Request) -> None:
        """An attempt goes out."""
        self._attempts += 1
        if not self._wanted:
            return
        body = self._texts.body(request.body)
        self._set({**of_request(body), names.ATTEMPTS: self._attempts})
        if self._texts.content:
            self._set({names.INPUT_MESSAGES: messages.text(messages.sent(body))})
            if body.get("tools"):
                self._set({names.TOOL_DEFINITIONS: messages.text(body["tools"])})

    @quiet
    def failed(self, why: ModelError) -> None:
        """An attempt brought no reply."""
        status = why.response.status if why.response is not None else 0
        known = {names.ATTEMPT: self._attempts, names.ERROR_TYPE: type(why).__name__}
        if status:
            known[names.STATUS_CODE] = status
        if self._texts.content:
            known[names.MESSAGE] = self._texts.plain(str(why))
        self._span.add_event(names.RETRY, known)

    @quiet
    def replied(self, reply: Reply, model: str) -> None:
        """The reply is whole."""
        self._run.spent(reply)
        answered = {names.RESPONSE_MODEL: model} if model else {}
        self._made.tokens(reply.usage, {**self._key, **answered})
        self._key = {**self._key, **answered}
        if not self._wanted:
            return
        finish = {"calls": "tool_calls", "filter": "content_filter", "circle": "length"}.get(reply.finish, reply.finish)
        self._set({**answered, names.FINISH_REASONS: [finish], **usage_of(reply.usage, reply.cost)})
        if self._texts.content:
            self._set({names.OUTPUT_MESSAGES: self._texts.json(messages.got(reply))})

    def _failed(self, kind: str, words: str) -> None:
        self._error = kind
        super()._failed(kind, words)

    def _end(self, error: BaseException | None) -> None:
        super()._end(error)
        if not isinstance(error, CancelledError):
            failed = {names.ERROR_TYPE: self._error} if self._error else {}
            self._made.took(self._made.clock() - self._began, {**self._key, **failed})


class OpenTool(_Part):
    """A tool call."""

    def __init__(self, run: OpenRun, step: int, call: Call, tools: Toolset) -> None:
        tool = tools.get(call.tool)
        # A tool that there is not is a word of the model's own.
        name = call.tool if tool is not None or run._texts.content else "_OTHER"
        known: dict[str, Any] = {
            names.OPERATION: names.EXECUTE_TOOL,
            names.TOOL_NAME: name,
            names.TOOL_TYPE: "function",
            names.TOOL_CALL_ID: call.id,
            names.TOOL_DESCRIPTION: tool.spec.description if tool is not None else "",
        }
        if run._texts.content and call.input is not None:
            known[names.TOOL_ARGUMENTS] = run._texts.json(call.input)
        super().__init__(run, f"{names.EXECUTE_TOOL} {name}", SpanKind.INTERNAL, known, step)

    @quiet
    def observed(self, observation: Observation) -> None:
        """What came of the call."""
        if not self._wanted:
            return
        if self._texts.content:
            value = observation.text if observation.value is None else observation.value
            self._set({names.TOOL_RESULT: self._texts.json(value)})
        if observation.trouble:
            self._set({names.TROUBLE: observation.trouble})
            self._failed(_kind(observation), observation.text)


class OpenCode(_Part):
    """A piece of code, to its end or to the calls that it waits for. The calls are spans of their own, beside it."""

    def __init__(self, run: OpenRun, step: int, code: str | None) -> None:
        known: dict[str, Any] = {names.CODE_GOES_ON: code is None}
        if run._texts.content and code is not None:
            known[names.CODE] = run._texts.plain(code)
        super().__init__(run, names.EXECUTE_CODE, SpanKind.INTERNAL, known, step)

    @quiet
    def ran(self, ran: Ran) -> None:
        """What came of it."""
        if not self._wanted:
            return
        self._set({names.CODE_CALLS: len(ran.calls)})
        if self._texts.content:
            self._set({names.CODE_OUTPUT: self._texts.plain(ran.output)})
        if ran.error is not None:
            # The code is the model's, and so may be the names of its exceptions.
            known = ran.error.limit or not isinstance(getattr(builtins, ran.error.type, None), type)
            self._failed("limit" if ran.error.limit else "raised" if known else ran.error.type, ran.error.message)


def usage_of(usage: Usage, cost: float | None) -> dict[str, Any]:
    """Tokens and USD as attributes."""
    known = {names.INPUT_TOKENS: usage.input_tokens, names.OUTPUT_TOKENS: usage.output_tokens, names.COST: cost}
    if usage.cached_tokens:
        known[names.CACHED_TOKENS] = usage.cached_tokens
    if usage.estimated:
        known[names.ESTIMATED] = True
    return known


def _kind(observation: Observation) -> str:
    """What went wrong in a call: the exception's class where that is one of Python's, else the kind of trouble."""
    raised = _RAISED.match(observation.text) if observation.trouble == "raised" else None
    found = getattr(builtins, raised[1], None) if raised else None
    return raised[1] if raised and isinstance(found, type) and issubclass(found, BaseException) else observation.trouble
