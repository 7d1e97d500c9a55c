"""What a loop is: a name, its phases, and a generator over effects."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any, ClassVar, Literal, Protocol, TypeAlias, runtime_checkable

from msgspec import Struct

from plait.core.effects import Effect
from plait.core.outcomes import Outcome
from plait.core.tools import ToolSpec

Loop: TypeAlias = Generator[Effect, Any, Outcome]
"""A run of a strategy: yields effects, is sent their results, returns how it ended."""

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

    def close(self) -> list[Piece]:
        """What was held back, when the reply has ended."""
        ...


class OneKind:
    """A splitter for replies that are all of one kind."""

    def __init__(self, kind: PieceKind) -> None:
        self._kind: PieceKind = kind

    def feed(self, text: str) -> list[Piece]:
        return [Piece(self._kind, text)] if text else []

    def close(self) -> list[Piece]:
        return []


class Task(Struct, frozen=True):
    """What the person wants."""

    question: str


class Prompts(Protocol):
    """A loop's templates, by name, already read: rendering does no I/O."""

    def render(self, name: str, values: Mapping[str, Any]) -> str:
        """The template `name` (such as "system") filled with `values`."""
        ...


class Kit(Struct, frozen=True):
    """What a loop works with: the tools, its prompts, and how much of an observation it may show.

    `system`, when given, is the user's own system prompt: it is sent byte for byte in place of the
    loop's. `observation_chars` is the most characters of one observation put in a prompt.
    `can_ask` says whether the person may be asked.
    """

    tools: tuple[ToolSpec, ...]
    prompts: Prompts
    system: str | None = None
    observation_chars: int = 8000
    can_ask: bool = True

    def prompt(self, name: str, **values: Any) -> str:
        """The template `name`, filled; `tools` is always there."""
        return self.prompts.render(name, {"tools": self.tools, **values})

    def tool(self, name: str) -> ToolSpec | None:
        """The tool of that name, if there is one."""
        return next((tool for tool in self.tools if tool.name == name), None)


@runtime_checkable
class Strategy(Protocol):
    """A reasoning-and-acting loop with its options: a frozen value, made once, run many times.

    `name` is the word the loop is chosen by, and its prompts' folder; `phases` are the names its
    think effects use.
    """

    name: ClassVar[str]
    phases: ClassVar[tuple[str, ...]]

    def run(self, task: Task, kit: Kit) -> Loop:
        """Start the loop on a task. Calling it does nothing yet: it returns a generator."""
        ...

    def splitter(self, phase: str) -> Splitter:
        """What tells the parts of that phase's replies apart while they stream."""
        ...
