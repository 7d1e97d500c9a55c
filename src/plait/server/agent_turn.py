"""One request to a served agent: a run that starts or goes on, and its answer in a format of clients.

The journal has the run before the client learns of it. A client that goes away cancels its run, unless it asked for a
run in the background. A client that can come back (`grace`) has some seconds for that.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from plait.agent import TURN_POLL
from plait.core import Event
from plait.core import events as ev
from plait.core.errors import PlaitError, RunExists, SessionBusy, StaleAnswer, UnknownRun
from plait.journal import codec
from plait.server import conversations
from plait.server.auth import Caller
from plait.server.chat_format import ChatRequest
from plait.server.conversation_record import GIVEN, keep_notes
from plait.server.conversations import ConversationState
from plait.server.errors import ClientGone, RequestRejected, json_response, rejection_for
from plait.server.idempotency import KIND, RequestKey, read_key
from plait.server.recorded_reply import (
    ALIVE,
    SILENCE,
    Ending,
    Parts,
    RecordedReply,
    ReplyFormat,
    find_response,
    list_answered,
    read_ending,
)
from plait.server.runs import GONE, ActiveRun, RunManager

T = TypeVar("T")
FOLLOWED = "followed "
"""Begins the key under which the journal has when a client last came back to a run."""


class AgentTurn:
    """`key` is that of the request, if it is not in the header `Idempotency-Key`. `grace`: the seconds in which another
    request may follow a run whose client went away; then it is cancelled."""

    def __init__(
        self,
        manager: RunManager,
        asked: ChatRequest,
        caller: Caller,
        format: ReplyFormat,
        *,
        key: RequestKey | None = None,
        grace: float | None = None,
    ) -> None:
        self._manager, self._asked, self._caller, self._format = manager, asked, caller, format
        self._key, self._grace = key, grace
        self._events: asyncio.Queue[Event | None] = asyncio.Queue()

    async def answer(self, request: Request) -> Response:
        """Return the answer, or its beginning when the journal has the run. A client that goes away cancels the run."""
        key = self._key or await read_key(request, self._manager.journal.store)
        if key is not None and key.has_begun:
            return await self.answer_again(request, key.run, key.part)
        active: ActiveRun | None = None
        asked, format = self._asked, self._format
        goes_on = asked.background or key is not None  # its client will ask again
        try:
            active = await _unless_gone(request, self._begin(key))
            await format.open(active.run)
            headers = self._headers(active.run, active.session)
            if asked.stream and self._grace is not None:
                return await self._follow(active.run, self._stream(active), headers, is_back=False)
            if asked.stream:
                return ReplyStream(self._stream(active), headers, None if goes_on else partial(active.cancel, GONE))
            if asked.background:
                return json_response(format.whole(None), headers=headers)
            run = await _unless_gone(request, active.done())
        except PlaitError:
            if key is None or active is not None or not await key.look():
                raise
            return await self.answer_again(request, key.run, key.part)  # a request with the same key was faster
        except BaseException as why:
            if active is not None and not (goes_on and isinstance(why, ClientGone)):
                active.cancel(GONE)
            raise
        for _ in range(self._events.qsize()):
            if (event := self._events.get_nowait()) is not None:
                format.add(event)
        return json_response(format.whole(await read_ending(run, format)), headers=headers)

    async def answer_again(self, request: Request, run: str, part: int | None = None) -> Response:
        """Return the answer of a part of a run (None: the newest) from its record. This starts and cancels nothing."""
        asked, reply = self._asked, RecordedReply(self._manager, run, part, self._format)
        headers = self._headers(run, (await self._manager.journal.store.find_run(run)).head.session)
        if asked.stream and self._grace is not None:
            return await self._follow(run, reply.follow(), headers, is_back=True)
        if asked.stream:
            return ReplyStream(reply.follow(), headers)
        work = reply.read() if asked.background else reply.wait()
        _, ending = await _unless_gone(request, work)
        return json_response(self._format.whole(ending), headers=headers)

    async def _follow(self, run: str, parts: Parts, headers: Mapping[str, str], *, is_back: bool) -> Response:
        """Return a stream whose client may go away and come back (`is_back`), also at another server. The connection
        that is lost may be noticed after that. So the run is cancelled if `grace` seconds later it still goes on with
        the same part, no stream of this server follows it, and none has begun anywhere after this one."""
        store, streams, stream = self._manager.journal.store, self._manager.streams, (run, object())
        streams.add(stream)
        if is_back:
            await store.keep(KIND, FOLLOWED + run, run, codec.encode(secrets.token_hex(8)))
        newest = await store.list_kept(KIND, [FOLLOWED + run])
        part = len(await list_answered(store, run))

        async def cancel() -> None:
            await asyncio.sleep(self._grace or 0)
            with suppress(PlaitError):
                is_same = part == len(await list_answered(store, run))
                is_left = newest == await store.list_kept(KIND, [FOLLOWED + run]) and run not in dict(streams)
                if is_left and is_same and (await store.find_run(run)).status == "running":
                    await self._manager.cancel(run, reason=GONE)

        def leave() -> None:
            streams.discard(stream)
            self._manager.hold(cancel())

        async def follow() -> Parts:
            try:
                async for each in parts:
                    yield each
            finally:
                streams.discard(stream)
                await parts.aclose()

        return ReplyStream(follow(), headers, leave)

    def _headers(self, run: str, session: str) -> dict[str, str]:
        name = quote(self._caller.name_session(session), safe=" !#$&'()*+,/:;=?@[]~")
        return {"x-plait-run": run, "x-plait-session": name, "x-request-id": run}

    # -- the run

    async def _begin(self, key: RequestKey | None) -> ActiveRun:
        """Start the run, or resume the one that waits for this message. A session has one turn at a time."""
        named = self._caller.session(self._asked.session) if self._asked.session is not None else None
        try:
            state = await self._find_state(None) if named is None else ConversationState(named, is_known=True)
        except StaleAnswer as error:
            if (active := self._manager.active.get(error.run)) is None:
                raise
            await asyncio.wait([active.task])  # the answer came from elsewhere; the message may come next
            state = await self._find_state(None)
        while True:
            with await self._manager.take_turn(state.session if state.is_known else None) as turn:
                if state.is_known:
                    # Nobody else adds to the session from here. Read what was said in the meantime.
                    before, state = state.session, await self._find_state(named)
                    if key is not None:
                        store = self._manager.journal.store
                        for last in await store.list_turns(state.session, limit=1):
                            # At another server it may be for the same request.
                            while (await store.find_run(last.run)).status == "running":
                                await asyncio.sleep(TURN_POLL)
                        if await key.look():
                            raise RunExists(key.run, self._manager.journal.place)
                    if state.session != before and state.is_known:
                        continue  # wait for the turn of that session instead
                    if state.session != before:
                        turn.close()
                try:
                    active = await self._start_or_resume(state, named, key)
                except SessionBusy:  # a turn at another server, or of another program
                    await asyncio.sleep(TURN_POLL)
                    state = await self._find_state(named)
                    continue
                active.keep(turn)
                return active

    async def _find_state(self, named: str | None) -> ConversationState:
        asked, journal, caller = self._asked, self._manager.journal, self._caller
        # In a thread, because a long journal must not hold up other requests.
        if named is not None:
            return await asyncio.to_thread(conversations.find_session, journal, named)
        if asked.previous:
            (row, part), text = await find_response(self._manager, asked.previous, caller), asked.messages[-1].text
            if not await self._manager.is_own(row, caller):  # one that the caller sees, but of another's conversation
                raise UnknownRun(f"There is no response {asked.previous!r}.")
            return await asyncio.to_thread(conversations.find_after, journal, caller, row, part, text)
        state = None
        if len(asked.messages) > 1:
            find = conversations.find_by_messages
            state = await asyncio.to_thread(find, journal, caller, asked.model, asked.messages)
        return state or conversations.new_conversation(caller)

    async def _start_or_resume(self, state: ConversationState, named: str | None, key: RequestKey | None) -> ActiveRun:
        asked, manager, caller, on_event = self._asked, self._manager, self._caller, self._events.put_nowait
        conversations.check_agent(state, asked.model)
        if asked.answers:
            if not state.waiting_run:
                raise StaleAnswer(f"Nothing waits for an answer to question {asked.answers!r}.", run="", waits=())
            question: str | None = asked.answers
        else:
            find = conversations.find_answered_question
            question = await asyncio.to_thread(find, manager.journal, state, asked.messages)
        if state.waiting_run:
            if asked.messages[-1].files:
                raise RequestRejected(400, "The answer to a question of the agent is text: it has no files.")
            run, answer = state.waiting_run, asked.messages[-1].text
            name = await key.stand_for(run, is_answer=True) if key is not None else ""
            more: dict[str, Any] = {"question": question, "caller": caller, "on_event": on_event, "request": name}
            return await manager.resume(run, answer, **more)
        history, run_id = state.history, await key.find_new_run() if key is not None else None
        if not asked.previous and (named is None or not state.is_known):
            history = await asyncio.to_thread(conversations.check_turns, manager.journal, caller, asked.earlier, state)
        if (asked.previous or named is not None) and not state.is_known and history is not None and history.turns:
            await keep_notes(manager.journal.store, state.session, base=GIVEN, at=state.session)
        return await manager.start(
            asked.model,
            asked.parts,
            caller=caller,
            session=state.session,
            history=history,
            key=asked.previous or conversations.conversation_key(asked.messages),
            output=asked.output,
            about={"user": asked.user, "metadata": asked.metadata, "run_id": run_id},
            on_event=on_event,
        )

    # -- its stream

    async def _stream(self, active: ActiveRun) -> Parts:
        active.task.add_done_callback(lambda _: self._events.put_nowait(None))
        yield self._format.begin(), True
        over = False
        while not over:
            try:
                async with asyncio.timeout(SILENCE):
                    event = await self._events.get()
            except TimeoutError:
                yield ALIVE, True
                continue
            parts = b""
            while not (over := event is None or isinstance(event, ev.Ended)):
                assert event is not None
                parts += self._format.add(event)
                if self._events.empty():
                    break
                event = self._events.get_nowait()
            if parts:
                yield parts, True
        try:
            ending = await read_ending(await active.done(), self._format)
        except Exception as error:
            ending = Ending(error=rejection_for(error))  # clients raise it
        yield self._format.end(ending), False


class ReplyStream(Response):
    """The response of a stream. `leave` is called if the client goes away before the end. Starlette's
    `StreamingResponse` would take a tenth more CPU time per run: it has a task group for each response, and ends it
    with an empty message."""

    def __init__(self, parts: Parts, headers: Mapping[str, str] = {}, leave: Callable[[], Any] | None = None) -> None:
        super().__init__(headers={**headers, "content-type": "text/event-stream", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._leave, self._parts = leave, parts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        gone = asyncio.ensure_future(_wait_for_disconnect(receive))
        is_whole = False
        if (leave := self._leave) is not None:
            gone.add_done_callback(lambda _: is_whole or leave())
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            async for body, more in self._parts:
                await send({"type": "http.response.body", "body": body, "more_body": more})
                if gone.done():
                    break
            else:
                is_whole = True
        finally:
            gone.cancel()
            await self._parts.aclose()


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _unless_gone(request: Request, work: Awaitable[T]) -> T:
    """Return the result of `work`. If the client goes away first, cancel it and raise `ClientGone`."""
    gone = asyncio.ensure_future(_wait_for_disconnect(request.receive))
    task: asyncio.Future[T] = asyncio.ensure_future(work)
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            task.cancel()
            await asyncio.wait([task])
        if gone.done() and task.cancelled():
            raise ClientGone
        return task.result()
    finally:
        gone.cancel()
        task.cancel()
