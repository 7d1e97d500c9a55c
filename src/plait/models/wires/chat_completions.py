"""The encoding of a think effect as the exact body of a request: OpenAI's chat completions and known dialects. Pure.

Keys have a fixed order (model, messages or prompt, then the rest). So the same effect gives the same bytes, and a
longer conversation shares its beginning with a shorter one.

Attachments are content parts (OpenAI's guides "Images and vision" and "File inputs", November 2026).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from plait.core import Attachment, Message, Think, ToolSpec
from plait.core.hosted import HostedTool
from plait.models.base import Request
from plait.models.settings import TOOL_CHOICES, ModelSettings, require_known_values, require_none_left
from plait.models.wires.chat_replies import ChatReader
from plait.models.wires.chat_state import add_state, close_results
from plait.models.wires.contents import refer_to, show_parts, with_files_behind_results
from plait.models.wires.strict_schema import OPENAI, fit_schema
from plait.models.wires.turns import GO_ON, arguments, chat_call, prepare, show_tool, text_part
from plait.models.wires.wire import CHAT, WireOptions

NAME = CHAT
make_reader = ChatReader
CHAT_PATH, COMPLETIONS = "chat/completions", "completions"

RESAMPLED = 0.7
"""Lowest temperature of a request after a repetition, if a temperature is sent at all."""

_encode = msgspec.json.Encoder().encode
_SAME_NAME = ("temperature", "top_p", "max_tokens", "seed", "stop", "verbosity", "service_tier")
_REASONING = {"effort": "effort", "thinking_tokens": "max_tokens"}
KNOWN_VALUES = {
    "effort": ("none", "minimal", "low", "medium", "high", "xhigh", "max"),
    "service_tier": ("auto", "default", "flex", "scale", "priority"),
}
"""OpenAI's values of settings (API reference, "Create chat completion", November 2026)."""
_LENGTHS = ("max_tokens", "max_completion_tokens")


def encode(think: Think, options: WireOptions) -> Request:
    """Return the request for an effect. `params` are added last."""
    abilities, dialect = options.abilities, options.dialect
    raw = bool(think.prompt) and abilities.completion
    body: dict[str, Any] = {"model": options.model}
    if raw:
        body["prompt"] = think.prompt + think.prefill
    else:
        messages = (Message("user", think.prompt),) if think.prompt else think.messages
        body["messages"] = _messages(messages, think.prefill, options)
    if think.stop and abilities.stop:
        # Endpoints refuse more. Plait cuts each reply at all stop strings itself (`TextFilter`).
        body["stop"] = list(filter(None, think.stop))[: dialect.max_stop]
    if (warmth := choose_temperature(think, options)) is not None:
        body["temperature"] = warmth
    if think.max_tokens is not None:
        body["max_tokens" if abilities.max_tokens else "max_completion_tokens"] = think.max_tokens
    if think.schema is not None and abilities.schema:
        if raw and dialect.raw_schema == "json_schema":
            body["json_schema"] = think.schema
        elif form := reply_form(think.schema) if dialect.strict_subset else {"schema": think.schema, "strict": True}:
            body["response_format"] = {"type": "json_schema", "json_schema": {"name": "reply", **form}}
    elif think.grammar is not None and abilities.grammar:
        if dialect.grammar == "structured_outputs":
            body["structured_outputs"] = {"grammar": think.grammar}
        elif dialect.grammar == "response_format":
            body["response_format"] = {"type": "grammar", "grammar": think.grammar}
        else:
            body["grammar"] = think.grammar
    tools: list[dict[str, Any]] = []
    if think.tools and abilities.tools and not raw:
        tools += [tool_json(tool, strict=abilities.strict) for tool in think.tools]
    for each in options.declare_hosted(NAME) if options.hosted and not raw else ():
        if "type" in each:
            tools.append(each)
        else:
            body |= each  # OpenAI has the search as a field of the body
    if tools:
        body["tools"] = tools
    if abilities.stream:
        body["stream"] = True
        if abilities.stream_usage:
            body["stream_options"] = {"include_usage": True}
    if think.prefill and abilities.prefill and not raw and dialect.prefill == "fields":
        body["add_generation_prompt"] = False
        body["continue_final_message"] = True
    for key, value in options.params.items():
        if key == "max_tokens" and not abilities.max_tokens:
            key = "max_completion_tokens"
        if value is None:
            body.pop(key, None)
        elif key in _LENGTHS and think.max_tokens is not None and isinstance(value, int):
            for other in _LENGTHS:
                body.pop(other, None)
            body[key] = min(value, think.max_tokens)  # never beyond the run's limit
        else:
            body[key] = value
    return Request(COMPLETIONS if raw else CHAT_PATH, _encode(body))


def make_headers(key: str, model: str, hosted: Iterable[HostedTool] = ()) -> Mapping[str, str]:
    """Return the header of the key."""
    return {"Authorization": f"Bearer {key}"} if key else {}


def name_settings(settings: ModelSettings, provider: str) -> dict[str, Any]:
    """Return a user's settings as `params`. OpenRouter has one table for effort and thinking tokens."""
    if provider == "openai":
        require_known_values(settings, KNOWN_VALUES, provider)
    given = settings.set_values
    params = {name: given.pop(name) for name in _SAME_NAME if name in given}
    reasoning = {new: given.pop(old) for old, new in _REASONING.items() if old in given and provider == "openrouter"}
    if reasoning:
        params["reasoning"] = reasoning
    if "effort" in given:
        params["reasoning_effort"] = given.pop("effort")
    if "parallel_calls" in given:
        params["parallel_tool_calls"] = given.pop("parallel_calls")
    if (choice := given.pop("tool_choice", None)) is not None:
        named = {"type": "function", "function": {"name": choice}}
        params["tool_choice"] = choice if choice in TOOL_CHOICES else named
    require_none_left(given, NAME)
    return params


def continues_prefill(think: Think, options: WireOptions) -> bool:
    """Return whether the endpoint continues the prefill."""
    raw = bool(think.prompt) and options.abilities.completion
    return raw or (options.abilities.prefill and not options.dialect.repeats_prefill)


def choose_temperature(think: Think, options: WireOptions) -> float | None:
    """Return the temperature to send; None for none. After a repetition it is at least `RESAMPLED`."""
    warmth = options.temperature if think.temperature is None else think.temperature
    if warmth is None or not options.abilities.temperature:
        return None
    return max(warmth, RESAMPLED) if think.resample else warmth


def _messages(messages: tuple[Message, ...], prefill: str, options: WireOptions) -> list[Any]:
    abilities, dialect = options.abilities, options.dialect
    out: list[Any] = []
    prepared = with_files_behind_results(prepare(messages, abilities, dialect.call_id))
    for message in close_results(prepared) if dialect.closes_results else prepared:
        if message.attachments:
            parts = [text_part(message.content), *show_parts(message.attachments, text_part, _file)]
            out.append({"role": message.role, "content": parts})
            continue
        if message.state is None and not message.calls and message.role != "tool":
            out.append(message)  # a plain Message encodes to exactly {"role", "content"}
            continue
        said: dict[str, Any] = {"role": message.role, "content": message.content}
        if message.role == "tool":
            said = {"role": "tool", "tool_call_id": message.call_id, "content": message.content}
        elif message.calls:
            said["content"] = message.content or None
            said["tool_calls"] = [chat_call(call.id, call.tool, arguments(call)) for call in message.calls]
        out.append(add_state(said, message, options))
    if not prefill:
        return out
    if not abilities.prefill:
        return [*out, Message("assistant", prefill), Message("user", GO_ON)]
    if dialect.prefill == "prefix":
        return [*out, {"role": "assistant", "content": prefill, "prefix": True}]
    # The reply filter drops blanks that a reply repeats.
    return [*out, Message("assistant", prefill.rstrip() if dialect.prefill == "stripped" else prefill)]


def _file(attachment: Attachment) -> dict[str, Any]:
    data = refer_to(attachment, data_url=True)
    if attachment.kind == "image":
        return {"type": "image_url", "image_url": {"url": data}}
    return {"type": "file", "file": {"filename": attachment.name or "file.pdf", "file_data": data}}


def reply_form(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a reply, with `strict` if it is in OpenAI's strict subset without additional nulls. Returns
    {} if the reply is not an object, because OpenAI accepts no other schema."""
    if schema.get("type") != "object":
        return {}
    fitted = fit_schema(schema, OPENAI, nulls=False)
    return {"schema": schema, "strict": False} if fitted is None else {"schema": fitted, "strict": True}


def tool_json(tool: ToolSpec, *, strict: bool = False) -> dict[str, Any]:
    """Return a tool in OpenAI's shape. `strict`: its calls must fit its schema, if OpenAI's subset can express it."""
    function = show_tool(tool, "parameters")
    if strict and (fitted := fit_schema(function["parameters"], OPENAI)) is not None:
        function |= {"parameters": fitted, "strict": True}
    return {"type": "function", "function": function}
