"""Hosted tools: what a provider runs by itself, as declarations of each wire, and their prices per call. Pure.

Sources, as of November 2026: OpenAI's guides "Web search", "File search", "Code interpreter", "Image generation" and
"Remote MCP"; Anthropic's pages "Server tools", "Web search tool", "Web fetch tool", "Code execution tool" and "MCP
connector"; Google's pages "Grounding with Google Search", "URL context", "Code execution", "File Search" and "Combine
built-in tools and function calling"; OpenRouter's "Server tools"; Groq's "Built-in tools".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from plait.core.hosted import HostedTool
from plait.models.base import Model
from plait.models.fallback import join_models, members_of

STAND_INS = {"web_search": "websearch", "web_fetch": "fetch", "code_execution": "run-python"}
"""The words of the local tools that do the same job."""
PER_1000: Mapping[str, Mapping[str, float]] = {
    "openai": {"web_search": 10.0, "file_search": 2.5, "code_execution": 30.0, "mcp": 0.0},
    "anthropic": {"web_search": 10.0, "web_fetch": 0.0, "code_execution": 0.0, "mcp": 0.0},
    "gemini": {"web_search": 14.0, "web_fetch": 0.0, "code_execution": 0.0, "file_search": 0.0},
    "xai": {"web_search": 5.0, "code_execution": 5.0, "mcp": 0.0},
}
"""USD per 1,000 calls where `genai-prices` has none for a model (the providers' pages "Pricing", November 2026); 0 for
tools that cost only their tokens. OpenAI bills code by container: a call costs at most this. Anthropic bills code by
the hour, beyond a free amount."""
_SEARCH_MODELS = re.compile(r"(?:.*-)?search-(?:preview|api)")
"""OpenAI's models that search in chat completions."""
_GEMINI_BEFORE_3 = re.compile(r"(?:.*/)?gemini-[12]")


def declare(tool: HostedTool, wire: str, provider: str, model: str) -> dict[str, Any] | None:
    """Return a tool's declaration in a request; None if the provider has none for this model."""
    values = list(tool.values)
    match wire, tool.name:
        case "anthropic", "web_search" | "web_fetch":
            version = {"web_search": "20250305", "web_fetch": "20250910"}[tool.name]
            domains = {"allowed_domains": values} if values else {}
            return {"type": f"{tool.name}_{version}", "name": tool.name, **domains}
        case "anthropic", "code_execution":
            return {"type": "code_execution_20250825", "name": "code_execution"}
        case "anthropic", "mcp":
            return {"type": "mcp_toolset", "mcp_server_name": server_name(values[0])}
        case "responses", _ if provider not in ("openai", "xai"):
            return None
        case "responses", "web_search":
            return {"type": "web_search", **({"filters": {"allowed_domains": values}} if values else {})}
        case "responses", "code_execution":
            container = {"container": {"type": "auto"}} if provider == "openai" else {}
            return {"type": "code_interpreter", **container}
        case "responses", "file_search":
            return {"type": "file_search", "vector_store_ids": values}
        case "responses", "image_generation" if provider == "openai":
            return {"type": "image_generation"}
        case "responses", "mcp":
            label = server_name(values[0])
            return {"type": "mcp", "server_label": label, "server_url": values[0], "require_approval": "never"}
        case "gemini", "web_search" if not values:
            return {"googleSearch": {}}
        case "gemini", "web_fetch" if not values:
            return {"urlContext": {}}
        case "gemini", "code_execution":
            return {"codeExecution": {}}
        case "gemini", "file_search":
            return {"fileSearch": {"fileSearchStoreNames": values}}
        case "chat", "web_search" if provider == "openai" and _SEARCH_MODELS.match(model) and not values:
            return {"web_search_options": {}}  # a field of the body
        case "chat", "web_search" if provider == "openrouter":
            more = {"parameters": {"allowed_domains": values}} if values else {}
            return {"type": "openrouter:web_search", **more}
        case "chat", "web_search" | "code_execution" if provider == "groq" and "gpt-oss" in model and not values:
            return {"type": {"web_search": "browser_search", "code_execution": "code_interpreter"}[tool.name]}
    return None


def server_name(address: str) -> str:
    """Return the name that a request gives to an MCP server: its host, in letters, digits and underscores."""
    return re.sub(r"\W+", "_", urlsplit(address).hostname or "server")


def add_hosted(model: Model, tools: tuple[HostedTool, ...]) -> Model:
    """Return a model, or fallback models, with the hosted tools that its provider has."""
    members = (each.with_hosted(tools) if hasattr(each, "with_hosted") else each for each in members_of(model))
    return join_models(tuple(members))


def why_not_with_functions(model: Model) -> str:
    """Return why a model takes no hosted tools beside functions; "" if it does."""
    if getattr(model, "wire", "") == "gemini" and _GEMINI_BEFORE_3.match(model.name):
        return "before Gemini 3, a request has functions or hosted tools, not both. The loop react has both"
    return ""


@lru_cache(maxsize=256)
def prices_per_call(provider: str, model: str) -> dict[str, float]:
    """Return USD per call of each hosted tool with a known price: from `genai-prices`, else from `PER_1000`."""
    from plait.models.prices import bundled_call_prices

    found = {name: price / 1000 for name, price in PER_1000.get(provider, {}).items()}
    return {**found, **bundled_call_prices(provider, model)}
