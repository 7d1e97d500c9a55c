"""`Idempotency-Key`: a repeated POST with the same key starts nothing, and gets the answer of the first one.

A key stands for the id of one run. The journal has it, so each server process on the journal knows it, after a restart,
too. The store refuses a second run with the same id. So of many requests with one key that arrive at once, at several
processes, one begins the run, and all others follow it. An answer to a question has the name of its request on record.
A key is good for `KEEP_REQUESTS` seconds; if its run is deleted before, it begins a new one.
"""

from __future__ import annotations

import hashlib
import time
from contextlib import suppress

from starlette.requests import Request

from plait.core.errors import UnknownRun
from plait.journal import codec
from plait.journal.owner import new_run_id
from plait.journal.records import Resumption
from plait.journal.store import KEEP_REQUESTS, Store, read_timeline
from plait.server.chat_format import SESSION_HEADER
from plait.server.errors import RequestRejected
from plait.server.recorded_reply import list_answered

KIND = "request"
"""The kind of what the journal keeps about a key: the run's id, whether the request answers a question of that run, and
a digest of the request."""
LONGEST = 255
"""Characters of a key."""


class RequestKey:
    """The key of one request, and the `run` for which it stands: the `part` of it that answers the request (see
    `recorded_reply`). `has_begun`: a request with the key has begun the run, or answered its question."""

    def __init__(self, store: Store, name: str, digest: str) -> None:
        self._store, self._name, self._digest = store, name, digest
        self.run, self.part, self.has_begun, self._is_answer = new_run_id(), 0, False, False

    async def stand_for(self, run: str, *, is_answer: bool, replace: bool = True) -> str:
        """Let the key stand for a new run, or for the answer to a question of a run. Returns the name of the request
        for the record of that run: the answer was given if it is there."""
        self.run, self._is_answer = run, is_answer
        data = codec.encode({"digest": self._digest, "is_answer": is_answer})
        await self._store.keep(KIND, self._name, run, data, replace=replace)
        return self._name

    async def find_new_run(self) -> str:
        """Return the id of the run to begin: that of all requests with the key."""
        if self._is_answer:  # the question was answered meanwhile
            await self.stand_for(new_run_id(), is_answer=False)
        return self.run

    async def read(self) -> str:
        """Return the run for which the key stands by now. Raises `RequestRejected` for another request."""
        for found in await self._store.list_kept(KIND, [self._name]):
            said = codec.decode_plain(found.data.decode())
            if said["digest"] != self._digest:
                text = "The Idempotency-Key was used for another request."
                hint = "Send a new key with each new request."
                raise RequestRejected(422, text, hint=hint, code="idempotency_key_reused", may_retry=False)
            if time.time() - found.at > KEEP_REQUESTS:
                await self.stand_for(self.run, is_answer=False)
            else:
                self.run, self._is_answer = found.run, said["is_answer"]
        return self.run

    async def look(self) -> bool:
        """Return whether a request with the key was performed by now. Raises `RequestRejected` for another request."""
        await self.read()
        with suppress(UnknownRun):
            row = await self._store.find_run(self.run)
            self.has_begun = not self._is_answer and row.head.run == self.run
            for moment in (await read_timeline(self._store, self.run, bodies=False)).moments if self._is_answer else ():
                if isinstance(moment.entry, Resumption) and moment.entry.request == self._name:
                    answered = await list_answered(self._store, self.run)
                    self.part, self.has_begun = 1 + sum(at < moment.at for at, _ in answered), True
        return self.has_begun


async def read_key(request: Request, store: Store) -> RequestKey | None:
    """Return the key of a request; None if it has none. Raises `RequestRejected` for one that cannot be used."""
    key, caller = request.headers.get("idempotency-key", ""), request.state.caller
    if not key:
        return None
    if len(key) > LONGEST:
        text = f"The Idempotency-Key has more than {LONGEST} characters."
        raise RequestRejected(400, text, code="bad_idempotency_key")
    name = hashlib.sha256(f"{caller.owner}\0{key}".encode("utf-8", "surrogateescape")).hexdigest()
    session = request.headers.get(SESSION_HEADER, "").encode("utf-8", "surrogateescape")
    parts = [request.url.path.encode(), request.url.query.encode(), await request.body(), session]
    digest = hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()
    return await open_key(store, name, digest)


async def open_key(store: Store, name: str, digest: str) -> RequestKey:
    """Return the key of that name, for a request with that digest. Raises `RequestRejected` for another request."""
    made = RequestKey(store, name, digest)
    new = made.run
    await made.stand_for(new, is_answer=False, replace=False)
    if await made.read() != new:  # else no earlier request had the key
        await made.look()
    return made
