"""The six ways in which a run ends, each its own type, so that an error can never pass for an answer."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, TypeAlias

from msgspec import Struct

Status: TypeAlias = Literal["answered", "failed", "stopped", "cancelled", "waiting", "crashed"]


class Answered(Struct, frozen=True, repr_omit_defaults=True, tag="answered"):
    """The model answered. `answer` is any JSON value; most loops return text."""

    status: ClassVar[Status] = "answered"
    answer: Any

    @property
    def reason(self) -> None:
        return None


class Failed(Struct, frozen=True, repr_omit_defaults=True, tag="failed"):
    """The model gave up and said why (`gave_up`), did not follow the format (`format`), or gave no answer that fits the
    agent's output type and checks (`output`); or a hook refused a request, a reply or the answer (`refused`); or a tool
    ended the run (`tool`)."""

    status: ClassVar[Status] = "failed"
    reason: str
    kind: Literal["gave_up", "format", "output", "refused", "tool"] = "gave_up"
    answer: None = None


class Stopped(Struct, frozen=True, repr_omit_defaults=True, tag="stopped"):
    """A limit was reached: `limit` is its name (steps, calls, tokens, usd, seconds, loop, context, reply).

    `answer` is the model's answer from what it had, written with its last call; None if it could not answer. With the
    limit "reply" it is the text of a last reply that was cut or refused.
    """

    status: ClassVar[Status] = "stopped"
    limit: str
    reason: str
    answer: Any = None


class Cancelled(Struct, frozen=True, repr_omit_defaults=True, tag="cancelled"):
    """The user stopped the run. The journal has everything up to then, and the run can be resumed."""

    status: ClassVar[Status] = "cancelled"
    reason: str = "cancelled"
    answer: None = None


class Waiting(Struct, frozen=True, repr_omit_defaults=True, tag="waiting"):
    """The run waits for the user: for an answer to a question, or for approval of a call or a plan.

    `question` is the id of the question, which an answer names. A call with a different input has a different id. For
    an approval of a call, `tool` is the tool's name and `input` the call's input, as it would be made.
    """

    status: ClassVar[Status] = "waiting"
    kind: Literal["question", "approval", "plan"]
    reason: str
    question: str = ""
    tool: str = ""
    input: Any = None
    answer: None = None


class Crashed(Struct, frozen=True, repr_omit_defaults=True, tag="crashed"):
    """An error outside the loop. `error` names the kind, `hint` says what to do."""

    status: ClassVar[Status] = "crashed"
    reason: str
    error: str = ""
    hint: str = ""
    answer: None = None


Outcome: TypeAlias = Answered | Failed | Stopped | Cancelled | Waiting | Crashed
