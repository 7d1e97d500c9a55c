"""`Idempotency-Key`: a repeated POST with the same key gets the answer of the first one and starts nothing.

The first POST continues even if its client goes away, because the client will ask again. Later ones wait for its
answer. Answers stay in memory for `LIFETIME` seconds, so a restarted server does not know the keys.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from dataclasses import dataclass, field

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from plait.server.chat_format import SESSION_HEADER
from plait.server.errors import RequestRejected

LIFETIME = 24 * 3600.0
"""Seconds that an answer is stored after its request began."""
MAX_ANSWERS, MAX_STORED = 1_000, 256 << 20
"""Maximum number and bytes of stored answers, which may have files. The oldest complete ones are removed first."""
LONGEST = 255
"""Characters of a key."""


@dataclass
class StoredAnswer:
    """The answer to one request: a digest of the request, the task that makes it, and its ASGI messages so far.
    `changed` is notified of each message and of the last one's end, `is_whole`."""

    digest: bytes
    began: float = field(default_factory=time.monotonic)
    messages: list[Message] = field(default_factory=list)
    task: asyncio.Task[None] | None = None
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    is_whole: bool = False
    size: int = 0

    async def has_more(self, sent: int) -> bool:
        """Wait for a message after the first `sent` ones; False if there is none."""
        async with self.changed:
            await self.changed.wait_for(lambda: self.is_whole or len(self.messages) > sent)
        return len(self.messages) > sent


class Idempotency:
    """Wraps an application: answers requests by caller and key."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._stored: dict[tuple[str, str], StoredAnswer] = {}

    async def answer(self, scope: Scope, body: bytes, receive: Receive, send: Send, owner: str) -> None:
        """Answer a request whose body was read already. Raises `RequestRejected` for a key that cannot be used."""
        key = Headers(scope=scope).get("idempotency-key", "")
        if scope["method"] != "POST" or not key:
            await self._app(scope, _replay(body, receive), send)
            return
        if len(key) > LONGEST:
            text = f"The Idempotency-Key has more than {LONGEST} characters."
            raise RequestRejected(400, text, code="bad_idempotency_key")
        self._remove_old()
        session = Headers(scope=scope).get(SESSION_HEADER, "")
        parts = (scope["path"].encode(), scope.get("query_string", b""), session.encode(), body)
        digest = hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).digest()
        stored = self._stored.get((owner, key))
        if stored is None:
            stored = self._stored[owner, key] = StoredAnswer(digest)
            stored.task = asyncio.ensure_future(self._perform(scope, body, stored))
        elif stored.digest != digest:
            raise RequestRejected(
                422,
                "The Idempotency-Key was used for another request.",
                hint="Send a new key with each new request.",
                code="idempotency_key_reused",
                may_retry=False,
            )
        assert stored.task is not None
        sent = 0
        while await stored.has_more(sent):  # a stream's parts go out as they are made
            await send(stored.messages[sent])
            sent += 1
        await asyncio.wait([stored.task])  # not the task itself: a client that goes away must not cancel it
        if stored.task.cancelled() or stored.task.exception() is not None:
            self._stored.pop((owner, key), None)  # no answer: the next request with the key starts again
            stored.task.result()

    async def _perform(self, scope: Scope, body: bytes, stored: StoredAnswer) -> None:
        async def store(message: Message) -> None:
            stored.messages.append(message)
            stored.size += len(message.get("body", b""))
            async with stored.changed:
                stored.changed.notify_all()

        try:
            await self._app(scope, _replay(body, None), store)
        finally:
            stored.is_whole = True
            async with stored.changed:
                stored.changed.notify_all()

    def _remove_old(self) -> None:
        now = time.monotonic()
        complete = [key for key, stored in self._stored.items() if stored.task is not None and stored.task.done()]
        left = MAX_STORED
        for at, key in enumerate(reversed(complete)):
            left -= self._stored[key].size
            if now - self._stored[key].began > LIFETIME or at >= MAX_ANSWERS or left < 0:
                del self._stored[key]


def _replay(body: bytes, receive: Receive | None) -> Receive:
    """Return what a route receives: the body, then whether the client went away (None: it never does)."""
    sent = False

    async def next_message() -> Message:
        nonlocal sent
        if not sent:
            sent = True
            return {"type": "http.request", "body": body, "more_body": False}
        return await (receive() if receive is not None else asyncio.Future())

    return next_message
