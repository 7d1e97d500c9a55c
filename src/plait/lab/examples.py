"""A run's model calls as lines of chat: what was sent, and the reply as it came. For training a model on them.

Theory of operation. The record has the exact body of each request and the reply that the loop was given. A line is
made of the last request of a call (attempts that failed are not told) and its reply. What the loop made of a reply
stands in the remarks after it: one that could not be read teaches nothing and is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from plait.core import Reply
from plait.journal.records import NoteRecord, Row, Thinking, Thought, Thrown
from plait.models.wire import arguments

Chat = dict[str, Any]
"""A message as it was sent: role, content, and of native calls tool_calls or tool_call_id."""

UNREADABLE, UNENDED, EMPTY, UNSENT, MENDED = (
    "could not be read",
    "not ended by the model",
    "empty",
    "without a request on record",
    "mended by the reader",
)
"""Why a call is left out."""


class Example(Struct, frozen=True, kw_only=True):
    """One model call of a good run.

    `messages` are those that were sent, and the reply as the last; `tools` those that were offered as native tools.
    `strategy` is the loop with its options, `model` what was asked, `task` the task's id where the run was a cell of
    a comparison. `score` is its grade's, None where only a person judged it; `approved`: a person did. `remarks` say
    what the reader had to mend. `raw`: the request was a raw prompt, and stands here as one user message.
    """

    messages: tuple[Chat, ...]
    run: str
    step: int
    phase: str
    strategy: str
    model: str
    task: str | None = None
    score: float | None = None
    approved: bool = False
    tools: tuple[Chat, ...] = ()
    remarks: tuple[str, ...] = ()
    raw: bool = False

    def json(self) -> dict[str, Any]:
        """The line; `tools`, `remarks` and `raw` only where there are any."""
        told: dict[str, Any] = {"messages": self.messages}
        if self.tools:
            told["tools"] = self.tools
        for name in ("run", "step", "phase", "strategy", "model", "task", "score", "approved"):
            told[name] = getattr(self, name)
        if self.remarks:
            told["remarks"] = self.remarks
        if self.raw:
            told["raw"] = True
        return told

    @property
    def content(self) -> bytes:
        """What is learned from it, whatever its source: two with the same are one."""
        return msgspec.json.encode((self.messages, self.tools))


class _Said:
    """A reply, and what was remarked about it."""

    def __init__(self, thinking: Thinking, body: bytes | None, reply: Reply) -> None:
        self.thinking, self.body, self.reply = thinking, body, reply
        self.remarks: list[str] = []
        self.unreadable = False


def examples_of(
    rows: Iterable[Row], about: Mapping[str, Any], *, model: str = "", strict: bool = False
) -> tuple[list[Example], dict[str, int]]:
    """The lines of a run's record in the order of the replies, and how many calls were left out by the reason.

    `about` has the fields of the lines that are the run's. `model`: only calls of that model, the others are not
    counted. `strict` leaves out what the reader mended as well.
    """
    made: list[Example] = []
    left_out: dict[str, int] = {}
    for said in _said(rows):
        if model and said.thinking.model != model:
            continue
        found = _example(said, about)
        if not isinstance(found, str) and strict and found.remarks:
            found = MENDED
        if isinstance(found, str):
            left_out[found] = left_out.get(found, 0) + 1
        else:
            made.append(found)
    return made, left_out


def _said(rows: Iterable[Row]) -> list[_Said]:
    open_: dict[int, tuple[Thinking, bytes | None]] = {}
    said: list[_Said] = []
    early: list[str] = []
    for row in rows:
        match row.record:
            case Thinking(n=n) as thinking:
                open_[n] = thinking, row.body  # a further attempt takes the place of the one before
            case Thrown(n=n):
                open_.pop(n, None)
            case Thought(n=n, reply=reply) if n in open_:
                said.append(_Said(*open_.pop(n), reply))
                said[-1].remarks, early = early, []
            case NoteRecord(kind="unreadable") if said:
                said[-1].unreadable = True
            case NoteRecord(kind="repaired", text=text):
                # A reply that is read while it is written is remarked on before it is whole.
                (early if open_ or not said else said[-1].remarks).append(text)
            case _:
                pass
    return said


def _example(said: _Said, about: Mapping[str, Any]) -> Example | str:
    """The line of a call, or why there is none."""
    thinking, reply = said.thinking, said.reply
    if said.unreadable:
        return UNREADABLE
    if reply.finish not in ("stop", "calls"):
        return UNENDED
    if not reply.text.strip() and not reply.calls:
        return EMPTY
    try:
        sent = msgspec.json.decode(said.body or b"")
    except msgspec.DecodeError:
        return UNSENT
    raw = isinstance(sent, dict) and isinstance(sent.get("prompt"), str)
    messages = [{"role": "user", "content": sent["prompt"]}] if raw else sent.get("messages")
    if not messages or not isinstance(messages, list):
        return UNSENT
    return Example(
        messages=tuple(_with_reply(messages, reply)),
        step=thinking.step,
        phase=thinking.phase,
        model=thinking.model,
        tools=tuple(sent.get("tools") or ()),
        remarks=tuple(said.remarks),
        raw=raw,
        **about,
    )


def _with_reply(messages: list[Chat], reply: Reply) -> list[Chat]:
    """The messages and the reply. One that was begun for the model and the reply that goes on with it are one."""
    opened = ""
    last = messages[-1]
    if last.get("role") == "assistant" and not last.get("tool_calls") and isinstance(last.get("content"), str):
        opened, messages = last["content"], messages[:-1]
    text = opened + reply.text
    if not reply.calls:
        return [*messages, {"role": "assistant", "content": text}]
    before = sum(len(message.get("tool_calls") or ()) for message in messages)
    calls = [
        {
            "id": call.id or f"call_{number}",
            "type": "function",
            "function": {"name": call.tool, "arguments": arguments(call)},
        }
        for number, call in enumerate(reply.calls, before + 1)
    ]
    return [*messages, {"role": "assistant", "content": text or None, "tool_calls": calls}]
