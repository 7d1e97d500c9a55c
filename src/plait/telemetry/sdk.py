"""The OpenTelemetry SDK of the command line, configured by OpenTelemetry itself from the OTEL_* variables."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from typing import Any

from opentelemetry import metrics, trace

from plait.core.errors import ConfigError
from plait.installation import install_hint

SECONDS = 3.0
"""The SDK retries for longer. A command that has ended waits no longer than this for a collector."""

_DEFAULTS = {
    "OTEL_TRACES_EXPORTER": "otlp",
    "OTEL_METRICS_EXPORTER": "otlp",
    "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
}
_problems: list[str] = []
_opened = False


class _ProblemHandler(logging.Handler):
    """Collects the errors that the SDK logs, so that the command line can print one at its end."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.ERROR:
            _problems[:] = [record.getMessage()]


def open_sdk() -> None:
    """Set the global providers, unless a tracer provider is set already. Raises `ConfigError` if the SDK or an exporter
    is not installed, or a variable is wrong."""
    global _opened
    if not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return
    try:
        # What OpenTelemetry's own launcher uses. Distributions extend it under this name.
        from opentelemetry.sdk._configuration import _OTelSDKConfigurator
        from opentelemetry.sdk.metrics.export import ConsoleMetricExporter
        from opentelemetry.sdk.trace.export import ConsoleSpanExporter
    except ImportError as why:
        hint = install_hint("otel")
        raise ConfigError("Telemetry needs OpenTelemetry's SDK, which is not installed.", hint=hint) from why
    defaults = {name: value for name, value in _DEFAULTS.items() if not os.environ.get(name, "").strip()}
    if "service.name=" not in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", ""):
        defaults["OTEL_SERVICE_NAME"] = os.environ.get("OTEL_SERVICE_NAME") or "plait"
    before = dict(os.environ)
    os.environ.update(defaults)
    try:
        to_stderr = {"out": sys.stderr}  # stdout is for answers
        _OTelSDKConfigurator().configure(  # type: ignore[no-untyped-call]
            exporter_args_map={ConsoleSpanExporter: to_stderr, ConsoleMetricExporter: to_stderr}
        )
    except (RuntimeError, ValueError) as why:
        raise ConfigError(f"OpenTelemetry cannot be set up: {why}.", hint="Check the OTEL_* variables.") from why
    finally:
        for name in defaults:  # tools and servers that Plait starts get the user's own environment
            os.environ.pop(name)
        os.environ.update({name: before[name] for name in defaults if name in before})
    logging.getLogger("opentelemetry").addHandler(_ProblemHandler())
    _opened = True


def shut_down() -> str:
    """Send pending data and close the SDK if `open_sdk` opened it. Return why something was not sent, or ""."""
    global _opened
    if not _opened:
        return ""
    _opened = False
    providers: tuple[Any, ...] = trace.get_tracer_provider(), metrics.get_meter_provider()

    # Daemon threads: the exit of the process does not wait for a collector that never answers.
    def close(provider: Any) -> None:
        try:
            provider.shutdown()
        except Exception as why:
            _problems.append(f"{type(why).__name__}: {why}")

    threads = [threading.Thread(target=close, args=(each,), daemon=True) for each in providers]
    for thread in threads:
        thread.start()
    until = time.monotonic() + SECONDS
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    if _problems:
        return _problems[0]
    return f"no collector took it within {SECONDS:g} seconds." if any(map(threading.Thread.is_alive, threads)) else ""
