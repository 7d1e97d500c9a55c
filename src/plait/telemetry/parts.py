"""The spans below a run's: of model calls, tool calls and pieces of code."""

from __future__ import annotations

import builtins
import re
from asyncio import CancelledError
from typing import TYPE_CHECKING, Any

from opentelemetry.trace import SpanKind

from plait.core import Call, Observation, Ran, Reply, Think, Usage
from plait.core.errors import ModelError
from plait.models.base import Model, Request
from plait.telemetry import messages, names
from plait.telemetry.facts import of_model, of_request
from plait.telemetry.guard import quiet
from plait.telemetry.open import Open
from plait.tools import Toolset

if TYPE_CHECKING:
    from plait.telemetry.spans import OpenRun

_RAISED = re.compile(r"Error: (\w+)")


class _Part(Open):
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
