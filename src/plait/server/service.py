"""Runs as a service: `/v1/runs`. They are started, listed, followed, answered and cancelled at any server process.

A run is performed by the server that was asked to start it, or waits in a queue of the journal for a worker (`queue`).
Either way the journal has it before its client learns of it, and everything else is read from there.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from plait.core import Event
from plait.core.errors import RunExists, UnknownRun
from plait.core.events import Asked
from plait.journal.queue import has_queue, require_queue
from plait.journal.records import RunRow
from plait.journal.run_query import TEXTS, make_query
from plait.journal.store import ACTIVE, Store
from plait.journal.timeline import Timeline
from plait.recorded_runs import describe_run, read_open_questions
from plait.runtime.agents.annotations import RunAnnotations
from plait.runtime.inbox import Sent, list_messages
from plait.runtime.recorded_events import RecordedEvents, recorded_loop
from plait.server.auth import ANY, USE, Caller
from plait.server.errors import RequestRejected, json_response, repair_halves
from plait.server.idempotency import read_key
from plait.server.openapi import ApiRoute
from plait.server.runs import RunManager
from plait.view.live import NOBODY, OVER, follow, format_event, last_seen_row
from plait.view.run_search import PAGE

T = TypeVar("T")

FILTERS = (*TEXTS, "sort", "tag", "since", "until", "min_cost", "max_cost", "limit", "before")
"""The query parameters of a list of runs."""


class StartBody(msgspec.Struct, forbid_unknown_fields=True):
    """A new run. With a `queue` (default: that of the server), a worker performs it: those of higher `priority` first,
    not before the time `at`, in seconds since 1970."""

    agent: str
    question: str
    session: str | None = None
    user: str = ""
    tags: list[str] = []
    metadata: dict[str, Any] = {}
    queue: str | None = None
    priority: int = 0
    at: float | None = None


class AnswerBody(msgspec.Struct, forbid_unknown_fields=True):
    """The user's answer to the question with that id."""

    answer: str
    question: str | None = None


class ResumeBody(msgspec.Struct, forbid_unknown_fields=True):
    """A run that was interrupted goes on."""


class MessageBody(msgspec.Struct, forbid_unknown_fields=True):
    """A message to a run that goes on."""

    text: str


def service_routes(manager: RunManager) -> list[ApiRoute]:
    api = RunService(manager)
    one = "/v1/runs/{id}"
    return [
        ApiRoute("/v1/runs", api.start, methods=["POST"], body=StartBody, role=USE),
        ApiRoute("/v1/runs", api.list, query=FILTERS, role=ANY),
        ApiRoute(one, api.run, role=ANY),
        ApiRoute(f"{one}/events", api.events, query=("after",), role=ANY),
        ApiRoute(f"{one}/answer", api.answer, methods=["POST"], body=AnswerBody, role=ANY),
        ApiRoute(f"{one}/resume", api.resume, methods=["POST"], body=ResumeBody, role=ANY),
        ApiRoute(f"{one}/cancel", api.cancel, methods=["POST"], role=ANY),
        ApiRoute("/api/runs/{id}/messages", api.messages, role=ANY),
        ApiRoute("/api/runs/{id}/messages", api.send, methods=["POST"], body=MessageBody, role=ANY),
        ApiRoute("/api/runs/{id}/calls/{call}/cancel", api.cancel_call, methods=["POST"], role=ANY),
    ]


class RunService:
    """The routes under /v1/runs. A client sees only runs that its own token started, a user without the role `view`
    only the user's own. `RunManager` checks who may answer, resume and cancel one."""

    def __init__(self, manager: RunManager) -> None:
        self._manager, self._store = manager, manager.journal.store

    async def start(self, request: Request) -> Response:
        """Start a run, or put it in a queue; 202 when the journal has it."""
        given, caller = await parse_body(request, StartBody), request.state.caller
        key = await read_key(request, self._store)
        if key is not None and key.has_begun:
            return _accepted(key.run)
        session = caller.session(given.session) if given.session else None
        about: RunAnnotations = {"user": given.user, "tags": given.tags, "metadata": given.metadata}
        about["run_id"] = key.run if key is not None else None
        queue = self._manager.table.queue if given.queue is None else given.queue
        if not queue and (given.priority or given.at is not None):
            raise RequestRejected(400, "priority and at are for a queue.", hint="Name the queue.", param="queue")
        try:
            if queue:
                require_queue(self._store)
                served, said = self._manager.find_agent(given.agent), self._manager.annotate(given.agent, caller, about)
                more: dict[str, Any] = {"queue": queue, "priority": given.priority, "at": given.at}
                run = await served.agent.asubmit(given.question, session=session, **more, **said)
            else:
                with await self._manager.take_turn(session) as turn:
                    start = self._manager.start
                    active = await start(given.agent, given.question, caller=caller, session=session, about=about)
                    active.keep(turn)
                run = active.run
        except RunExists as why:  # a request with the same key was faster
            run = why.run
        return _accepted(run)

    async def list(self, request: Request) -> Response:
        """Return the runs that match, the newest first, and whether there are `more`."""
        wanted = make_query(**{"limit": PAGE, **read_filters(request)})
        limit, caller = min(max(wanted.limit, 1), 200), request.state.caller
        rows = await self._store.list_runs(msgspec.structs.replace(wanted, limit=limit + 1, label=caller.label))
        return json_response({"runs": [_describe(row, caller) for row in rows[:limit]], "more": len(rows) > limit})

    async def run(self, request: Request) -> Response:
        """Return a run, with its open questions and its place in a queue."""
        row = await self._find(request)
        return json_response(await describe_whole(self._store, row, request.state.caller))

    async def events(self, request: Request) -> Response:
        """Follow a run from the row after Last-Event-ID, or `after`, until it has ended."""
        caller = request.state.caller
        row = await self._find(request)
        after = last_seen_row(request.headers.get("last-event-id"), request.query_params.get("after"))
        shows_thoughts = self._manager.shows_thoughts(row.head, caller)
        follower = EventFollower(self._store, row, caller, shows_thoughts)
        if after is not None:  # the client has the events of these rows
            await follower.read_rows(after)
        texts = self._manager.texts.watch(row.head.run) if shows_thoughts else NOBODY
        return stream_events(follow(follower.read_events, lambda: self._manager.stopping, texts))

    async def _find(self, request: Request) -> RunRow:
        """Return the run that is asked for. What a child run of another agent says is not for clients."""
        caller, run = request.state.caller, run_id(request)
        row = await self._manager.find_run(run, caller)
        if row.head.caller is not None and not caller.sees_all:
            raise UnknownRun(f"There is no run {run!r} in the journal.")
        return row

    async def answer(self, request: Request) -> Response:
        """Answer a question of a run, which then goes on."""
        given, caller = await parse_body(request, AnswerBody), request.state.caller
        run = await self._manager.answer(run_id(request), given.answer, question=given.question, caller=caller)
        return _accepted(run)

    async def resume(self, request: Request) -> Response:
        """Let a run go on that was interrupted or cancelled."""
        await parse_body(request, ResumeBody)
        return _accepted(await self._manager.answer(run_id(request), caller=request.state.caller))

    async def cancel(self, request: Request) -> Response:
        """Cancel a run: soon, if another process performs it."""
        run = run_id(request)
        await self._manager.cancel(run, caller=request.state.caller)
        return _accepted(run)

    async def messages(self, request: Request) -> Response:
        """Return what users sent to a run while it went on, and whether it took that."""
        row = await self._find(request)
        return json_response({"messages": await list_messages(self._store, row.head.run)})

    async def send(self, request: Request) -> Response:
        """Send a message to a run: it takes it before its next model call."""
        given, caller, run = await parse_body(request, MessageBody), request.state.caller, run_id(request)
        number = await self._manager.send(run, Sent(given.text, by=caller.name), caller=caller)
        return json_response({"run": run, "number": number}, 202)

    async def cancel_call(self, request: Request) -> Response:
        """Cancel one tool call of a run; the run goes on."""
        run, caller = run_id(request), request.state.caller
        await self._manager.send(run, Sent(call=request.path_params["call"], by=caller.name), caller=caller)
        return _accepted(run)


class EventFollower:
    """Reads a run as it grows, and makes an event of each change, with the number of its row. Without `shows_thoughts`,
    of what happens within the run only that a model is asked."""

    def __init__(self, store: Store, row: RunRow, caller: Caller, shows_thoughts: bool) -> None:
        self._store, self._run, self._caller, self._shows_thoughts = store, row.head.run, caller, shows_thoughts
        self._events: list[Event] = []
        self._recorded = RecordedEvents(self._events.append, recorded_loop(row.head))
        self._timeline, self._seq, self._status = Timeline(run=self._run), -1, ""
        self._is_queued = False

    async def read_events(self) -> tuple[bytes, bool]:
        """Return the new events, and whether the run is over (see `follow`). The last one of a row has its number as
        its id."""
        # Read the run's row first. Its end is written with its last rows, so an ended run has all its rows.
        row = await self._store.find_run(self._run)
        told = await self.read_rows()
        if row.status != self._status:
            self._status = row.status
            whole = await describe_whole(self._store, row, self._caller)
            # The worker of an interrupted run died, or cannot perform it: another one takes it.
            self._is_queued = whole["queued"] is not None
            if row.status in OVER and not self._is_queued:
                self._recorded.finish((row.outcome or {}).get("answer"))
                told += self._take(None)
            told += format_event(whole, row.status)
        return told, row.status in OVER and not self._is_queued

    async def read_rows(self, until: int | None = None) -> bytes:
        """Return the events of the new rows, up to the number `until`."""
        told = b""
        for row in await self._store.read_rows(self._run, self._seq, until=until, bodies=False):
            for moment in self._timeline.add(row):
                self._recorded.add(moment)
            self._seq = row.seq
            told += self._take(row.seq)
        return told

    def _take(self, seq: int | None) -> bytes:
        events = [each for each in self._events if self._shows_thoughts or isinstance(each, Asked)]
        self._events.clear()
        said = [msgspec.to_builtins(each) for each in events]
        return b"".join(format_event(each, each["type"], seq if each is said[-1] else None) for each in said)


async def describe_whole(store: Store, row: RunRow, caller: Caller) -> dict[str, Any]:
    """Return a run with its open questions, and its place in a queue (None: in none)."""
    asked = [msgspec.to_builtins(each) for each in await read_open_questions(store, row)]
    can_go_on = row.status in ACTIVE or row.status == "interrupted"
    place = None
    for each in await store.list_queue(run=row.head.run) if has_queue(store) and can_go_on else ():
        place = {name: getattr(each, name) for name in ("queue", "priority", "not_before")}
        place["reason"] = each.reason.partition("\n")[0]  # the other lines quote requests
    return {**_describe(row, caller), "questions": asked, "queued": place}


def _describe(row: RunRow, caller: Caller) -> dict[str, Any]:
    """Return a run as its caller sees it: `plait runs --json` has the same fields."""
    described = describe_run(row)
    if not caller.sees_all:  # else these names are filters, too
        described |= {name: described[name] and caller.name_session(described[name]) for name in ("session", "user")}
    del described["label"]
    return {**described, "n": row.n}


def stream_events(events: AsyncIterator[bytes]) -> Response:
    return StreamingResponse(events, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})


def _accepted(run: str) -> Response:
    return json_response({"run": run}, 202, {"Location": f"/v1/runs/{quote(run)}", "x-plait-run": run})


def run_id(request: Request) -> str:
    return str(request.path_params["id"])


async def parse_body(request: Request, kind: type[T]) -> T:
    """Return the body as a value of a type. Raises `RequestRejected`."""
    body = await request.body()
    try:
        try:
            return msgspec.json.decode(body, type=kind)
        except msgspec.DecodeError as why:
            return msgspec.json.decode(repair_halves(body, why), type=kind)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise RequestRejected(400, f"The body can't be used: {error}.") from None


def read_filters(request: Request) -> dict[str, Any]:
    """Return the filters in the address, as the journal has the names: those of `make_query`, with any number of `tag`.
    `Caller.label` restricts the runs."""
    query = request.query_params
    if unknown := [name for name in query if name not in (*FILTERS, "by", "over", "days", "page")]:
        raise RequestRejected(400, f"There is no filter {unknown[0]!r}. Use {', '.join(FILTERS)}.", param=unknown[0])
    given: dict[str, Any] = {name: query[name] for name in FILTERS if name in query and name != "tag"}
    given |= {name: parse_number(name, given[name]) for name in ("before", "limit") if name in given}
    caller: Caller = request.state.caller
    return caller.in_journal({**given, "tags": query.getlist("tag")})


def parse_number(name: str, text: str) -> int:
    """Return a number in the address. SQLite cannot hold longer ones."""
    if not text.isdecimal() or len(text) > 18:
        raise RequestRejected(400, f"{name} is a number.", param=name)
    return int(text)
