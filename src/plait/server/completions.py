"""The chat-completions endpoint: each served agent is a model, each request is a run."""

from __future__ import annotations

import time
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from plait.core import Event
from plait.core import events as ev
from plait.server.agent_turn import AgentTurn
from plait.server.agents import ServedAgent
from plait.server.auth import ANY, USE
from plait.server.chat_format import ChatRequest, parse_request, usage_of
from plait.server.errors import RequestRejected, json_response
from plait.server.openapi import ApiRoute, describe_body
from plait.server.recorded_reply import Ending, ReplyFormat
from plait.server.reply_pieces import ReplyPieces
from plait.server.runs import RunManager
from plait.tools.render import replace_surrogates
from plait.view.live import format_event

DONE = b"data: [DONE]\n\n"
BODY = describe_body(
    "model:string messages:array",
    "stream:boolean stream_options:object session:string response_format:object modalities:array thoughts:boolean "
    "user:string metadata:object",
)


def completion_routes(manager: RunManager) -> list[ApiRoute]:
    async def complete(request: Request) -> Response:
        """Ask an agent; returns the completion, or its chunks with `stream`."""
        asked = parse_request(await request.body(), request.headers)
        format = CompletionFormat(manager.find_agent(asked.model), asked)
        return await AgentTurn(manager, asked, request.state.caller, format).answer(request)

    async def models(request: Request) -> Response:
        """List the served agents as models."""
        return json_response({"object": "list", "data": [_describe_model(each) for each in manager.agents.values()]})

    async def model(request: Request) -> Response:
        """Return a served agent as a model."""
        return json_response(_describe_model(manager.find_agent(request.path_params["name"])))

    return [
        ApiRoute("/v1/chat/completions", complete, methods=["POST"], body=BODY, role=USE),
        ApiRoute("/v1/models", models, role=ANY),
        ApiRoute("/v1/models/{name}", model, role=ANY),
    ]


class CompletionFormat(ReplyFormat):
    """Chat completions. See `ReplyFormat`."""

    def __init__(self, served: ServedAgent, asked: ChatRequest) -> None:
        self._thoughts = thoughts = served.thoughts and asked.thoughts
        typed, self.modalities = asked.output is not None, asked.modalities
        self.pieces = ReplyPieces(served.agent, thoughts=thoughts, typed=typed, streams=asked.stream)
        self._asked, self._model, self._reasoning = asked, served.name, list[str]()
        self._base: dict[str, Any] = {}
        self._before = ""
        """What stands before the next content: what was sent before a call stays a paragraph."""

    async def open(self, run: str, part: int | None = None) -> None:
        kind = "chat.completion.chunk" if self._asked.stream else "chat.completion"
        self._base = {"id": f"chatcmpl-{run}", "object": kind, "created": int(time.time()), "model": self._model}

    def begin(self) -> bytes:
        if self._asked.include_usage:
            self._base["usage"] = None
        return self._chunk({"role": "assistant", "content": ""})

    def add(self, event: Event) -> bytes:
        if self._thoughts and isinstance(event, ev.Noted) and event.kind == "progress":
            progress = {"text": replace_surrogates(event.text), "data": event.data}
            return self._chunk({}, progress=progress)
        reasoning, content = self.pieces.add(event)
        if not self._asked.stream:
            self._reasoning.append(reasoning)
            return b""
        self._before = "\n\n" if self.pieces.is_withdrawn else self._before
        chunks = self._chunk({"reasoning_content": reasoning}) if reasoning else b""
        return chunks + self._add_content(content)

    def end(self, ending: Ending) -> bytes:
        try:
            if ending.error is not None:
                raise ending.error
            rest = self.pieces.rest(ending.content)
        except RequestRejected as error:
            return format_event(error.body())  # clients raise it
        more = ending.files | self._annotate(ending.content)
        chunks = self._add_content(rest) + self._chunk(more, ending.finish)
        if self._asked.include_usage and ending.run is not None:
            chunks += format_event({**self._base, "choices": [], "usage": usage_of(ending.run)})
        return chunks + DONE

    def whole(self, ending: Ending | None) -> dict[str, Any]:
        assert ending is not None, "a chat completion is answered at its end"
        if ending.error is not None:
            raise ending.error
        message: dict[str, Any] = {"role": "assistant", "content": ending.content}
        if reasoning := "".join(self._reasoning):
            message["reasoning_content"] = reasoning
        message |= ending.files | self._annotate(ending.content)
        choice = {"index": 0, "message": message, "finish_reason": ending.finish, "logprobs": None}
        usage = usage_of(ending.run) if ending.run is not None else None
        return {**self._base, "choices": [choice], "usage": usage}

    def _annotate(self, content: str) -> dict[str, Any]:
        cited = [{"type": "url_citation", "url_citation": each} for each in self.pieces.annotate(content)]
        return {"annotations": cited} if cited else {}

    def _add_content(self, text: str) -> bytes:
        before, self._before = self._before, "" if text else self._before
        return self._chunk({"content": before + text}) if text else b""

    def _chunk(self, delta: dict[str, Any], finish: str | None = None, **more: Any) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
        return format_event({**self._base, **more, "choices": [choice]})


def _describe_model(served: ServedAgent) -> dict[str, Any]:
    model = {"id": served.name, "object": "model", "created": served.created, "owned_by": "plait"}
    return {**model, "description": served.about}
