"""Plait's own providers, where the application has none: OTLP over HTTP, as the standard variables say.

Theory of operation. The SDK sends in threads of its own, in batches, and tries again for a while when nobody answers.
That may not hold up a program's end: the last batch is sent in a daemon thread that is waited for so long, no longer.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from msgspec import Struct
from opentelemetry import metrics, trace

from plait import telemetry
from plait.core.errors import UsageError
from plait.telemetry import PATIENCE
from plait.telemetry.setting import Settings

OTLP = "OTEL_EXPORTER_OTLP"


class Providers(Struct):
    """A tracer provider and a meter provider of the SDK's."""

    tracers: Any
    meters: Any


_made: Providers | None = None
_lock = threading.Lock()
_troubles = 0
_trouble = ""
"""How often something was not sent, and why the last time."""


def providers(settings: Settings) -> Providers:
    """Made once, at the first need. Raises `UsageError` without the SDK, and for exporters that Plait has not."""
    global _made
    with _lock:
        if _made is None:
            _made = _new(settings)
            atexit.register(end)
            if telemetry.program:
                trace.set_tracer_provider(_made.tracers)
                metrics.set_meter_provider(_made.meters)
        return _made


def flush(seconds: float = PATIENCE) -> bool:
    """Send what is not sent yet; False where that failed or took longer."""
    if _made is None:
        return True
    before = _troubles
    done = _aside([_made.tracers.force_flush, _made.meters.force_flush], seconds)
    return done and _troubles == before


def end(seconds: float = PATIENCE) -> str:
    """Send what is not sent yet, and no more after it. Why something was not delivered, "" where nothing was lost."""
    global _made
    with _lock:
        made, _made = _made, None
    if made is None:
        return ""
    done = _aside([made.tracers.shutdown, made.meters.shutdown], seconds)
    if _trouble:
        return _trouble
    return "" if done else f"no collector took it within {seconds:g} seconds."


def _aside(jobs: list[Callable[[], object]], seconds: float) -> bool:
    """Do all jobs at once, each in a thread that nobody waits for at exit; are they done in time?"""
    threads = [threading.Thread(target=_tried, args=(job,), daemon=True, name="plait-telemetry") for job in jobs]
    for thread in threads:
        thread.start()
    until = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    return not any(thread.is_alive() for thread in threads)


def _tried(job: Callable[[], object]) -> None:
    try:
        job()
    except Exception as why:
        _went_wrong(f"{type(why).__name__}: {why}")


def _went_wrong(words: str) -> None:
    global _troubles, _trouble
    _troubles, _trouble = _troubles + 1, words


class _Told(logging.Handler):
    """Keeps what the SDK complains of, for who asks at the end. What the application listens to, it hears as before."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.ERROR:
            _went_wrong(record.getMessage())


def _new(settings: Settings) -> Providers:
    try:
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
    except ImportError as why:
        raise UsageError(
            "Telemetry needs OpenTelemetry's SDK, which is not installed.", hint="pip install 'plait[otel]'."
        ) from why

    named = os.environ.get("OTEL_SERVICE_NAME") or "service.name=" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    resource = Resource.create({} if named else {"service.name": settings.service})
    tracers = TracerProvider(resource=resource, shutdown_on_exit=False)
    if (spans := _spans(settings)) is not None:
        tracers.add_span_processor(spans)
    meters = MeterProvider(_readers(settings), resource=resource, shutdown_on_exit=False)
    sdk = logging.getLogger("opentelemetry")
    if not any(isinstance(each, _Told) for each in sdk.handlers):
        sdk.addHandler(_Told())
    return Providers(tracers, meters)


def _spans(settings: Settings) -> Any:
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter

    match _exporter("traces"):
        case "none":
            return None
        case "console":
            return BatchSpanProcessor(ConsoleSpanExporter(out=sys.stderr))
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return BatchSpanProcessor(OTLPSpanExporter(**_place(settings, "traces")))


def _readers(settings: Settings) -> list[Any]:
    from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, PeriodicExportingMetricReader

    match _exporter("metrics"):
        case "none":
            return []
        case "console":
            return [PeriodicExportingMetricReader(ConsoleMetricExporter(out=sys.stderr))]
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

    return [PeriodicExportingMetricReader(OTLPMetricExporter(**_place(settings, "metrics")))]


def _exporter(signal: str) -> str:
    """The exporter that the standard variables name for spans or metrics: otlp, console or none."""
    variable = f"OTEL_{signal.upper()}_EXPORTER"
    word = os.environ.get(variable, "").strip().lower() or "otlp"
    if word not in ("otlp", "console", "none"):
        raise UsageError(f"{variable} is {word!r}.", hint="Plait has otlp, console and none.")
    for name in (f"{OTLP}_{signal.upper()}_PROTOCOL", f"{OTLP}_PROTOCOL"):
        protocol = os.environ.get(name, "").strip().lower()
        if word == "otlp" and protocol not in ("", "http/protobuf"):
            raise UsageError(f"{name} is {protocol!r}.", hint="Plait sends http/protobuf, to port 4318 mostly.")
        if protocol:
            break
    return word


def _place(settings: Settings, signal: str) -> dict[str, Any]:
    """Where to send: what the environment says is left to the exporter, which reads it itself."""
    env, own = os.environ, f"{OTLP}_{signal.upper()}"
    given: dict[str, Any] = {}
    if settings.endpoint and not (env.get(f"{OTLP}_ENDPOINT") or env.get(f"{own}_ENDPOINT")):
        given["endpoint"] = f"{settings.endpoint}/v1/{signal}"
    if settings.headers and not (env.get(f"{OTLP}_HEADERS") or env.get(f"{own}_HEADERS")):
        given["headers"] = dict(settings.headers)
    return given
