"""A tool: a typed function, with the information that a model and the runtime need."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from copy import deepcopy
from functools import cached_property, partial
from importlib import import_module
from inspect import iscoroutinefunction, isroutine, signature
from operator import attrgetter
from types import FunctionType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Protocol, cast, get_overloads, overload

from msgspec import Struct, structs
from typing_extensions import TypeVar

from plait.core.errors import ConfigError
from plait.core.messages import JSON
from plait.core.tools import MARKS, ToolSpec
from plait.tools.call_context import CallContext
from plait.tools.names import VALID
from plait.user_functions import require_plain

if TYPE_CHECKING:
    from plait.tools.signature import Signature

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T", bound="Tool")
C = TypeVar("C", bound=CallContext)
ContextT = TypeVar("ContextT", bound=CallContext, default=Any, contravariant=True)
"""The context that a tool takes. Checkers of types compare it with the dependencies of an agent."""


class ToolSource(Protocol):
    """Whatever is no `Tool` for a checker of types, but may become one or many: a function, a class, an object."""

    def __sizeof__(self) -> int: ...


def innermost(function: Any) -> Any:
    """Return the function inside of `functools.partial` and of objects that are called."""
    while isinstance(function, partial):
        function = function.func
    if isroutine(function) or isinstance(function, type):
        return function
    return innermost(function.__wrapped__) if hasattr(function, "__wrapped__") else type(function).__call__


def function_name(function: Any) -> str:
    """Return the name of a function, of the one in a `functools.partial`, or of the class of an object."""
    while isinstance(function, partial) and not hasattr(function, "__name__"):
        function = function.func
    return str(getattr(function, "__name__", type(function).__name__))


def docstring_of(function: Any) -> str | None:
    """Return the docstring of a function or, for an object that is called, of its `__call__` or its class."""
    while isinstance(function, partial):
        if text := vars(function).get("__doc__"):
            return str(text)
        function = function.func
    text = innermost(function).__doc__
    return text if text or isroutine(function) else type(function).__doc__


class TookEffect(Struct, frozen=True):
    """What a tool's `verify` answers if the earlier call took effect: `result` is what the tool would have returned."""

    result: Any = None


class NoEffect(Struct, frozen=True):
    """What `verify` answers if the earlier call has had no effect. `closed`: nor will it, as its key is now refused."""

    closed: bool = False


class Tool(Struct, Generic[ContextT], frozen=True, dict=True):
    """A function that a model may call.

    `description` and `returns` are "" to use the docstring and the type hints. `read_only`, `idempotent` and
    `destructive`, `requires_approval`, `open_world` and `foreign` are the marks of `ToolSpec`. `timeout` is its own
    time limit in seconds, None for the run's. `inline` marks a quick, pure, sync function that may run on the event
    loop, without a thread. `source` is the word it was loaded by, "" for a tool given in Python. `excludes` names
    tools that do the same job. If `person` is set, the user answers the call: the run waits, and the function is
    never called. `owner` is the object whose method it is (`tool_object.ToolObject`), or what makes one for each run
    (`objects.PerRun`); None for a function. Its calls run one at a time, except those of tools that are `parallel`.
    `hand_off`: its result ends the run, as the run's answer. `verify` says whether an earlier call took effect, and
    `accepts_late_calls` that its "no" counts though the earlier call may still be under way. One that is
    `always_shown` is shown to a model that sees only some of many tools. `background`: the loop does
    not wait for its calls, and gets their results later.
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
    owner: Any = None
    hand_off: bool = False
    requires_approval: bool = False
    open_world: bool = False
    foreign: bool = False
    parallel: bool = False
    verify: Callable[..., Any] | None = None
    accepts_late_calls: bool = False
    always_shown: bool = False
    background: bool = False

    if TYPE_CHECKING:

        def __sizeof__(self) -> str: ...  # type: ignore[override]  # so that no tool is a `ToolSource`

    def __post_init__(self) -> None:
        if not VALID.fullmatch(self.name):
            hint = "Give name=, at most 64 letters, digits, _, - and dots; the first a letter, a digit or _."
            raise ConfigError(f"{self.name!r} can't be the name of a tool.", hint=hint)
        if self.read_only and self.destructive:
            raise ConfigError(f"The tool {self.name} can't be both read_only and destructive.", hint="Drop one.")
        if self.timeout is not None and not self.timeout > 0:
            raise ConfigError(f"The tool {self.name} has a timeout of {self.timeout}.", hint="Give seconds above 0.")
        if not isinstance(self.requires_approval, bool):
            hint = "Give True or False. A function that decides for each call is Agent(approve=)."
            raise ConfigError(f"The tool {self.name} has requires_approval={self.requires_approval!r}.", hint=hint)
        if self.verify is not None and (not callable(self.verify) or self.read_only or self.idempotent):
            hint = "Give a function, for a tool that is neither read_only nor idempotent: those may be repeated anyway."
            raise ConfigError(f"The tool {self.name} can't have verify={self.verify!r}.", hint=hint)
        if self.inline:
            require_plain(
                self.function, f"of the inline tool {self.name}", "Leave out inline, or give a plain function."
            )
        if self.background and (self.hand_off or self.person or self.inline):
            raise ConfigError(f"The tool {self.name} can't run in the background.", hint="Leave out background=True.")
        if self.name in self.excludes:
            raise ConfigError(f"The tool {self.name} can't exclude itself.", hint="Name the other tool.")

    def __reduce__(self) -> tuple[Any, ...]:
        """Return what a pickle holds: the name under which a decorated function is imported, or else the fields."""
        function = innermost(self.function)
        module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
        owner = getattr(self.function, "__self__", None)
        if owner is not None and getattr(owner, self.function.__name__, None) == self:  # a decorated method
            return getattr, (owner, self.function.__name__)
        with suppress(AttributeError):
            if attrgetter(name)(sys.modules.get(str(module))) is self:
                return _import_tool, (module, name)
        values = {name: getattr(self, name) for name in self.__struct_fields__}
        if make := getattr(function, "make_tool", None):  # its function is made anew
            del values["function"]
            return _remake_tool, (make, values)
        return partial(type(self), **values), ()

    def __deepcopy__(self, memo: dict[int, Any]) -> Tool:
        copied = {each: deepcopy(getattr(self, each), memo) for each in ("function", "owner", "verify")}
        return structs.replace(self, **copied)

    @cached_property
    def signature(self) -> Signature:
        """The parameters. Raises `ConfigError` when the function's type hints cannot be described."""
        from plait.tools.signature import read_signature  # heavy: it may import pydantic

        return read_signature(self.function, self.name)

    @cached_property
    def spec(self) -> ToolSpec:
        """The tool's description for a model. Raises `ConfigError` as `signature` and `verifier` do."""
        _ = self.verifier
        return ToolSpec(
            self.name,
            self.description or self.signature.summary,
            self.signature.schema,
            self.returns or self.signature.returns,
            result=self.signature.result,
            excludes=self.excludes,
            hand_off=self.hand_off,
            background=self.background,
            **{mark: getattr(self, mark) for mark in MARKS},
        )

    @cached_property
    def verifier(self) -> Tool | None:
        """`verify` as a tool, which gets the parameters that it names. Raises `ConfigError` if it needs others."""
        if self.verify is None:
            return None
        owner = self.owner if _is_method_beside(self.verify, self.function) else None
        made = Tool(self.verify, self.name, timeout=self.timeout, owner=owner, parallel=self.parallel)
        known = self.signature.schema["properties"]
        if strange := [name for name in made.signature.schema.get("required", ()) if name not in known]:
            hint = "It gets the tool's own parameters by name, and a plait.Context if its first one is that."
            raise ConfigError(f"The verify= of {self.name} needs {', '.join(strange)}.", hint=hint)
        return made

    @property
    def runs_inline(self) -> bool:
        """Whether it runs on the event loop, without a thread. A method runs where its object is."""
        return self.inline and self.owner is None

    @cached_property
    def is_async(self) -> bool:
        """Whether its result must be awaited."""
        return iscoroutinefunction(innermost(self.function))

    def bind(self, input: JSON) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of a model's input. Raises `BadInput`, whose text is for the model."""
        return self.signature.split(self.bind_values(input))

    def bind_values(self, input: JSON, kept: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the Python values of an input by parameter name, without defaults. Raises `BadInput`.

        With `kept`, an object has the arguments by name and is never the one argument whole. The values in `kept` are
        used as they are.
        """
        return self.signature.bind(self.name, input, kept)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function itself; an async one returns its awaitable."""
        return self.function(*args, **kwargs)

    def __get__(self, instance: Any, owner: type | None = None) -> Tool[ContextT]:
        """Return the tool of an instance, for a method."""
        if instance is None:
            return self
        is_method = self.verify is not None and _is_method_beside(self.verify, self.function)
        verify = cast(Any, self.verify).__get__(instance, owner) if is_method else self.verify
        return _with_owner(structs.replace(self, function=self.function.__get__(instance, owner), verify=verify))

    @property
    def __wrapped__(self) -> Callable[..., Any]:
        return self.function

    @property
    def __name__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"Tool({self.name}{self.signature.shape})"


def _is_method_beside(verify: Any, function: Any) -> bool:
    """Return whether `verify` is a method of the class that has the tool's function."""
    scope, other = (getattr(each, "__qualname__", "").rpartition(".")[0] for each in (verify, function))
    return isroutine(verify) and scope == other != "" and not scope.endswith("<locals>")


def _import_tool(module: str, name: str) -> Any:
    return attrgetter(name)(import_module(module))


def _remake_tool(make: Callable[[], Tool], values: dict[str, Any]) -> Tool:
    return structs.replace(make(), **values)


class FunctionTool(Tool[ContextT], Generic[P, R, ContextT], frozen=True, dict=True):
    """A tool with the type of its function, which the decorator returns."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return cast(R, self.function(*args, **kwargs))


def _with_owner(made: T) -> T:
    """Return the tool with the object whose method it is."""
    if made.parallel or (isinstance(made.function, FunctionType) and not hasattr(made.function, "__wrapped__")):
        return made
    from plait.tools.tool_object import find_owner  # heavy: it imports asyncio

    return structs.replace(made, owner=find_owner(made.function))


class ToolMaker(Protocol):
    """Makes a tool of a function. The context that it takes is a part of the tool's type."""

    @overload  # the function may have no type hints
    def __call__(self, function: Callable[Concatenate[object, ...], R], /) -> FunctionTool[..., R]: ...

    @overload
    def __call__(self, function: Callable[Concatenate[C, P], R], /) -> FunctionTool[Concatenate[C, P], R, C]: ...

    @overload
    def __call__(self, method: Callable[Concatenate[Any, C, ...], R], /) -> FunctionTool[..., R, C]: ...

    @overload
    def __call__(self, function: Callable[P, R], /) -> FunctionTool[P, R]: ...

    @overload
    def __call__(
        self,
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
        requires_approval: bool = False,
        open_world: bool = False,
        foreign: bool = False,
        parallel: bool = False,
        verify: Callable[..., Any] | None = None,
        accepts_late_calls: bool = False,
        background: bool = False,
    ) -> ToolMaker: ...

    def __call__(self, *function: Any, **options: Any) -> Any: ...


def _is_tool_maker(function: Callable[..., Any]) -> ToolMaker:
    return cast(ToolMaker, function)


@_is_tool_maker
def tool(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a tool of a typed function, sync or async; used bare or with options.

    The docstring up to its first section is the description. The type hints are the parameters, and the docstring
    describes each. `name`, `description` and `returns` override the function's own. Marks: a `read_only` tool
    changes nothing outside, an `idempotent` one can be called twice with the effect of once, a `destructive` one
    may destroy something. Plait assumes that a tool without a mark has effects that must not happen twice. With
    `requires_approval`, each call waits for the user's approval, whatever the agent's policy. `open_world` marks a
    tool whose results may hold what strangers wrote, such as mails and web pages, `foreign` one whose description
    they wrote. `timeout` is in seconds. `inline` promises a quick, pure, sync function, which runs without a
    thread. `excludes` names tools that do the same job: of two that exclude each other, a loop that calls several
    at once calls one. Methods of one object run one call at a time, and on one thread; `parallel` marks a method that
    may run at any time, on any thread. A call of a `background` tool goes on beside the loop: the model gets the result
    before a later request, and the run waits for it before it answers. Plans and pieces of code wait for the result.

    `verify` is a function that says whether an earlier call took effect: `plait.TookEffect(result)`,
    `plait.NoEffect()`, or None if that is not known. It gets the parameters that it names, and a `plait.Context` with
    the call's key. With `accepts_late_calls` a "no" counts though that call may still be under way (docs/tools.md).

    Raises `ConfigError` for an impossible name, mark or timeout. Type hints are read when they are first needed.
    """
    _OPTIONS.bind(**options)

    def wrap(wrapped: Callable[..., Any]) -> FunctionTool[..., Any]:
        if isinstance(wrapped, Tool):
            raise ConfigError(f"{wrapped.name} is a tool already.", hint="Decorate it once.")
        excludes = options.get("excludes", ())
        named = {"name": options.get("name") or function_name(wrapped)}
        named["excludes"] = (excludes,) if isinstance(excludes, str) else tuple(excludes)
        made: FunctionTool[..., Any] = FunctionTool(wrapped, **{**options, **named})
        return _with_owner(made)

    return wrap if function is None else wrap(function)


_OPTIONS = signature(partial(get_overloads(ToolMaker.__call__)[-1], tool))
tool.__signature__ = _OPTIONS  # type: ignore[attr-defined]  # for `help`
