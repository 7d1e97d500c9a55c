"""The events of a run, which can be watched while it runs: typed, in order, each with its step.

The order of texts is the same for all loops. A text arrives once, in pieces that have the same `part`. When its reply
is complete, one `Marked` with that `part` says what it was. The text that is marked "answer" is the run's answer.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, cast, get_args

from msgspec import Struct

from plait.core.code import Ran
from plait.core.hosted import Citation, HostedCall
from plait.core.loop import PieceKind
from plait.core.outcomes import Outcome
from plait.core.replies import Usage
from plait.core.tools import Call, Observation


class Began(Struct, frozen=True, tag="began"):
    """A run has started, or resumed (`resumed`). `forked_from` is the run whose first steps it takes, if any."""

    run: str
    question: str
    loop: str
    resumed: bool = False
    forked_from: str = ""


class Asked(Struct, frozen=True, tag="asked"):
    """A model is being asked, by a phase."""

    step: int
    phase: str
    model: str


class Thought(Struct, frozen=True, tag="thought"):
    """The next piece of a thought."""

    step: int
    text: str
    part: int = 0


class Action(Struct, frozen=True, tag="action"):
    """The next piece of an action, as the model writes it."""

    step: int
    text: str
    part: int = 0


class Answer(Struct, frozen=True, tag="answer"):
    """The next piece of what seems to be the answer."""

    step: int
    text: str
    part: int = 0


class Text(Struct, frozen=True, tag="text"):
    """The next piece of a text that may be the answer, or a thought if calls follow."""

    step: int
    text: str
    part: int = 0


class Marked(Struct, frozen=True, tag="marked"):
    """No further piece of the text `part` comes, and it was of this kind.

    An answer is marked when the run takes it, or goes on without it: then it was a "thought", as is everything else
    that a model says beside its actions. "dropped": the attempt failed, or the answer was made of the text.
    """

    step: int
    part: int
    kind: Literal["thought", "action", "answer", "dropped"]


class PartialOutput(Struct, frozen=True, tag="partial_output"):
    """The answer of an agent with an output type, as far as the model has written it.

    `value` is a value of that type if the part that exists allows one, else JSON. A later one replaces it, and the last
    one is not checked: `Ended` holds the output.
    """

    step: int
    value: Any


class Replied(Struct, frozen=True, tag="replied", omit_defaults=True):
    """A model's reply is complete; `text` is all of it, as recorded. `cost` is in USD, None if unknown. `citations` are
    the sources that the text names."""

    step: int
    phase: str
    model: str
    text: str
    usage: Usage
    seconds: float
    cost: float | None
    citations: tuple[Citation, ...] = ()


class Called(Struct, frozen=True, tag="called"):
    """A tool call starts."""

    step: int
    call: Call


class Observed(Struct, frozen=True, tag="observed"):
    """A tool call ended."""

    step: int
    call: Call
    observation: Observation


class Executing(Struct, frozen=True, tag="executing"):
    """A piece of code starts to run."""

    step: int
    code: str


class Executed(Struct, frozen=True, tag="executed"):
    """Code ended, or waits for calls."""

    step: int
    ran: Ran


class HostedCalled(Struct, frozen=True, tag="hosted_called"):
    """The provider made a call by itself, within the reply that is complete now (see `Replied`)."""

    step: int
    call: HostedCall


class Noted(Struct, frozen=True, tag="noted"):
    """A remark: a repair, a cut, a retry, a repeated call, a limit that is near.

    `data` is the JSON value that a tool reports with `Context.report_progress` (kind "progress") or sets with
    `Context.set_state` (kind "state"). Of an answer of the user (kind "told") it is the user's name `by`, "" if that is
    not known, and the time `at` in seconds since 1970. None for others.
    """

    step: int
    kind: str
    text: str
    data: Any = None


class Ended(Struct, frozen=True, tag="ended"):
    """The run has ended, or waits. `run` is the whole `plait.Run`."""

    outcome: Outcome
    run: Any


class ChildEvent(Struct, frozen=True, tag="child"):
    """An event of a child run, at any depth. `run` is its id, `parent` that of the run that started it."""

    run: str
    parent: str
    event: Event


Event: TypeAlias = (
    Began
    | Asked
    | Thought
    | Action
    | Answer
    | Text
    | Marked
    | PartialOutput
    | Replied
    | Called
    | Observed
    | HostedCalled
    | Executing
    | Executed
    | Noted
    | Ended
    | ChildEvent
)

Written: TypeAlias = Thought | Action | Answer | Text
WRITTEN: dict[str, type[Written]] = {kind.__name__.lower(): kind for kind in get_args(Written)}
"""The event for each kind of text that a model writes."""


def kind_of(event: Written) -> PieceKind:
    """Return the kind of text of which this is a piece."""
    return cast(PieceKind, type(event).__name__.lower())
