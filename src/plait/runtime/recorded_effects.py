"""A run's record, arranged by effect, so that the loop can be taken through it again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from plait.core import Observation, Reply
from plait.journal.effects import Lost
from plait.journal.records import (
    Acting,
    Begun,
    Got,
    NoteRecord,
    ObservedRecord,
    RanRecord,
    Resumed,
    Row,
    StartRecord,
    Thinking,
    Thought,
    Thrown,
    Told,
    TookRecord,
    Waits,
)
from plait.runtime.artifacts import decode_artifacts


@dataclass
class PastEffect:
    """What the record knows of one effect. Empty where the run never got there."""

    thinking: list[tuple[Thinking, bytes]] = field(default_factory=list)
    got: list[tuple[Got, bytes | None]] = field(default_factory=list)
    reply: Reply | None = None
    acting: Acting | None = None
    begun: set[int] = field(default_factory=set)
    observed: dict[int, Observation] = field(default_factory=dict)
    waits: dict[int, Waits] = field(default_factory=dict)
    told: dict[int, Told] = field(default_factory=dict)
    started: StartRecord | None = None
    took: TookRecord | None = None
    ran: RanRecord | None = None
    thrown: Thrown | None = None

    @property
    def recorded(self) -> bool:
        """The run got as far as this effect."""
        return bool(self.thinking or self.acting or self.waits or self.started or self.took or self.ran or self.thrown)

    @property
    def kind(self) -> str:
        """The name of the effect this was, "" where it is not known."""
        if self.thinking:
            return "Think"
        if self.acting:
            return "Act"
        if -1 in self.waits:
            return "AskUser"
        if self.started:
            return "Start"
        if self.ran:
            return "Continue" if self.ran.code is None else "Execute"
        return "WaitNext" if self.took else ""


_NOTHING = PastEffect()


class Past:
    """All that is recorded of a run, by effect number."""

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        self.effects: dict[int, PastEffect] = {}
        self.artifacts: dict[str, tuple[str, bytes]] = {}
        """What tools gave that JSON can't hold, by id: kind and bytes."""
        self.notes = 0
        """How many of the loop's own remarks are recorded: they are numbered by themselves."""
        self.seconds = 0.0
        """Wall time the run was being performed: not while it waited for a person or lay between two processes."""
        self.lost: Lost | None = None
        """What is in doubt because the journal lost rows of this run, or may have."""
        before = 0.0
        for row in rows:
            if before and not isinstance(row.record, Resumed | Told):
                self.seconds += max(0.0, row.at - before)
            before = row.at
            self._add(row)

    def effect(self, n: int) -> PastEffect:
        """What is recorded of effect `n`; an empty one when nothing is."""
        return self.effects.get(n) or _NOTHING

    def waiting(self) -> list[Waits]:
        """What the run waits for: asked, and not told yet."""
        return [waits for past in self.effects.values() for i, waits in past.waits.items() if i not in past.told]

    def _add(self, row: Row) -> None:
        record = row.record
        if isinstance(record, Resumed):
            if record.lost:
                self.lost = Lost(record.lost, (*(self.lost.calls if self.lost else ()), *record.lost_calls))
            return
        if isinstance(record, NoteRecord):
            self.notes = max(self.notes, record.n + 1)
            return
        past = self.effects.setdefault(record.n, PastEffect())
        match record:
            case Thinking():
                past.thinking.append((record, row.body or b""))
            case Got():
                past.got.append((record, row.body))
            case Thought(reply=reply):
                past.reply = reply
            case Acting(begun=begun):
                past.acting = record
                past.begun.update(begun)
            case Begun(begun=begun):
                past.begun.update(begun)
            case ObservedRecord(i=i, observation=observation):
                past.observed[i] = observation
                self.artifacts.update(decode_artifacts(row.body))
            case Waits(i=i):
                past.waits[i] = record
            case Told(i=i):
                past.told[i] = record
            case StartRecord():
                past.started = record
            case TookRecord():
                past.took = record
            case RanRecord():
                past.ran = record
            case Thrown():
                past.thrown = record
