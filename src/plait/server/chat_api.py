"""The routes under /api/conversations: what the chat page lists, shows, sends and changes.

A caller has its own conversations: their names begin with its owner. A full token has those of no owner.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from msgspec import structs
from starlette.requests import Request
from starlette.responses import Response

from plait.agent import TURN_POLL
from plait.core import File
from plait.core.errors import SessionBusy, UnknownRun
from plait.journal.owner import new_run_id
from plait.journal.records import RunRow
from plait.journal.run_query import RunQuery
from plait.journal.store import ACTIVE, TITLES
from plait.runtime.agents.agent_fields import restore_settings
from plait.runtime.conversations.attachments import NO_TEXT, UserQuestion, attach
from plait.runtime.conversations.chat_messages import GivenTurns
from plait.runtime.limits import Limits
from plait.server.auth import USE, Caller
from plait.server.conversation_record import (
    ConversationNotes,
    RecordedConversation,
    RecordedTurn,
    keep_notes,
    read_conversation,
    read_history,
    read_notes,
)
from plait.server.errors import RequestRejected, json_response
from plait.server.openapi import ApiRoute
from plait.server.runs import ActiveRun, RunManager, agent_name
from plait.server.runs_api import describe_agent, file_response
from plait.server.service import parse_body, parse_number
from plait.view.markdown import LONGEST, render_markdown
from plait.view.run_view import SHORT, format_answer, list_entry

PAGE = 40
"""Conversations in one answer."""
LONGEST_TITLE = 200
RAISED = ("steps", "calls", "tokens", "usd", "seconds")
"""The limits after which a run can go on."""


class ChatFile(msgspec.Struct, forbid_unknown_fields=True):
    """A file of a message: its name, and its content in base64."""

    name: str
    content: bytes


class ChatMessageBody(msgspec.Struct, forbid_unknown_fields=True):
    """A message. Without a `session` it begins a conversation. `after` is the run whose answer the user saw last: the
    message is refused if the conversation has gone on since. `edits` is the run whose question it replaces: it then
    begins a branch, which keeps the files `kept` (digests) of that question."""

    agent: str
    text: str = ""
    session: str | None = None
    after: str | None = None
    edits: str | None = None
    files: list[ChatFile] = []
    kept: list[str] = []


class TurnBody(msgspec.Struct, forbid_unknown_fields=True):
    """A turn of a conversation, by a run of it."""

    session: str
    run: str


class TitleBody(msgspec.Struct, forbid_unknown_fields=True):
    session: str
    title: str


class DeleteBody(msgspec.Struct, forbid_unknown_fields=True):
    session: str


def chat_routes(manager: RunManager) -> list[ApiRoute]:
    api, at = ChatApi(manager), "/api/conversations"
    return [
        ApiRoute(at, api.conversations, query=("words", "before"), role=USE),
        ApiRoute(f"{at}/agents", api.agents, role=USE),
        ApiRoute(f"{at}/turns", api.turns, query=("session",), role=USE),
        ApiRoute(f"{at}/file", api.file, query=("session", "digest"), role=USE),
        ApiRoute(f"{at}/export", api.export, query=("session", "format"), role=USE),
        ApiRoute(f"{at}/messages", api.send, methods=["POST"], body=ChatMessageBody, role=USE),
        ApiRoute(f"{at}/retry", api.retry, methods=["POST"], body=TurnBody, role=USE),
        ApiRoute(f"{at}/continue", api.go_on, methods=["POST"], body=TurnBody, role=USE),
        ApiRoute(f"{at}/title", api.rename, methods=["POST"], body=TitleBody, role=USE),
        ApiRoute(f"{at}/delete", api.delete, methods=["POST"], body=DeleteBody, role=USE),
    ]


class ChatApi:
    """The routes of the chat page."""

    def __init__(self, manager: RunManager) -> None:
        self._manager, self._store = manager, manager.journal.store

    # -- reading

    async def agents(self, request: Request) -> Response:
        """Return the agents to talk to."""
        return json_response({"agents": [describe_agent(each) for each in self._manager.agents.values()]})

    async def conversations(self, request: Request) -> Response:
        """Return the caller's conversations, the newest first, and whether there are more."""
        caller, words = request.state.caller, request.query_params.get("words", "")[:SHORT]
        before = parse_number("before", request.query_params.get("before") or "0")
        found = await self._store.list_sessions(PAGE + 1, owner=caller.session(""), words=words, before=before)
        found, has_more = found[:PAGE], len(found) > PAGE
        notes = await read_notes(self._store, [each.name for each in found])
        numbers = tuple(each.n for each in found)
        rows = {row.n: row for row in await self._store.list_runs(RunQuery(numbers=numbers))} if found else {}
        conversations = [
            {
                "session": caller.name_session(each.name),
                "title": (each.name in notes and notes[each.name].title) or _make_title(each.first),
                "agent": agent_name(rows[each.n].head) or rows[each.n].head.agent,
                "status": rows[each.n].status,
                "updated": rows[each.n].updated,
                "n": each.n,
                "edited": each.name in notes and bool(notes[each.name].base),
            }
            for each in found
            if each.n in rows  # it may be deleted just now
        ]
        return json_response({"conversations": conversations, "more": has_more})

    async def turns(self, request: Request) -> Response:
        """Return one conversation with its turns."""
        return json_response(await self._describe(request.state.caller, await self._find(request)))

    async def file(self, request: Request) -> Response:
        """Return an attached file."""
        digest, turns = request.query_params.get("digest"), (await self._find(request)).turns
        files = (file for turn in turns for row in turn.versions for file in row.head.files)
        found = next((each for each in files if each.digest == digest), None)
        if found is None:
            raise RequestRejected(404, "The conversation has no such file.")
        content = (await self._store.read_contents([found]))[found.digest]
        return file_response(content, found.name, found.media_type)

    async def export(self, request: Request) -> Response:
        """Return a conversation as a file: Markdown or JSON."""
        format, found = request.query_params.get("format", "markdown"), await self._find(request)
        described = await self._describe(request.state.caller, found, True)
        if format == "json":
            content, name = bytes(json_response(described).body), "conversation.json"
        elif format == "markdown":
            parts = [f"# {described['title']}\n"]
            for row in (turn.row for turn in found.turns):
                head, outcome = row.head, row.outcome or {}
                files = "".join(f"\n\nAttached: {file}" for file in head.attachments)
                said = format_answer(outcome.get("answer")) or f"({row.status}: {outcome.get('reason') or ''})"
                agent = agent_name(head) or head.agent or "Agent"
                parts.append(f"## You\n\n{head.question}{files}\n\n## {agent}\n\n{said}\n")
            content, name = "\n".join(parts).encode("utf-8", "replace"), "conversation.md"
        else:
            raise RequestRejected(400, f"There is no format {format!r}.", hint="Use markdown or json.", param="format")
        return file_response(content, name)

    # -- talking

    async def send(self, request: Request) -> Response:
        """Send a message. Returns its run when the journal has it."""
        given, caller = await parse_body(request, ChatMessageBody), request.state.caller
        files = [attach(each.content, each.name) for each in given.files]
        if not given.text.strip() and not files and not given.kept:
            raise RequestRejected(400, "The message is empty.", hint="Write something, or attach a file.", param="text")
        session = self._name(caller, given.session or f"chat-{new_run_id()}")
        if given.edits is not None:
            return await self._branch(caller, session, given, files)
        with await self._manager.take_turn(session) as turn:
            while True:
                found = await read_conversation(self._store, session) if given.session else None
                last = found.turns[-1] if found is not None and found.turns else None
                if last is not None and given.after not in (None, last.row.head.run):
                    if last.find_version(given.after) is None:
                        text, hint = "The conversation has gone on elsewhere.", "Read what is new, and send it again."
                        raise RequestRejected(409, text, hint=hint, code="gone_on")
                    # The user chose another version of the last answer.
                    await keep_notes(self._store, last.session, chosen={last.root: given.after})
                    continue
                history = await read_history(self._store, found) if found is not None else None
                try:
                    active = await self._start(caller, session, given, files, history)
                except SessionBusy as why:
                    if why.status == "waiting":
                        text = "The agent waits for an answer to its question."
                        raise RequestRejected(409, text, hint="Answer it first.", may_retry=False) from None
                    await asyncio.sleep(TURN_POLL)  # a turn at another server
                    continue
                active.keep(turn)
                return _answer_run(caller, session, active)

    async def _branch(self, caller: Caller, session: str, given: ChatMessageBody, files: list[File]) -> Response:
        """Begin a conversation with the turns before the one that is edited."""
        found = await read_conversation(self._store, session)
        edited = next((turn for turn in found.turns if turn.find_version(given.edits)), None)
        if edited is None:
            raise RequestRejected(404, "The conversation has no such message.", param="edits")
        branch = caller.session(f"chat-{new_run_id()}")
        kept = [file for file in edited.row.head.attachments if file.digest in given.kept]
        contents = await self._store.read_contents(kept)
        files = [*(attach(contents[file.digest], file.name) for file in kept), *files]
        history = await read_history(self._store, found, edited.root)
        active = await self._start(caller, branch, given, files, history)
        base, at = edited.session, edited.root
        if found.notes.base and edited is next(turn for turn in found.turns if turn.session == found.session):
            base, at = found.notes.base, found.notes.at  # the edit of an edit is a version of the same message
        await keep_notes(self._store, branch, base=base, at=at)
        return _answer_run(caller, branch, active)

    async def _start(
        self, caller: Caller, session: str, given: ChatMessageBody, files: list[File], history: GivenTurns | None
    ) -> ActiveRun:
        question: UserQuestion = [given.text, *files] if files else given.text
        return await self._manager.start(given.agent, question, caller=caller, session=session, history=history)

    async def retry(self, request: Request) -> Response:
        """Answer the last message once more. The earlier answer stays as another version."""
        return await self._fork(request, goes_on=False)

    async def go_on(self, request: Request) -> Response:
        """Go on where a limit stopped a run, with the same limits again on top."""
        return await self._fork(request, goes_on=True)

    async def _fork(self, request: Request, *, goes_on: bool) -> Response:
        given, caller = await parse_body(request, TurnBody), request.state.caller
        session = self._name(caller, given.session)
        with await self._manager.take_turn(session) as taken:
            turns = (await read_conversation(self._store, session)).turns
            last = turns[-1] if turns and turns[-1].session == session else None
            row = last.find_version(given.run) if last is not None else None
            if last is None or row is None:
                raise RequestRejected(409, "This is not the last message.", hint="Edit it to begin a branch.")
            if row.status in ACTIVE:
                raise RequestRejected(409, f"The run has not ended ({row.status}).", hint="Stop it, or wait.")
            if goes_on and row.status != "stopped":
                raise RequestRejected(409, f"No limit stopped the run: it is {row.status}.", hint="Retry it.")
            at, agent = 1, self._manager.agent_for(row.head)
            if goes_on:
                rows = await self._store.read_rows(row.head.run, bodies=False)
                at = max((each.record.step for each in rows), default=0) + 1
                agent = agent.using(limits=self._raise_limits(row))
            about = self._manager.annotate_fork(row.head, caller)
            active = await self._manager.fork_with(agent, row.head, at, **about)
            active.keep(taken)
            await keep_notes(self._store, session, chosen={last.root: active.run})
        return _answer_run(caller, session, active)

    def _raise_limits(self, row: RunRow) -> Limits:
        """Return the limits of a run with those of its agent on top, as for another message."""
        before: Limits = restore_settings(row.head).get("limits", Limits())
        served = self._manager.agents.get(agent_name(row.head))
        usual = served.agent.limits if served is not None else before
        values = {name: (getattr(before, name), getattr(usual, name)) for name in RAISED}
        return structs.replace(before, **{name: a + (b or a) for name, (a, b) in values.items() if a is not None})

    # -- the conversation as a whole

    async def rename(self, request: Request) -> Response:
        """Give a conversation another title."""
        given, caller = await parse_body(request, TitleBody), request.state.caller
        session = self._name(caller, given.session)
        if not given.title.strip() or len(given.title) > LONGEST_TITLE:
            raise RequestRejected(400, f"A title has 1 to {LONGEST_TITLE} characters.", param="title")
        if not (await read_conversation(self._store, session)).turns:
            raise _unknown(given.session)
        title = " ".join(given.title.split())
        await keep_notes(self._store, session, title=title)
        return json_response({"title": title})

    async def delete(self, request: Request) -> Response:
        """Delete a conversation with its runs. Branches of it stay, and know what was said before them."""
        given, caller = await parse_body(request, DeleteBody), request.state.caller
        session = self._name(caller, given.session)
        turns = (await read_conversation(self._store, session)).turns
        runs = [row for turn in turns if turn.session == session for row in turn.versions]
        if not runs:
            raise _unknown(given.session)
        if going := next((row for row in runs if row.status in ("running", "queued")), None):
            raise RequestRejected(409, f"A run of it goes on: {going.head.run}.", hint="Stop it first.")
        await self._store.delete([row.head.run for row in runs])
        await self._store.forget(TITLES, [session])
        return json_response({"deleted": len(runs)})

    # -- shared

    def _name(self, caller: Caller, session: str) -> str:
        """Return the session's name in the journal. Raises the same error for another's as for none."""
        if caller.full and session.startswith("@"):
            raise _unknown(session)
        return caller.session(session)

    async def _find(self, request: Request) -> RecordedConversation:
        named = request.query_params.get("session", "")
        found = await read_conversation(self._store, self._name(request.state.caller, named))
        if not named or not found.turns:
            raise _unknown(named)
        return found

    async def _describe(self, caller: Caller, found: RecordedConversation, is_whole: bool = False) -> dict[str, Any]:
        """Return a conversation, with answers as HTML, or as they are if it `is_whole`. `branches` of a turn are the
        conversations that have a version of its message, the original first if it is not deleted; its own `session` is
        one. `earlier` are the turns before a branch whose original was deleted."""
        notes = await read_notes(self._store, None)
        branches: dict[str, list[str]] = {}
        for name in sorted(notes):
            branches.setdefault(notes[name].at, []).append(name)
        firsts = {turn.session: turn.root for turn in reversed(found.turns)}
        versions: dict[str, list[str]] = {}
        for turn in found.turns:
            begun = notes.get(turn.session, ConversationNotes())
            is_edited = bool(begun.base) and firsts[turn.session] == turn.root
            base, at = (begun.base, begun.at) if is_edited else (turn.session, turn.root)
            original = [base] if not is_edited or await self._store.list_turns(base, limit=1) else []
            versions[turn.root] = [caller.name_session(name) for name in (*original, *branches.get(at, []))]

        def describe_turn(turn: RecordedTurn) -> dict[str, Any]:
            return {
                "root": turn.root,
                "session": caller.name_session(turn.session),
                "run": turn.row.head.run,
                "versions": [_describe_version(row, is_whole) for row in turn.versions],
                "branches": versions[turn.root],
            }

        return {
            "session": caller.name_session(found.session),
            "title": found.notes.title or _make_title(found.turns[0].row.head.question),
            "earlier": [{"question": each.question, "html": render_markdown(each.answer)} for each in found.earlier],
            "turns": await asyncio.to_thread(lambda: [describe_turn(turn) for turn in found.turns]),
        }


def _describe_version(row: RunRow, is_whole: bool) -> dict[str, Any]:
    outcome, answer = row.outcome or {}, (row.outcome or {}).get("answer")
    text = format_answer(answer)
    html = "" if answer is None else render_markdown(text if isinstance(answer, str) else f"```json\n{text}\n```")
    return {
        **list_entry(row),
        "question": "" if row.head.question == NO_TEXT else row.head.question,
        "files": [msgspec.to_builtins(file) | {"kind": file.kind} for file in row.head.attachments],
        "reason": outcome.get("reason") or "",
        "hint": outcome.get("hint", ""),
        "tool_calls": row.totals.get("tool_calls"),
        **({"answer": answer} if is_whole else {"text": text[:LONGEST], "html": html}),
    }


def _answer_run(caller: Caller, session: str, active: ActiveRun) -> Response:
    return json_response({"session": caller.name_session(session), "run": active.run}, 201)


def _make_title(question: str) -> str:
    words = " ".join(question.split())
    return words if len(words) <= 80 else f"{words[:79]}…"


def _unknown(session: str) -> UnknownRun:
    return UnknownRun(f"There is no conversation {session!r}.")
