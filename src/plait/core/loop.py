"""What a loop is: a name, its phases, and a generator over effects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Protocol, TypeAlias, runtime_checkable

from msgspec import Struct, structs

from plait.core.call_check import IsOpen, find_call_problem
from plait.core.effects import Effects
from plait.core.messages import JSON, Exchange
from plait.core.outcomes import Outcome
from plait.core.tools import ToolSpec

LoopRun: TypeAlias = Effects[Outcome]
"""A run of a loop: yields effects, is sent their results, returns how it ended."""

PieceKind: TypeAlias = Literal["thought", "action", "observation", "answer"]


class Piece(Struct, frozen=True):
    """Some text of a reply, told apart while it is being written."""

    kind: PieceKind
    text: str


class Splitter(Protocol):
    """Tells the parts of a reply apart as it streams in. One is made for each model call."""

    def feed(self, text: str) -> list[Piece]:
        """The pieces that are now certain, given `text` more of the reply."""
        ...

    def close(self, acts: bool = False) -> list[Piece]:
        """What was held back, when the reply has ended. `acts`: native tool calls came with it."""
        ...


class OneKind:
    """A splitter for replies that are all of one kind."""

    def __init__(self, kind: PieceKind) -> None:
        self._kind: PieceKind = kind

    def feed(self, text: str) -> list[Piece]:
        return [Piece(self._kind, text)] if text else []

    def close(self, acts: bool = False) -> list[Piece]:
        return []


class Task(Struct, frozen=True, omit_defaults=True):
    """What the person wants. `history` are the recent turns of the conversation it stands in, oldest first."""

    question: str
    history: tuple[Exchange, ...] = ()


class Prompts(Protocol):
    """A loop's templates, by name, already read: rendering does no I/O."""

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels that the templates print at the beginning of a line (see `core/labels.py`)."""
        ...

    def render(self, name: str, values: Mapping[str, Any]) -> str:
        """The template `name` (such as "system") filled with `values`."""
        ...

    def of(self, loop: str) -> Prompts:
        """The templates of a loop that this one may fall back to."""
        ...


class LoopContext(Struct, frozen=True):
    """What a loop works with: the tools, its prompts, and how much of an observation it may show.

    `system`, when given, is the user's own system prompt: it is sent byte for byte in place of the
    loop's. `observation_chars` is the most characters of one observation put in a prompt.
    `can_ask` says whether the person may be asked; `approve_plan` that they are shown a plan before it is
    carried out. `tools` are those that the model is shown, `others` may be called as well; `search` is the name of the
    tool that finds them, "" where there is none. `special_tokens` are texts that the run's models read as control
    tokens: data is shown without them.
    """

    tools: tuple[ToolSpec, ...]
    prompts: Prompts
    system: str | None = None
    observation_chars: int = 8000
    can_ask: bool = True
    approve_plan: bool = False
    others: tuple[ToolSpec, ...] = ()
    search: str = ""
    special_tokens: tuple[str, ...] = ()

    @property
    def known(self) -> tuple[ToolSpec, ...]:
        """Every tool that may be called, those that the model is shown first."""
        return (*self.tools, *self.others) if self.others else self.tools

    def prompt(self, name: str, **values: Any) -> str:
        """The template `name`, filled; `tools` is always there."""
        return self.prompts.render(name, {"tools": self.tools, **values})

    def rules(self, name: str = "system", **values: Any) -> str:
        """The user's own system prompt, or the template `name`."""
        return self.system if self.system is not None else self.prompt(name, **values)

    def tool(self, name: str) -> ToolSpec | None:
        """The tool of that name, if there is one."""
        return next((tool for tool in (*self.tools, *self.others) if tool.name == name), None)

    def find_problem(self, tool: str, given: JSON, is_open: IsOpen) -> str:
        """Why a planned call cannot be made, as `find_call_problem` says it; "" if it can."""
        return find_call_problem(tool, given, {spec.name: spec for spec in self.known}, is_open)

    def of(self, loop: str) -> LoopContext:
        """The kit of a loop that this one falls back to: its own prompts, and no system prompt of the user's,
        which was written for another loop."""
        return structs.replace(self, prompts=self.prompts.of(loop), system=None)


@runtime_checkable
class Loop(Protocol):
    """A reasoning-and-acting loop with its options: a frozen value, made once, run many times.

    `name` is the word the loop is chosen by, and its prompts' folder; `phases` are the names its
    think effects use. A loop that may fall back to another names it in an attribute `fallback` ("" for none);
    the phases of that one are then `name.phase`.
    """

    name: ClassVar[str]
    phases: ClassVar[tuple[str, ...]]

    def run(self, task: Task, context: LoopContext) -> LoopRun:
        """Start the loop on a task. Calling it does nothing yet: it returns a generator."""
        ...

    def splitter(self, phase: str) -> Splitter:
        """What tells the parts of that phase's replies apart while they stream."""
        ...
