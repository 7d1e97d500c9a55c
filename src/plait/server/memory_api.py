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
    """Return the routes of notes."""
    store = Notes(manager.journal.store)

    async def notes(request: Request) -> Response:
        """Return the memories that the caller sees, with their notes, the newest first."""
        caller, found = request.state.caller, []
        for each in await store.list_memories():
            if caller.full or each.owner == _find_owner(caller):
                found.append({"name": each.name, "owner": each.owner, "notes": to_builtins(await store.list(each))})
        return json_response({"memories": [each for each in found if each["notes"]], "all": caller.full})

    async def change(request: Request) -> Response:
        """Change or remove a note. A changed note stays marked as content from outside if it was."""
        given, caller = await parse_body(request, NoteBody), request.state.caller
        own = given.owner if caller.full and given.owner is not None else _find_owner(caller)
        memory = Memory(own, given.memory)
        found = await store.list(memory, [given.id])
        if not found or found[0].text != given.was:
            said = "The note has changed meanwhile." if found else "There is no such note."
            raise RequestRejected(409 if found else 404, said, hint="Load the page again.", code="changed")
        if given.text is None:
            await store.forget(memory, [given.id])
            return await notes(request)
        try:
            await store.write(memory, structs.replace(found[0], text=given.text.strip(), call=""))
        except ConfigError as why:
            raise RequestRejected(400, why.message, param="text") from None
        return await notes(request)

    at = "/api/notes"
    return [ApiRoute(at, notes, role=ANY), ApiRoute(at, change, methods=["POST"], body=NoteBody, role=ANY)]


def _find_owner(caller: Caller) -> str:
    return caller.name or name_client(caller.owner)
