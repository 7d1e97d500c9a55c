"""The events of a run, which can be watched while it runs: typed, in order, each with its step."""

from __future__ import annotations

from typing import Any, TypeAlias

from msgspec import Struct

from plait.core.code import Ran
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
    """The next part of a thought."""

    step: int
    text: str


class Action(Struct, frozen=True, tag="action"):
    """The next part of an action, as the model writes it."""

    step: int
    text: str


class Answer(Struct, frozen=True, tag="answer"):
    """The next part of the answer."""

    step: int
    text: str


class Text(Struct, frozen=True, tag="text"):
    """A piece of a reply that may be the answer.

    When the reply is complete, its whole text comes again as `Answer`, or as `Thought` if calls followed.
    """

    step: int
    text: str


class PartialOutput(Struct, frozen=True, tag="partial_output"):
    """The answer of an agent with an output type, as far as the model has written it.

    `value` is a value of that type if the part that exists allows one, else JSON. A later one replaces it, and the last
    one is not checked: `Ended` holds the output.
    """

    step: int
    value: Any


class Replied(Struct, frozen=True, tag="replied"):
    """A model's reply is complete. `cost` is in USD, None if no price is known."""

    step: int
    phase: str
    model: str
    text: str
    usage: Usage
    seconds: float
    cost: float | None


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


class Noted(Struct, frozen=True, tag="noted"):
    """A remark: a repair, a cut, a retry, a repeated call, a limit that is near."""

    step: int
    kind: str
    text: str


class Ended(Struct, frozen=True, tag="ended"):
    """The run has ended, or waits. `run` is the whole `plait.Run`."""

    outcome: Outcome
    run: Any


Event: TypeAlias = (
    Began
    | Asked
    | Thought
    | Action
    | Answer
    | Text
    | PartialOutput
    | Replied
    | Called
    | Observed
    | Executing
    | Executed
    | Noted
    | Ended
)

WRITTEN: dict[str, type[Thought] | type[Action] | type[Answer] | type[Text]] = {
    "thought": Thought,
    "action": Action,
    "answer": Answer,
    "text": Text,
}
"""The event for each kind of text that a model writes."""
