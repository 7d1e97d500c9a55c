"""`memory`: notes that an agent keeps across sessions, in the journal. Each user of runs has notes of their own."""

from __future__ import annotations

import asyncio
import hashlib
import re
from datetime import datetime
from typing import Any

from plait.core.errors import ConfigError, ToolError
from plait.journal.notes import MAX_NOTE, Memory, MemoryNote, Notes, find_owner
from plait.runtime.calls.call_services import ToolServices
from plait.runtime.calls.context import Context
from plait.toolkits.passages import make_meaning_search
from plait.tools.tool import Tool, tool

APPROVED = ",approved"
MOST = 50
"""Maximum number of notes that a search returns."""
SECONDS = 900.0
"""Time limit of a search. The first one loads the embedder."""

_NAME = re.compile(r"\w[\w.-]{0,63}")


def memory(name: str = "notes", *, approved: bool = False) -> tuple[Tool, ...]:
    """Makes the tools `search_notes`, `write_note` and `forget_note` of a memory.

    Agents with a memory of the same name share it, for the same user. A note that a run wrote after it had read content
    from outside counts as such content when it is read. With `approved`, or in the word `memory:NAME,approved`, each
    change waits for the user's approval. Raises `ConfigError` for an invalid name.
    """
    approved, name = approved or name.endswith(APPROVED), name.removesuffix(APPROVED)
    if not _NAME.fullmatch(name):
        hint = "Write memory:NAME, with at most 64 letters, digits, dots and hyphens."
        raise ConfigError(f"{name[:80]!r} can't be the name of a memory.", hint=hint)

    @tool(read_only=True, timeout=SECONDS)
    async def search_notes(ctx: Context[Any], query: str = "", limit: int = 10) -> str:
        """Searches the notes that were kept in this and earlier conversations with this user.

        Args:
            query: What to look for, in a few words; the newest notes without it.
            limit: How many notes, at most 50.
        """
        services, notes, where = _open(ctx, name)
        found, said = await notes.list(where), ""
        limit = min(max(limit, 1), MOST)
        if query.strip() and len(found) > limit:
            search = await asyncio.to_thread(make_meaning_search, [each.text for each in found], "local")
            ranked, said = await asyncio.to_thread(search, query.strip()[:1000])
            found = [found[number] for number in ranked]
        found = found[:limit]
        if any(each.outside for each in found):
            services.outside = True
        return "\n\n".join([*map(_show, found), *([said] if said else [])]) or "There are no notes on this."

    @tool(idempotent=True, requires_approval=approved)
    async def write_note(ctx: Context[Any], text: str, replaces: str = "") -> str:
        """Keeps a note for later conversations with this user, such as a wish, a fact or a decision.

        Args:
            text: The note, which can be understood alone.
            replaces: The number of the note whose place it takes; a new note without it.
        """
        services, notes, where = _open(ctx, name)
        call = hashlib.sha256(ctx.idempotency_key.encode()).hexdigest()
        note = replaces.strip().strip("[]") or call[:10]
        made = MemoryNote(note, text.strip(), 0.0, ctx.run_id, call, services.has_read_outside)
        try:
            kept = await notes.write(where, made, scrub=services.engine.log.scrub, is_new=not replaces.strip())
        except ConfigError as why:
            raise ToolError(why.message, hint=why.hint or f"At most {MAX_NOTE:,} characters.") from None
        return f"Note {kept.id} is kept."

    @tool(idempotent=True, destructive=True, requires_approval=approved)
    async def forget_note(ctx: Context[Any], note: str) -> str:
        """Removes a note that is wrong, or that the user does not want to be kept.

        Args:
            note: Its number, as search_notes gives it.
        """
        _, notes, where = _open(ctx, name)
        wanted = note.strip().strip("[]")
        if not await notes.list(where, [wanted]):
            return f"There is no note {wanted[:40]!r}."  # or it was removed before a crash
        await notes.forget(where, [wanted])
        return f"Note {wanted} is removed."

    return (search_notes, write_note, forget_note)


def _open(ctx: Context[Any], name: str) -> tuple[ToolServices, Notes, Memory]:
    """Return the services of a call, the notes of its run's journal, and the memory of its user."""
    if ctx.services is None:
        raise ToolError("This call belongs to no run.")
    if (store := ctx.services.engine.store) is None:
        hint = "The user can give the agent a journal."
        raise ToolError("This agent keeps no journal, so it has no memory.", hint=hint)
    return ctx.services, Notes(store), Memory(find_owner(ctx.services.engine.top.head), name)


def _show(note: MemoryNote) -> str:
    day = datetime.fromtimestamp(note.at).astimezone()
    origin = ", written after content from outside was read" if note.outside else ""
    return f"[{note.id}] ({day:%Y-%m-%d}{origin})\n{note.text}"
