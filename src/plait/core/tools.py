"""Tools as a loop sees them: what there is, what is called, what was observed."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from msgspec import Struct, field

Trouble: TypeAlias = Literal["", "unknown_tool", "bad_input", "raised", "timeout", "refused", "in_doubt", "cancelled"]
"""Why a call has no result: "" when it has one."""


_FORMULAS = frozenset({"expression", "formula", "equation"})


class ToolSpec(Struct, frozen=True, omit_defaults=True):
    """What a model is told of a tool, and what a runtime must know before calling it.

    `parameters` is a JSON Schema of type object, one property a parameter, in order.
    `returns` says in words what comes back, `result` its type as Python writes it, "" where it is not known. A tool
    with none of the marks is taken to have effects: it is not called again when its result was lost, and the policy
    "effects" asks before it. `excludes` names tools that do the same job: a loop that makes several calls in one turn
    makes one of them.
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

    @property
    def repeatable(self) -> bool:
        """May be called again when it is not known whether the first call happened."""
        return self.read_only or self.idempotent

    @property
    def computes(self) -> bool:
        """Takes a formula: it is called a calculator, or a parameter of it is called so."""
        return "calc" in self.name.lower() or not _FORMULAS.isdisjoint(self.parameters.get("properties", ()))

    @property
    def has_effects(self) -> bool:
        """Changes something outside, as far as its marks say."""
        return not self.read_only or self.destructive


class Call(Struct, frozen=True, omit_defaults=True, repr_omit_defaults=True):
    """One tool call: the tool's name and its input as the model gave it.

    `input` is any JSON value: None is no argument, a scalar the one argument, a list positional
    arguments, an object arguments by name. `id` is the endpoint's own id of a native call. `by_code`: code made the
    call, so the input may hold Python values that JSON has no word for, as in `{"$tuple": [1, 2]}`.
    """

    tool: str
    input: Any = None
    id: str = ""
    by_code: bool = False


class Observation(Struct, frozen=True, omit_defaults=True):
    """What came of one call.

    `text` is the whole result or the error, as text; `trouble` tells errors apart. `note` is what
    the runtime has to say to the model about the call, beside what the tool said. `value` is the
    result itself where JSON can hold it. `seconds` is wall time. `repeated`: the same call brought the same before.
    For a call that code made, `exact` is the result where `value` would change it, written as the input of such a
    call, `unfit` says why code can't have it, and `printed` is what the tool printed.
    """

    text: str
    trouble: Trouble = ""
    note: str = ""
    value: Any = None
    exact: Any = None
    unfit: str = ""
    printed: str = ""
    seconds: float = 0.0
    repeated: bool = False

    @property
    def ok(self) -> bool:
        """The tool ran and gave a result."""
        return not self.trouble
