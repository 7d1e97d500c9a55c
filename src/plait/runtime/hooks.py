"""Hooks: functions of the user before and after model calls, tool calls and answers.

A hook observes (it returns None), changes (it returns the new value), refuses (`Refuse`), or lets the run wait for the
user (`AskApproval`). The journal has each decision, so a replay needs no hooks. `guards/hooks.py` makes guards of them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Generic, Literal, TypeAlias, TypeVar, get_args

from plait.core import JSON, Call, Observation, Reply, Think
from plait.core.errors import ConfigError
from plait.core.text import suggest
from plait.runtime.calls.context import Context, DepsT
from plait.runtime.guard import AskApproval, Guard, Refuse

HookPoint: TypeAlias = Literal[
    "before_model", "after_model", "before_tool", "after_tool", "before_answer", "after_answer"
]
POINTS: tuple[HookPoint, ...] = get_args(HookPoint)

BUILT_IN = frozenset(
    {"approvals", "background", "breaker", "claims", "grounding", "hosted", "limits", "output", "output_after_hooks"}
    | {"sources", "spend", "taint"}
)
"""The names of the guards that Plait has itself."""

T = TypeVar("T")
HookResult: TypeAlias = T | Refuse | AskApproval | None
"""The result of a hook: a new value, a refusal, a question to the user, or None to change nothing."""


class Hook(Generic[DepsT]):
    """A base class of hooks. Override the methods that you need, as plain or async functions.

    Each method gets a `Context`: the dependencies, the run's id, step and session, and a logger. It returns the changed
    value, `Refuse(reason)`, `AskApproval(question)`, or None to change nothing. Values are immutable: use
    `msgspec.structs.replace`. Hooks run in the order of `Agent.hooks` before a call, and in the reverse order after it
    and about an answer; each sees what the ones before it changed. The hooks of a run also apply to the model calls and
    tool calls of its child runs.

    The journal has what a hook changes, refuses and asks. A hook that lets something pass leaves no row, and may be
    called again about it after a question to the user, or when the run goes on in another process. An exception in a
    hook ends the run as *crashed*; it can be resumed. A class with a misspelled method raises `ConfigError`.
    """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name in vars(cls):
            if name.startswith(("before_", "after_", "on_")) and not hasattr(Hook, name):
                known = [*POINTS, "on_tool_error"]
                hint = suggest(name, known, f"Hooks have: {', '.join(known)}.")
                raise ConfigError(f"The hook {cls.__name__} has a method '{name}', which nothing calls.", hint=hint)

    @property
    def name(self) -> str:
        """Return the name by which the journal knows the hook. A resumed run needs hooks of the same names."""
        return type(self).__name__

    def before_model(self, context: Context[DepsT], request: Think) -> HookResult[Think] | Awaitable[HookResult[Think]]:
        """Decide about a request before it is sent. A refusal ends the run as *failed*."""
        return None

    def after_model(self, context: Context[DepsT], reply: Reply) -> HookResult[Reply] | Awaitable[HookResult[Reply]]:
        """Decide about a reply before the loop reads it. A refusal ends the run as *failed*."""
        return None

    def before_tool(self, context: Context[DepsT], call: Call) -> HookResult[Call] | Awaitable[HookResult[Call]]:
        """Decide about a call before it is made. The model reads the reason of a refusal as the result."""
        return None

    def on_tool_error(
        self, context: Context[DepsT], call: Call, observation: Observation, attempt: int
    ) -> float | Awaitable[float | None] | None:
        """Return after how many seconds to repeat a failed call; None not to repeat it.

        Only calls of read-only and idempotent tools are repeated. `attempt` is 1 after the first failure.
        """
        return None

    def after_tool(
        self, context: Context[DepsT], call: Call, observation: Observation
    ) -> HookResult[Observation] | Awaitable[HookResult[Observation]]:
        """Decide about the result of a call, or its error, before the loop sees it. The journal has the original.

        The model reads the reason of a refusal in place of the result.
        """
        return None

    def before_answer(self, context: Context[DepsT], answer: JSON) -> HookResult[JSON] | Awaitable[HookResult[JSON]]:
        """Decide about an answer that the model gives. After a refusal it answers again, as after an output check."""
        return None

    def after_answer(self, context: Context[DepsT], answer: JSON) -> HookResult[JSON] | Awaitable[HookResult[JSON]]:
        """Decide about the answer with which the run ends. A refusal ends the run as *failed*."""
        return None


class MissingHook(Hook):
    """A hook of a recorded run that was given in Python, so the record only has its name. The run can be replayed."""

    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def name(self) -> str:
        return self._name


def require_hooks(hooks: Iterable[Hook | Guard], run: str) -> None:
    """Raise `ConfigError` if hooks of a recorded run are missing."""
    if missing := [hook.name for hook in hooks if isinstance(hook, MissingHook)]:
        hint = (
            f'Name the agent that has them: -a module:agent. In Python: agent.resume("{run}"), agent.fork("{run}", N).'
        )
        raise ConfigError(f"Run {run} has hooks that were given in Python: {', '.join(missing)}.", hint=hint)


def has_point(hook: Hook, point: str) -> bool:
    """Return whether a hook overrides the method of a point."""
    return getattr(type(hook), point) is not getattr(Hook, point)


def check_hooks(given: object, load_word: Callable[[str], Hook]) -> tuple[Hook | Guard, ...]:
    """Return an agent's hooks and guards as a tuple, those that are words loaded. Raises `ConfigError` for anything
    else, and for two of one name."""
    if not isinstance(given, Iterable) or isinstance(given, str | bytes):
        raise ConfigError(f"Agent(hooks={given!r}) is invalid.", hint="Give a list of hooks.")
    hooks = tuple(load_word(each) if isinstance(each, str) else each for each in given)
    for hook in hooks:
        if isinstance(hook, type) and issubclass(hook, Hook | Guard):
            raise ConfigError(f"The hook {hook.__name__} is a class.", hint=f"Give an object: {hook.__name__}().")
        if not isinstance(hook, Hook | Guard):
            hint = "Give objects: those that ship, as plait.hooks.RetryTools(), or of your subclasses of plait.Hook."
            raise ConfigError(f"{hook!r} is not a hook.", hint=hint)
        if not isinstance(hook.name, str) or not hook.name.strip():
            raise ConfigError(f"The name of the hook {type(hook).__name__} is {hook.name!r}.", hint="Give it a text.")
        if hook.name in BUILT_IN or hook.name.startswith("^"):
            whose = "begins with '^', as those of runs above" if hook.name[0] == "^" else "is that of a guard of Plait"
            raise ConfigError(f"The name '{hook.name}' of a hook {whose}.", hint="Give it another name.")
    names = [hook.name for hook in hooks]
    if twice := next((name for name in names if names.count(name) > 1), ""):
        raise ConfigError(f"Two hooks are named {twice!r}.", hint="Leave one out, or give it another name.")
    return hooks
