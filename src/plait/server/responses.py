"""The Responses API: create, retrieve, cancel and delete a response, and list its input."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from plait.journal.records import RunRow
from plait.journal.store import ENDED
from plait.server.agent_turn import AgentTurn, ReplyStream
from plait.server.auth import ANY, USE
from plait.server.chat_format import reject
from plait.server.errors import RequestRejected, json_response
from plait.server.openapi import ApiRoute, describe_body
from plait.server.recorded_reply import PAUSE, RecordedReply, find_response, list_answered
from plait.server.response_format import ResponseFormat, parse_response_request
from plait.server.runs import RunManager

CANCELLED = "the client cancelled the response"
BODY = describe_body(
    "model:string input:string,array",
    "instructions:string previous_response_id:string conversation:string,object stream:boolean background:boolean "
    "text:object metadata:object user:string safety_identifier:string",
)


def response_routes(manager: RunManager) -> list[ApiRoute]:
    api = ResponseApi(manager)
    one = "/v1/responses/{id}"
    return [
        ApiRoute("/v1/responses", api.create, methods=["POST"], body=BODY, role=USE),
        ApiRoute(one, api.retrieve, methods=["GET"], query=("stream", "starting_after"), role=ANY),
        ApiRoute(one, api.delete, methods=["DELETE"], role=ANY),
        ApiRoute(f"{one}/cancel", api.cancel, methods=["POST"], role=ANY),
        ApiRoute(f"{one}/input_items", api.list_input, methods=["GET"], query=("after",), role=ANY),
    ]


class ResponseApi:
    def __init__(self, manager: RunManager) -> None:
        self._manager = manager

    async def create(self, request: Request) -> Response:
        """Ask an agent; returns the response, or its events with `stream`."""
        asked = parse_response_request(await request.body(), request.headers)
        manager, caller = self._manager, request.state.caller
        manager.find_agent(asked.model)
        return await AgentTurn(manager, asked, caller, ResponseFormat(manager, caller, asked)).answer(request)

    async def retrieve(self, request: Request) -> Response:
        """Return a response, or its events after the number `starting_after` with `stream=true`."""
        row, part = await self._find(request)
        query, caller = request.query_params, request.state.caller
        if query.get("stream") != "true":
            return await self._respond(request, row, part)
        after = query.get("starting_after", "-1")
        if not after.removeprefix("-").isdecimal() or len(after) > 18:
            reject("'starting_after' is the number of an event.", "starting_after")
        format = ResponseFormat(self._manager, caller, after=int(after))
        return ReplyStream(RecordedReply(self._manager, row.head.run, part, format).follow())

    async def cancel(self, request: Request) -> Response:
        """Cancel a response that goes on, and return it. One that has ended stays as it is."""
        row, part = await self._find(request)
        store, run, tries = self._manager.journal.store, row.head.run, int(10 / PAUSE)
        if row.outcome is None:
            await self._manager.cancel(run, caller=request.state.caller, reason=CANCELLED)
            while tries and (await store.find_run(run)).outcome is None:  # another process may perform it
                tries -= 1
                await asyncio.sleep(PAUSE)
        return await self._respond(request, row, part)

    async def delete(self, request: Request) -> Response:
        """Delete the run of a response that has ended, with all its responses."""
        row, _ = await self._find(request)
        await self._manager.find_run_to_change(row.head.run, request.state.caller)
        if row.status not in (*ENDED, "cancelled", "crashed"):
            text = f"Run {row.head.run} has not ended ({row.status})."
            raise RequestRejected(409, text, hint="Cancel it, or answer its question.", may_retry=False)
        await self._manager.journal.store.delete([row.head.run])
        return json_response({"id": request.path_params["id"], "object": "response", "deleted": True})

    async def list_input(self, request: Request) -> Response:
        """Return the message that the response answers, with the names of its files."""
        row, part = await self._find(request)
        content: list[dict[str, Any]] = []
        if part:
            answer = (await list_answered(self._manager.journal.store, row.head.run))[part - 1][1].answer
            text = answer if isinstance(answer, str) else (answer.text or answer.action) if answer else ""
        else:
            text = row.head.question
            content = [{"type": "input_file", "filename": each.name or None} for each in row.head.attachments]
        id = f"msg_in_{request.path_params['id'].removeprefix('resp_')}"
        content.insert(0, {"type": "input_text", "text": text})
        item = {"type": "message", "id": id, "status": "completed", "role": "user", "content": content}
        items = [item] if request.query_params.get("after") != id else []
        return json_response({"object": "list", "data": items, "first_id": id, "last_id": id, "has_more": False})

    async def _find(self, request: Request) -> tuple[RunRow, int]:
        return await find_response(self._manager, request.path_params["id"], request.state.caller)

    async def _respond(self, request: Request, row: RunRow, part: int) -> Response:
        format = ResponseFormat(self._manager, request.state.caller)
        _, ending = await RecordedReply(self._manager, row.head.run, part, format).read()
        return json_response(format.whole(ending))
