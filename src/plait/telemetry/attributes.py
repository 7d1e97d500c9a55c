"""The attributes of spans of model calls: the model, the options of a request on any wire, and what it used."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from plait.core import Usage
from plait.models.base import Model
from plait.models.presets import HOSTS

PROVIDERS = {
    **{host.name: host.span_name for host in HOSTS.values() if host.span_name},
    "vertex": "gcp.vertex_ai",
    "azure": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "watsonx": "ibm.watsonx.ai",
}
"""The conventions' names of providers, where they differ from Plait's."""

_REQUEST_NUMBERS: dict[str, tuple[str, type[int] | type[float]]] = {
    "temperature": ("gen_ai.request.temperature", float),
    "top_p": ("gen_ai.request.top_p", float),
    "frequency_penalty": ("gen_ai.request.frequency_penalty", float),
    "presence_penalty": ("gen_ai.request.presence_penalty", float),
    "seed": ("gen_ai.request.seed", int),
    "top_k": ("gen_ai.request.top_k", int),
    "n": ("gen_ai.request.choice.count", int),
}
_LENGTHS = ("max_completion_tokens", "max_output_tokens", "max_tokens")
"""The fields of the wires that limit the tokens of a reply, with underscores (Gemini: `maxOutputTokens`)."""


def provider_name(described: Mapping[str, Any]) -> str:
    """Return the conventions' name of a model's provider."""
    name = str(described.get("provider") or "") or str(described.get("spec", "")).partition(":")[0]
    return PROVIDERS.get(name, name) or "_OTHER"


def model_attributes(model: Model) -> dict[str, Any]:
    """Return who is asked, and where."""
    # `Model.describe` may compute a file's hash, which is too slow for each call.
    provider = provider_name({"provider": getattr(model, "provider", ""), "spec": model.spec})
    attributes: dict[str, Any] = {"gen_ai.provider.name": provider, "gen_ai.request.model": model.name}
    parts = urlsplit(model.endpoint)
    if parts.hostname:
        attributes["server.address"] = parts.hostname
        attributes["server.port"] = parts.port or (80 if parts.scheme == "http" else 443)
    return attributes


def request_attributes(body: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Return the options of a request, from its body and path on any wire."""
    # Gemini has them in an object of their own, in other letters.
    config = body.get("generationConfig") or {}
    options = {**body, **{re.sub("([A-Z])", r"_\1", key).lower(): value for key, value in config.items()}}
    attributes: dict[str, Any] = {}
    for field, (name, kind) in _REQUEST_NUMBERS.items():
        value = options.get(field)
        if isinstance(value, (int, kind)) and not isinstance(value, bool) and (field, value) != ("n", 1):
            attributes[name] = kind(value)
    for field in _LENGTHS:
        if isinstance(limit := options.get(field), int):
            attributes["gen_ai.request.max_tokens"] = limit
            break
    if stop := options.get("stop") or options.get("stop_sequences"):
        attributes["gen_ai.request.stop_sequences"] = [stop] if isinstance(stop, str) else list(map(str, stop))
    if options.get("stream") is True or ":stream" in path:
        attributes["gen_ai.request.stream"] = True
    text, config = options.get("text"), options.get("output_config")
    shape = (
        options.get("response_format")
        or (text.get("format") if isinstance(text, Mapping) else None)
        or (config.get("format") if isinstance(config, Mapping) else None)
    )
    if isinstance(shape, Mapping):
        attributes["gen_ai.output.type"] = "json" if str(shape.get("type", "")).startswith("json") else "text"
    elif options.get("response_mime_type") == "application/json":
        attributes["gen_ai.output.type"] = "json"
    return attributes


def usage_attributes(usage: Usage, cost: float | None) -> dict[str, Any]:
    """Return what a call used, and its USD. Langfuse and Logfire read the cost under names of their own."""
    return {
        "gen_ai.usage.input_tokens": usage.input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cached_tokens or None,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_write_tokens or None,
        "gen_ai.usage.reasoning.output_tokens": usage.reasoning_tokens or None,
        "gen_ai.usage.cost": cost,
        "operation.cost": cost,
        "plait.cost_usd": cost,
        "plait.usage.estimated": usage.estimated or None,
    }


def sum_attributes(usage: Usage, cost: float | None) -> dict[str, Any]:
    """Return what a run used with all its calls, and its USD. The names are Plait's own, because backends add up the
    usage of all spans of a trace."""
    return {
        "plait.usage.input_tokens": usage.input_tokens,
        "plait.usage.output_tokens": usage.output_tokens,
        "plait.cost_usd": cost,
        "plait.usage.estimated": usage.estimated or None,
    }
