"""OpenTelemetry: spans and metrics of runs, by the semantic conventions for generative AI. Off by default.

The application owns the OpenTelemetry SDK. Plait uses the providers that the application has set, or that it passes to
`on()`. Only the command line opens an SDK, from the standard OTEL_* variables. Until telemetry is on, nothing of
OpenTelemetry is imported.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

from plait import config
from plait.core.errors import ConfigError, PlaitError
from plait.installation import install_hint
from plait.runtime.tracing import UNWATCHED, Tracer

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

SWITCH = "PLAIT_TELEMETRY"
CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
"""The variable that asks other instrumentations of models for content."""

opens_sdk = False
"""The command line sets it: open an SDK from the environment, unless a tracer provider is set."""

_lock = threading.Lock()
_tracer: Tracer | None = None
"""None until the first run needs it."""

_WORDS = {
    "": None,
    **dict.fromkeys(("0", "off", "false", "no"), False),
    **dict.fromkeys(("1", "on", "true", "yes", "content"), True),
}


def on(
    *,
    content: bool | None = None,
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
) -> None:
    """Trace the runs that begin from now on.

    `content` adds questions, answers, messages, arguments and results; None: what the environment or `plait.toml` says.
    The providers default to the application's global ones, which may be set later. Raises `ConfigError` without the
    extra `otel`, and for wrong settings.
    """
    global _tracer
    _, wanted = read_settings()
    with _lock:
        _tracer = _make_tracer(wanted if content is None else content, tracer_provider, meter_provider)


def off() -> None:
    """Do not trace runs that begin from now on, whatever the environment and `plait.toml` say."""
    global _tracer
    with _lock:
        _tracer = UNWATCHED


def find_tracer() -> Tracer:
    """Return the tracer of runs in this process. Raises `ConfigError` if tracing is on and not available."""
    global _tracer
    if (tracer := _tracer) is not None:
        return tracer
    with _lock:
        if _tracer is None:
            is_on, content = read_settings()
            _tracer = _make_tracer(content) if is_on else UNWATCHED
        return _tracer


def shut_down() -> str:
    """Send pending data and close the SDK that Plait opened. Return why something was not sent, or "". Never raises."""
    sdk = sys.modules.get("plait.telemetry.sdk")
    return str(sdk.shut_down()) if sdk is not None else ""


def read_settings(env: Mapping[str, str] | None = None) -> tuple[bool, bool]:
    """Return whether telemetry is on, and whether with content: by the environment, else by `plait.toml`. Raises
    `ConfigError` for an unknown word."""
    env = os.environ if env is None else env
    word = env.get(SWITCH, "").strip().lower()
    if word not in _WORDS:
        hint = "It is one of on, content, off (on is also true, yes, 1; off also false, no, 0)."
        raise ConfigError(f"{SWITCH} is {env[SWITCH]!r}.", hint=hint)
    try:
        table = config.load().telemetry
    except PlaitError:  # the code that needs the file's models reports it
        table = config.TelemetryTable()
    switch = _WORDS[word]
    asked = word == "content" or env.get(CONTENT, "").strip().lower() in ("true", "span_only", "span_and_event")
    return table.on if switch is None else switch, asked or table.content


def _make_tracer(content: bool, tracers: TracerProvider | None = None, meters: MeterProvider | None = None) -> Tracer:
    try:
        from plait.telemetry.spans import OtelTracer
    except ImportError as why:
        raise ConfigError("Telemetry needs OpenTelemetry, which is not installed.", hint=install_hint("otel")) from why
    if opens_sdk and tracers is None:
        from plait.telemetry import sdk

        sdk.open_sdk()
    return OtelTracer(content, tracers, meters)
