"""The recorded exchanges of a provider, and a loopback endpoint that answers as the provider did."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import plait
from conftest import data_file
from models_server import Asked, Server, event
from plait.core import Message, Reply, Think, user
from plait.core.errors import PlaitError
from plait.loops import ToolCalling
from plait.models.base import Abilities, Response
from plait.models.chat import ChatModel

Exchange = dict[str, Any]


def read_exchanges(host: str) -> Iterator[tuple[str, list[Exchange]]]:
    """Yield the name of each file with its exchanges with this host. Skips the test without the data."""
    for file in sorted(data_file("wires").glob("*/*.json")):
        if found := [each for each in json.loads(file.read_text("utf-8")) if each["host"] == host]:
            yield file.stem, found


def body_of(exchange: Exchange) -> bytes:
    """The response as the service sent it: the stream's bytes, or the JSON body."""
    return exchange["sse"].encode() if "sse" in exchange else json.dumps(exchange["response"]).encode()


def events_of(exchange: Exchange) -> list[Any]:
    """The JSON values of a response: one for each event, or the whole body."""
    if "sse" not in exchange:
        return [exchange["response"]]
    lines = exchange["sse"].splitlines()
    return [json.loads(line.removeprefix("data:")) for line in lines if line.startswith("data:")]


def model_of(wire: str, name: str, **options: Any) -> ChatModel:
    """A model of a wire that is only used to encode and decode."""
    return ChatModel(**{"spec": f"{wire}:{name}", "name": name, "endpoint": "http://h/v1", "wire": wire, **options})


def decode(wire: str, name: str, exchange: Exchange) -> Reply:
    """The reply in an exchange."""
    return model_of(wire, name).decode(Response(exchange["status"], body_of(exchange)), Think("act"))


class Imitation:
    """Answers each request with the next reply: bytes as a stream, a dict as one body, (status, body) as a refusal."""

    def __init__(self, *replies: Any) -> None:
        self.replies = list(replies)

    async def __call__(self, asked: Asked) -> None:
        reply = self.replies.pop(0)
        if isinstance(reply, bytes):
            await asked.begin()
            for start in range(0, len(reply), 700):
                await asked.piece(reply[start : start + 700])
            await asked.end()
        elif isinstance(reply, tuple):
            await asked.answer(*reply)
        else:
            await asked.answer(200, reply)


def run_tools(
    model: dict[str, Any], tools: list[Any], journal: Path, first: Any, second: Any, wait: bool
) -> tuple[Any, list[Asked]]:
    """Run tool calling with two replies: the run and the requests. The run is replayed with equal bytes.

    `wait`: the run waits for an approval after the first reply, and another endpoint and agent resume it.
    """

    def make_agent(server: Server) -> plait.Agent:
        return plait.Agent(
            ToolCalling(),
            model=server.model(**model),
            tools=tools,
            journal=journal,
            approve="always" if wait else "never",
        )

    async def main() -> tuple[Any, list[Asked], plait.Agent]:
        async with Server(Imitation(first, second)) as server:
            agent = make_agent(server)
            run = await agent.arun("What is the capital of the user country?")
            if wait:
                assert run.status == "waiting" and len(server.asked) == 1
                agent = make_agent(server)
                run = await agent.aresume(run, "yes")
            return run, server.asked, agent

    run, asked, agent = asyncio.run(main())
    replayed = agent.replay(run.id)
    assert replayed.whole and replayed.requests == len(asked)
    return run, asked


STREAMED, WHOLE = Abilities(), Abilities(stream=False)

ODD: list[Any] = [None, 0, -1, 1.5, True, "", "x", [], {}, [1], {"a": 1}]


def damage(value: Any, chance: random.Random, share: float) -> Any:
    """The value with some of its parts replaced by odd ones, or missing."""
    if chance.random() < share:
        return chance.choice(ODD)
    if isinstance(value, dict):
        return {key: damage(each, chance, share) for key, each in value.items() if chance.random() > share / 2}
    return [damage(each, chance, share) for each in value] if isinstance(value, list) else value


def decode_damaged(host: str, wire: str, name: str, number: int) -> int:
    """Decode damaged responses and send their turns back: how many were replies. Others must be Plait's errors."""
    chance, whole = random.Random(5), 0
    known = [each for _, exchanges in read_exchanges(host) for each in exchanges]
    model = model_of(wire, name)
    for _ in range(number):
        exchange = chance.choice(known)
        events = [damage(each, chance, chance.choice((0.02, 0.1))) for each in events_of(exchange)]
        body = b"".join(map(event, events)) if "sse" in exchange else json.dumps(events[0]).encode()
        try:
            reply = model.decode(Response(200, body), Think("act"))
        except PlaitError:
            continue
        turn = Message("assistant", reply.text, reply.calls, state=reply.state)
        model.encode(Think("act", (user("q"), turn)))
        whole += 1
    return whole
