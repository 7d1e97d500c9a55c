"""Guards: the policies of a run. Each sees the entries at the points that it names, and decides about them.

Theory of operation. A run takes each piece of work (an entry) through its guards before it is done, and through the
same guards, the last first, when it has a result. Before it, a guard lets the effect pass, changes it, refuses it, asks
the user, or raises a signal for the loop. After it, a guard lets the result pass, changes it, withholds it, or asks.
Every decision but "pass" is on record. What is on record wins: about a result that the loop has seen no guard decides,
and one with a recorded decision does not decide again. So a replay needs no guards.

A guard may reserve in `before`, under `entry.id`. An `after` or a `release` follows each `before` that returned an
effect, and each `restore`: also on an error, a refusal, a suspension and a cancellation. The first one ends the hold.
Another `after` may follow, because all guards get each result, refusal and signal. So its state follows from
the record. It changes no state because of what it raises, refuses or asks."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Literal

from msgspec import Struct

from plait.core import JSON, Think
from plait.core.errors import ConfigError
from plait.journal.entries import Question
from plait.journal.keys import question_id, read_key
from plait.journal.records import Asking, Decision
from plait.models.base import Model
from plait.runtime.calls.bound_calls import BoundCall
from plait.runtime.calls.context import Context, DepsT
from plait.tools import Tool

BREAKER, LIMITS, USERS, GROUNDING, OUTPUT, TAINT, APPROVALS, SPENDING = 0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0
"""The places in the chain (`Guard.order`). A user's guards and hooks are at `USERS`, in the user's order."""


class Refuse(Struct, frozen=True):
    """A guard's or hook's refusal. The model reads the reason of a refused tool call, result or answer.

    Raises `ConfigError` if the reason is not a text, or empty.
    """

    reason: str

    def __post_init__(self) -> None:
        _require_text("Refuse", self.reason, "reason")


class AskApproval(Struct, frozen=True):
    """A guard's or hook's request that the user decides. The run waits with this question for a yes or no.

    `reasons` are sentences that the user reads behind the question. A guard gets them again in `confirm`, so that it
    can tell what they have read. Raises `ConfigError` if the question is not a text, or empty.
    """

    question: str
    reasons: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _require_text("AskApproval", self.question, "question")
        if not isinstance(self.reasons, tuple):
            raise ConfigError(f"AskApproval(reasons={self.reasons!r}) is invalid.", hint="Give a tuple of texts.")
        for each in self.reasons:
            _require_text("AskApproval", each, "reasons")

    @property
    def text(self) -> str:
        """Return what the user reads."""
        return " ".join((self.question, *self.reasons))


def _require_text(kind: str, given: object, what: str) -> None:
    if not isinstance(given, str) or not given.strip():
        raise ConfigError(f"{kind}({given!r}) is invalid.", hint=f"Give the {what} as a text.")


# -- signals


class LimitReached(Exception):
    """Raised by a guard when even the reserved model call is used: the run ends as stopped."""

    def __init__(self, limit: str, detail: str) -> None:
        super().__init__(detail)
        self.limit = limit
        self.detail = detail


class EndedByRefusal(Exception):
    """Raised when what the loop cannot go on without is refused: the run ends as failed. `kind` is that of `Failed`."""

    def __init__(self, reason: str, kind: Literal["refused", "output"] = "refused") -> None:
        super().__init__(reason)
        self.kind: Literal["refused", "output"] = kind


# -- effects that only guards and performers know


@dataclass(frozen=True, slots=True)
class Attempt:
    """One request to a model. A guard may make `max_tokens` smaller; the request is then encoded again.

    `body` is the encoded request. `number` counts the attempts of a model call from 0. `think.max_tokens` is the reply
    length that the loop asked for.
    """

    think: Think
    model: Model
    body: bytes
    max_tokens: int | None
    number: int = 0


class StartChild(Struct, frozen=True):
    """A child run, with the id `run`, that a tool call starts. `deps` are the dependencies of its tools. `history`: it
    sees the conversation of the run that starts it."""

    agent: Any
    question: Any
    run: str
    deps: Any = None
    history: bool = False


class UserMessage(Struct, frozen=True):
    """A message that the user sent to a run that goes on: its number, its text, and the user's name."""

    number: int
    text: str
    by: str = ""


class Finish(Struct, frozen=True):
    """The end of a run. Its result is the outcome."""


@dataclass(slots=True)
class Entry:
    """What a guard sees of an entry: one unit of work, such as a tool call or an attempt to ask a model.

    `run` and `key` name it, `step` is the loop's turn. `asked` is the effect as the loop wants it, `effect` what is
    about to be done: a call with its input by name, converted, with defaults, as the tool gets it. Of a call, `tool` is
    the tool (None if it is unknown) and `bound` has its input in all forms. `fixed`: the run's plan has this call.
    `started`: it runs beside others (`Start`), of which `beside` began after it. `by_tool`: a tool asks for it.
    `recorded`: the result comes from the record. `begun`: the record says that it began. `decided` has the decisions so
    far, by guard."""

    run: str
    key: str
    step: int
    asked: Any
    effect: Any
    tool: Tool | None = None
    bound: BoundCall | None = None
    fixed: bool = False
    started: bool = False
    beside: int = 0
    by_tool: bool = False
    recorded: bool = False
    begun: bool = False
    changed_by: Literal["", "hook", "user"] = ""
    decided: dict[str, Decision] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)
    """What speaks for asking the user, in sentences. One guard, `approvals`, asks for all of them."""
    remark: Callable[[str, str], None] = lambda kind, text: None
    """Notes something in the journal: its kind and text. Does nothing for recorded work."""
    outside: tuple[str, ...] = ()
    """What the context of a call holds from outside, if the call may follow from it."""
    id: tuple[str, str] = field(init=False)
    """What tells the entry from all others of the tree of runs."""

    def __post_init__(self) -> None:
        self.id = (self.run, self.key)


class Guard(Generic[DepsT]):
    """A policy of a run. Override the methods that you need; they get an `Entry`.

    `points` are the kinds of effects that it sees: `Think`, `Attempt`, `Call`, `StartChild`, `AskUser`, `Execute`,
    `Continue`, `CheckAnswer`, `CheckGrounding`, `UserMessage`, `Finish`. A guard may see other effects in `before` than
    in `after`: then `points` are the former and `points_after` the latter. `name` is unique in a chain; the journal has
    decisions under it. If the guard sees the results of `Think`, nobody sees a part of a reply before it has seen the
    whole one; if it sees those of `CheckAnswer` or `Finish`, this holds for answers. `holds_text` is False for a guard
    that needs no such wait."""

    order: ClassVar[float] = USERS
    holds_text: ClassVar[bool] = True
    points: tuple[type, ...] = ()
    points_after: tuple[type, ...] | None = None
    holds_for_children: ClassVar[bool] = True
    """Whether child runs have this guard, too. Without it they have only their own."""
    may_ask: bool = True
    """Whether it may ask the user, or wait for something else, about the effects that it sees."""
    sees_unbound: bool = False
    """Whether `before` also gets calls that fit no tool, as the model wrote them. It may only raise a signal about
    them."""

    @property
    def name(self) -> str:
        return type(self).__name__

    def start(self, context: Context[DepsT]) -> Guard[Any]:
        """Return the guard of one run, with a state of its own. It may share state with other runs, such as what a user
        has spent. `context` has the dependencies, the run's id and its session."""
        return copy.copy(self)

    async def before(self, entry: Entry) -> Any:
        """Decide about an effect: return it, perhaps changed, `Refuse` or `AskApproval`; or raise `LimitNear` or
        `LimitReached`. If it returns the effect unchanged it may reserve."""
        return entry.effect

    async def confirm(self, entry: Entry, asked: Asking, decision: Decision) -> Any:
        """Decide about an effect that the user has approved, like `before`. `asked` is the question of this guard that
        they read, `decision` their answer: a yes to this effect, or an edit into it. What they approved stands unless
        something speaks against it that the question did not say."""
        self.restore(entry, decision)
        return entry.effect

    def restore(self, entry: Entry, decision: Decision | None) -> None:
        """Reserve again; decide nothing. `decision` is the recorded one, None if the guard had let the effect pass."""

    async def after(self, entry: Entry, result: Any, fresh: bool) -> Any:
        """Return the result, perhaps changed, `Refuse` to withhold it, or `AskApproval`.

        Unless `fresh`, what it returns is ignored: the loop has seen the result, or a decision is on record. `result`
        may be a signal (an exception) that the loop received in place of a result."""
        return result

    def release(self, entry: Entry) -> None:
        """Give back what was reserved: the entry has no result in this process."""

    def recall(self, entry: Entry, result: Any) -> None:
        """Take note of recorded work before a resumed run goes on; `result` is None if it began and has none.

        A guard that child runs have, too, is also told their work, of ended ones and of those that go on; its `tool` is
        then None. The walk comes to the same work later, with `restore` and `after`, and a child that goes on tells it
        again: a guard that counts must count each `entry.id` once."""

    def holds_result(self, entry: Entry, result: Any) -> bool:
        """Return whether the result of a call is reported only after this guard has seen it: it may change it.

        The guard sees it when all calls that are made side by side have ended."""
        return type(self).after is not Guard.after

    async def retry_after(self, entry: Entry, result: Any, attempt: int) -> float | None:
        """Return after how many seconds to repeat a failed call of a repeatable tool; None not to repeat it."""
        return None

    def refuse_late(self, entry: Entry) -> str:
        """Return why an admitted tool call is not made after all, now that the turn of its object has come; "" if it
        is. Calls beside it may have ended meanwhile."""
        return ""

    def carry(self) -> JSON:
        """Return what the guard of the same name in the parent run must know when this run has ended; None for nothing.
        It gets that as `result.totals["guards"][name]` of a `ChildEnd`."""
        return None

    def for_child(self, own: Guard | None) -> Guard | None:
        """Return the guard of a child run in place of `own`, the child's guard of the same name; None for none.

        By default it is this one: it holds for the whole tree, and `entry.run` tells the runs apart.
        """
        return self if self.holds_for_children else own


GUARD_PARTS = tuple(name for name in vars(Guard) if not name.startswith("_") and name not in ("order", "name", "start"))
"""What a guard has, but for its place and its name."""


def make_open_question(run: str, key: str, step: int, asking: Asking) -> Question:
    """Return an open question. `key` is that of the decision, or of the loop's effect, that waits for the answer."""
    at, id = read_key(key), question_id(run, key)
    return Question(key, at.n, at.i, step, asking.kind, asking.text, run, id, asking.call, at.guard)


class HandedBack(Exception):
    """The run was handed back: another process goes on with it."""


class Suspend(Exception):
    """Raised when work must wait for the user. `questions` are all that are open, those of child runs too. There are
    none where the run is to be handed back."""

    def __init__(self, *questions: Question) -> None:
        super().__init__(*questions)
        self.questions = list(questions)


class RecordEnds(Exception):
    """Raised when a replay reaches the end of the record."""
