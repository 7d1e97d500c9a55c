"""The routes of the page of notes that agents keep: a user sees and changes the user's own, a full token all."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta, structs, to_builtins
from starlette.requests import Request
from starlette.responses import Response

from plait.core.errors import ConfigError
from plait.journal.notes import MAX_NOTE, Memory, Notes, name_client
from plait.server.auth import ANY, Caller
from plait.server.errors import RequestRejected, json_response
from plait.server.openapi import ApiRoute
from plait.server.runs import RunManager
from plait.server.service import parse_body


class NoteBody(msgspec.Struct, forbid_unknown_fields=True):
    """A note of a memory, the text that the page showed (`was`), and its new one; null removes the note. `owner` is for
    full tokens: whose note it is."""

    memory: str
    id: str
    was: str
    text: Annotated[str, Meta(max_length=MAX_NOTE)] | None = None
    owner: str | None = None


def memory_routes(manager: RunManager) -> list[ApiRoute]:
    api = MemoryApi(Notes(manager.journal.store))
    return [
        ApiRoute("/api/notes", api.notes, role=ANY),
        ApiRoute("/api/notes", api.change, methods=["POST"], body=NoteBody, role=ANY),
    ]


class MemoryApi:
    """The routes of notes."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes

    async def notes(self, request: Request) -> Response:
        """Return the memories that the caller sees, with their notes, the newest first."""
        caller: Caller = request.state.caller
        memories = [
            {"name": each.name, "owner": each.owner, "notes": to_builtins(await self._notes.list(each))}
            for each in await self._notes.list_memories()
            if caller.full or each.owner == _find_owner(caller)
        ]
        return json_response({"memories": [each for each in memories if each["notes"]], "all": caller.full})

    async def change(self, request: Request) -> Response:
        """Change or remove a note. A changed note stays marked as content from outside if it was."""
        given, caller = await parse_body(request, NoteBody), request.state.caller
        is_others = caller.full and given.owner is not None
        memory = Memory(given.owner or "" if is_others else _find_owner(caller), given.memory)
        found = await self._notes.list(memory, [given.id])
        if not found or found[0].text != given.was:
            said = "The note has changed meanwhile." if found else "There is no such note."
            raise RequestRejected(409 if found else 404, said, hint="Load the page again.", code="changed")
        try:
            if given.text is None:
                await self._notes.forget(memory, [given.id])
            else:
                await self._notes.write(memory, structs.replace(found[0], text=given.text.strip(), call=""))
        except ConfigError as why:
            raise RequestRejected(400, why.message, hint=why.hint, param="text") from None
        return await self.notes(request)


def _find_owner(caller: Caller) -> str:
    return caller.name or name_client(caller.owner)
