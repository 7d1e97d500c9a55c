"""What is said of telemetry: Python, then `PLAIT_TELEMETRY` and the standard variables, then `plait.toml`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from msgspec import Struct

from plait import config
from plait.core.errors import PlaitError, UsageError
from plait.runtime.tracing import Tracer

SWITCH = "PLAIT_TELEMETRY"
CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
"""The variable with which instrumentations of models are asked for content; heeded here as well."""

_SWITCHED = {
    "": None,
    **dict.fromkeys(("0", "off", "false", "no"), False),
    **dict.fromkeys(("1", "on", "true", "yes", "content"), True),
}


class Settings(Struct, frozen=True):
    """What holds. `endpoint` is a base address and "" where the standard variables say it; so are `headers`."""

    on: bool
    content: bool = False
    endpoint: str = ""
    headers: Mapping[str, str] = {}
    service: str = "plait"


def settings(*, on: bool | None = None, content: bool | None = None, env: Mapping[str, str] | None = None) -> Settings:
    """What holds here. Raises `UsageError` for values that can't be."""
    env = os.environ if env is None else env
    word = env.get(SWITCH, "").strip().lower()
    if word not in _SWITCHED:
        raise UsageError(
            f"{SWITCH} is {env[SWITCH]!r}.",
            hint="It is one of on, content, off (on is also true, yes, 1; off also false, no, 0).",
        )
    said = _said()
    switched = next(each for each in (on, _SWITCHED[word], said.on) if each is not None)
    if not switched:
        return Settings(on=False)
    asked = word == "content" or env.get(CONTENT, "").strip().lower() in ("true", "span_only", "span_and_event")
    return Settings(
        on=True,
        content=content if content is not None else asked or said.content,
        endpoint=said.endpoint.rstrip("/"),
        headers={name: _value(name, value, env) for name, value in said.headers.items()},
        service=said.service,
    )


def check_installed() -> None:
    """Raises `UsageError` without the extra."""
    if find_spec("opentelemetry") is None or find_spec("opentelemetry.trace") is None:
        raise UsageError("Telemetry needs OpenTelemetry, which is not installed.", hint="pip install 'plait[otel]'.")


def tracer_for(said: Settings, tracers: Any = None, meters: Any = None) -> Tracer:
    """Who observes by these settings. Raises `UsageError` without the extra, and for exporters that there are not."""
    check_installed()
    from plait.telemetry.spans import Observer

    return Observer(said, tracers, meters)


def _said() -> config.TelemetryTable:
    """The table of `plait.toml`. A file that can't be read is told by whoever needs its models."""
    try:
        return config.load().telemetry
    except PlaitError:
        return config.TelemetryTable()


def _value(name: str, value: str, env: Mapping[str, str]) -> str:
    if not value.startswith("$"):
        return value
    variable = value[1:].strip("{}")
    if not env.get(variable, "").strip():
        raise UsageError(
            f"{config.load().path}, table [telemetry]: headers.{name} needs {variable}, which is not set.",
            hint="Set it in the environment.",
        )
    return env[variable].strip()
