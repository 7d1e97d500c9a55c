"""What an endpoint says that a reply took, in the words of each. Pure."""

from __future__ import annotations

from typing import Any

from plait.core import Usage


def usage_of(usage: dict[str, Any], timings: dict[str, Any] | None = None) -> Usage | None:
    """Usage as the endpoint reports it, cached tokens being part of the input; None where it reports none."""
    written = _int(usage.get("completion_tokens", usage.get("output_tokens")))
    cached = 0
    for details in ("prompt_tokens_details", "input_tokens_details"):
        if isinstance(usage.get(details), dict):
            cached = cached or _int(usage[details].get("cached_tokens"))
    cached = (
        cached
        or _int(usage.get("prompt_cache_hit_tokens"))
        or _int(usage.get("cache_read_input_tokens"))
        or _int((timings or {}).get("cache_n"))
    )
    if "prompt_tokens" in usage:
        read = _int(usage["prompt_tokens"])
    elif "input_tokens" in usage:
        read = _int(usage["input_tokens"])
        if "cache_read_input_tokens" in usage:  # Anthropic's own count leaves out what was cached
            read += cached + _int(usage.get("cache_creation_input_tokens"))
    else:
        return None
    # Reasoning that is billed as output stands in the total alone with some (xAI, Gemini).
    written = max(written, _int(usage.get("total_tokens")) - read)
    return Usage(read, written, min(cached, read)) if read or written else None


def _int(value: Any) -> int:
    return int(value) if isinstance(value, int | float) and value > 0 else 0
