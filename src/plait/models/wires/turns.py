"""The conversation of a think effect, prepared for any wire: ids of calls, calls in words, opaque state. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

import msgspec
from msgspec import structs

from plait.core import Attachment, Call, Message, Think, ToolSpec
from plait.core.attachments import MAX_BYTES
from plait.models.base import Abilities

GO_ON = (
    "Your message broke off. Write only what comes next, beginning at the very character where it ends; "
    "repeat none of it and add no remark."
)
"""Asks for the rest of a prefilled reply if the endpoint cannot continue an assistant message."""

ANY_ID = ("(?s:.*)", 0)
"""The form of call ids where any text is accepted."""

_encode = msgspec.json.Encoder().encode


def split_system(
    think: Think, abilities: Abilities, *, prefill: bool, call_id: tuple[str, int] = ANY_ID
) -> tuple[list[str], list[Message]]:
    """Return the texts of the leading system messages, and all other messages. The other messages are prepared
    (`prepare`). `prefill`: the wire sends the prefill itself; otherwise the last message asks to continue it."""
    messages = (Message("user", think.prompt),) if think.prompt else think.messages
    first = next((i for i, each in enumerate(messages) if each.role != "system"), len(messages))
    rest = prepare(messages[first:], abilities, call_id)
    if think.prefill and not prefill:
        rest += [Message("assistant", think.prefill), Message("user", GO_ON)]
    return [each.content for each in messages[:first]], rest


def add_parts(turns: list[dict[str, Any]], role: str, key: str, parts: list[Any], apart: bool = False) -> None:
    """Add parts to the turns: to the last one (its `key`) if it has that role, unless they stand `apart`."""
    if turns and turns[-1]["role"] == role and not apart:
        turns[-1][key] += parts
    elif parts:
        turns.append({"role": role, key: list(parts)})


def text_part(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def show_tool(tool: ToolSpec, key: str) -> dict[str, Any]:
    """Return a tool with its name, its description, and its parameters under `key`."""
    description = f"{tool.description}\nReturns: {tool.returns}" if tool.returns else tool.description
    return {"name": tool.name, "description": description, key: tool.parameters or {"type": "object", "properties": {}}}


def state_for(message: Message, wire: str, model: str) -> Any:
    """Return the state of a message if this wire and model made it; else None."""
    state = message.state
    return state.data if state is not None and (state.wire, state.model) == (wire, model) else None


def input_object(call: Call) -> dict[str, Any]:
    """Return a call's input as an object. Any other value gets the key "input"."""
    if call.input is None:
        return {}
    return call.input if isinstance(call.input, dict) else {"input": call.input}


def arguments(call: Call) -> str:
    """Return a call's input as the JSON object that endpoints expect in a history.

    Some endpoints refuse other values, so a scalar, a list, or text that is not JSON gets the key "input".
    """
    return _encode(input_object(call)).decode() if call.input is not None else "{}"


def chat_call(id: str, tool: str, given: str) -> dict[str, Any]:
    """Return a call as chat completions have it."""
    return {"id": id, "type": "function", "function": {"name": tool, "arguments": given}}


def prepare(messages: Sequence[Message], abilities: Abilities, call_id: tuple[str, int]) -> list[Message]:
    """Return the messages with an id for each call and its result, and with the attachments that the model accepts and
    that fit into a request.

    `call_id`: the pattern that the ids have to match, and their greatest length. For an endpoint without tools, calls
    and results are in words.
    """
    out, room = list(messages), MAX_BYTES
    holders = [i for i, each in enumerate(messages) if each.attachments]
    # If there are too many files, the first message with some (the question) and the last ones keep theirs.
    for i in (*holders[:1], *reversed(holders[1:])):
        kept: list[Attachment] = []
        for each in filter(abilities.accepts, messages[i].attachments):
            room -= each.size
            kept += [each] if room >= 0 else []
        out[i] = structs.replace(messages[i], attachments=tuple(kept))
    if not abilities.tools:
        return [_in_words(each) if each.calls or each.role == "tool" else each for each in out]
    waiting: list[str] = []  # ids of calls that no tool message has answered yet
    made = 0
    for i, message in enumerate(out):
        if message.calls:
            calls = tuple(
                Call(each.tool, each.input, _fit_id(each.id or f"call_{made + n}", call_id))
                for n, each in enumerate(message.calls, 1)
            )
            made += len(calls)
            waiting += [call.id for call in calls]
            out[i] = structs.replace(message, calls=calls)
        elif message.role == "tool":
            id = _fit_id(message.call_id or (waiting[0] if waiting else "call_0"), call_id)
            if id in waiting:
                waiting.remove(id)
            out[i] = structs.replace(message, call_id=id)
    return out


def _fit_id(id: str, form: tuple[str, int]) -> str:
    """Return an id that fits, and for any other one always the same that stands for it."""
    return id if re.fullmatch(form[0], id) else sha256(id.encode("utf-8", "surrogatepass")).hexdigest()[: form[1]]


def _in_words(message: Message) -> Message:
    if message.role == "tool":
        return Message("user", f"Result of the tool call:\n{message.content}", attachments=message.attachments)
    calls = "\n".join(f"Calling {call.tool} with {arguments(call)}" for call in message.calls)
    return Message("assistant", f"{message.content}\n{calls}".strip())
