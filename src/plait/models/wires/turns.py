"""The conversation of a think effect, prepared for any wire: ids of calls, calls in words, opaque state. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import structs

from plait.core import Call, Message, Think

GO_ON = (
    "Your message broke off. Write only what comes next, beginning at the very character where it ends; "
    "repeat none of it and add no remark."
)
"""Asks for the rest of a prefilled reply if the endpoint cannot continue an assistant message."""

_encode = msgspec.json.Encoder().encode


def split_system(think: Think, *, tools: bool, prefill: bool) -> tuple[list[str], list[Message]]:
    """Return the texts of the leading system messages, and all other messages.

    Each call has an id, and each tool's message names its call. `tools`: the endpoint accepts calls; otherwise they
    are written in words. `prefill`: the wire sends the prefill itself; otherwise the last message asks to continue it.
    """
    messages = (Message("user", think.prompt),) if think.prompt else think.messages
    first = next((i for i, each in enumerate(messages) if each.role != "system"), len(messages))
    rest = prepare(messages[first:], tools=tools)
    if think.prefill and not prefill:
        rest += [Message("assistant", think.prefill), Message("user", GO_ON)]
    return [each.content for each in messages[:first]], rest


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


def prepare(messages: Sequence[Message], *, tools: bool) -> list[Message]:
    """Return the messages with an id for each call and its result; without `tools`, with calls and results in words."""
    return _with_ids(messages) if tools else [_in_words(each) for each in messages]


def _with_ids(messages: Sequence[Message]) -> list[Message]:
    out: list[Message] = []
    waiting: list[str] = []  # ids of calls that no tool message has answered yet
    made = 0
    for message in messages:
        if message.calls:
            made += len(message.calls)
            start = made - len(message.calls) + 1
            calls = tuple(
                Call(each.tool, each.input, each.id or f"call_{start + i}") for i, each in enumerate(message.calls)
            )
            waiting += [call.id for call in calls]
            message = structs.replace(message, calls=calls)
        elif message.role == "tool":
            call_id = message.call_id or (waiting[0] if waiting else "call_0")
            if call_id in waiting:
                waiting.remove(call_id)
            message = structs.replace(message, call_id=call_id)
        out.append(message)
    return out


def _in_words(message: Message) -> Message:
    """Return a message of tool calls as text."""
    if message.role == "tool":
        return Message("user", f"Result of the tool call:\n{message.content}")
    if not message.calls:
        return message
    calls = "\n".join(f"Calling {call.tool} with {arguments(call)}" for call in message.calls)
    return Message("assistant", f"{message.content}\n{calls}".strip())
