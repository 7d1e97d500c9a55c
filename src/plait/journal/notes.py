"""The notes that agents keep across sessions: what a store keeps of them, and whose they are.

A memory has a name and an owner: the user of the runs that use it. Nobody sees the notes of another owner.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence

import msgspec
from msgspec import Struct, structs

from plait.core.errors import ConfigError, JournalError
from plait.journal import codec, redaction
from plait.journal.records import RunHead
from plait.journal.served_runs import RunLabel
from plait.journal.store import NoJournal, Store

MEMORIES = "memory"
"""The kind under which memories are kept, by the kind of their notes."""
MAX_NOTES, MAX_NOTE = 1_000, 4_000
"""Maximum number of notes of a memory, and of the characters of a note."""


class Memory(Struct, frozen=True):
    """The memory of one owner. `owner` is a user's name, "@CLIENT/" for a client of a server, "" without either."""

    owner: str
    name: str

    @property
    def kind(self) -> str:
        """Return the kind under which its notes are kept."""
        return f"note {hashlib.sha256(json.dumps([self.owner, self.name]).encode()).hexdigest()[:32]}"


class MemoryNote(Struct, frozen=True, omit_defaults=True):
    """A note. `at`: when it was last written, in seconds since 1970. `run` has written it, by the `call` of that key;
    "": the user. `outside`: the run had read content from outside before, so strangers may have caused it."""

    id: str
    text: str
    at: float = 0.0
    run: str = ""
    call: str = ""
    outside: bool = False


def find_owner(head: RunHead | None) -> str:
    """Return the owner of what a run notes: its user, else the client of the server that began it."""
    if head is None or head.user:
        return head.user if head is not None else ""
    label = RunLabel.parse(head.label)
    return name_client(label.owner) if label is not None else ""


def name_client(owner: str) -> str:
    """Return the owner that a client of a server is, by its name in labels; "" for none."""
    return f"@{owner}/" if owner else ""


class Notes:
    """The memories of a store. Raises `JournalError` if it cannot be used."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def list_memories(self) -> list[Memory]:
        """Return the memories that were ever written to, in the order of their first note."""
        return [found for found, _ in await self._read(MEMORIES, None, Memory)]

    async def list(self, memory: Memory, ids: Iterable[str] | None = None) -> list[MemoryNote]:
        """Return the notes of a memory, or those with these ids, the newest first."""
        found = [structs.replace(note, at=at) for note, at in await self._read(memory.kind, ids, MemoryNote)]
        return sorted(found, key=lambda note: note.at, reverse=True)

    async def write(
        self, memory: Memory, note: MemoryNote, scrub: Callable[[bytes], bytes] | None = None, *, is_new: bool = False
    ) -> None:
        """Write a note in place of that with its id, or one that `is_new`. What the same call has written before is
        left as it is. Raises `ConfigError` for what cannot be noted."""
        there = {each.id: each for each in await self.list(memory)}
        before, hint = there.get(note.id), "Look at the notes that there are. Forget or join some."
        if before is not None and note.call and before.call == note.call:
            return
        if not note.text.strip() or len(note.text) > MAX_NOTE:
            raise ConfigError(f"A note has 1 to {MAX_NOTE:,} characters, and this one {len(note.text):,}.")
        if before is None and (not is_new or len(there) >= MAX_NOTES):
            said = f"There are {MAX_NOTES:,} notes already." if is_new else f"There is no note {note.id[:40]!r}."
            raise ConfigError(said, hint=hint)
        await self._store.keep(MEMORIES, memory.kind, "", codec.encode(memory), replace=False)
        data = (scrub or redaction.scrubber(()))(codec.encode(structs.replace(note, at=0.0)))
        await self._store.keep(memory.kind, note.id, note.run, data)

    async def forget(self, memory: Memory, ids: Iterable[str]) -> int:
        """Remove notes. Returns how many of them were there."""
        there = [each.id for each in await self.list(memory, ids)]
        await self._store.forget(memory.kind, there)
        return len(there)

    async def _read(self, kind: str, ids: Iterable[str] | None, type: type[codec.T]) -> Sequence[tuple[codec.T, float]]:
        try:
            kept = await self._store.list_kept(kind, ids)
            return [(msgspec.convert(codec.decode_plain(each.data), type), each.at) for each in kept]
        except NoJournal:
            return []
        except ValueError as why:
            raise JournalError(f"What the journal keeps of a memory can't be read: {why}.") from None
