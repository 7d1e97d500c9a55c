"""A trace arranged by effect, so that the engine can take the loop through it again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from plait.core import Call, Observation, Reply
from plait.journal.effects import Lost
from plait.journal.records import UserAnswer
from plait.journal.timeline import (
    CodeTurn,
    EffectsStarted,
    EffectTaken,
    Entry,
    HookDecision,
    LoopException,
    ModelAttempt,
    ModelCall,
    Question,
    RecordedNote,
    Resumption,
    Timeline,
    ToolCall,
)
from plait.runtime.artifacts import decode_artifacts
from plait.runtime.spent import Spent


@dataclass
class PastEffect:
    """The record of one effect; empty if the run did not reach it."""

    attempts: tuple[ModelAttempt, ...] = ()
    reply: Reply | None = None
    planned: tuple[Call, ...] = ()
    calls: tuple[ToolCall, ...] = ()
    """The planned calls as they are on record."""
    begun: set[int] = field(default_factory=set)
    asked: dict[tuple[int, int], ModelCall] = field(default_factory=dict)
    """The questions of tools to models, by the index of the call and the number of the question."""
    observed: dict[int, Observation] = field(default_factory=dict)
    waits: dict[int, tuple[Question, ...]] = field(default_factory=dict)
    """The questions about calls, or (-1) to the user, by the call's index. After an edit a call may have another."""
    of_children: dict[str, UserAnswer | None] = field(default_factory=dict)
    """The questions of child runs by id, with their answers; None for an open one."""
    decided: dict[tuple[str, int], tuple[HookDecision, ...]] = field(default_factory=dict)
    """What hooks decided, by point and by the call's index. They decide about a call again after each edit."""
    hook_waits: dict[tuple[str, int], Question] = field(default_factory=dict)
    """The questions of hooks to the user, by point and by the index of the call."""
    started: EffectsStarted | None = None
    took: EffectTaken | None = None
    ran: CodeTurn | None = None
    thrown: LoopException | None = None

    def answers(self, i: int) -> list[UserAnswer]:
        """What the user answered about a call, or (-1) to a question, in order."""
        return [asked.answer for asked in self.waits.get(i, ()) if asked.answer is not None]

    @property
    def is_recorded(self) -> bool:
        """The run got as far as this effect."""
        done = self.attempts or self.planned or self.waits or self.started or self.took or self.ran or self.thrown
        return bool(done) or ("before_model", -1) in self.decided

    @property
    def kind(self) -> str:
        """The name of the effect this was, "" where it is not known."""
        if self.attempts:
            return "Think"
        if self.planned:
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

    def __init__(self, timeline: Timeline | None = None, children: Mapping[str, Spent] | None = None) -> None:
        self.timeline = timeline or Timeline()
        self.children = dict(children or {})
        """What the child runs used so far, by run."""
        self.calls_in_doubt: list[Call] = []
        """The calls in doubt of the run and its child runs."""
        self.effects: dict[int, PastEffect] = {}
        self.artifacts: dict[str, tuple[str, bytes]] = {}
        """Results of tools that JSON cannot hold, by id: kind and bytes."""
        self.notes: dict[int, RecordedNote] = {}
        """The loop's own remarks, which are numbered by themselves."""
        self.lost: Lost | None = None
        """The calls in doubt because the journal lost rows of this run, or may have."""
        for moment in self.timeline.moments:
            self._add(moment.entry)
        for call in self.timeline.tool_calls:
            self.effects[call.n].calls += (call,)

    @property
    def seconds(self) -> float:
        """The time that the run was being performed so far."""
        return self.timeline.seconds

    def effect(self, n: int) -> PastEffect:
        """Return the record of effect `n`; an empty one if it has none."""
        return self.effects.get(n) or _NOTHING

    def _add(self, entry: Entry) -> None:
        if isinstance(entry, Resumption):
            if entry.lost:
                self.lost = Lost(entry.lost, (*(self.lost.calls if self.lost else ()), *entry.lost_calls))
            return
        if isinstance(entry, RecordedNote):
            self.notes[entry.n] = entry
            return
        past = self.effects.setdefault(entry.n, PastEffect())
        match entry:
            case ModelCall(asked_by=tuple() as by):
                past.asked[by] = entry
            case ModelCall(attempts=attempts, reply=reply):
                past.attempts, past.reply = attempts, reply
            case ToolCall():
                if entry.i == len(past.planned):
                    past.planned = (*past.planned, entry.planned)
                if entry.begun:
                    past.begun.add(entry.i)
                if entry.observation is not None:
                    past.observed[entry.i] = entry.observation
                    self.artifacts.update(decode_artifacts(entry.artifacts))
            case Question(child=str() as child, question=id, answer=answer) if child:
                past.of_children[id] = answer
            case Question(point=str() as point, i=i) if point:
                past.hook_waits[point, i] = entry
            case HookDecision(point=point, i=i):
                past.decided[point, i] = (*past.decided.get((point, i), ()), entry)
            case Question(i=i, answer=answer):
                before = past.waits.get(i, ())
                last = before[-1] if before else entry
                edited = last.answer is not None and last.answer.input
                # One about the same call replaces the one before, which did not say that the call is in doubt.
                again = answer is not None or (entry.call is not None and entry.call == last.call and not edited)
                past.waits[i] = (*(before[:-1] if again else before), entry)
            case EffectsStarted():
                past.started = entry
            case EffectTaken():
                past.took = entry
            case CodeTurn():
                past.ran = entry
            case LoopException():
                past.thrown = entry
