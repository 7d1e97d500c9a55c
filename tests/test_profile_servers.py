"""The endpoints of the profiles refuse what the providers document as refused, and the campaign reports a bad cell."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import profile_matrix
from conftest import for_each
from loop_scripts import LOOPS, QUESTION
from models_server import Asked, Server
from profile_chat_server import ChatServer
from profile_matrix import PROFILES, Profile, Tally, make_agent
from profile_servers import ClaudeServer, GeminiServer, ProfileServer, Refusal, ResponsesServer
from recorded_wires import recorded

Body = dict[str, Any]


async def second_request(name: str, folder: Path) -> tuple[Any, Asked]:
    """The endpoint of a profile, and the request of a tool-calling run that holds calls and results."""
    handler = PROFILES[name].server()
    async with Server(handler) as server:
        model = PROFILES[name].resolve(server.url)
        await make_agent(model, "tool_calling", Tally().tools(), folder / "j.db").arun(QUESTION)
    assert not handler.refused
    return handler, server.asked[1]


def without(*path: Any) -> Callable[[Body], None]:
    """Take one value out of a request."""

    def change(body: Any) -> None:
        for key in path[:-1]:
            body = body[key]
        del body[path[-1]]

    return change


def put(value: Any, *path: Any) -> Callable[[Body], None]:
    """Set one value of a request."""

    def change(body: Any) -> None:
        for key in path[:-1]:
            body = body[key]
        body[path[-1]] = value

    return change


CHANGES: list[tuple[str, Callable[[Body], None], str]] = [
    ("Claude", without("max_tokens"), "Field required"),
    ("Claude", put(0.5, "temperature"), "deprecated for this model"),
    ("Claude", put(0.9, "top_p"), "deprecated for this model"),
    ("Claude", put({"type": "enabled", "budget_tokens": 2048}, "thinking"), "not supported for this model"),
    ("Claude", without("messages", 2), "does not support assistant message prefill"),
    ("Claude", without("tools"), "must define tools"),
    ("Claude", without("messages", 2, "content", 0), "without `tool_result` blocks"),
    ("Claude", put([{"type": "text", "text": " "}], "messages", 0, "content"), "non-whitespace"),
    ("Claude, fixed thinking", without("messages", 1, "content", 0), "Expected `thinking`"),
    ("Claude, fixed thinking", put("x", "messages", 1, "content", 0, "signature"), "Invalid `signature`"),
    ("Claude, fixed thinking", put(0.5, "temperature"), "may only be set to 1"),
    ("Claude, always thinking", put({"type": "disabled"}, "thinking"), "not supported for this model"),
    ("Claude, always thinking", put({"type": "adaptive"}, "thinking"), ""),
    ("GPT-5.6", put(["x"], "stop"), "Unknown parameter"),
    ("GPT-5.6", without("input", 1), "without its required 'reasoning' item"),
    ("GPT-5.6", without("input", 1, "encrypted_content"), "not found"),
    ("GPT-5.6", without("input", -1), "No tool output found"),
    ("Gemini 3", without("contents", 1, "parts", 1, "thoughtSignature"), "missing a thought_signature"),
    ("Gemini 3", put("x", "contents", 1, "parts", 1, "thoughtSignature"), "not valid"),
    ("Gemini 3", without("contents", 2, "parts", 0), "number of function response parts"),
    ("Gemini 3", put({"stopSequences": list("abcdef")}, "generationConfig"), "at most 5"),
    ("DeepSeek V4", without("messages", 2, "reasoning_content"), "must be passed back"),
    ("DeepSeek V4", put("", "messages", 2, "reasoning_content"), ""),
    ("Kimi K2", put("", "messages", 2, "reasoning_content"), "reasoning_content is missing"),
    ("Kimi K2", put(0.6, "temperature"), "invalid temperature"),
    ("Grok", put(["x"], "stop"), "does not support parameter stop"),
    ("Mistral", put(True, "stream_options"), "Extra inputs are not permitted"),
    ("Mistral", put("call_1", "messages", 3, "tool_call_id"), "did not have response messages"),
    ("Strict schemas", without("tools", 0, "function", "parameters", "required"), "'required' is required"),
    ("Strict schemas", without("tools", 0, "function", "parameters", "additionalProperties"), "to be false"),
]


@for_each("name, change, said", CHANGES)
async def test_an_endpoint_refuses_what_its_provider_refuses(
    name: str, change: Callable[[Body], None], said: str, tmp_path: Path
) -> None:
    handler, asked = await second_request(name, tmp_path)
    body = asked.body
    change(body)
    asked.raw = json.dumps(body).encode()
    if not said:
        handler.check(asked)
        return
    with pytest.raises(Refusal, match=re.escape(said)):
        handler.check(asked)


UNKNOWABLE = re.compile(
    r"Invalid `signature`|Thought signature is not valid|not persisted when `store` is set to false"
)
"""What an endpoint of ours says of signatures and encrypted reasoning that it did not make."""


def test_an_endpoint_accepts_what_the_services_accepted() -> None:
    """Each recorded request that was answered passes the rules of the same wire."""
    accepted = 0
    folders = ("anthropic", "deepseek", "google", "groq", "mistral", "openai-chat", "openai-responses", "openrouter")
    for name, exchange in recorded(*folders):
        body, path = exchange["request"], exchange["path"].split("?")[0]
        if exchange["status"] != 200 or not isinstance(body, dict):
            continue
        model, folder = str(body.get("model", path)), name.partition("/")[0]
        if path.endswith("/messages"):
            handler: ProfileServer = ClaudeServer(model, thinks="fixed", samples=True, prefills=True)
        elif "gemini-3" in model and "enerateContent" in path:
            handler = GeminiServer(model)
        elif path.endswith("/responses") and body.get("store") is False:
            handler = ResponsesServer(model)
        elif path.endswith("/chat/completions"):
            profile = {"mistral": "Mistral", "deepseek": "DeepSeek V4"}.get(folder)
            handler, path = ChatServer(model, **(PROFILES[profile].rules if profile else {})), "/v1/chat/completions"
        else:
            continue
        asked = Asked("POST", path, {}, json.dumps(body).encode(), None)  # type: ignore[arg-type]
        try:
            handler.check(asked)
        except Refusal as why:
            # OpenRouter passes a strict schema on to providers with other rules.
            is_gateways = folder == "openrouter" and "Invalid schema" in str(why)
            assert UNKNOWABLE.search(str(why)) or is_gateways, (name, str(why))
        accepted += 1
    assert accepted >= 130


async def test_claudes_thinking_belongs_to_the_conversation_before_it(tmp_path: Path) -> None:
    """Only the setting that Plait sends, with its header, makes the endpoint accept a changed conversation."""
    handler, asked = await second_request("Claude, always thinking", tmp_path)
    body = asked.body
    body["system"][0]["text"] += " Be brief."
    asked.raw = json.dumps(body).encode()
    handler.check(asked)
    asked.raw = json.dumps({**body, "thinking": {"type": "adaptive"}}).encode()
    with pytest.raises(Refusal, match="bound to a different conversation"):
        handler.check(asked)
    asked.raw = json.dumps(body).encode()
    del asked.headers["anthropic-beta"]
    with pytest.raises(Refusal, match="Extra inputs are not permitted"):
        handler.check(asked)


def test_the_campaign_draws_the_matrix_and_fails_for_a_cell_that_is_not_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(Path(__file__).with_name("campaign"))
    refuses = Profile("groq:m", PROFILES["Grok"].make_server, {"refused_fields": ("messages",)})
    monkeypatch.setattr(profile_matrix, "PROFILES", {"Unknown": refuses})
    monkeypatch.setattr(profile_matrix, "LOOPS", ("react", "tool_calling"))
    providers = importlib.import_module("providers")
    monkeypatch.setattr(providers, "LOOPS", ("react", "tool_calling"))
    found = providers.run(1, 0, tmp_path)
    assert found.line == (
        "         react     tool_calling\nUnknown  !1-1 1-1  !1-1 1-1\nruns 4 requests 4 failed cells 2"
    )
    assert "Unknown, react: run 2 was refused: Model m does not support parameter messages." in found.failures
    assert any(each.startswith("Unknown, tool_calling: run 1: crashed") for each in found.failures)
    assert len(LOOPS) == 7 and len(PROFILES) == 12
