"""The fields of chat completions that a model's settings set, with the names that some providers use instead."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET

from plait.models.wires.wire import WireOptions

_FIELDS = ("top_p", "seed", "verbosity", "service_tier")


def add_settings(body: dict[str, Any], options: WireOptions) -> None:
    """Put the settings into a body. A setting for tools is left out of a request without tools."""
    settings, provider = options.settings, options.provider
    if not settings.are_set:
        return
    if settings.temperature is not UNSET:
        body["temperature"] = settings.temperature
    if settings.stop is not UNSET:
        body["stop"] = list(settings.stop)
    body |= {name: value for name in _FIELDS if (value := getattr(settings, name)) is not UNSET}
    if settings.max_tokens is not UNSET:
        field = "max_tokens" if options.abilities.max_tokens else "max_completion_tokens"
        body[field] = min(settings.max_tokens, body.get(field, settings.max_tokens))
    reasoning = {
        key: value
        for key, value in (("effort", settings.effort), ("max_tokens", settings.thinking_tokens))
        if value is not UNSET
    }
    if provider == "openrouter" and reasoning:
        body["reasoning"] = reasoning
    elif settings.effort is not UNSET:
        body["reasoning_effort"] = settings.effort
    if "tools" in body:
        if settings.tool_choice is not UNSET:
            named = {"type": "function", "function": {"name": settings.tool_choice}}
            body["tool_choice"] = settings.tool_choice if settings.tool_choice in _CHOICES else named
        if settings.parallel_calls is not UNSET:
            body["parallel_tool_calls"] = settings.parallel_calls


_CHOICES = ("auto", "none", "required")
