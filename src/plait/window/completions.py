"""/v1/chat/completions and /v1/models: each served agent is a model, each request a run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from typing import Any, TypeVar
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive

from plait.core import Event
from plait.window import conversations, shapes
from plait.window.answers import json_answer
from plait.window.callers import Caller
from plait.window.conversations import Place
from plait.window.desk import GONE, Desk
from plait.window.errors import Gone
from plait.window.performing import Emit, Performing
from plait.window.settings import ServedAgent
from plait.window.shapes import Wanted
from plait.window.speaking import Speaking
from plait.window.streams import Chunks, Streamed

T = TypeVar("T")


def routes(desk: Desk) -> list[Route]:
    """The endpoint's routes."""

    async def complete(request: Request) -> Response:
        wanted = shapes.read(await request.body(), request.headers)
        served = desk.agent(wanted.model)
        return await Completion(desk, served, wanted, request.state.caller).answer(request)

    async def models(request: Request) -> Response:
        return json_answer({"object": "list", "data": [_model(each) for each in desk.agents.values()]})

    async def model(request: Request) -> Response:
        return json_answer(_model(desk.agent(request.path_params["name"])))

    return [
        Route("/v1/chat/completions", complete, methods=["POST"]),
        Route("/v1/models", models),
        Route("/v1/models/{name}", model),
    ]


class Completion:
    """One request being answered."""

    def __init__(self, desk: Desk, served: ServedAgent, wanted: Wanted, caller: Caller) -> None:
        self._desk, self._served, self._wanted, self._caller = desk, served, wanted, caller
        self._speaking = Speaking(served.agent, thoughts=served.thoughts and wanted.thoughts)

    async def answer(self, request: Request) -> Response:
        """The answer, or its beginning: the run stands on record by then. Whoever goes away cancels it."""
        events: asyncio.Queue[Event | None] = asyncio.Queue()
        gone = asyncio.ensure_future(_gone(request.receive))
        try:
            performing = await _unless(gone, self._begin(events.put_nowait))
        except BaseException:
            gone.cancel()
            raise
        head = self._head(performing)
        if self._wanted.stream:
            chunks = Chunks(self._base(performing), self._speaking, include_usage=self._wanted.include_usage)
            return Streamed(performing, events, chunks, gone, head)
        try:
            run = await _unless(gone, performing.done())
        finally:
            gone.cancel()
            performing.cancel(GONE)  # of a run that is over this is nothing
        content, finish = shapes.content_of(run)
        reasoning = []
        while not events.empty():
            event = events.get_nowait()
            if event is not None:
                reasoning.append(self._speaking.heard(event)[0])
        message: dict[str, Any] = {"role": "assistant", "content": content}
        if thought := "".join(reasoning):
            message["reasoning_content"] = thought
        choice = {"index": 0, "message": message, "finish_reason": finish, "logprobs": None}
        base = {**self._base(performing), "object": "chat.completion"}
        return json_answer({**base, "choices": [choice], "usage": shapes.usage_of(run)}, headers=head)

    async def _begin(self, emit: Emit) -> Performing:
        """Begin the run, or go on with the one that waits for this message. One turn of a session at a time."""
        session = self._wanted.session
        named = self._caller.session(session) if session is not None else None
        place = await self._place(None) if named is None else Place(named, known=True)
        while True:
            async with self._desk.turn(place.session if place.known else None) as turn:
                if place.known:
                    before, place = place, await self._place(named)  # what was said meanwhile counts
                    if place.session != before.session and place.known:
                        continue  # it is another session's turn that has to be waited for
                    if place.session != before.session:
                        turn.release()
                performing = await self._go(place, named, emit)
                turn.lasts(performing)
                return performing

    async def _go(self, place: Place, named: str | None, emit: Emit) -> Performing:
        wanted, caller = self._wanted, self._caller
        conversations.check_agent(place, wanted.model)
        question = await asyncio.to_thread(conversations.answered, self._desk.journal, place, wanted.said)
        if place.waiting:
            return await self._desk.resume(
                place.waiting, wanted.said[-1].text, question=question, caller=caller, emit=emit
            )
        return await self._desk.start(
            wanted.model,
            wanted.question,
            caller=caller,
            session=place.session,
            history=None if named is not None and place.known else wanted.history,
            key=conversations.key_of(wanted.said),
            emit=emit,
        )

    async def _place(self, named: str | None) -> Place:
        """Where the request belongs. The journal is read in a thread: a long one must not hold up other requests.

        What is found may be old by the time it is here. So whoever goes on with a session looks once more when it has
        the session's turn: from then on nobody else adds to it.
        """
        journal, wanted = self._desk.journal, self._wanted
        if named is not None:
            return await asyncio.to_thread(conversations.by_name, journal, named)
        found = None
        if conversations.is_later(wanted.said):
            found = await asyncio.to_thread(conversations.by_messages, journal, self._caller, wanted.model, wanted.said)
        return found or Place(conversations.fresh(self._caller))

    def _base(self, performing: Performing) -> dict[str, Any]:
        return {
            "id": f"chatcmpl-{performing.run}",
            "object": "chat.completion.chunk",
            "created": int(time.time()),
            "model": self._served.name,
        }

    def _head(self, performing: Performing) -> dict[str, str]:
        session = quote(self._caller.named(performing.session), safe=" !#$&'()*+,/:;=?@[]~")
        return {"x-plait-run": performing.run, "x-plait-session": session, "x-request-id": performing.run}


def _model(served: ServedAgent) -> dict[str, Any]:
    found = {"id": served.name, "object": "model", "created": served.created, "owned_by": "plait"}
    return {**found, "description": served.description} if served.description else found


async def _gone(receive: Receive) -> None:
    """Comes back when the client went away."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _unless(gone: asyncio.Future[None], work: Awaitable[T]) -> T:
    """What `work` gives; it is cancelled, and `Gone` raised, when the client goes away before."""
    task: asyncio.Future[T] = asyncio.ensure_future(work)
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
    finally:
        if not task.done():
            task.cancel()
    if not task.done():
        await asyncio.wait([task])
    if gone.done() and task.cancelled():
        raise Gone
    return task.result()
