"""The conversation of a think effect, for wires that have their own form of messages. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import structs

from plait.core import Call, Message, Think
from plait.models.wires.chat_completions import GO_ON, arguments


def split_system(think: Think, *, tools: bool, prefill: bool) -> tuple[list[str], list[Message]]:
    """Return the texts of the leading system messages, and all other messages.

    Each call has an id, and each tool's message names its call. `tools`: the endpoint accepts calls; otherwise they
    are written in words. `prefill`: the wire sends the prefill itself; otherwise the last message asks to continue it.
    """
    messages = (Message("user", think.prompt),) if think.prompt else think.messages
    first = next((i for i, each in enumerate(messages) if each.role != "system"), len(messages))
    rest = _with_ids(messages[first:]) if tools else [_in_words(each) for each in messages[first:]]
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
