"""Spans of runs, model calls, tools and code; what `runtime/tracing.py` describes, made with OpenTelemetry's API.

Theory of operation. A span is the current one while it is open, so that what a tool or an HTTP library traces by itself
stands below it, and a run stands below whatever its caller had open. Texts pass the run's scrubber first. Nothing that
goes wrong in here reaches the run: it is said to the log, at level DEBUG.
"""

from __future__ import annotations

from typing import Any

from opentelemetry.trace import SpanKind

from plait.core import Call, Outcome, Reply, Think, Usage
from plait.journal.records import RunHead
from plait.models.base import Model
from plait.models.prices import total
from plait.runtime.asking import Phases
from plait.runtime.tracing import Scrub
from plait.telemetry import messages, names
from plait.telemetry.facts import provider_of
from plait.telemetry.guard import opened, quiet
from plait.telemetry.instruments import Instruments
from plait.telemetry.open import Open
from plait.telemetry.parts import OpenCode, OpenModel, OpenTool, usage_of
from plait.telemetry.setting import Settings
from plait.telemetry.texts import Texts
from plait.tools import Toolset


class Observer:
    """Observes runs. Raises `UsageError` where there is nothing to make spans with."""

    def __init__(self, settings: Settings, tracers: Any = None, meters: Any = None) -> None:
        self._content = settings.content
        self._made = Instruments.found(settings, tracers, meters)

    @opened
    def run(self, head: RunHead, phases: Phases, scrub: Scrub, *, resumed: bool) -> OpenRun:
        """The span of one run."""
        return OpenRun(self._made, Texts(scrub, content=self._content), head, phases, resumed=resumed)


class OpenRun(Open):
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
