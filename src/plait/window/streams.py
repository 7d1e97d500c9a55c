"""A run's answer as server-sent events, in the chunks that clients of chat completions know."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from plait.core import Event
from plait.core import events as ev
from plait.journal.codec import encode
from plait.window import shapes
from plait.window.desk import GONE
from plait.window.errors import Rejected, rejected
from plait.window.performing import Performing
from plait.window.speaking import Speaking

SILENCE = 15.0
"""Seconds after which a comment is sent, so that nothing on the way takes the connection for dead."""

DONE = b"data: [DONE]\n\n"
ALIVE = b": still at work\n\n"


class Chunks:
    """Makes the chunks. `base` has the fields that all share."""

    def __init__(self, base: dict[str, Any], speaking: Speaking, *, include_usage: bool) -> None:
        self._base = {**base, "usage": None} if include_usage else base
        self._speaking = speaking
        self._include_usage = include_usage

    def first(self) -> bytes:
        """Who speaks."""
        return self._chunk({"role": "assistant", "content": ""})

    def of(self, event: Event) -> bytes:
        """What an event adds, often nothing."""
        if isinstance(event, ev.Ended):
            return b""
        reasoning, content = self._speaking.heard(event)
        found = self._chunk({"reasoning_content": reasoning}) if reasoning else b""
        return found + self._chunk({"content": content}) if content else found

    def last(self, run: Any) -> bytes:
        """The end: what is missing of the content and why it ends there, or why there is none."""
        try:
            content, finish = shapes.content_of(run)
            rest = self._speaking.rest(content)
        except Rejected as why:
            return self.error(why)
        found = self._chunk({"content": rest}) if rest else b""
        found += self._chunk({}, finish)
        if self._include_usage:
            found += _event({**self._base, "choices": [], "usage": shapes.usage_of(run)})
        return found + DONE

    def error(self, why: Rejected) -> bytes:
        """An error, after which the stream ends: clients raise it."""
        return _event(why.body())

    def _chunk(self, delta: dict[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
        return _event({**self._base, "choices": [choice]})


class Streamed(Response):
    """The response. `gone` is done when the client went away: that cancels the run."""

    def __init__(
        self,
        performing: Performing,
        events: asyncio.Queue[Event | None],
        chunks: Chunks,
        gone: asyncio.Future[None],
        headers: Mapping[str, str],
    ) -> None:
        super().__init__(
            headers={**headers, "content-type": "text/event-stream", "x-accel-buffering": "no"},
        )
        del self.headers["content-length"]
        self._performing, self._events, self._chunks, self._gone = performing, events, chunks, gone

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._gone.add_done_callback(lambda _: self._events.put_nowait(None))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await self._tell(send)
        finally:
            self._gone.cancel()
            self._performing.cancel(GONE)  # of a run that is over this is nothing

    async def _tell(self, send: Send) -> None:
        said = self._chunks.first()
        over = False
        while not over:
            if said:
                await send({"type": "http.response.body", "body": said, "more_body": True})
            said, over = await self._more()
            if self._gone.done():
                return
        try:
            said += self._chunks.last(await self._performing.done())
        except BaseException as why:
            if isinstance(why, asyncio.CancelledError):
                raise
            said += self._chunks.error(rejected(why) if isinstance(why, Exception) else Rejected(500, str(why)))
        await send({"type": "http.response.body", "body": said})

    async def _more(self) -> tuple[bytes, bool]:
        """All that there is to tell by now, and whether the run is over; waits for something."""
        try:
            async with asyncio.timeout(SILENCE):
                event = await self._events.get()
        except TimeoutError:
            return ALIVE, False
        said = b""
        while True:
            if event is None or isinstance(event, ev.Ended):
                return said, True
            said += self._chunks.of(event)
            if self._events.empty():
                return said, False
            event = self._events.get_nowait()


def _event(value: Any) -> bytes:
    return b"data: " + encode(value) + b"\n\n"
