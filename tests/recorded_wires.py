"""Recorded exchanges with real services, from the development data: read, decoded, and asked again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy
from random import Random
from typing import Any

from conftest import DATA, data_file
from plait.core import Message, Reply, Think, ToolSpec, user
from plait.models.base import Abilities, Response
from plait.models.chat import ChatModel

Exchange = dict[str, Any]


def recorded(*folders: str, path: str = "") -> Iterator[tuple[str, Exchange]]:
    """Every exchange of these folders whose path ends so, with its name. Skips where the data is absent."""
    data_file("wires")
    for folder in folders:
        for file in sorted((DATA / "wires" / folder).glob("*.json")):
            for number, exchange in enumerate(json.loads(file.read_text())):
                if exchange["path"].split("?")[0].endswith(path):
                    yield f"{folder}/{file.stem}[{number}]", exchange


def body_of(exchange: Exchange) -> bytes:
    """The response as it was received."""
    if "sse" in exchange:
        return str(exchange["sse"]).encode()
    return json.dumps(exchange["response"]).encode()


def chunks_of(exchange: Exchange) -> list[dict[str, Any]]:
    """The JSON values of a response: its one body, or the data of its events."""
    if "sse" not in exchange:
        return [exchange["response"]]
    lines = [line[5:].strip() for line in exchange["sse"].splitlines() if line.startswith("data:")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def model_of(exchange: Exchange, wire: str, provider: str = "", **options: Any) -> ChatModel:
    """A model for the same requests."""
    name = (exchange.get("request") or {}).get("model", "m")
    return ChatModel(spec=f"t:{name}", name=name, endpoint="http://h/v1", wire=wire, provider=provider, **options)


def decoded(exchange: Exchange, model: ChatModel, tools: tuple[ToolSpec, ...] = ()) -> Reply:
    """The reply in an exchange."""
    return model.decode(Response(exchange["status"], body_of(exchange)), Think("act", tools=tools))


WHOLE = Abilities(stream=False, schema=True)
"""The abilities for a request that is not streamed."""


ODD = (None, -1, 1.5, "x", "", [], {}, True, [1], {"a": 1}, [{}], [None], [{"type": "text"}])


def odd_bodies(exchange: Exchange, seed: int, times: int = 6) -> Iterator[bytes]:
    """The response with one value replaced by an odd one."""
    random = Random(seed)
    for _ in range(times):
        chunks = chunks_of(exchange)
        places = [(chunk, path) for chunk in chunks for path in _paths(chunk)]
        chunk, path = random.choice(places)
        inner: Any = chunk
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = deepcopy(random.choice(ODD))
        if "sse" in exchange:
            yield b"".join(b"data: " + json.dumps(each).encode() + b"\n\n" for each in chunks)
        else:
            yield json.dumps(chunks[0]).encode()


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        yield from _paths(each, (*path, key))


def ask_again(model: ChatModel, reply: Reply) -> bytes:
    """The next request after a reply, with a result for each call."""
    results = [Message("tool", "-", call_id=call.id) for call in reply.calls]
    said = Message("assistant", reply.text.strip(), reply.calls, state=reply.state)
    return model.encode(Think("act", (user("?"), said, *results))).body
