"""What is said of a model and a request, as attributes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from plait.models.base import Model
from plait.telemetry import names


def provider_of(described: Mapping[str, Any]) -> str:
    """The provider of a model from what `Model.describe` says, by the conventions' name where they have one."""
    said = str(described.get("provider") or "") or str(described.get("spec", "")).partition(":")[0]
    return names.PROVIDERS.get(said, said) or "_OTHER"


def of_model(model: Model) -> dict[str, Any]:
    """Provider, model, and the server where there is one."""
    # Not `describe`, which a file's hash may be part of: this is done for each call.
    said = {"provider": getattr(model, "provider", ""), "spec": model.spec}
    known: dict[str, Any] = {names.PROVIDER: provider_of(said), names.REQUEST_MODEL: model.name}
    parts = urlsplit(model.endpoint)
    if parts.hostname:
        known[names.SERVER_ADDRESS] = parts.hostname
        known[names.SERVER_PORT] = parts.port or (80 if parts.scheme == "http" else 443)
    return known


def of_request(body: Mapping[str, Any]) -> dict[str, Any]:
    """What a request's body asks for, as it went out."""
    known: dict[str, Any] = {}
    for key, name in names.REQUEST.items():
        if isinstance(value := body.get(key), (int, float)) and not isinstance(value, bool):
            known[name] = float(value)
    for key, name in names.REQUEST_WHOLE.items():
        if isinstance(value := body.get(key), int) and not isinstance(value, bool) and (key != "n" or value != 1):
            known[name] = value
    most = body.get("max_completion_tokens", body.get("max_tokens"))
    if isinstance(most, int):
        known[names.REQUEST_MAX_TOKENS] = most
    stop = body.get("stop")
    if stop:
        known[names.REQUEST_STOP] = [stop] if isinstance(stop, str) else [str(each) for each in stop]
    if body.get("stream") is True:
        known[names.REQUEST_STREAM] = True
    shape = body.get("response_format")
    if isinstance(shape, Mapping):
        known[names.OUTPUT_TYPE] = "json" if str(shape.get("type", "")).startswith("json") else "text"
    return known
