"""`Idempotency-Key`: a repeated POST with the same key starts nothing, and gets the answer of the first one.

A key stands for the id of one run. The journal has it, so each server process on the journal knows it, after a restart,
too. Whoever begins a run with an id that is taken is told so by the store: of many requests with one key that arrive at
once, at several processes, one begins the run, and all others follow it. A key lives as long as its run, but at most
for `KEEP_REQUESTS` seconds.
"""

from __future__ import annotations

import hashlib
import time
from contextlib import suppress

from starlette.requests import Request

from plait.core.errors import UnknownRun
from plait.journal import codec
from plait.journal.owner import new_run_id
from plait.journal.store import KEEP_REQUESTS, Store
from plait.server.chat_format import SESSION_HEADER
from plait.server.errors import RequestRejected

KIND = "request"
"""The kind of what the journal keeps about a key: the run's id, its `part`, and a digest of the request."""
LONGEST = 255
"""Characters of a key."""


class RequestKey:
    """The key of one request, and the `run` for which it stands: the `part` of it that answers the request (see
    `recorded_reply`). `has_begun`: an earlier request began the run."""

    def __init__(self, store: Store, name: str, digest: str, run: str) -> None:
        self._store, self._name, self._digest = store, name, digest
        self.run, self.part, self.has_begun = run, 0, False

    async def look(self) -> bool:
        """Return whether a request with the key has begun the run by now, or answered its question."""
        for found in await self._store.list_kept(KIND, [self._name]):
            self.run, self.part = found.run, codec.decode_plain(found.data.decode())["part"]
        with suppress(UnknownRun):
            self.has_begun = (await self._store.find_run(self.run)).head.run == self.run
        return self.has_begun

    async def mean(self, run: str, part: int = 0) -> None:
        """Let the key stand for another run: the message answered its question."""
        self.run, self.part = run, part
        await self._store.keep(KIND, self._name, run, codec.encode({"digest": self._digest, "part": part}))


async def read_key(request: Request, store: Store) -> RequestKey | None:
    """Return the key of a request; None if it has none. Raises `RequestRejected` for one that cannot be used."""
    key, caller = request.headers.get("idempotency-key", ""), request.state.caller
    if not key:
        return None
    if len(key) > LONGEST:
        text = f"The Idempotency-Key has more than {LONGEST} characters."
        raise RequestRejected(400, text, code="bad_idempotency_key")
    name = hashlib.sha256(f"{caller.owner}\0{key}".encode("utf-8", "surrogateescape")).hexdigest()
    parts = [request.url.path.encode(), request.url.query.encode(), await request.body()]
    parts.append(request.headers.get(SESSION_HEADER, "").encode("utf-8", "surrogateescape"))
    digest = hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()
    made = RequestKey(store, name, digest, new_run_id())
    await store.keep(KIND, name, made.run, codec.encode({"digest": digest, "part": 0}), replace=False)
    found = next(iter(await store.list_kept(KIND, [name])), None)
    if found is None or time.time() - found.at > KEEP_REQUESTS:
        await made.mean(made.run)
        return made
    if codec.decode_plain(found.data.decode())["digest"] != digest:
        text, hint = "The Idempotency-Key was used for another request.", "Send a new key with each new request."
        raise RequestRejected(422, text, hint=hint, code="idempotency_key_reused", may_retry=False)
    await made.look()
    return made
