"""Which conversation a request is a turn of.

Theory of operation. A client of chat completions sends the whole conversation each time and no name for it. Each run
that such a request begins bears in its label a key made of all messages up to its question. So the run of an earlier
turn is found by the key of the messages up to that turn; where what the run said since is what the client has as the
answer, and nothing was said in its session after it, the request goes on with that session. A run that asked the person
something takes several messages: those are compared with its record. All else begins a session, and what the client
sent is what was said before.

A message answers the question that it names by its id, or that the message before it asks. So one that is sent twice,
or late, never answers a later question: such a message is refused. In a session that the client named, a message may
come without the ones before it: an approval then needs the id.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

import msgspec
from msgspec import Struct, convert

from plait.core import Waiting
from plait.core.errors import StaleAnswer, UnknownRun
from plait.journal.owner import new_run_id
from plait.journal.reader import NoJournal
from plait.journal.records import Row, RunRow, Told, Waits
from plait.journal.results import Results
from plait.journal.store import Journal
from plait.runtime.past import Past
from plait.runtime.questions import LENGTH, waiting_with, without_id
from plait.window.callers import Caller
from plait.window.errors import Rejected
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
    question: str = ""
    """The question that the conversation's last message asks, where the conversation was recognised."""
    asked: str = ""
    """The question that the run waits with."""


def key_of(said: Sequence[Said]) -> str:
    """What stands for a conversation up to here. Spaces around a message do not count: clients trim them."""
    text = msgspec.json.encode([(each.role, each.text.strip()) for each in said])
    return hashlib.sha256(text).hexdigest()[:32]


ID = re.compile(rf"(?<!\w)[a-z2-7]{{{LENGTH}}}(?!\w)", re.IGNORECASE)
"""What may be the id of a question."""

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
    return of_run(row) if row.status == "waiting" else Place(session, known=True)


def of_run(row: RunRow) -> Place:
    """The place of an answer to a run."""
    mark, asked = mark_of(row.head.label), str((row.outcome or {}).get("question", ""))
    return Place(row.head.session, row.head.run, known=True, agent=mark.agent if mark is not None else "", asked=asked)


def check_agent(place: Place, agent: str) -> None:
    """Words that are for one agent must not approve a call of another. Raises `Rejected`."""
    if place.waiting and place.agent not in ("", agent):
        asks_with = f" with question {place.asked}" if place.asked else ""
        raise Rejected(
            409,
            f"In this session '{place.agent}' waits for an answer{asks_with}, and this is for '{agent}'.",
            hint=f"Answer with '{place.agent}', or name another session.",
            code="other_agent_waits",
            param="model",
            again=False,
        )


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
            if _same(journal, row, since) and _last(journal, row):
                question = (row.outcome or {}).get("question", "")
                return Place(
                    row.head.session, row.head.run if question else "", known=True, agent=agent, question=question
                )
    return None


def answered(journal: Journal, place: Place, said: Sequence[Said]) -> str | None:
    """The question that the last message answers; None where no run waits. Blocking.

    Raises `StaleAnswer` for a message that names, or comes after, a question that is not open any more, and for one
    that names none while an approval is asked.
    """
    words = said[-1].text
    run = place.waiting or (_last_run(journal, place.session) if place.known and _may_name(words) else "")
    if not run or place.question:
        return place.question or None
    past = Past(_questions(journal, run))
    still = past.waiting() if place.waiting else []
    asked = [each for effect in past.effects.values() for each in effect.waits.values()]
    found = [each for each in asked if without_id(words, each.question) is not None]
    if not place.waiting and not found:
        return None
    if not found and len(said) > 1:
        found = [each for each in asked if _asks(each, said[-2].text)]
    if not found and [each.kind for each in still] == ["question"]:
        found = still  # words for the model approve no call: they need not name it
    if found and found[-1] in still:
        return found[-1].question
    raise StaleAnswer(
        f"Question {found[-1].question} was answered before." if found else "The message names no question.",
        run=run,
        waits=[waiting_with(each) for each in still],
    )


def _may_name(words: str) -> bool:
    """The message is short, as an approval is, and may name a question."""
    return len(words.split()) <= 12 and ID.search(words) is not None


def _asks(waits: Waits, before: str) -> bool:
    """The message before asks that question."""
    return (bool(waits.question) and waits.question in before) or asks(waits).strip() == before.strip()


def _last_run(journal: Journal, session: str) -> str:
    turns = journal.turns(session, limit=1)
    return turns[-1].run if turns else ""


def _questions(journal: Journal, run: str) -> list[Row]:
    """What a run asked, and what was said to it, in order."""
    return [row for row in journal.iter_rows(run) if isinstance(row.record, Waits | Told)]


def _same(journal: Journal, row: RunRow, since: Sequence[str]) -> bool:
    """What was said since a run's question is all that was said in it, in turn by the agent and the person.

    Raises `StaleAnswer` where it is the beginning of that: what the last message answers was answered before.
    """
    outcome = row.outcome or {}
    if row.head.parent or not row.head.session:
        return False
    if outcome.get("answer") is not None and list(since) == [text_of(outcome["answer"]).strip()]:
        return True  # it asked nothing: its rows need not be read
    open_: dict[tuple[int, int], Waits] = {}
    shown: list[str] = []
    words = list(since[1::2])
    for each in _questions(journal, row.head.run):
        if isinstance(each.record, Waits):
            open_[each.record.n, each.record.i] = each.record
        elif isinstance(each.record, Told):
            asked = open_[each.record.n, each.record.i]
            shown.append(asks(asked).strip())
            if words and not _means(words.pop(0), asked, each.record):
                return False
    still = [convert(outcome, Waiting)] if row.status == "waiting" else []
    shown += [asks(each).strip() for each in still]
    if outcome.get("answer") is not None:
        shown.append(text_of(outcome["answer"]).strip())
    many = len(since[::2])
    if many == 0 or many > len(shown) or since[::2] != shown[:many]:
        return False
    if many == len(shown) and (still or outcome.get("answer") is not None):
        return True
    raise StaleAnswer("What this message answers was answered before.", run=row.head.run, waits=still)


def _means(words: str, asked: Waits, told: Told) -> bool:
    """The client's words are what stands on record. An approval is told by its question, shown with its id."""
    return told.approved is not None or told.text.strip() in (words, without_id(words, asked.question))


def _last(journal: Journal, row: RunRow) -> bool:
    """Nothing was said in the session after the run: turns that came to nothing do not count."""
    for turn in reversed(journal.turns(row.head.session, limit=BACK)):
        if turn.run == row.head.run:
            return True
        if turn.answer is not None or journal.run(turn.run).status in ("waiting", "running"):
            return False
    return False
