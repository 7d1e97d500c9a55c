"""OpenTelemetry: spans and metrics of runs, model calls and tools, by the GenAI semantic conventions. Off unless asked.

Theory of operation. Each run asks `here()` who observes it. Nobody does until `on()` is called, `PLAIT_TELEMETRY` is
set, or `plait.toml` says so; nothing of OpenTelemetry is imported before. Where the application has a tracer provider,
that one is used, and the application flushes it; else one that sends OTLP over HTTP is made when the first run begins.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from plait.runtime.tracing import UNWATCHED, Tracer

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

PATIENCE = 3.0
"""Seconds that a program's end may be held up by what is still to be sent."""

_lock = threading.Lock()
_tracer: Tracer | None = None
"""None until the first run asks."""
_asked: Callable[[], Tracer] | None = None
"""What `on` was given; the application may set its providers until the first run begins."""
program = False
"""The process is a program of Plait's own: what its tools trace by themselves goes the same way."""


def on(
    *,
    content: bool | None = None,
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
) -> None:
    """Observe the runs that begin from now on.

    `content`: also what was asked, answered, and given to and by tools; None: as the environment or `plait.toml` says,
    and else no. The providers are the application's global ones where none are given; where it has none either, spans
    and metrics go to the collector that the `OTEL_EXPORTER_OTLP_*` variables name. Raises `UsageError` without the
    extra `otel`, and for settings that can't be.
    """
    global _tracer, _asked
    from plait.telemetry.setting import check_installed, settings, tracer_for

    check_installed()
    said = settings(on=True, content=content)
    with _lock:
        _tracer, _asked = None, partial(tracer_for, said, tracer_provider, meter_provider)


def off() -> None:
    """Observe no run that begins from now on, whatever the environment and `plait.toml` say."""
    global _tracer
    with _lock:
        _tracer = UNWATCHED


def here() -> Tracer:
    """Who observes runs in this process. Raises `UsageError` where it is asked for and can't be."""
    found = _tracer  # once: `on`, in another thread, may take it away in between
    return found if found is not None else _looked()


def flush(seconds: float = PATIENCE) -> bool:
    """Send what is not sent yet; False when that took longer than `seconds`, or failed. Never raises."""
    own = sys.modules.get("plait.telemetry.own")
    return bool(own.flush(seconds)) if own is not None else True


def end(seconds: float = PATIENCE) -> str:
    """Send what is not sent yet and end what Plait made itself, within so many seconds; for a program's end.

    Returns why something was not delivered, "" when nothing is known to be lost. Never raises.
    """
    own = sys.modules.get("plait.telemetry.own")
    return str(own.end(seconds)) if own is not None else ""


def _looked() -> Tracer:
    """What Python, environment and file say, looked at once."""
    global _tracer
    with _lock:
        if _tracer is None and _asked is not None:
            _tracer = _asked()
        if _tracer is None:
            from plait.telemetry.setting import settings, tracer_for

            said = settings()
            _tracer = tracer_for(said) if said.on else UNWATCHED
        return _tracer
