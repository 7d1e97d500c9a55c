"""Anthropic's Messages API: a think effect as the exact body of a request. Pure.

Sources: Anthropic's documentation, pages "Messages", "Extended thinking", "Adaptive thinking", "Prompt caching",
"Structured outputs" and "Models overview" (2025), "Vision", "PDF support", "Handle tool calls" and "Preserved thinking"
(2026), and recordings of 2025 and 2026. `anthropic_replies.py` reads the responses.

- Messages alternate between user and assistant. Results of tools are blocks of the user's message. Failed ones have
  `is_error` (page "Handle tool calls", November 2026).
- A turn with thinking goes back exactly as it came, with its signatures. The ids of its calls are those of the run.
- Newer models refuse thinking if anything before it has changed since, as when Plait shows less of a long result.
  Requests with tools ask for such thinking to be dropped instead. This setting needs a header of its own.
- Up to four places are marked for the cache: the tools, the system text, and the ends of the last two user messages.
  The marks move with the conversation; what stands before them stays equal, so the cache finds it. A `cache_control`
  in `params` replaces these marks, and false sends none.
- Calls are constrained to their schemas only if the ability `strict` is set, because the service compiles all strict
  schemas of a request into one grammar and refuses the request if that is too large.
- `params` that only other providers know (`seed`, penalties) are left out, because this one refuses unknown fields.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from plait.core import Attachment, Call, Message, Think
from plait.core.hosted import HostedTool
from plait.models.base import Request
from plait.models.hosted import server_name
from plait.models.settings import ModelSettings, require_known_values, require_none_left
from plait.models.wires.anthropic_replies import MessagesReader
from plait.models.wires.chat_completions import choose_temperature
from plait.models.wires.contents import refer_to, show_parts
from plait.models.wires.strict_schema import (
    ANTHROPIC,
    MAX_OPTIONAL,
    MAX_STRICT_TOOLS,
    MAX_UNIONS,
    count_limited,
    fit_schema,
)
from plait.models.wires.turns import add_parts, input_object, show_tool, split_system, state_for, text_part
from plait.models.wires.wire import WireOptions

NAME = "anthropic"
make_reader = MessagesReader
PATH = "messages"
VERSION = "2023-06-01"
BINDING = "thinking-binding-controls-2026-08-01"
"""The beta of `thinking.block_binding`."""
_BETAS = {
    "web_fetch": "web-fetch-2025-09-10",
    "code_execution": "code-execution-2025-08-25",
    "mcp": "mcp-client-2025-11-20",
}
"""The betas of hosted tools."""
MAX_STOP = 8
"""Stop strings that are sent. Plait cuts each reply at all of them itself (`TextFilter`)."""
LIMITS = (
    (re.compile(r"claude-3-7|claude-[a-z]+-\d"), 32_000),
    (re.compile(r"claude-3-5"), 8192),
    (re.compile(r"claude-(?:[23]|instant)"), 4096),
)
"""`max_tokens` by model family if the effect sets none: at most the family's maximum. All from Claude 4 on allow it."""
OTHER_LIMIT = 8192
LEAST_THINKING = 1024
"""The lowest accepted `budget_tokens`."""

_BINDS_THINKING = re.compile(r"claude-(?:(?:fable|mythos)-5-[1-9]|[a-z]+-5-[5-9]|[a-z]+-(?:[6-9]|\d\d))(?!\d)")
"""Models that check what stands before their thinking."""

_SAME_NAME = ("temperature", "top_p", "max_tokens", "service_tier")
_KNOWN_VALUES = {"effort": ("low", "medium", "high", "xhigh", "max"), "service_tier": ("auto", "standard_only")}
"""The service's values of settings (pages "Effort" and "Service tiers", November 2026)."""
_ELSEWHERE = frozenset({"seed", "frequency_penalty", "presence_penalty", "n", "logprobs", "stream_options"})
_encode = msgspec.json.Encoder().encode
_MARK = {"type": "ephemeral"}


def encode(think: Think, options: WireOptions) -> Request:
    """Return the request for an effect. `params` are added last."""
    abilities, params = options.abilities, options.params
    prefill = _prefill(think, options)
    system, messages = split_system(think, abilities, prefill=bool(prefill), call_id=("[a-zA-Z0-9_-]{1,64}", 64))
    marks = "cache_control" not in params
    turns = _turns(messages, options)
    if prefill:
        add_parts(turns, "assistant", "content", [{"type": "text", "text": prefill}])
    blocks = [text_part(text) for text in system if text.strip()]
    if not turns:  # a request needs a message
        turns, blocks = [{"role": "user", "content": blocks or [text_part(".")]}], []
    body: dict[str, Any] = {"model": options.model}
    tools = [show_tool(tool, "input_schema") for tool in think.tools] if abilities.tools else []
    if abilities.strict:
        tools = _make_strict(tools)
    if options.hosted:
        tools += options.declare_hosted(NAME)
        if servers := [each.values[0] for each in options.hosted if each.name == "mcp"]:
            body["mcp_servers"] = [{"type": "url", "url": each, "name": server_name(each)} for each in servers]
    if not tools and (named := dict.fromkeys(call.tool for message in messages for call in message.calls)):
        # A history with calls needs their tools; the model is not to call them.
        tools = [{"name": name, "input_schema": {"type": "object"}} for name in named]
        body["tool_choice"] = {"type": "none"}
    if tools:
        body["tools"] = [*tools[:-1], _marked(tools[-1])] if marks else tools
    if blocks:
        body["system"] = [*blocks[:-1], _marked(blocks[-1])] if marks else blocks
    for turn in [turn for turn in turns if turn["role"] == "user"][-2:] if marks else ():
        turn["content"][-1] = _marked(turn["content"][-1])
    body["messages"] = turns
    usual = next((limit for family, limit in LIMITS if family.search(options.model)), OTHER_LIMIT)
    body["max_tokens"] = usual if think.max_tokens is None else think.max_tokens
    stop = [each for each in think.stop if each.strip()][:MAX_STOP]
    if stop and abilities.stop:
        body["stop_sequences"] = stop
    if (warmth := choose_temperature(think, options)) is not None:
        body["temperature"] = min(warmth, 1.0)
    if think.schema is not None and abilities.schema and not think.prefill:
        closed = fit_schema(think.schema, ANTHROPIC)
        if closed is not None:
            body["output_config"] = {"format": {"type": "json_schema", "schema": closed}}
    if abilities.stream:
        body["stream"] = True
    _add_params(body, think, options)
    if tools and _BINDS_THINKING.match(options.model):
        # Ask for thinking to be dropped, not refused, if what stands before it has changed.
        thinking = body.setdefault("thinking", {"type": "adaptive"})
        if isinstance(thinking, dict) and thinking.get("type") == "adaptive":
            body["thinking"] = {"block_binding": {"prefix_mismatch_behavior": "drop_block"}, **thinking}
    _fit_thinking(body, think)
    return Request(PATH, _encode(body))


def make_headers(key: str, model: str, hosted: Iterable[HostedTool] = ()) -> Mapping[str, str]:
    """Return the headers of the key and the version, and of what is in beta: the check of thinking, hosted tools."""
    betas = [BINDING] if _BINDS_THINKING.match(model) else []
    betas += [_BETAS[each.name] for each in hosted if each.name in _BETAS]
    return {
        **({"x-api-key": key} if key else {}),
        "anthropic-version": VERSION,
        **({"anthropic-beta": ",".join(betas)} if betas else {}),
    }


def name_settings(settings: ModelSettings, provider: str) -> dict[str, Any]:
    """Return a user's settings as `params`. There is no seed and no verbosity."""
    if provider == NAME:
        require_known_values(settings, _KNOWN_VALUES, provider)
    given = settings.set_values
    params: dict[str, Any] = {name: given.pop(name) for name in _SAME_NAME if name in given}
    if "stop" in given:
        params["stop_sequences"] = given.pop("stop")
    if "effort" in given:
        params["output_config"] = {"effort": given.pop("effort")}
    if "thinking_tokens" in given:
        params["thinking"] = {"type": "enabled", "budget_tokens": given.pop("thinking_tokens")}
    parallel, choice = given.pop("parallel_calls", None), given.pop("tool_choice", None)
    if choice is not None or parallel is not None:
        kind = {"auto": "auto", None: "auto", "none": "none", "required": "any"}.get(choice)
        params["tool_choice"] = {"type": kind} if kind else {"type": "tool", "name": choice}
        if parallel is not None and kind != "none":
            params["tool_choice"]["disable_parallel_tool_use"] = not parallel
    require_none_left(given, NAME)
    return params


def continues_prefill(think: Think, options: WireOptions) -> bool:
    """Return whether the endpoint continues the prefill."""
    return bool(_prefill(think, options))


def _prefill(think: Think, options: WireOptions) -> str:
    """Return the prefill to send as the assistant's message; "" if the model refuses it, as it does with thinking."""
    thinks = _kind_of_thinking(options.params) in ("enabled", "adaptive")
    # A last message that ends in white space is refused; the reply filter drops what is repeated.
    return "" if thinks or not options.abilities.prefill else think.prefill.rstrip()


def _kind_of_thinking(body: Mapping[str, Any]) -> str:
    thinking = body.get("thinking")
    return str(thinking.get("type")) if isinstance(thinking, dict) else ""


def _turns(messages: list[Message], options: WireOptions) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    for message in messages:
        if message.role == "tool":
            content = _content(message) if message.attachments else message.content
            block = {"type": "tool_result", "tool_use_id": message.call_id, "content": content}
            add_parts(
                out, "user", "content", [{**block, "is_error": True} if message.failed and message.content else block]
            )
        elif message.role == "assistant":
            add_parts(out, "assistant", "content", _said(message, options))
        else:
            add_parts(out, "user", "content", _content(message))
    if out and out[-1]["role"] == "assistant" and (last := out[-1]["content"][-1]).get("type") == "text":
        out[-1]["content"][-1] = {**last, "text": str(last["text"]).rstrip()}
    return out


def _content(message: Message) -> list[Any]:
    """Return a message's files and text as blocks. Claude works best with images before the text."""
    text = [text_part(message.content)] if message.content.strip() else []
    return [*show_parts(message.attachments, text_part, _file), *text]


def _file(attachment: Attachment) -> dict[str, Any]:
    kind = "image" if attachment.kind == "image" else "document"
    source = {"type": "base64", "media_type": attachment.media_type, "data": refer_to(attachment)}
    return {"type": kind, "source": source}


def _said(message: Message, options: WireOptions) -> list[Any]:
    """Return the blocks of an assistant's turn: the provider's own if this model wrote it."""
    calls = list(message.calls)
    state = state_for(message, NAME, options.model)
    if not isinstance(state, list):
        text = [text_part(message.content)] if message.content.strip() else []
        return [*text, *map(_tool_use, calls)]
    out: list[Any] = []
    for block in state:
        if not isinstance(block, dict):
            continue
        kind = block.get("type")
        if kind == "tool_use":
            if calls:  # a call without a result would be refused
                out.append({**block, "id": calls.pop(0).id})
        elif kind != "text" or str(block.get("text") or "").strip():
            out.append(block)
    return [*out, *map(_tool_use, calls)]


def _tool_use(call: Call) -> dict[str, Any]:
    return {"type": "tool_use", "id": call.id, "name": call.tool, "input": input_object(call)}


def _make_strict(tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the tools, the first ones as strict as far as the service's limits for one request allow."""
    optional = unions = made = 0
    out = []
    for tool in tools:
        closed = fit_schema(tool["input_schema"], ANTHROPIC)
        more, others = count_limited(closed)
        fits = optional + more <= MAX_OPTIONAL and unions + others <= MAX_UNIONS and made < MAX_STRICT_TOOLS
        if closed is not None and fits:
            optional, unions, made = optional + more, unions + others, made + 1
            tool = {**tool, "strict": True, "input_schema": closed}
        out.append(tool)
    return out


def _marked(block: Any) -> Any:
    return {**block, "cache_control": _MARK}


def _add_params(body: dict[str, Any], think: Think, options: WireOptions) -> None:
    for key, value in options.params.items():
        if key in ("max_tokens", "max_completion_tokens"):
            if isinstance(value, int):  # never beyond the run's limit
                body["max_tokens"] = value if think.max_tokens is None else min(value, think.max_tokens)
        elif value is None or (key == "cache_control" and not value):
            body.pop(key, None)
        elif key == "output_config" and isinstance(value, dict):
            body[key] = {**body.get(key, {}), **value}
        elif key not in _ELSEWHERE and (key != "temperature" or options.abilities.temperature):
            body[key] = value


def _fit_thinking(body: dict[str, Any], think: Think) -> None:
    """Fit `thinking` to the rest: sampling at 1, a budget below the limit, and a turn that began with thinking."""
    kind = _kind_of_thinking(body)
    if kind not in ("enabled", "adaptive"):
        return
    body.pop("temperature", None)
    if kind == "adaptive":
        return
    budget, limit = body["thinking"].get("budget_tokens"), body["max_tokens"]
    if isinstance(budget, int) and budget >= limit:
        if think.max_tokens is None:
            body["max_tokens"] = limit + budget
        elif limit >= 2 * LEAST_THINKING:
            body["thinking"] = {**body["thinking"], "budget_tokens": limit // 2}
        else:
            del body["thinking"]
            return
    if not _begins_with_thinking(body["messages"]):
        # With a fixed budget, a tool loop that began without thinking goes on without it.
        del body["thinking"]


def _begins_with_thinking(turns: list[dict[str, Any]]) -> bool:
    """Return whether the first reply since the last question begins with thinking; True without such a reply."""
    for turn, after in zip(reversed(turns), [None, *reversed(turns)], strict=False):
        if turn["role"] == "user" and not any(block.get("type") == "tool_result" for block in turn["content"]):
            return after is None or after["content"][0].get("type") in ("thinking", "redacted_thinking")
    return True
