"""An agent's description: checked, as it stands in the head of its runs, and read back from there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, get_args

from msgspec import convert, to_builtins

from plait import loops
from plait.core import CodeLimits, Loop
from plait.core.errors import ConfigError
from plait.journal.records import RunHead
from plait.models.base import Model
from plait.runtime.grounding import Grounding
from plait.runtime.limits import Limits
from plait.runtime.prompts import PromptBook
from plait.runtime.run_context import Approve, InDoubt
from plait.runtime.sessions import SESSION, History, tools_of
from plait.runtime.tool_selection import SEARCH, shown_by
from plait.sandbox import AUTO, BACKENDS, Sandbox, name_of, sandbox


class Usual(str):
    """What is taken because nobody said anything: worth the same as when it is said, and told apart from it."""


USUAL = Usual("local")
"""An agent's model where none is named."""


class Description(Protocol):
    """What of an agent goes into the settings of its runs."""

    @property
    def loop(self) -> str | Loop: ...
    @property
    def limits(self) -> Limits: ...
    @property
    def prompts(self) -> str | Path | None: ...
    @property
    def system(self) -> str | None: ...
    @property
    def approve(self) -> Approve: ...
    @property
    def on_interrupted_call(self) -> InDoubt: ...
    @property
    def can_ask(self) -> bool: ...
    @property
    def grounding(self) -> Grounding: ...
    @property
    def sandbox(self) -> str | Sandbox: ...
    @property
    def code_limits(self) -> CodeLimits: ...
    @property
    def now(self) -> float | None: ...
    @property
    def models(self) -> Mapping[str, str | Model]: ...
    @property
    def max_tools(self) -> int | None: ...
    @property
    def advice(self) -> Chosen | None: ...


class Chosen(Protocol):
    """What a loop was chosen by."""

    def record(self) -> dict[str, Any]:
        """What the settings of a run keep of it."""
        ...


def loop_of(given: str | Loop) -> Loop:
    """Return the loop that an agent was given by name or as an object. Raises `ConfigError`."""
    made = loops.make(given) if isinstance(given, str) else given
    if isinstance(made, type):
        raise ConfigError(f"The loop is the class {made.__name__}, not an object.", hint=f"Give {made.__name__}().")
    return made


def book_of(loop: Loop, folder: Path | None) -> PromptBook:
    """A loop's prompts, and those of the loops it may fall back to; `folder` has files that replace ours."""
    other = loops.fallback_of(loop)
    others = (book_of(other, folder),) if other is not None else ()
    return PromptBook(loop.name, folder, getattr(loop, "prompts", None), others)


def check(agent: Description, loop: Loop) -> None:
    """Raises `ConfigError` for a field that can't be, or that does not go with the agent's loop."""
    phases = loops.phases_of(loop)
    for phase in agent.models:
        if phase not in {*phases, ""}:
            raise ConfigError(
                f"The loop '{loop.name}' has no phase '{phase}'.", hint=f"Its phases: {', '.join(phases)}."
            )
    _one_of("grounding", agent.grounding, get_args(Grounding))
    _one_of("on_interrupted_call", agent.on_interrupted_call, get_args(InDoubt))
    if not callable(agent.approve):
        _one_of("approve", agent.approve, ("never", "effects", "always", "plan"))
    if isinstance(agent.sandbox, str) and agent.sandbox not in (AUTO, *BACKENDS):
        sandbox(agent.sandbox)  # says what there is
    _kind_of("sandbox", agent.sandbox, isinstance(agent.sandbox, str) or hasattr(agent.sandbox, "open"), "its name")
    _kind_of("code_limits", agent.code_limits, isinstance(agent.code_limits, CodeLimits), "plait.CodeLimits(...)")
    _kind_of("now", agent.now, agent.now is None or type(agent.now) in (int, float), "seconds since 1970, or None")
    many = agent.max_tools
    _kind_of("max_tools", many, many is None or (type(many) is int and many >= 0), "how many tools are shown, or None")
    if agent.approve == "plan" and "plan" not in loop.phases:
        raise ConfigError(
            f"The loop '{loop.name}' makes no plan that could be approved.",
            hint="Choose 'rewoo' or 'compiler', or approve effects.",
        )


def settings_of(agent: Description) -> dict[str, Any]:
    """The settings that stand in the head of an agent's runs."""
    return {
        "limits": to_builtins(agent.limits),
        "prompts": str(Path(agent.prompts).resolve()) if agent.prompts is not None else None,
        "system": agent.system,
        "approve": agent.approve if isinstance(agent.approve, str) else "always",  # until a function is given again
        "on_interrupted_call": agent.on_interrupted_call,
        "can_ask": agent.can_ask,
        "grounding": agent.grounding,
        "sandbox": _sandbox_in(agent),
        "code_limits": to_builtins(agent.code_limits),
        "now": agent.now,
        **({"chosen": agent.advice.record()} if agent.advice is not None else {}),
    }


def _sandbox_in(agent: Description) -> str:
    """The sandbox's name. What `auto` is here counts only for a loop that runs code."""
    runs_code = getattr(agent.loop, "runs_code", False)
    return AUTO if agent.sandbox == AUTO and not runs_code else name_of(agent.sandbox)


def sandbox_for(agent: Description, head: RunHead, ran_code: bool) -> str | Sandbox:
    """The sandbox in which an agent goes on with a recorded run, or with the start of it: the recorded one.

    Raises `ConfigError` if the agent names another one and the run has run code (`ran_code`): its session can't be
    restored there.
    """
    recorded = str(head.settings.get("sandbox", AUTO))
    if agent.sandbox == AUTO:
        return recorded
    name = name_of(agent.sandbox)
    if ran_code and recorded not in (name, AUTO):
        raise ConfigError(
            f"Run {head.run} ran its code in the sandbox '{recorded}', and this agent's is '{name}'.",
            hint=f"Use sandbox='{recorded}', or leave it out.",
        )
    return agent.sandbox


def fields_in(head: RunHead, *, tools_given: bool = False, load_code: bool = True) -> dict[str, Any]:
    """An agent's fields, from the head of a run of its. Its tools need not be found where others are given.
    Without `load_code`, no code is loaded that the head names: its tools can be shown to a model, but not called.

    Raises `ConfigError` when its loop or tools were given in Python and have no word to find them by.
    """
    for spec, source in zip(head.tools, head.sources, strict=False):
        if not source and not tools_given:
            raise ConfigError(
                f"The tool '{spec['name']}' of run {head.run} was given in Python.",
                hint="Name it with --tools file.py, or go on in Python: agent.resume(run).",
            )
    settings = head.settings
    loop = loops.make(head.loop["name"], head.loop["options"])
    # Where nothing is said such a loop shows none of many tools; this run showed all there were.
    showed_all = hasattr(loop, "told") and shown_by(head) is None
    return {
        "loop": loop,
        "model": str(head.models.get("", {}).get("spec", "local")),
        "models": {phase: str(model["spec"]) for phase, model in head.models.items() if phase},
        "tools": tools_of(head, (SESSION, SEARCH), load_code),
        "limits": convert(settings.get("limits", {}), Limits),
        "prompts": settings.get("prompts"),
        "system": settings.get("system"),
        "approve": settings.get("approve", "never"),
        "on_interrupted_call": settings.get("on_interrupted_call", "skip"),
        "can_ask": settings.get("can_ask", True),
        "window": convert(settings.get("window", {}), History),
        "embedder": settings.get("embedder", "local"),
        "grounding": settings.get("grounding", "off"),
        "sandbox": settings.get("sandbox", AUTO),
        "code_limits": convert(settings.get("code_limits", {}), CodeLimits),
        "now": settings.get("now"),
        "max_tools": len(head.tools) if showed_all else settings.get("max_tools"),
    }


def _one_of(name: str, value: object, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ConfigError(f"{name} is {value!r}.", hint=f"It is one of {', '.join(known)}.")


def _kind_of(name: str, value: object, fits: bool, wanted: str) -> None:
    if not fits:
        raise ConfigError(f"{name} is {value!r}.", hint=f"Give {wanted}.")
