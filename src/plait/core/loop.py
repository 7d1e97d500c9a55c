"""The protocol of loops: a name, phases, and a generator over effects; and what a loop works with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Protocol, TypeAlias, runtime_checkable

from msgspec import Struct, structs

from plait.core.attachments import Attachment
from plait.core.call_check import IsOpen, find_call_problem
from plait.core.effects import Effects
from plait.core.messages import JSON, Exchange, Message
from plait.core.outcomes import Outcome
from plait.core.output import OutputSpec
from plait.core.plans import Plan
from plait.core.tools import ToolSpec, tool_named

LoopRun: TypeAlias = Effects[Outcome]
"""A run of a loop: yields effects, receives their results, returns the outcome."""

PieceKind: TypeAlias = Literal["thought", "action", "observation", "answer", "text"]
"""A kind of text in a reply. "text" is a preview: a thought or an answer, which comes once more when that is known."""


class Piece(Struct, frozen=True):
    """A classified piece of a reply that is being written."""

    kind: PieceKind
    text: str


class Splitter(Protocol):
    """Splits a reply into its parts while it streams in. Each model call has its own splitter."""

    def feed(self, text: str) -> list[Piece]:
        """Return the pieces that are certain after `text`, the next part of the reply."""
        ...

    def close(self, acts: bool = False) -> list[Piece]:
        """Return the remaining pieces of a finished reply. `acts`: native tool calls came with it."""
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
    """The user's request. `history` are the recent turns of its conversation, oldest first.

    `attachments` are its images and PDF files, `texts` its text files (name, text), with those of the history.
    """

    question: str
    history: tuple[Exchange, ...] = ()
    attachments: tuple[Attachment, ...] = ()
    texts: tuple[tuple[str, str], ...] = ()

    def ask(self, text: str, more: tuple[Attachment, ...] = ()) -> Message:
        """Return the user's message that holds the question, with its attachments and `more`."""
        return Message("user", text, attachments=(*self.attachments, *more))


class Prompts(Protocol):
    """A loop's templates by name, already loaded: rendering does no I/O."""

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels that the templates print at the beginning of a line (see `core/labels.py`)."""
        ...

    def render(self, name: str, values: Mapping[str, Any]) -> str:
        """Return the template `name` (such as "system") filled with `values`."""
        ...

    def of(self, loop: str) -> Prompts:
        """Return the templates of a loop that this one may fall back to."""
        ...


HISTORY = "chat_history"
"""The name of the tool that searches the conversation of a run."""


class LoopContext(Struct, frozen=True):
    """What a loop works with: the tools, its prompts, and how much of an observation it may show.

    `system` is the user's own system prompt, if given: it is sent byte for byte in place of the loop's.
    `observation_chars` is the maximum number of characters of one observation in a prompt. `can_ask`: the user may be
    asked. `approve_plan`: the user approves a plan before it runs. The model is shown `tools`; it may also call
    `others`, which the tool named `search` ("": none) finds. `special_tokens` are the control tokens of the run's
    models, which are escaped in data. `instructions` are the user's, beside the loop's prompts. `output` is the type of
    the answer; None for text. `context_tokens` is the smallest context of the run's models in tokens (0: not known),
    and `compact_at` the share of it at which the log is compacted (None: only when a prompt is refused). `modules` are
    those of installed packages that code may import.
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
    instructions: str = ""
    output: OutputSpec | None = None
    context_tokens: int = 0
    compact_at: float | None = None
    modules: tuple[str, ...] = ()

    @property
    def known_tools(self) -> tuple[ToolSpec, ...]:
        """Every tool that may be called, those that the model is shown first."""
        return (*self.tools, *self.others) if self.others else self.tools

    def prompt(self, name: str, **values: Any) -> str:
        """Return the template `name`, filled. Always included: `tools`, `typed` (the answer has a type), and
        `only_history` (the only tool searches the conversation, so the model may answer from memory)."""
        only_history = len(self.tools) == 1 and self.tools[0].name == HISTORY
        given = {"tools": self.tools, "typed": self.output is not None, "only_history": only_history}
        return self.prompts.render(name, {**given, **values})

    def rules(self, name: str = "system", **values: Any) -> str:
        """Return the user's own system prompt, or the template `name`; and the user's instructions below it."""
        return join_parts(self.system if self.system is not None else self.prompt(name, **values), self.instructions)

    def output_rules(self, place: str = "") -> str:
        """Return what the model has to know of the answer's type; "" for text. `place` says where the answer goes."""
        return self.prompt("output", schema=self.output.schema, place=place).strip() if self.output is not None else ""

    def tool(self, name: str) -> ToolSpec | None:
        return tool_named(name, self.known_tools)

    def find_problem(self, tool: str, given: JSON, is_open: IsOpen) -> str:
        """Return why a planned call cannot be made, as `find_call_problem` does; "" if it can."""
        found = self.known_tools if self.search or self.tool(tool) is not None else self.tools
        return find_call_problem(tool, given, {spec.name: spec for spec in found}, is_open)

    def of(self, loop: str) -> LoopContext:
        """Return the context for a loop that this one falls back to: with its own prompts, and without the user's
        system prompt, which was written for another loop."""
        return structs.replace(self, prompts=self.prompts.of(loop), system=None)


def join_parts(text: str, *more: str) -> str:
    """Return a prompt with further parts below it, a blank line between. The prompt's own bytes stay the same."""
    for part in filter(None, more):
        gap = "\n\n"[len(text) - len(text.rstrip("\n")) :] if text else ""
        text = f"{text}{gap}{part}"
    return text


@runtime_checkable
class Loop(Protocol):
    """A reasoning-and-acting loop with its options: an immutable value that can run many times.

    `name` selects the loop and is the folder of its prompts; `phases` are the names in its think effects. `LoopTraits`
    lists the attributes that it may have besides.
    """

    name: ClassVar[str]
    phases: ClassVar[tuple[str, ...]]

    def run(self, task: Task, context: LoopContext) -> LoopRun:
        """Return a generator that runs the loop on a task. Nothing runs before the generator is advanced."""
        ...

    def splitter(self, phase: str) -> Splitter:
        """Return a splitter for the replies of a phase."""
        ...


class LoopTraits(Struct, frozen=True):
    """The attributes that a loop may have beside those of `Loop`, each with its default.

    `fallback`: the loop that it may fall back to; that loop's phases are then `name.phase`. `prompts`: a plug-in's
    templates by name. `reply_words`: if a user's own system prompt has none of them, Plait warns that it does not
    describe the loop's replies. `tool_names`: the form of names that it can call, `reserved` those that no tool may
    have. `most_tools`: it is shown so many, by default. With more tools it is shown none, and searches for them.
    `runs_code`: it needs a sandbox, which is checked before the first model call. `acts_on_results`: it can read the
    rest of a result that is too long. `searches_history`: it searches the conversation also without other tools.
    `makes_plan`: a run has a plan that a user can approve, `plan` is one that was given. `transcript` "completion":
    its prompt is one raw text. `links_calls`: its calls take results of others, so none goes on in the background.
    `shared_prompts`: folders of `loops/prompts` whose templates a loop of Plait also has.
    """

    fallback: str = ""
    prompts: Mapping[str, str] | None = None
    reply_words: tuple[str, ...] = ()
    tool_names: str = ""
    reserved: tuple[str, ...] = ()
    most_tools: int | None = None
    runs_code: bool = False
    acts_on_results: bool = True
    searches_history: bool = False
    makes_plan: bool = False
    plan: Plan | None = None
    transcript: str = "chat"
    links_calls: bool = False
    shared_prompts: tuple[str, ...] = ()


def traits_of(loop: object) -> LoopTraits:
    """Return the traits of a loop, or of its class."""
    found: dict[str, Any] = {name: getattr(loop, name, _MISSING) for name in LoopTraits.__struct_fields__}
    return LoopTraits(**{name: value for name, value in found.items() if value is not _MISSING})


_MISSING = object()
