"""Chat messages and conversation turns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from plait.core.attachments import Attachment
from plait.core.tools import Call

JSON: TypeAlias = Any
"""Any value that JSON can hold: None, bool, int, float, str, list, dict with string keys."""

Role: TypeAlias = Literal["system", "user", "assistant", "tool"]


class ProviderState(Struct, frozen=True):
    """What a provider needs back with a turn, unchanged: thinking with its signature, reasoning items, ids. `data` is a
    JSON value that Plait stores and does not read. It is only sent to the `wire` and `model` that made it."""

    wire: str
    model: str
    data: Any


class Message(Struct, frozen=True, omit_defaults=True):
    """One message of a chat: its role and its content.

    `calls` are an assistant's native tool calls; `call_id` is the call that a tool's message answers, and `failed` says
    that the call has an error instead of a result. `state` is what the provider gave with an assistant's turn and needs
    back. `attachments` are images and PDF files that a model sees with a user's or a tool's message, if it accepts
    them.
    """

    role: Role
    content: str
    calls: tuple[Call, ...] = ()
    call_id: str = ""
    state: ProviderState | None = None
    failed: bool = False
    attachments: tuple[Attachment, ...] = ()


class PastCall(Struct, frozen=True):
    """A tool call of an earlier turn: the tool's name, the input (any JSON value), and the result as text."""

    tool: str
    input: JSON
    result: str


class Exchange(Struct, frozen=True, omit_defaults=True):
    """One turn of a conversation: the user's question, the reply that the user saw, the tool calls between, and its
    files, whose names stand in the texts."""

    question: str
    answer: str
    calls: tuple[PastCall, ...] = ()
    attachments: tuple[Attachment, ...] = ()


def system(content: str) -> Message:
    """Return a message that sets the rules."""
    return Message("system", content)


def user(content: str) -> Message:
    """Return a message from the user (or from the loop on the user's behalf)."""
    return Message("user", content)


def assistant(content: str) -> Message:
    """Return a message that the model wrote."""
    return Message("assistant", content)


def texts_in(value: JSON, *, keys: bool = False) -> Iterator[str]:
    """Yield the texts in a value, at any depth; `keys`: also those of objects."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if keys:
                yield key
            yield from texts_in(item, keys=keys)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from texts_in(item, keys=keys)


def map_texts(value: JSON, change: Callable[[str], JSON], *, keys: bool = False) -> Any:
    """Return the value with `change` applied to each text in it; `keys`: also to those of objects."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {change(key) if keys else key: map_texts(item, change, keys=keys) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [map_texts(item, change, keys=keys) for item in value]
    return value
