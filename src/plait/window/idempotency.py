"""`Idempotency-Key`: a request that is sent again with the same key gets the answer of the first, and starts nothing.

Theory of operation. A POST with the header is answered as any other, but its answer is kept, and its run continues when
the client goes away, because the client will ask again. Whoever asks again with the same key waits for that answer.
Answers are kept in memory for `KEPT` seconds, so a server that was restarted does not know the key any more.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from dataclasses import dataclass, field

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from plait.window.errors import Rejected

KEPT = 24 * 3600.0
"""Seconds that an answer is kept after it was begun."""
MOST = 1_000
"""Answers that are kept at most; the oldest that are whole are forgotten first."""
LONGEST = 255
"""Characters of a key."""


@dataclass
class Kept:
    """An answer: of which request, its messages so far, and whether it is whole."""

    request: bytes
    began: float = field(default_factory=time.monotonic)
    messages: list[Message] = field(default_factory=list)
    whole: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None


class Idempotency:
    """Answers by caller and key. `answer` takes the place of the application for a request with a key."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._kept: dict[tuple[str, str], Kept] = {}

    async def answer(self, scope: Scope, body: bytes, receive: Receive, send: Send, owner: str) -> None:
        """Answer a request, from the first one with its key where there is one. Raises `Rejected`."""
        key = Headers(scope=scope).get("idempotency-key", "")
        if scope["method"] != "POST" or not key:
            await self._app(scope, _reading(body, receive), send)
            return
        if len(key) > LONGEST:
            raise Rejected(400, f"The Idempotency-Key has more than {LONGEST} characters.", code="bad_idempotency_key")
        request = hashlib.sha256(scope["path"].encode() + b"\0" + body).digest()
        self._forget()
        kept = self._kept.get((owner, key))
        if kept is not None and kept.request != request:
            raise Rejected(
                422,
                "The Idempotency-Key was used for another request.",
                hint="Send a new key with each new request.",
                code="idempotency_key_reused",
                again=False,
            )
        if kept is None:
            kept = self._kept[owner, key] = Kept(request)
            kept.task = asyncio.ensure_future(self._perform(scope, body, kept))
        await kept.whole.wait()
        if not kept.messages:  # it broke before it said anything: the next one with the key tries anew
            self._kept.pop((owner, key), None)
            assert kept.task is not None
            kept.task.result()
        for message in kept.messages:
            await send(message)

    async def _perform(self, scope: Scope, body: bytes, kept: Kept) -> None:
        async def keep(message: Message) -> None:
            kept.messages.append(message)

        try:
            await self._app(scope, _reading(body, None), keep)
        except BaseException:
            kept.messages.clear()
            raise
        finally:
            kept.whole.set()

    def _forget(self) -> None:
        now = time.monotonic()
        whole = [key for key, kept in self._kept.items() if kept.whole.is_set()]
        for at, key in enumerate(whole):
            if now - self._kept[key].began > KEPT or len(whole) - at > MOST:
                del self._kept[key]


def _reading(body: bytes, receive: Receive | None) -> Receive:
    """What a route reads: the body that was read already, then that the client went away (None: it never does)."""
    read = False

    async def reading() -> Message:
        nonlocal read
        if not read:
            read = True
            return {"type": "http.request", "body": body, "more_body": False}
        return await (receive() if receive is not None else asyncio.Future())

    return reading
