"""Tools as a loop sees them: their specifications, calls and observations."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, TypeAlias

from msgspec import Struct, field

from plait.core.attachments import Attachment
from plait.core.outcomes import Stopped

Trouble: TypeAlias = Literal["", "unknown_tool", "bad_input", "raised", "timeout", "refused", "in_doubt", "cancelled"]
"""The reason why a call has no result; "" if it has one."""

MARKS = ("read_only", "idempotent", "destructive", "requires_approval", "open_world", "foreign")
"""The marks of a tool that say what a call may do."""

_FORMULAS = frozenset({"expression", "formula", "equation"})


class ToolSpec(Struct, frozen=True, omit_defaults=True):
    """A tool's description for the model, and its marks for the runtime.

    `parameters` is a JSON Schema of type object, with a property for each parameter, in order. `returns` describes the
    result, `result` is its type as Python writes it; "" if unknown. Without a mark, Plait assumes that a tool has
    effects: it does not repeat a call whose result was lost, and the policy "effects" asks before a call. `excludes`
    names tools that do the same job: a loop that makes several calls in one turn makes one of them. `hand_off`: the
    result of a call is the answer of the run. `requires_approval`: each call waits for the user's approval, whatever
    the agent's policy. `open_world`: its results may hold what strangers wrote, such as mails and web pages. `foreign`:
    strangers wrote its name and description. `background`: a call goes on beside the loop, which gets its result later.
    """

    name: str
    description: str
    parameters: dict[str, Any] = field(default_factory=dict)
    returns: str = ""
    read_only: bool = False
    idempotent: bool = False
    destructive: bool = False
    excludes: tuple[str, ...] = ()
    result: str = ""
    hand_off: bool = False
    requires_approval: bool = False
    open_world: bool = False
    foreign: bool = False
    background: bool = False

    @property
    def repeatable(self) -> bool:
        """Whether a call can be repeated if it is not known whether the first one happened."""
        return self.read_only or self.idempotent

    @property
    def computes(self) -> bool:
        """Whether it takes a formula: its name or that of a parameter says so."""
        return "calc" in self.name.lower() or not _FORMULAS.isdisjoint(self.parameters.get("properties", ()))

    @property
    def has_effects(self) -> bool:
        """Whether it changes something outside, as far as its marks say."""
        return not self.read_only or self.destructive


class Call(Struct, frozen=True, omit_defaults=True, repr_omit_defaults=True):
    """One tool call: the tool's name and its input. Hooks and `approve` functions get the input as an object by
    parameter name, with the values that the tool gets; everywhere else it is as the model gave it.

    `input` is any JSON value: None is no argument, a scalar the one argument, a list positional arguments, an object
    arguments by name. `id` is the endpoint's own id of a native call. `by_code`: code made the call, so the input may
    hold Python values that JSON lacks, such as `{"$tuple": [1, 2]}`.
    """

    tool: str
    input: Any = None
    id: str = ""
    by_code: bool = False


class Observation(Struct, frozen=True, omit_defaults=True):
    """The result or the error of one call.

    `text` is the whole result or error, as text; `trouble` is the kind of error. `note` is a remark of the runtime for
    the model. `value` is the result itself if JSON can hold it. `seconds` is wall time. `repeated`: the same call gave
    the same result before. Two fields serve calls from code: `exact` is the result as the input of such a call, if
    `value` would change it; `printed` is what the tool printed.
    `attachments` are the images and PDF files in the result, which a model sees if it accepts them. `stopped`: a
    limit stopped the agent that the tool ran; its answer is `value`. `outside`: strangers may have written it, because
    the tool is marked `open_world`, or ran an agent that used such a tool. `ends`: the call ends the run, with `value`
    as the answer, or as failed for the reason `text`.
    """

    text: str
    trouble: Trouble = ""
    note: str = ""
    value: Any = None
    exact: Any = None
    printed: str = ""
    seconds: float = 0.0
    repeated: bool = False
    attachments: tuple[Attachment, ...] = ()
    stopped: Stopped | None = None
    outside: bool = False
    ends: Literal["", "answer", "failure"] = ""

    @property
    def ok(self) -> bool:
        """Whether the tool ran and returned a result."""
        return not self.trouble

    @property
    def was_made(self) -> bool:
        """Whether the call was made and its end is known: a result, an error of the tool, or its time limit."""
        return self.trouble in ("", "raised", "timeout")

    @property
    def with_note(self) -> str:
        """The text, and the runtime's remark below it."""
        return f"{self.text}\n({self.note})" if self.note else self.text


def tool_named(name: str, tools: Iterable[ToolSpec]) -> ToolSpec | None:
    for tool in tools:
        if tool.name == name:
            return tool
    return None
