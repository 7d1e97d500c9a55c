"""Gemini's own API (`generateContent`): a think effect as the exact body of a request. Pure.

Sources: Google's documentation for the Gemini API, pages "Generating content", "Function calling", "Structured
outputs", "Thinking" and "Thought signatures" (2025), "Image understanding" and "Document understanding" (2026), and
recordings of 2025 and 2026. `gemini_replies.py` reads the responses.

- A turn with thought signatures goes back part by part, as it came. Only the ids of its calls are those of the run.
- Gemini 3 and later refuse a call of theirs without a signature. A call of another model gets the placeholder that
  Google documents for this.
- The result of a call that failed stands under the key `error` (reference, `FunctionResponse`, November 2026).
- `params` with the name of a generation setting (`temperature`, `top_p`, `seed` ...) go into `generationConfig`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from plait.core import Attachment, Call, Message, Think
from plait.core.hosted import HostedTool
from plait.models.base import Request
from plait.models.settings import ModelSettings, require_known_values, require_none_left
from plait.models.wires.chat_completions import choose_temperature
from plait.models.wires.contents import refer_to, show_parts, with_files_behind_results
from plait.models.wires.gemini_replies import ContentReader
from plait.models.wires.turns import add_parts, input_object, show_tool, split_system, state_for
from plait.models.wires.wire import WireOptions

NAME = "gemini"
make_reader = ContentReader
MAX_STOP = 5
"""Gemini refuses more stop strings. Plait cuts each reply at all of them itself (`TextFilter`)."""
NO_SIGNATURE = "Y29udGV4dF9lbmdpbmVlcmluZ19pc190aGVfd2F5X3RvX2dv"
"""The documented placeholder for the signature of a call that another model made, in base64."""

_OWN_NAMES = """
temperature topP topK seed maxOutputTokens presencePenalty frequencyPenalty stopSequences candidateCount
responseMimeType responseJsonSchema responseSchema responseModalities thinkingConfig mediaResolution responseLogprobs
logprobs
"""
_SETTINGS = {
    "max_tokens": "maxOutputTokens",
    "max_completion_tokens": "maxOutputTokens",
    "top_p": "topP",
    "top_k": "topK",
    "presence_penalty": "presencePenalty",
    "frequency_penalty": "frequencyPenalty",
    **{name: name for name in _OWN_NAMES.split()},
}
"""Fields of `generationConfig`, by the names that users may give them."""
_USER_SETTINGS = {
    "temperature": "temperature",
    "top_p": "topP",
    "max_tokens": "maxOutputTokens",
    "seed": "seed",
    "stop": "stopSequences",
}
_THINKING = {"effort": "thinkingLevel", "thinking_tokens": "thinkingBudget"}
_KNOWN_VALUES = {"effort": ("minimal", "low", "medium", "high")}
"""The values of `thinkingLevel` (page "Thinking", November 2026)."""
_BEFORE_3 = re.compile(r"(?:.*/)?+(?:gemini-[12]|gemma|learnlm)")
"""Models that expect no signatures, and accept only text in the result of a function. Gemini 3 also accepts images and
PDF files (Google's page "Function calling", section "Multimodal function responses", 2026)."""
_NO_SYSTEM = re.compile(r"gemma-[123]")
"""Models that refuse a system instruction."""
_SCHEMA_OR_TOOLS = re.compile(r"gemini-[12]")
"""Models that refuse a schema of the reply together with tools."""
_encode = msgspec.json.Encoder().encode


def encode(think: Think, options: WireOptions) -> Request:
    """Return the request for an effect. `params` are added last."""
    abilities, family = options.abilities, options.model.rsplit("/", 1)[-1]
    prefill = think.prefill if abilities.prefill else ""
    system, messages = split_system(think, abilities, prefill=bool(prefill))
    parts = [{"text": text} for text in system if text.strip()]
    contents = _contents(messages, options)
    if prefill:
        add_parts(contents, "model", "parts", [{"text": prefill}])
    body: dict[str, Any] = {}
    if parts and contents and not _NO_SYSTEM.match(family):
        body["systemInstruction"] = {"parts": parts}
    elif parts:
        contents = [{"role": "user", "parts": parts}, *contents]
    body["contents"] = contents or [{"role": "user", "parts": [{"text": ""}]}]
    functions = [show_tool(tool, "parametersJsonSchema") for tool in think.tools] if abilities.tools else []
    hosted = options.declare_hosted(NAME) if options.hosted else []
    if functions or hosted:
        body["tools"] = [*([{"functionDeclarations": functions}] if functions else []), *hosted]
    if functions and hosted:
        body["toolConfig"] = {"includeServerSideToolInvocations": True}
    config: dict[str, Any] = {}
    stop = [each for each in think.stop if each][:MAX_STOP]
    if stop and abilities.stop:
        config["stopSequences"] = stop
    if (warmth := choose_temperature(think, options)) is not None:
        config["temperature"] = warmth
    if think.max_tokens is not None:
        config["maxOutputTokens"] = think.max_tokens
    if think.schema is not None and abilities.schema and not ("tools" in body and _SCHEMA_OR_TOOLS.match(family)):
        config["responseMimeType"] = "application/json"
        config["responseJsonSchema"] = _without_const(think.schema)
    _add_params(body, config, think, options)
    name = options.model if "/" in options.model else f"models/{options.model}"
    action = "streamGenerateContent?alt=sse" if abilities.stream else "generateContent"
    return Request(f"{name}:{action}", _encode(body))


def make_headers(key: str, model: str, hosted: Iterable[HostedTool] = ()) -> Mapping[str, str]:
    """Return the header of the key."""
    return {"x-goog-api-key": key} if key else {}


def name_settings(settings: ModelSettings, provider: str) -> dict[str, Any]:
    """Return a user's settings as `params`. There is no verbosity, no service tier and no switch for parallel calls."""
    if provider == NAME:
        require_known_values(settings, _KNOWN_VALUES, provider)
    given = settings.set_values
    params = {new: given.pop(old) for old, new in _USER_SETTINGS.items() if old in given}
    thinking = {new: given.pop(old) for old, new in _THINKING.items() if old in given}
    if thinking:
        params["thinkingConfig"] = {"includeThoughts": True, **thinking}
    if (choice := given.pop("tool_choice", None)) is not None:
        mode = {"auto": "AUTO", "none": "NONE", "required": "ANY"}.get(choice)
        named: dict[str, Any] = {"mode": mode} if mode else {"mode": "ANY", "allowedFunctionNames": [choice]}
        params["toolConfig"] = {"functionCallingConfig": named}
    require_none_left(given, NAME)
    return params


def continues_prefill(think: Think, options: WireOptions) -> bool:
    """Return whether the endpoint continues the prefill."""
    return options.abilities.prefill


def _contents(messages: list[Message], options: WireOptions) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    names: dict[str, str] = {}  # the tool of each call id
    results = False  # whether the last content holds results, which stand alone
    nested = not _BEFORE_3.match(options.model)
    for message in messages if nested else with_files_behind_results(messages):
        if message.role == "tool":
            response: dict[str, Any] = {
                "id": message.call_id,
                "name": names.get(message.call_id, "unknown"),
                "response": {"error" if message.failed else "result": message.content},
            }
            if message.attachments:
                response["parts"] = [_file(each) for each in message.attachments]
            add_parts(out, "user", "parts", [{"functionResponse": response}], apart=not results)
        elif message.role == "assistant":
            names.update((call.id, call.tool) for call in message.calls)
            add_parts(out, "model", "parts", _said(message, options))
        else:
            parts = [*show_parts(message.attachments, _text, _file), _text(message.content)]
            add_parts(out, "user", "parts", parts, apart=results)
        results = message.role == "tool"
    return out


def _said(message: Message, options: WireOptions) -> list[Any]:
    """Return the parts of a model's turn: the provider's own if this model wrote it."""
    calls = list(message.calls)
    state = state_for(message, NAME, options.model)
    out: list[Any] = []
    if isinstance(state, list):
        for part in state:
            call = part.get("functionCall") if isinstance(part, dict) else None
            if not isinstance(call, dict):
                out.append(part)
            elif calls:  # a call without a result would be refused
                out.append({**part, "functionCall": {**call, "id": calls.pop(0).id}})
        return [*out, *map(_function_call, calls)]
    if message.content:
        out.append({"text": message.content})
    made = [_function_call(call) for call in calls]
    if made and not _BEFORE_3.match(options.model):
        made[0]["thoughtSignature"] = NO_SIGNATURE  # of calls side by side, only the first one has a signature
    return [*out, *made]


def _text(text: str) -> dict[str, Any]:
    return {"text": text}


def _file(attachment: Attachment) -> dict[str, Any]:
    return {"inlineData": {"mimeType": attachment.media_type, "data": refer_to(attachment)}}


def _function_call(call: Call) -> dict[str, Any]:
    return {"functionCall": {"id": call.id, "name": call.tool, "args": input_object(call)}}


def _without_const(schema: Any) -> Any:
    """Return the schema with `enum` in place of `const`, which Gemini ignores."""
    if isinstance(schema, list):
        return [_without_const(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    known = {key: _without_const(value) for key, value in schema.items() if key != "const"}
    return {**known, "enum": [schema["const"]]} if isinstance(schema.get("const"), str) else known


def _add_params(body: dict[str, Any], config: dict[str, Any], think: Think, options: WireOptions) -> None:
    """Add the user's parameters, and `config` if it holds anything."""
    given = options.params.get("generationConfig")
    settings = dict(given) if isinstance(given, dict) else {}
    for key, value in options.params.items():
        if key in _SETTINGS:
            settings[_SETTINGS[key]] = value
        elif value is None:
            body.pop(key, None)
        elif key == "toolConfig" and isinstance(value, dict):
            body[key] = {**body.get(key, {}), **value}
        elif key != "generationConfig":
            body[key] = value
    for key, value in settings.items():
        if value is None:
            config.pop(key, None)
        elif key == "maxOutputTokens" and think.max_tokens is not None and isinstance(value, int):
            config[key] = min(value, think.max_tokens)  # never beyond the run's limit
        elif key != "temperature" or options.abilities.temperature:
            config[key] = value
    if config:
        body["generationConfig"] = config
