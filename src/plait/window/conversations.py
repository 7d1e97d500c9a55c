"""Which conversation a request is a turn of.

Theory of operation. A client of chat completions sends the whole conversation each time and no name for it. Each run
that such a request begins bears in its label a key made of all messages up to its question. So the run of an earlier
turn is found by the key of the messages up to that turn; where what the run said since is what the client has as the
answer, and nothing was said in its session after it, the request goes on with that session. A run that asked the person
something takes several messages: those are compared with its record. All else begins a session, and what the client
sent is what was said before.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from plait.core.errors import UnknownRun
from plait.journal.owner import new_run_id
from plait.journal.reader import NoJournal
from plait.journal.records import RunRow, Told, Waits
from plait.journal.results import Results
from plait.journal.store import Journal
from plait.window.callers import Caller
from plait.window.marks import Mark, mark_of
from plait.window.shapes import Said, asks, text_of

BACK = 12
"""How many turns back the run of a long exchange of questions and answers is looked for."""


class Place(Struct, frozen=True):
    """A request's place: its session's name on record, and the run that waits for what it says ("": none)."""

    session: str
    waiting: str = ""
    known: bool = False
    """The session was there before."""
    agent: str = ""
    """The served agent whose run waits; "" where none does, or none of this server's."""


def key_of(said: Sequence[Said]) -> str:
    """What stands for a conversation up to here. Spaces around a message do not count: clients trim them."""
    text = msgspec.json.encode([(each.role, each.text.strip()) for each in said])
    return hashlib.sha256(text).hexdigest()[:32]


UNNAMED = re.compile(r"(^|/)chat-[0-9]{8}-[0-9]{6}-[a-z0-9]{6}$")
"""What a session is called on record that was given no name."""


def fresh(caller: Caller) -> str:
    """A name on record for a session that was given none."""
    return caller.session(f"chat-{new_run_id()}")


def is_later(said: Sequence[Said]) -> bool:
    """More was said than a question: there may be a conversation that it goes on with."""
    return len(said) > 2


def by_name(journal: Journal, session: str) -> Place:
    """The place in a session that was named: where its last turn waits for the person, that is what is answered."""
    turns = journal.turns(session, limit=1)
    if not turns:
        return Place(session)
    row = journal.run(turns[-1].run)
    if row.status != "waiting":
        return Place(session, known=True)
    mark = mark_of(row.head.label)
    return Place(session, row.head.run, known=True, agent=mark.agent if mark is not None else "")


def by_messages(journal: Journal, caller: Caller, agent: str, said: Sequence[Said]) -> Place | None:
    """The place in the conversation whose turns are these messages; None where there is none on record."""
    ends = range(len(said) - 2, max(0, len(said) - 2 * BACK), -2)  # after each question before the last, newest first
    labels = {str(Mark(caller.owner, agent, key_of(said[:end]))): end for end in ends}
    if not labels:
        return None
    try:
        found = Results(journal).runs(labels)
    except (NoJournal, UnknownRun):
        return None
    for label, end in labels.items():
        since = [each.text.strip() for each in said[end:-1]]
        for row in found.get(label, ()):
            if _said(journal, row, len(since)) == since and _last(journal, row):
                return Place(row.head.session, row.head.run if row.status == "waiting" else "", known=True)
    return None


def _said(journal: Journal, row: RunRow, many: int) -> list[str] | None:
    """What was said in a run after its question, in turn by the agent and the person; None while it goes on."""
    outcome = row.outcome
    if outcome is None or row.head.parent or not row.head.session:
        return None
    before: list[str] = []
    if many > 1:
        for each in journal.iter_rows(row.head.run):
            if isinstance(each.record, Waits):
                before.append(asks(each.record.kind, each.record.text).strip())
            elif isinstance(each.record, Told):
                before.append(each.record.text.strip() or ("yes" if each.record.approved else "no"))
    if row.status == "waiting":
        return before if many > 1 else [asks(outcome["kind"], outcome["reason"]).strip()]
    if outcome.get("answer") is None:
        return None
    return [*before, text_of(outcome["answer"]).strip()]


def _last(journal: Journal, row: RunRow) -> bool:
    """Nothing was said in the session after the run: turns that came to nothing do not count."""
    for turn in reversed(journal.turns(row.head.session, limit=BACK)):
        if turn.run == row.head.run:
            return True
        if turn.answer is not None or journal.run(turn.run).status in ("waiting", "running"):
            return False
    return False
