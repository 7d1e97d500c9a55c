"""The parts of an error that an endpoint sends: its object, its sentence, the fields that it names, the wait."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from html import unescape
from typing import Any

import msgspec

from plait.models.wires.odd_json import mend, read_values


def error_of(body: bytes) -> dict[str, Any]:
    """Return the error object of a body in any of the usual shapes; {} for none."""
    values, rest = read_values(body)
    value = mend(values[0])[0] if len(values) == 1 and not rest else None
    if isinstance(value, list) and value:  # Gemini wraps it in a list
        value = value[0]
    if not isinstance(value, dict):
        return {}
    for key in ("error", "detail", "errors"):
        inner = value.get(key)
        if isinstance(inner, list) and inner and isinstance(inner[0], dict):
            return {"message": _join_details(inner), "detail": inner, **inner[0]}
        if isinstance(inner, dict):
            return inner
        if isinstance(inner, str):
            return {**value, "message": inner}
    message = value.get("message")
    if isinstance(message, dict) and isinstance(details := message.get("detail"), list):  # Mistral
        return {**value, "message": _join_details(details), "detail": details}
    return value


def read_sentence(error: Mapping[str, Any], body: bytes) -> str:
    """Return what the error says, in one line of at most 600 characters."""
    message = error.get("message")
    if isinstance(message, dict | list):
        message = msgspec.json.encode(message).decode()
    # OpenRouter passes on the upstream's own words in a field beside its own.
    meta = error.get("metadata")
    if isinstance(meta, dict) and isinstance(meta.get("raw"), str):
        message = f"{message} {meta['raw']}"
    message = str(message or "")
    more = (f"{field}: {said}" for field, said in _violations(error) if said and field not in message)
    message = " ".join((message, *more)).strip()
    text = message or body[:20_000].decode("utf-8", "replace")
    if text.lstrip().startswith("<") and (title := re.search(r"<title\b[^<>]*>([^<]*)", text, re.I)):
        text = unescape(title[1])  # a gateway's page
    return " ".join(text.split())[:600]


def named_paths(error: Mapping[str, Any]) -> Iterator[str]:
    """Yield the paths of request fields that the error names beside its sentence, such as "text.verbosity"."""
    if isinstance(param := error.get("param"), str) and param:  # OpenAI
        yield param
    details = error.get("detail")
    for each in details if isinstance(details, list) else ():  # FastAPI: "loc": ["body", "stop"]
        if isinstance(each, dict) and isinstance(loc := each.get("loc"), list):
            yield ".".join(map(str, loc))
    yield from (field for field, _ in _violations(error))


def _violations(error: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the fields that Google names ("fieldViolations": [{"field": "...", "description": "..."}]), and why."""
    details = error.get("details")
    for each in details if isinstance(details, list) else ():
        violations = each.get("fieldViolations") if isinstance(each, dict) else None
        for violation in violations if isinstance(violations, list) else ():
            if isinstance(violation, dict) and isinstance(field := violation.get("field"), str) and field:
                yield field, str(violation.get("description") or "")


def read_retry_after(headers: Mapping[str, str]) -> float | None:
    """Return how many seconds the headers ask to wait: given as seconds, as milliseconds, or as an HTTP date."""
    try:
        if "retry-after-ms" in headers:
            return max(0.0, float(headers["retry-after-ms"]) / 1000)
        text = headers.get("Retry-After", "").strip()
        if not text:
            return None
        if re.fullmatch(r"\d+(\.\d+)?", text):
            return float(text)
        from email.utils import parsedate_to_datetime

        until, now = parsedate_to_datetime(text).timestamp(), time.time()
        with suppress(ValueError):  # by the server's own clock, if it says what that shows
            now = parsedate_to_datetime(headers.get("Date", "")).timestamp()
        return max(0.0, until - now)
    except ValueError:
        return None


def read_retry_delay(error: Mapping[str, Any]) -> float | None:
    """Return how many seconds Google's `RetryInfo` asks to wait; None if it is absent."""
    details = error.get("details")
    for each in details if isinstance(details, list) else ():
        delay = each.get("retryDelay") if isinstance(each, dict) else None
        if isinstance(delay, str) and re.fullmatch(r"\d+(\.\d+)?s", delay):
            return float(delay[:-1])
    return None


def _join_details(found: list[Any]) -> str:
    # FastAPI's shape: [{"loc": ["body", "stop"], "msg": "Extra inputs are not permitted"}]
    return "; ".join(
        f"{'.'.join(map(str, item.get('loc') or ()))}: {item.get('msg', '')}"
        for item in found
        if isinstance(item, dict)
    )
