"""A conversation of the chat page as it is on record: its turns, their versions, its title and where it branched off.

The turns of a session are its runs. A retry and a run that goes on after a limit are forks, which belong to the turn of
the run that they come from; `chosen` says which version later messages see. A message that was edited begins another
session, a branch: its first run has the earlier turns as its history. So has that of a session which began with turns
of a client (`GIVEN`). Title, branch and versions are kept under the session's name (`TITLES`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any

from msgspec import Struct, field, json, structs

from plait.core import Exchange
from plait.core.errors import JournalError
from plait.journal import codec
from plait.journal.records import LastTurn, RunRow
from plait.journal.run_query import RunQuery
from plait.journal.store import TITLES, Store, read_timeline
from plait.runtime.conversations.chat_messages import GivenTurns, calls_in
from plait.runtime.conversations.sessions import has_read_outside
from plait.server.chat_format import answer_text

GIVEN = "\n"
"""The base of a session that began with turns of a client. No session can have this name."""


class ConversationNotes(Struct, frozen=True, omit_defaults=True):
    """What is kept of a session besides its runs. `base` is the session that it branched off, before the turn `at` (the
    id of that turn's first run). `chosen` maps the first run of a turn to the one that counts. `words` is the title for
    the search."""

    title: str = ""
    words: str = ""
    base: str = ""
    at: str = ""
    chosen: dict[str, str] = field(default_factory=dict)


class RecordedTurn(Struct, frozen=True):
    """A turn: all its runs, the oldest first, and the one that counts. `session` is where it was said."""

    session: str
    versions: tuple[RunRow, ...]
    row: RunRow

    @property
    def root(self) -> str:
        return self.versions[0].head.run

    def find_version(self, run: str | None) -> RunRow | None:
        return next((each for each in self.versions if each.head.run == run), None)


class RecordedConversation(Struct, frozen=True):
    """A conversation: its turns, also those before its branch, as far as they are still on record."""

    session: str
    notes: ConversationNotes
    turns: tuple[RecordedTurn, ...]

    @property
    def earlier(self) -> tuple[Exchange, ...]:
        """Return the turns before a branch that are in no session any more: the first run of the branch has them."""
        if not self.notes.base or not self.turns or self.turns[0].session != self.session:
            return ()
        head = self.turns[0].row.head
        return head.given or head.history


async def read_notes(store: Store, sessions: Sequence[str] | None) -> dict[str, ConversationNotes]:
    """Return what is kept of each of these sessions (None: of all) that has anything."""
    found = await store.list_kept(TITLES, sessions)
    return {each.key: json.decode(each.data, type=ConversationNotes) for each in found}


async def keep_notes(store: Store, session: str, *, chosen: Mapping[str, str] = {}, **changes: str) -> None:
    """Change what is kept of a session. `chosen` adds to the versions that count."""
    notes = (await read_notes(store, [session])).get(session, ConversationNotes())
    more: dict[str, Any] = {"chosen": {**notes.chosen, **chosen}, "words": changes.get("title", notes.title).casefold()}
    await store.keep(TITLES, session, "", codec.encode(structs.replace(notes, **changes, **more)))


async def read_conversation(store: Store, session: str, *, levels: int = 20) -> RecordedConversation:
    """Return a conversation; one that is unknown has no turns. `levels`: how many times it may have branched off."""
    notes = (await read_notes(store, [session])).get(session, ConversationNotes())
    turns: list[RecordedTurn] = []
    if notes.base and levels:
        base = await read_conversation(store, notes.base, levels=levels - 1)
        turns.extend(takewhile(lambda turn: turn.root != notes.at, base.turns))
    roots: dict[str, str] = {}
    versions: dict[str, list[RunRow]] = {}
    for row in reversed(await store.list_runs(RunQuery(session=session))):
        root = roots[row.head.run] = roots.get(row.head.parent, row.head.run)
        if root != row.head.run or not row.head.parent:  # the run that a fork comes from may be deleted
            versions.setdefault(root, []).append(row)
    for root, rows in versions.items():
        turn = RecordedTurn(session, tuple(rows), rows[0])
        turns.append(structs.replace(turn, row=turn.find_version(notes.chosen.get(root)) or rows[0]))
    return RecordedConversation(session, notes, tuple(turns))


async def read_history(store: Store, found: RecordedConversation, before: str = "") -> GivenTurns | None:
    """Return the turns that the next message of a conversation is to see; None if they are just the session's own first
    runs. With `before`, the first run of a turn: those that a branch is to see which begins there."""
    exchanges = list(found.earlier)
    is_plain = all(turn.session == found.session and turn.row.head.run == turn.root for turn in found.turns)
    if is_plain and not exchanges and not before:
        return None
    for turn in takewhile(lambda each: each.root != before, found.turns):
        head, answer = turn.row.head, (turn.row.outcome or {}).get("answer")
        if answer is None:
            continue
        has_calls = turn.row.totals.get("tool_calls") or head.loop["name"] == "codeact"
        calls = calls_in(await read_timeline(store, head.run, bodies=False), head.tools) if has_calls else ()
        exchanges.append(Exchange(head.question, answer_text(answer), calls, head.attachments))
    try:
        contents = await store.read_contents([file for turn in exchanges for file in turn.attachments])
    except JournalError:  # a file is damaged; its name remains
        contents, exchanges = {}, [structs.replace(each, attachments=()) for each in exchanges]
    sessions = {found.session, *(turn.session for turn in found.turns)}
    is_clean = not any([await has_read_outside(store, each) for each in sessions])
    last = None if before else LastTurn.of(await store.list_turns(found.session, limit=1))
    return GivenTurns(tuple(exchanges), is_clean, contents, last)
