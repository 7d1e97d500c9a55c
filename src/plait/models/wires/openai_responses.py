"""The encoding of a think effect as a request to OpenAI's Responses endpoint. Pure.

Requests are stateless: the service stores nothing, and each request holds the whole conversation. The facts about the
format come from OpenAI's API reference ("Create a model response") and its guides "Reasoning models" and "Migrate to
the Responses API", as of November 2026:

- A reasoning model needs its reasoning items back, in their place before the calls that they led to. Without stored
  responses, it returns their content encrypted if `include` requests it. Other models refuse this value of `include`.
- There are no stop strings. `max_output_tokens` has the minimum 16.
- Functions are strict unless `strict` is false, and then their schemas have to be in OpenAI's strict subset.
- Messages and results of functions hold images and files (guides "Images and vision", "File inputs", "Function
  calling").

Keys have a fixed order (model, instructions, input, then the rest). So the same effect gives the same bytes, and a
longer conversation shares its beginning with a shorter one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from plait.core import Attachment, Call, Message, Think, ToolSpec
from plait.models.base import Request
from plait.models.presets import is_reasoner
from plait.models.settings import TOOL_CHOICES, ModelSettings, require_known_values, require_none_left
from plait.models.wires import chat_completions as chat
from plait.models.wires.contents import refer_to, show_parts
from plait.models.wires.responses_replies import ResponsesReader
from plait.models.wires.turns import arguments, split_system, state_for
from plait.models.wires.wire import WireOptions

NAME = "responses"
make_reader, make_headers = ResponsesReader, chat.make_headers
PATH = "responses"
ENCRYPTED = "reasoning.encrypted_content"
_RESULTS = {
    "web_search": "web_search_call.action.sources",
    "code_interpreter": "code_interpreter_call.outputs",
    "file_search": "file_search_call.results",
}
"""What the service returns of hosted calls only if `include` requests it."""
LEAST_TOKENS = 16
"""The smallest `max_output_tokens` that the service accepts."""

_LENGTHS = ("max_output_tokens", "max_completion_tokens", "max_tokens")
_MOVED = {"reasoning_effort": ("reasoning", "effort"), "verbosity": ("text", "verbosity")}
"""Parameters of chat completions that have another place here."""

_SETTINGS = {
    **{name: name for name in ("temperature", "top_p", "verbosity", "service_tier", "tool_choice", "max_tokens")},
    "effort": "reasoning_effort",
    "parallel_calls": "parallel_tool_calls",
}
"""The parameters of a user's settings."""

_encode = msgspec.json.Encoder().encode


def encode(think: Think, options: WireOptions) -> Request:
    """Return the request for an effect. `params` are added last; their tables are merged with the request's."""
    abilities = options.abilities
    rules, messages = split_system(think, abilities, prefill=False, call_id=("[ -~]{1,64}", 64))
    body: dict[str, Any] = {"model": options.model}
    if rules:
        body["instructions"] = "\n\n".join(rules)
    body["input"] = [item for message in messages for item in _items(message, options)]
    body["store"] = False
    hosted = options.declare_hosted(NAME) if options.hosted else []
    include = [ENCRYPTED] if is_reasoner(options.model) else []
    include += [_RESULTS[each["type"]] for each in hosted if each["type"] in _RESULTS]
    if include:
        body["include"] = include
    if (warmth := chat.choose_temperature(think, options)) is not None:
        body["temperature"] = warmth
    if think.max_tokens is not None:
        body["max_output_tokens"] = max(think.max_tokens, LEAST_TOKENS)
    if think.schema is not None and abilities.schema and (form := chat.reply_form(think.schema)):
        body["text"] = {"format": {"type": "json_schema", "name": "reply", **form}}
    tools = [_tool(tool, abilities.strict) for tool in think.tools] if abilities.tools else []
    if tools or hosted:
        body["tools"] = [*tools, *hosted]
    if abilities.stream:
        body["stream"] = True
    _add_params(body, options.params)
    return Request(PATH, _encode(body))


def name_settings(settings: ModelSettings, provider: str) -> dict[str, Any]:
    """Return a user's settings as `params`. There are no stop strings, no seed and no budget for thinking."""
    if provider == "openai":
        require_known_values(settings, chat.KNOWN_VALUES, provider)
    given = settings.set_values
    if (choice := given.pop("tool_choice", None)) is not None:
        given["tool_choice"] = choice if choice in TOOL_CHOICES else {"type": "function", "name": choice}
    params = {new: given.pop(old) for old, new in _SETTINGS.items() if old in given}
    require_none_left(given, NAME)
    return params


def continues_prefill(think: Think, options: WireOptions) -> bool:
    """Return False, because no endpoint of this wire continues a message."""
    return False


def _add_params(body: dict[str, Any], params: Mapping[str, Any]) -> None:
    for key, value in params.items():
        if key in _LENGTHS:
            room = body.pop("max_output_tokens", None)
            if isinstance(value, int):
                # never beyond the run's limit
                body["max_output_tokens"] = value if room is None else min(value, room)
            continue
        table, inner = _MOVED.get(key, (key, ""))
        if inner and value is not None:
            value = {inner: value}
        if isinstance(value, Mapping) and isinstance(body.get(table), dict):
            body[table] = {**body[table], **value}
        elif value is not None:
            body[table] = value
        elif not inner:
            body.pop(table, None)


def _items(message: Message, options: WireOptions) -> list[Any]:
    if message.role == "tool":
        return [{"type": "function_call_output", "call_id": message.call_id, "output": _content(message)}]
    kept = _kept_items(message, state_for(message, NAME, options.model))
    if kept:
        return kept
    said = [{"role": message.role, "content": _content(message)}] if message.content or not message.calls else []
    return [*said, *(_call(call) for call in message.calls)]


def _content(message: Message) -> str | list[Any]:
    if not message.attachments:
        return message.content
    return [_text(message.content), *show_parts(message.attachments, _text, _file)]


def _text(text: str) -> dict[str, Any]:
    return {"type": "input_text", "text": text}


def _file(attachment: Attachment) -> dict[str, Any]:
    data = refer_to(attachment, data_url=True)
    if attachment.kind == "image":
        return {"type": "input_image", "detail": "auto", "image_url": data}
    return {"type": "input_file", "filename": attachment.name or "file.pdf", "file_data": data}


def _kept_items(message: Message, state: Any) -> list[Any]:
    """Return the service's own items of a turn; nothing if they do not have the turn's calls. Without its encrypted
    content, a reasoning item exists only at the service, which stores none here. The service refuses a request with the
    id of such an item, and one with the id of an item that followed it."""
    items = [item for item in state if isinstance(item, dict)] if isinstance(state, list) else []
    if sum(item.get("type") == "function_call" for item in items) != len(message.calls):
        return []
    ids = iter([call.id for call in message.calls])
    out: list[Any] = []
    lost = False
    for item in items:
        if item.get("type") == "reasoning" and not (item.get("encrypted_content") or item.get("content")):
            lost = True
            continue
        out.append({**item, "call_id": next(ids)} if item.get("type") == "function_call" else item)
    return [{key: value for key, value in item.items() if key != "id"} for item in out] if lost else out


def _call(call: Call) -> dict[str, Any]:
    return {"type": "function_call", "call_id": call.id, "name": call.tool, "arguments": arguments(call)}


def _tool(tool: ToolSpec, strict: bool) -> dict[str, Any]:
    """Return a tool in this wire's shape, where `strict` has to be given: its default is true."""
    function = chat.tool_json(tool, strict=strict)["function"]
    return {"type": "function", **function, "strict": function.get("strict", False)}
