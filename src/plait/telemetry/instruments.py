"""What spans and metrics are made with: the application's providers, those given, or Plait's own."""

from __future__ import annotations

import time
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from opentelemetry import metrics, trace

from plait.core import Usage
from plait.telemetry import names
from plait.telemetry.guard import quiet
from plait.telemetry.setting import Settings

SCHEMA = "https://opentelemetry.io/schemas/1.42.0"
TOKEN_STEPS = [4**n for n in range(14)]
SECOND_STEPS = [0.01 * 2**n for n in range(14)]
"""Where the conventions want a histogram's boundaries."""


class Instruments:
    """A tracer, and the two histograms of the conventions for who asks models."""

    clock = staticmethod(time.perf_counter)

    def __init__(self, tracers: Any, meters: Any) -> None:
        self.tracer = tracers.get_tracer("plait", _version(), schema_url=SCHEMA)
        meter = meters.get_meter("plait", _version(), schema_url=SCHEMA)
        self._tokens = meter.create_histogram(
            names.TOKEN_USAGE,
            unit="{token}",
            description="Number of input and output tokens used.",
            explicit_bucket_boundaries_advisory=TOKEN_STEPS,
        )
        self._seconds = meter.create_histogram(
            names.DURATION,
            unit="s",
            description="GenAI operation duration.",
            explicit_bucket_boundaries_advisory=SECOND_STEPS,
        )

    @classmethod
    def found(cls, settings: Settings, tracers: Any = None, meters: Any = None) -> Instruments:
        """Those given, else the application's, else our own. Raises `UsageError` where ours can't be made."""
        if tracers is None:
            tracers = trace.get_tracer_provider()
            if isinstance(tracers, trace.ProxyTracerProvider):  # nobody set one
                from plait.telemetry import own

                made = own.providers(settings)
                return cls(made.tracers, meters or made.meters)
        return cls(tracers, meters or metrics.get_meter_provider())

    @quiet
    def tokens(self, usage: Usage, known: dict[str, Any]) -> None:
        """Count the tokens of a reply."""
        self._tokens.record(usage.input_tokens, {**known, names.TOKEN_TYPE: "input"})
        self._tokens.record(usage.output_tokens, {**known, names.TOKEN_TYPE: "output"})

    @quiet
    def took(self, seconds: float, known: dict[str, Any]) -> None:
        """Count a model call."""
        self._seconds.record(seconds, known)


def _version() -> str:
    try:
        return version("plait")
    except PackageNotFoundError:  # run from a folder that nobody installed
        return ""
