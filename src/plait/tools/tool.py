"""A tool: a typed function, with what a model must be told of it and what a runtime must know."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property, partial
from inspect import iscoroutinefunction, isroutine
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, cast, overload

from msgspec import Struct, structs

from plait.core.errors import UsageError
from plait.core.messages import JSON
from plait.core.tools import ToolSpec
from plait.tools.names import VALID

if TYPE_CHECKING:
    from plait.tools.signature import Signature

# What reads signatures and binds input is imported when a tool is first described: making tools is quick.

P = ParamSpec("P")
R = TypeVar("R")


def innermost(function: Any) -> Any:
    """The function itself, below `functools.partial` and objects that are called."""
    while isinstance(function, partial):
        function = function.func
    if isroutine(function) or isinstance(function, type):
        return function
    return type(function).__call__


class Tool(Struct, frozen=True, dict=True):
    """A function that a model may call.

    `inline` marks a quick, pure, sync function that may run on the event loop, without a thread. `timeout` is
    its own time limit in seconds, None for the run's. `source` is the word it was loaded by, "" for one given
    in Python. `person` marks one that is answered by the person: the run waits, and its function is never called.
    `excludes` names tools that do the same job. `description` and `returns` are "" where the docstring
    and the hints are to say it.
    """

    function: Callable[..., Any]
    name: str
    description: str = ""
    returns: str = ""
    read_only: bool = False
    idempotent: bool = False
    destructive: bool = False
    timeout: float | None = None
    inline: bool = False
    source: str = ""
    excludes: tuple[str, ...] = ()
    person: bool = False
    per_run: Any = None
    """What makes the object of a run whose method this is (`objects.PerRun`); None for a function."""

    def __post_init__(self) -> None:
        if not VALID.fullmatch(self.name):
            raise UsageError(
                f"{self.name!r} can't be the name of a tool.",
                hint="Give name=, at most 64 letters, digits, _, - and dots; the first a letter, a digit or _.",
            )
        if self.read_only and self.destructive:
            raise UsageError(f"The tool {self.name} can't be both read_only and destructive.", hint="Drop one.")
        if self.timeout is not None and not self.timeout > 0:
            raise UsageError(f"The tool {self.name} has a timeout of {self.timeout}.", hint="Give seconds above 0.")
        if self.name in self.excludes:
            raise UsageError(f"The tool {self.name} can't exclude itself.", hint="Name the other tool.")

    @cached_property
    def signature(self) -> Signature:
        """The parameters. Raises `UsageError` when the function's type hints can't be described."""
        from plait.tools.signature import read_signature

        return read_signature(self.function, self.name)

    @cached_property
    def spec(self) -> ToolSpec:
        """What a model is told. Raises `UsageError` as `signature` does."""
        return ToolSpec(
            self.name,
            self.description or self.signature.summary,
            self.signature.schema,
            self.returns or self.signature.returns,
            self.read_only,
            self.idempotent,
            self.destructive,
            self.excludes,
            self.signature.result,
        )

    @cached_property
    def is_async(self) -> bool:
        """Must its result be awaited?"""
        return iscoroutinefunction(innermost(self.function))

    def bind(self, input: JSON) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments that a model's input stands for. Raises `BadInput`, whose text is for the model."""
        from plait.tools.binding import bind

        return bind(self.name, self.signature, input)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function itself; an async one gives its awaitable."""
        return self.function(*args, **kwargs)

    def __get__(self, instance: Any, owner: type | None = None) -> Tool:
        """As a method: the tool of that instance."""
        if instance is None:
            return self
        return structs.replace(self, function=self.function.__get__(instance, owner))

    @property
    def __wrapped__(self) -> Callable[..., Any]:
        return self.function

    @property
    def __name__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"Tool({self.name}{self.signature.shape})"


class FunctionTool(Tool, Generic[P, R], frozen=True, dict=True):
    """A tool that still has the type of its function: what the decorator gives."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return cast(R, self.function(*args, **kwargs))


@overload
def tool(function: Callable[P, R], /) -> FunctionTool[P, R]: ...


@overload
def tool(
    *,
    name: str | None = None,
    description: str = "",
    returns: str = "",
    read_only: bool = False,
    idempotent: bool = False,
    destructive: bool = False,
    timeout: float | None = None,
    inline: bool = False,
    excludes: Iterable[str] = (),
) -> Callable[[Callable[P, R]], FunctionTool[P, R]]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str = "",
    returns: str = "",
    read_only: bool = False,
    idempotent: bool = False,
    destructive: bool = False,
    timeout: float | None = None,
    inline: bool = False,
    excludes: Iterable[str] = (),
) -> Any:
    """Make a tool of a typed function, sync or async; used bare or with options.

    The name is the function's, the description its docstring up to the first section, the parameters its type
    hints with the docstring's word on each; `name`, `description` and `returns` say them otherwise. Marks:
    `read_only` changes nothing outside, `idempotent` may be called twice with the effect of once,
    `destructive` may destroy something. With no mark a tool is taken to have effects that must not happen
    twice. `timeout` is in seconds. `inline` promises a quick, pure, sync function, run without a thread. `excludes`
    names tools that do the same job: of two that exclude each other, a loop that calls several at once calls one.

    Raises `UsageError` for a name, mark or timeout that can't be; type hints are read when first needed.
    """

    def wrap(wrapped: Callable[..., Any]) -> FunctionTool[..., Any]:
        if isinstance(wrapped, Tool):
            raise UsageError(f"{wrapped.name} is a tool already.", hint="Decorate it once.")
        return FunctionTool(
            wrapped,
            name or str(getattr(innermost(wrapped), "__name__", type(wrapped).__name__)),
            description,
            returns,
            read_only,
            idempotent,
            destructive,
            timeout,
            inline,
            excludes=(excludes,) if isinstance(excludes, str) else tuple(excludes),
        )

    return wrap if function is None else wrap(function)
