"""The requests and responses of a run, as sent: what is new in each request told apart from what was sent before.

Theory of operation. A request is compared with the earlier one of the run that it shares the longest beginning with,
which is what a server's prefix cache does. Messages that are the same from the start on are old; the first that is not
may go on where the old one ended, and is then parted there; all that follows is new.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from plait.core import Reply
from plait.journal.records import Got, Row, Thinking, Thought
from plait.models.wire import arguments

PROMPT = "prompt"
"""The role under which a raw prompt stands."""
_APART = ("model", "messages", "prompt", "stop", "tools", "stream", "stream_options")


class Piece(Struct, frozen=True):
    """Text of a request. `role` is the message's; `new`: it was not sent before; `goes_on`: the rest of a message."""

    role: str
    text: str
    new: bool
    goes_on: bool = False


class Sent(Struct, frozen=True):
    """A request. `number` counts from 1, `attempt` too; `other` are the body's other fields, such as temperature.

    `messages_before` and `letters_before` say how much of it was sent before.
    """

    number: int
    step: int
    phase: str
    model: str
    path: str
    attempt: int
    stop: tuple[str, ...]
    tools: tuple[str, ...]
    other: dict[str, Any]
    pieces: tuple[Piece, ...]

    @property
    def messages_before(self) -> int:
        """Whole messages that were sent before."""
        whole = sum(not piece.new for piece in self.pieces)
        return whole - any(piece.goes_on for piece in self.pieces)

    @property
    def letters_before(self) -> int:
        """Characters that were sent before."""
        return sum(len(piece.text) for piece in self.pieces if not piece.new)


class Answered(Struct, frozen=True):
    """A response: its HTTP status (0: none came), the text of the reply and its native calls, or the error."""

    status: int
    seconds: float
    text: str
    calls: tuple[str, ...] = ()
    reasoning: str = ""
    error: str = ""


class Exchange(Struct, frozen=True):
    """A request and its response; None where none is on record."""

    sent: Sent
    answered: Answered | None

    def json(self) -> dict[str, Any]:
        """Everything, with how much of the request was sent before."""
        told: dict[str, Any] = msgspec.to_builtins(self)
        told["sent"]["messages_before"] = self.sent.messages_before
        told["sent"]["letters_before"] = self.sent.letters_before
        return told


def exchanges(rows: Iterable[Row]) -> tuple[Exchange, ...]:
    """Those of a run's record, in the order of the requests."""
    asked: list[tuple[Thinking, bytes]] = []
    got: dict[int, Got] = {}
    replies: dict[int, Reply] = {}
    at: dict[int, int] = {}
    for row in rows:
        match row.record:
            case Thinking(n=n) as thinking:
                at[n] = len(asked)
                asked.append((thinking, row.body or b""))
            case Got(n=n) as response if n in at:
                got[at[n]] = response
            case Thought(n=n, reply=reply) if n in at:
                replies[at[n]] = reply
            case _:
                pass
    made: list[Exchange] = []
    bodies: list[list[tuple[str, str]]] = []
    for number, (thinking, body) in enumerate(asked):
        sent, texts = _sent(number + 1, thinking, body, bodies)
        bodies.append(texts)
        made.append(Exchange(sent, _answered(got.get(number), replies.get(number))))
    return tuple(made)


def _sent(
    number: int, thinking: Thinking, body: bytes, before: Sequence[list[tuple[str, str]]]
) -> tuple[Sent, list[tuple[str, str]]]:
    try:
        told = msgspec.json.decode(body)
    except msgspec.DecodeError:
        told = None
    if not isinstance(told, dict):
        told = {"prompt": body.decode(errors="backslashreplace")}
    texts = _texts(told)
    nearest = max(before, key=lambda each: _shared(each, texts), default=[])
    stop = told.get("stop") or ()
    sent = Sent(
        number=number,
        step=thinking.step,
        phase=thinking.phase,
        model=thinking.model,
        path=thinking.path,
        attempt=thinking.attempt + 1,
        stop=(stop,) if isinstance(stop, str) else tuple(stop),
        tools=tuple(str(tool.get("function", {}).get("name", "?")) for tool in told.get("tools") or ()),
        other={name: value for name, value in told.items() if name not in _APART},
        pieces=tuple(_pieces(texts, nearest)),
    )
    return sent, texts


def _texts(body: dict[str, Any]) -> list[tuple[str, str]]:
    """Role and text of each message; native calls stand in the text as a line each."""
    if "messages" not in body:
        return [(PROMPT, str(body.get("prompt", "")))]
    return [(str(message.get("role", "")), _text(message)) for message in body["messages"]]


def _text(message: dict[str, Any]) -> str:
    content = message.get("content")
    text = content if isinstance(content, str) else "" if content is None else msgspec.json.encode(content).decode()
    functions = [call.get("function", {}) for call in message.get("tool_calls") or ()]
    calls = [f"{function.get('name', '?')} {function.get('arguments', '')}" for function in functions]
    return "\n".join((*([text] if text else []), *calls)) or text


def _pieces(texts: Sequence[tuple[str, str]], before: Sequence[tuple[str, str]]) -> Iterable[Piece]:
    whole = _whole(before, texts)
    for at, (role, text) in enumerate(texts):
        if at < whole:
            yield Piece(role, text, new=False)
            continue
        old = 0
        if at == whole and at < len(before) and before[at][0] == role:
            old = _begins(before[at][1], text)
        if old:
            yield Piece(role, text[:old], new=False)
        yield Piece(role, text[old:], new=True, goes_on=bool(old))


def _whole(before: Sequence[tuple[str, str]], texts: Sequence[tuple[str, str]]) -> int:
    """How many messages from the first on are the same."""
    pairs = zip(before, texts, strict=False)
    return next((at for at, (old, new) in enumerate(pairs) if old != new), min(len(before), len(texts)))


def _begins(old: str, new: str) -> int:
    """How many letters both begin with: all of the old text, or whole lines of it."""
    if new.startswith(old):
        return len(old)
    same = next((at for at, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    return new.rfind("\n", 0, same) + 1


def _shared(before: Sequence[tuple[str, str]], texts: Sequence[tuple[str, str]]) -> int:
    return sum(len(piece.text) + 1 for piece in _pieces(texts, before) if not piece.new)


def _answered(got: Got | None, reply: Reply | None) -> Answered | None:
    if got is None:
        return None
    if reply is None:
        return Answered(got.status, got.seconds, "", error=got.error)
    calls = tuple(f"{call.tool} {arguments(call)}" for call in reply.calls)
    return Answered(got.status, got.seconds, reply.text, calls, reply.reasoning, got.error)
