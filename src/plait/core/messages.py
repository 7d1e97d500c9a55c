"""Chat messages as the field knows them."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from msgspec import Struct

from plait.core.tools import Call

JSON: TypeAlias = Any
"""Any value that JSON can hold: None, bool, int, float, str, list, dict with string keys."""

Role: TypeAlias = Literal["system", "user", "assistant", "tool"]


class Message(Struct, frozen=True, omit_defaults=True):
    """One message of a chat: who speaks, and what they say.

    `calls` are an assistant's native tool calls; `call_id` says which call a tool's message answers.
    """

    role: Role
    content: str
    calls: tuple[Call, ...] = ()
    call_id: str = ""


class Exchange(Struct, frozen=True):
    """One turn of a conversation: what the person asked, and the reply that they saw."""

    question: str
    answer: str


def system(content: str) -> Message:
    """A message that sets the rules."""
    return Message("system", content)


def user(content: str) -> Message:
    """A message from the person (or from the loop in the person's place)."""
    return Message("user", content)


def assistant(content: str) -> Message:
    """A message the model wrote."""
    return Message("assistant", content)
