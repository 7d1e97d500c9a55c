"""The chat-completions endpoint: each served agent is a model, each request is a run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Mapping
from math import inf
from typing import Any, TypeVar
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from plait.agent import TURN_POLL, Agent
from plait.core import Event, OneKind
from plait.core import events as ev
from plait.core.errors import SessionBusy, StaleAnswer
from plait.journal.codec import encode
from plait.loops import OURS, splitter_of
from plait.runtime.calls.artifacts import find_artifacts
from plait.runtime.run import Run
from plait.server import conversations
from plait.server.agents import ServedAgent
from plait.server.auth import Caller
from plait.server.chat_format import ChatRequest, content_of, list_files, parse_request, usage_of
from plait.server.conversations import ConversationState
from plait.server.errors import ClientGone, RequestRejected, json_response, rejection_for
from plait.server.runs import GONE, ActiveRun, OnEvent, RunManager
from plait.tools.render import replace_surrogates

SILENCE = 15.0
"""Seconds after which a comment is sent, so that no proxy closes the connection."""
ALIVE = b": still at work\n\n"
DONE = b"data: [DONE]\n\n"

T = TypeVar("T")


def completion_routes(manager: RunManager) -> list[Route]:
    async def complete(request: Request) -> Response:
        asked = parse_request(await request.body(), request.headers)
        served = manager.find_agent(asked.model)
        return await ChatCompletion(manager, served, asked, request.state.caller).answer(request)

    async def models(request: Request) -> Response:
        return json_response({"object": "list", "data": [_describe_model(each) for each in manager.agents.values()]})

    async def model(request: Request) -> Response:
        return json_response(_describe_model(manager.find_agent(request.path_params["name"])))

    return [
        Route("/v1/chat/completions", complete, methods=["POST"]),
        Route("/v1/models", models),
        Route("/v1/models/{name}", model),
    ]


class ChatCompletion:
    def __init__(self, manager: RunManager, served: ServedAgent, asked: ChatRequest, caller: Caller) -> None:
        self._manager, self._served, self._asked, self._caller = manager, served, asked, caller
        thoughts = served.thoughts and asked.thoughts
        typed = asked.output is not None
        self._pieces = ReplyPieces(served.agent, thoughts=thoughts, typed=typed, streams=asked.stream)
        self._tells_progress = thoughts
        self._events: asyncio.Queue[Event | None] = asyncio.Queue()
        self._base: dict[str, Any] = {}

    async def answer(self, request: Request) -> Response:
        """Return the answer, or its beginning when the journal has the run. A client that goes away cancels the run."""
        gone = asyncio.ensure_future(_wait_for_disconnect(request.receive))
        active: ActiveRun | None = None
        try:
            active = await _unless_gone(gone, self._begin(self._events.put_nowait))
            self._base = {
                "id": f"chatcmpl-{active.run}",
                "object": "chat.completion.chunk" if self._asked.stream else "chat.completion",
                "created": int(time.time()),
                "model": self._served.name,
            }
            session = quote(self._caller.name_session(active.session), safe=" !#$&'()*+,/:;=?@[]~")
            headers = {"x-plait-run": active.run, "x-plait-session": session, "x-request-id": active.run}
            if self._asked.stream:
                return CompletionStream(active, self._stream(active), headers)
            run = await _unless_gone(gone, active.done())
        except BaseException:
            if active is not None:
                active.cancel(GONE)
            raise
        finally:
            gone.cancel()
        content, finish = content_of(run)
        message: dict[str, Any] = {"role": "assistant", "content": content}
        events = [self._events.get_nowait() for _ in range(self._events.qsize())]
        if reasoning := "".join(self._pieces.add(event)[0] for event in events):
            message["reasoning_content"] = reasoning
        message |= await self._list_files(run)
        choice = {"index": 0, "message": message, "finish_reason": finish, "logprobs": None}
        return json_response({**self._base, "choices": [choice], "usage": usage_of(run)}, headers=headers)

    # -- the run

    async def _begin(self, on_event: OnEvent) -> ActiveRun:
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
            async with self._manager.take_turn(state.session if state.is_known else None) as turn:
                if state.is_known:
                    # Nobody else adds to the session from here. Read what was said in the meantime.
                    before, state = state.session, await self._find_state(named)
                    if state.session != before and state.is_known:
                        continue  # wait for the turn of that session instead
                    if state.session != before:
                        turn.release()
                try:
                    active = await self._start_or_resume(state, named, on_event)
                except SessionBusy:  # a turn at another server, or of another program
                    await asyncio.sleep(TURN_POLL)
                    state = await self._find_state(named)
                    continue
                turn.release_after(active)
                return active

    async def _find_state(self, named: str | None) -> ConversationState:
        asked, journal, caller = self._asked, self._manager.journal, self._caller
        # In a thread, because a long journal must not hold up other requests.
        if named is not None:
            return await asyncio.to_thread(conversations.find_session, journal, named)
        state = None
        if len(asked.messages) > 1:
            find = conversations.find_by_messages
            state = await asyncio.to_thread(find, journal, caller, asked.model, asked.messages)
        return state or conversations.new_conversation(caller)

    async def _start_or_resume(self, state: ConversationState, named: str | None, on_event: OnEvent) -> ActiveRun:
        asked, manager, caller = self._asked, self._manager, self._caller
        conversations.check_agent(state, asked.model)
        question = await asyncio.to_thread(conversations.find_answered_question, manager.journal, state, asked.messages)
        if state.waiting_run:
            if asked.messages[-1].files:
                raise RequestRejected(400, "The answer to a question of the agent is text: it has no files.")
            answer = asked.messages[-1].text
            return await manager.resume(state.waiting_run, answer, question=question, caller=caller, on_event=on_event)
        history = None
        if named is None or not state.is_known:
            history = await asyncio.to_thread(conversations.check_turns, manager.journal, caller, asked.earlier, state)
        return await manager.start(
            asked.model,
            asked.parts,
            caller=caller,
            session=state.session,
            history=history,
            key=conversations.conversation_key(asked.messages),
            output=asked.output,
            about={"user": asked.user, "metadata": asked.metadata},
            on_event=on_event,
        )

    # -- the stream

    async def _stream(self, active: ActiveRun) -> AsyncIterator[tuple[bytes, bool]]:
        """Yield each part of the body, and whether more follow."""
        active.task.add_done_callback(lambda _: self._events.put_nowait(None))
        if self._asked.include_usage:
            self._base["usage"] = None
        yield self._chunk({"role": "assistant", "content": ""}), True
        over = False
        while not over:
            try:
                async with asyncio.timeout(SILENCE):
                    event = await self._events.get()
            except TimeoutError:
                yield ALIVE, True
                continue
            chunks = b""
            while not (over := event is None or isinstance(event, ev.Ended)):
                chunks += self._chunks_for(event)
                if self._events.empty():
                    break
                event = self._events.get_nowait()
            if chunks:
                yield chunks, True
        try:
            run = await active.done()
            last = self._last_chunks(run, await self._list_files(run))
        except Exception as error:
            last = _event(rejection_for(error).body())  # clients raise it
        yield last, False

    def _chunks_for(self, event: Event | None) -> bytes:
        if self._tells_progress and isinstance(event, ev.Noted) and event.kind == "progress":
            progress = {"text": replace_surrogates(event.text), "data": event.data}
            return self._chunk({}, progress=progress)
        reasoning, content = self._pieces.add(event)
        chunks = self._chunk({"reasoning_content": reasoning}) if reasoning else b""
        return chunks + self._chunk({"content": content}) if content else chunks

    async def _list_files(self, run: Run) -> dict[str, Any]:
        """Return the field with the run's files. The record is read only if there may be some."""
        may_have_some = self._pieces.has_files or run.tree.runs > 1
        return await asyncio.to_thread(list_files, run, self._asked.modalities) if may_have_some else {}

    def _last_chunks(self, run: Run, files: dict[str, Any]) -> bytes:
        content, finish = content_of(run)
        rest = self._pieces.rest(content)
        chunks = (self._chunk({"content": rest}) if rest else b"") + self._chunk(files, finish)
        if self._asked.include_usage:
            chunks += _event({**self._base, "choices": [], "usage": usage_of(run)})
        return chunks + DONE

    def _chunk(self, delta: dict[str, Any], finish: str | None = None, **more: Any) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
        return _event({**self._base, **more, "choices": [choice]})


class CompletionStream(Response):
    """The response of a stream. If the client goes away, the run is cancelled. Starlette's `StreamingResponse` would
    take a tenth more CPU time per run: it has a task group for each response, and ends it with an empty message."""

    def __init__(self, active: ActiveRun, parts: AsyncIterator[tuple[bytes, bool]], headers: Mapping[str, str]) -> None:
        super().__init__(headers={**headers, "content-type": "text/event-stream", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._active, self._parts = active, parts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        gone = asyncio.ensure_future(_wait_for_disconnect(receive))
        gone.add_done_callback(lambda _: self._active.cancel(GONE))  # this does nothing to a run that is over
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            async for body, more in self._parts:
                await send({"type": "http.response.body", "body": body, "more_body": more})
        finally:
            gone.cancel()


PREFACE = 200
"""Characters: models that call a tool often write a sentence before the call."""


class ReplyPieces:
    """Turn the events of a run into pieces of reasoning and of content. `thoughts` False: no reasoning.

    Reasoning is sent as it arrives. Content cannot be withdrawn. So an answer is streamed only if nothing checks
    answers afterwards (no grounding, no output type), it is the first attempt, and the phase's reply is only the
    answer. In tool calling, text is the answer unless calls follow: it is streamed after `PREFACE` characters, or at
    once without tools; what is held back of a thought is reasoning. Other answers are sent at the end of the run, and
    all if not `streams`; `rest` returns what is missing.
    """

    def __init__(self, agent: Agent, *, thoughts: bool, typed: bool = False, streams: bool = True) -> None:
        self._thoughts = thoughts
        self._loop = agent._loop
        # A loop of another package may add text after something that looked like its answer.
        is_checked = typed or agent.grounding != "off" or agent.output is not str
        self._is_sure = not is_checked and self._loop.name in OURS
        self._phase = ""
        self._live_step = 0
        """The step whose reply is sent as content; 0: none yet, -1: none any more."""
        self._sent = self._held = self._preface = self._separator = ""
        self._is_preview = False
        """The live step's text is the answer unless calls follow."""
        self._max_preface = inf if not (self._is_sure and streams) else PREFACE if agent.tools else 0
        self._last = ("", 0)
        self._calls = 0
        self.has_files = False
        """Whether tools may have returned files."""

    def add(self, event: Event | None) -> tuple[str, str]:
        """Return what an event adds: (reasoning, content), each "" for nothing."""
        held, is_thought = "", isinstance(event, ev.Marked) and event.kind == "thought"
        if self._is_preview and (is_thought or isinstance(event, ev.Thought | ev.Action | ev.Asked)):
            # What was sent stays a paragraph.
            held = self._separate("thought", self._live_step, self._preface) if self._thoughts else ""
            self._separator = "\n\n" if self._sent else self._separator
            self._live_step, self._is_preview, self._sent, self._held, self._preface = 0, False, "", "", ""
        match event:
            case ev.Asked(phase=phase):
                self._phase = phase
            case ev.Began(resumed=resumed):
                self.has_files = resumed
            case ev.Observed(observation=seen):
                self.has_files = self.has_files or bool(find_artifacts(seen.value))
            case ev.Thought(step=step, text=text) if self._thoughts:
                return held + self._separate("thought", step, replace_surrogates(text)), ""
            case ev.Action(step=step, text=text) if self._thoughts:
                return held + self._separate("action", step, replace_surrogates(text)), ""
            case ev.Called(call=call) if self._thoughts and self._last[0] != "action":  # no text of the model has it
                self._calls += 1
                text = f"{call.tool} {encode(call.input).decode() if call.input is not None else ''}".rstrip()
                return held + self._separate("call", self._calls, replace_surrogates(text)), ""
            case ev.Answer(step=step, text=text) if self._is_sure:
                return "", self._add_answer(step, replace_surrogates(text))
            case ev.Text(step=step, text=text):
                return "", self._add_text(step, replace_surrogates(text))
            case ev.Noted(kind="retry" | "model_change") if self._live_step > 0:
                self._live_step, self._preface = -1 if self._sent else 0, ""  # the reply starts again
        return held, ""

    def rest(self, content: str) -> str:
        """Return what is missing of the content. Raises `RequestRejected` if other content was sent."""
        if not content.startswith(self._sent):
            raise RequestRejected(
                500,
                "The run replaced the answer that was sent in part.",
                hint="The run's record has it whole.",
                kind="run_error",
                code="answer_changed",
                may_retry=False,
            )
        return content[len(self._sent) :] if self._sent else self._separator + content

    def _separate(self, kind: str, step: int, text: str) -> str:
        """Begin a new line for text of another kind or step, without the blanks after its label."""
        if self._last == (kind, step):
            return text
        if not (text := text.lstrip(" \t")):
            return ""
        before, self._last = self._last, (kind, step)
        return text if before == ("", 0) else f"\n{text}"

    def _add_answer(self, step: int, text: str) -> str:
        streams = isinstance(splitter_of(self._loop, self._phase), OneKind)
        if self._live_step == 0 and streams:
            self._live_step = step
        if self._live_step != step:
            self._live_step = -1 if self._live_step else 0
            return ""
        return self._write(text) if streams else ""

    def _add_text(self, step: int, text: str) -> str:
        """Add text that is the answer unless calls follow."""
        if self._live_step not in (0, step):
            return ""
        self._live_step, self._is_preview = step, True
        self._preface += text
        if not self._sent and len(self._preface) < self._max_preface:
            return ""
        text, self._preface = self._preface, ""
        return self._write(text)

    def _write(self, text: str) -> str:
        # An answer has no spaces around it.
        text = self._held + text if self._sent else (self._held + text).lstrip()
        ready = text.rstrip()
        self._held = text[len(ready) :]
        before = self._separator if ready and not self._sent else ""
        self._sent += ready
        return before + ready


def _describe_model(served: ServedAgent) -> dict[str, Any]:
    model = {"id": served.name, "object": "model", "created": served.created, "owned_by": "plait"}
    return {**model, "description": served.description} if served.description else model


def _event(value: Any) -> bytes:
    return b"data: " + encode(value) + b"\n\n"


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _unless_gone(gone: asyncio.Future[None], work: Awaitable[T]) -> T:
    """Return the result of `work`. If the client goes away first, cancel it and raise `ClientGone`."""
    task: asyncio.Future[T] = asyncio.ensure_future(work)
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
    finally:
        if not task.done():
            task.cancel()
    if not task.done():
        await asyncio.wait([task])
    if gone.done() and task.cancelled():
        raise ClientGone
    return task.result()
