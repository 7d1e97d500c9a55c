"""How a run ends. Six ways, each its own type, so that an error can never pass for an answer."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, TypeAlias

from msgspec import Struct

Status: TypeAlias = Literal["answered", "failed", "stopped", "cancelled", "waiting", "crashed"]


class Answered(Struct, frozen=True, repr_omit_defaults=True, tag="answered"):
    """The model answered. `answer` is any JSON value; most loops give text."""

    status: ClassVar[Status] = "answered"
    answer: Any

    @property
    def reason(self) -> None:
        return None


class Failed(Struct, frozen=True, repr_omit_defaults=True, tag="failed"):
    """The model gave up and said why (`gave_up`), or could not keep to the format (`format`)."""

    status: ClassVar[Status] = "failed"
    reason: str
    kind: Literal["gave_up", "format"] = "gave_up"
    answer: None = None


class Stopped(Struct, frozen=True, repr_omit_defaults=True, tag="stopped"):
    """A limit was reached: `limit` is its name (steps, calls, tokens, usd, seconds, loop, context, reply).

    `answer` is what the model said when asked, with its last call, to answer with what it had;
    None when it could not. With the limit "reply" it is the text of a last reply that was cut or refused.
    """

    status: ClassVar[Status] = "stopped"
    limit: str
    reason: str
    answer: Any = None


class Cancelled(Struct, frozen=True, repr_omit_defaults=True, tag="cancelled"):
    """Someone stopped the run. What was done is on the record; it can be resumed."""

    status: ClassVar[Status] = "cancelled"
    reason: str = "cancelled"
    answer: None = None


class Waiting(Struct, frozen=True, repr_omit_defaults=True, tag="waiting"):
    """The run waits for a person: for an answer to a question, or for approval of a call or a plan.

    `question` is the id of what is asked; an answer names it. A call with another input has another id.
    """

    status: ClassVar[Status] = "waiting"
    kind: Literal["question", "approval", "plan"]
    reason: str
    question: str = ""
    answer: None = None


class Crashed(Struct, frozen=True, repr_omit_defaults=True, tag="crashed"):
    """Something outside the loop broke. `error` names the kind, `hint` says what to do."""

    status: ClassVar[Status] = "crashed"
    reason: str
    error: str = ""
    hint: str = ""
    answer: None = None


Outcome: TypeAlias = Answered | Failed | Stopped | Cancelled | Waiting | Crashed
