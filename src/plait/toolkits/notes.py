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
MOST, SECONDS = 50, 900.0
"""Maximum number of notes that a search returns, and its time limit: the first one loads the embedder."""


def memory(name: str = "notes", *, approved: bool = False) -> tuple[Tool, ...]:
    """Makes the tools `search_notes`, `write_note` and `forget_note` of a memory.

    Agents with a memory of the same name share it, for the same user. A note that a run wrote after it had read content
    from outside counts as such content when it is read. With `approved`, or in the word `memory:NAME,approved`, each
    change waits for the user's approval. Raises `ConfigError` for an invalid name.
    """
    approved, name = approved or name.endswith(APPROVED), name.removesuffix(APPROVED)
    if not re.fullmatch(r"\w[\w.-]{0,63}", name):
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
        found, said, limit = await notes.list(where), "", min(max(limit, 1), MOST)
        if query.strip() and len(found) > limit:
            search = await asyncio.to_thread(make_meaning_search, [each.text for each in found], "local")
            ranked, said = await asyncio.to_thread(search, query.strip()[:1000])
            found = [found[number] for number in ranked]
        shown = []
        for each in found[:limit]:
            services.outside |= each.outside
            origin = ", written after content from outside was read" if each.outside else ""
            day = datetime.fromtimestamp(each.at).astimezone()
            shown.append(f"[{each.id}] ({day:%Y-%m-%d}{origin})\n{each.text}")
        return "\n\n".join(filter(None, [*shown, said])) or "There are no notes on this."

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
            await notes.write(where, made, services.engine.log.scrub, is_new=not replaces.strip())
        except ConfigError as why:
            raise ToolError(why.message, hint=why.hint or f"At most {MAX_NOTE:,} characters.") from None
        return f"Note {note} is kept."

    @tool(idempotent=True, destructive=True, requires_approval=approved)
    async def forget_note(ctx: Context[Any], note: str) -> str:
        """Removes a note that is wrong, or that the user does not want to be kept.

        Args:
            note: Its number, as search_notes gives it.
        """
        _, notes, where = _open(ctx, name)
        wanted = note.strip().strip("[]")
        is_removed = await notes.forget(where, [wanted])  # or was it before a crash?
        return f"Note {wanted} is removed." if is_removed else f"There is no note {wanted[:40]!r}."

    return (search_notes, write_note, forget_note)


def _open(ctx: Context[Any], name: str) -> tuple[ToolServices, Notes, Memory]:
    """Return the services of a call, the notes of its run's journal, and the memory of its user."""
    if ctx.services is None:
        raise ToolError("This call belongs to no run.")
    if (store := ctx.services.engine.store) is None:
        raise ToolError("This agent keeps no journal, so it has no memory.", hint="Go on without notes.")
    return ctx.services, Notes(store), Memory(find_owner(ctx.services.engine.top.head), name)
