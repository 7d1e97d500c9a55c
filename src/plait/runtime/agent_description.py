"""An agent's description: how it is checked, recorded in the head of its runs, and read back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import fields
from difflib import get_close_matches
from functools import wraps
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar, cast, get_args

from msgspec import convert, structs, to_builtins

from plait import loops
from plait.core import Loop
from plait.core.errors import ConfigError
from plait.core.notebook import repr_short
from plait.journal.records import RunHead
from plait.loops.compaction import COMPACT
from plait.models.base import Model
from plait.models.recorded import recorded_model
from plait.models.resolve import ModelAccess
from plait.models.settings import NO_SETTINGS, AgentSettings, ModelSettings, read_settings
from plait.runtime.guard import Guard
from plait.runtime.hooks import Hook, require_hooks
from plait.runtime.instructions import check_instructions
from plait.runtime.limits import Limits
from plait.runtime.output import describe_output, output_of, read_recorded_output
from plait.runtime.prompts import PromptBook
from plait.runtime.run_spec import Approve, Grounding, OnInterruptedCall, Taint
from plait.runtime.sessions import SESSION, History, recorded_tools, tools_of
from plait.runtime.tool_selection import SEARCH, shown_by
from plait.sandbox import AUTO, BACKENDS, Sandbox, name_of, sandbox
from plait.tools import Tool
from plait.tools.load import check_word, tools_from
from plait.tools.tool import function_name
from plait.user_functions import require_plain

T = TypeVar("T")


class Description(Protocol):
    """The fields of an agent that go into the settings of its runs."""

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
    def on_interrupted_call(self) -> OnInterruptedCall: ...
    @property
    def can_ask(self) -> bool: ...
    @property
    def grounding(self) -> Grounding: ...
    @property
    def sandbox(self) -> str | Sandbox: ...
    @property
    def output(self) -> Any: ...
    @property
    def instructions(self) -> str | Callable[..., str]: ...
    @property
    def models(self) -> Mapping[str, str | Model]: ...
    @property
    def tools(self) -> Iterable[object]: ...
    @property
    def model(self) -> str | Model: ...
    @property
    def settings(self) -> AgentSettings: ...
    @property
    def journal(self) -> str | Path | Literal[False] | None: ...
    @property
    def history(self) -> History: ...
    @property
    def deps(self) -> Any: ...
    @property
    def hooks(self) -> Iterable[Hook | Guard]: ...
    @property
    def taint(self) -> Taint: ...
    @property
    def _access(self) -> ModelAccess: ...


def suggest_arguments(made: type[T]) -> type[T]:
    """Let the `TypeError` for an unknown argument of a dataclass name the nearest one that it has."""
    make, every = made.__init__, {item.name for item in fields(cast(Any, made))}
    known = [name for name in every if not name.startswith("_")]

    @wraps(make)
    def make_or_suggest(self: T, *values: Any, **named: Any) -> None:
        for name in named.keys() - every:
            near = get_close_matches(name, known, 1)
            hint = f"Did you mean '{near[0]}'?" if near else f"It has: {', '.join(sorted(known))}."
            raise TypeError(f"{made.__name__} has no argument '{name}'. {hint}")
        make(self, *values, **named)

    made.__init__ = make_or_suggest  # type: ignore[method-assign, assignment]
    return made


def loop_of(given: str | Loop) -> Loop:
    """Return the loop that an agent was given by name or as an object. Raises `ConfigError`."""
    if isinstance(given, str):
        return loops.make(given)
    if isinstance(given, type):
        raise ConfigError(f"The loop is the class {given.__name__}, not an object.", hint=f"Give {given.__name__}().")
    if not isinstance(given, Loop):
        raise ConfigError(f"Agent(loop={given!r}) is invalid.", hint=f"Give one of {', '.join(loops.names())}.")
    return given


def book_of(loop: Loop, folder: Path | None) -> PromptBook:
    """Return the prompts of a loop and of the loops it may fall back to. Files in `folder` replace the built-in
    ones."""
    other = loops.fallback_of(loop)
    others = (book_of(other, folder),) if other is not None else ()
    return PromptBook(loop.name, folder, getattr(loop, "prompts", None), others)


def check_fields(agent: Description, loop: Loop) -> None:
    """Check the agent's fields. Raises `ConfigError` for a field that is invalid or does not fit the agent's loop."""
    _require("model", agent.model, _is_model(agent.model), 'a model, such as "local" or "openai:NAME"')
    _check_models(agent.models, loop)
    _check_settings(agent.settings, loop)
    _require("limits", agent.limits, isinstance(agent.limits, Limits), "plait.Limits(...)")
    _require("history", agent.history, isinstance(agent.history, History), "plait.History(...)")
    path = isinstance(agent.prompts, str | Path) and bool(str(agent.prompts))
    _require("prompts", agent.prompts, agent.prompts is None or path, "the path of a folder, or None")
    _require("system", agent.system, agent.system is None or isinstance(agent.system, str), "a text, or None")
    stored = agent.journal is None or agent.journal is False or isinstance(agent.journal, str | Path)
    _require("journal", agent.journal, stored and agent.journal != "", "a path, False for no journal, or None")
    _require("can_ask", agent.can_ask, isinstance(agent.can_ask, bool), "True or False")
    _require_one_of("taint", agent.taint, get_args(Taint))
    _require_one_of("grounding", agent.grounding, get_args(Grounding))
    _require_one_of("on_interrupted_call", agent.on_interrupted_call, get_args(OnInterruptedCall))
    require_plain(loop.run, f"run of the loop '{loop.name}'", "Give a generator, which yields effects.")
    if not callable(agent.approve):
        _require_one_of("approve", agent.approve, ("never", "effects", "always", "plan"))
    else:
        require_plain(agent.approve, "approve=", "Give a plain function; a hook's before_tool may be async.")
    if isinstance(agent.sandbox, str) and agent.sandbox not in (AUTO, *BACKENDS):
        sandbox(agent.sandbox)  # raises an error that lists the sandboxes
    is_sandbox = isinstance(agent.sandbox, str) or (hasattr(agent.sandbox, "open") and hasattr(agent.sandbox, "name"))
    _require("sandbox", agent.sandbox, is_sandbox, "its name")
    is_text = isinstance(agent.instructions, str) or callable(agent.instructions)
    _require("instructions", agent.instructions, is_text, "a text, or a function that returns one")
    if not isinstance(agent.instructions, str):
        check_instructions(agent.instructions)
    output_of(agent.output)
    _require("deps", agent.deps, agent.deps is None or callable(agent.deps), "the type of the dependencies, or None")
    if agent.approve == "plan" and not getattr(loop, "makes_plan", False):
        raise ConfigError(
            f"The loop '{loop.name}' makes no plan that could be approved.",
            hint="Choose 'rewoo' or 'compiler', or approve effects.",
        )


def _is_model(given: object) -> bool:
    return bool(given.strip()) if isinstance(given, str) else isinstance(given, Model) and not isinstance(given, type)


def _check_models(models: object, loop: Loop) -> None:
    _require("models", models, isinstance(models, Mapping), 'a mapping from phases to models, such as {"act": "local"}')
    assert isinstance(models, Mapping)
    _check_phases(models, loop)
    for phase, model in models.items():
        _require(f"models[{phase!r}]", model, _is_model(model), 'a model, such as "local" or "openai:NAME"')


def _check_settings(settings: object, loop: Loop) -> None:
    if not isinstance(settings, ModelSettings):
        many = isinstance(settings, Mapping) and all(isinstance(each, ModelSettings) for each in settings.values())
        _require("settings", settings, many, 'plait.ModelSettings(...), or {"act": plait.ModelSettings(...)}')
        assert isinstance(settings, Mapping)
        _check_phases(settings, loop)
    for each in settings.values() if isinstance(settings, Mapping) else [settings]:
        read_settings(to_builtins(each), "Agent(settings=)")


def _check_phases(names: Iterable[str], loop: Loop) -> None:
    phases = loops.phases_of(loop)
    for phase in names:
        if phase not in {*phases, COMPACT, ""}:
            raise ConfigError(
                f"The loop '{loop.name}' has no phase {phase!r}.",
                hint=f"Its phases: {', '.join(phases)}. '{COMPACT}' writes summaries.",
            )


def list_tools(tools: object) -> tuple[Any, ...]:
    """Return an agent's tools as a tuple. Raises `ConfigError` if they are not a list, and for an unknown word."""
    several = isinstance(tools, Iterable) and not isinstance(tools, str | bytes | Mapping | Tool)
    _require("tools", tools, several, 'a list, such as ["calculator", my_function]')
    assert isinstance(tools, Iterable)
    found = tuple(tools)
    for each in found:
        if isinstance(each, str):
            check_word(each)
    if any(isinstance(each, str) for each in found):  # the first run loads words; check the other tools now
        _ = tools_from(each for each in found if not isinstance(each, str))
    return found


def changed_fields(agent: Description) -> dict[str, str]:
    """Return each field that is not the default as text, for a `repr`. Models appear by name, without keys."""
    found = {"model": _show_model(agent.model)}
    if agent.models:
        found["models"] = f"{{{', '.join(f'{phase!r}: {_show_model(each)}' for phase, each in agent.models.items())}}}"
    if agent.tools:
        found["tools"] = f"[{', '.join(map(_name, agent.tools))}]"
    for name, default in _DEFAULTS.items():
        value = getattr(agent, name)
        if name == "hooks":
            if value:
                found["hooks"] = f"[{', '.join(hook.name for hook in value)}]"
        elif value != default:
            shown = str(value) if isinstance(value, Path) else value
            found[name] = _name(value) if callable(value) else repr_short(shown, 200)
    return found


_DEFAULTS: dict[str, object] = {
    "settings": NO_SETTINGS,
    "limits": Limits(),
    "prompts": None,
    "system": None,
    "history": History(),
    "journal": None,
    "approve": "never",
    "can_ask": True,
    "on_interrupted_call": "skip",
    "grounding": "off",
    "sandbox": AUTO,
    "output": str,
    "instructions": "",
    "deps": None,
    "hooks": (),
    "taint": "off",
}


def _show_model(model: str | Model) -> str:
    return repr(model if isinstance(model, str) else model.spec)


def _name(given: object) -> str:
    if isinstance(given, str):
        return given
    return str(getattr(given, "__name__", type(given).__name__))


def settings_of(agent: Description) -> dict[str, Any]:
    """Return the settings to record in the head of an agent's runs."""
    return {
        "limits": to_builtins(agent.limits),
        "prompts": str(Path(agent.prompts).resolve()) if agent.prompts is not None else None,
        "system": agent.system,
        "approve": agent.approve if isinstance(agent.approve, str) else "always",  # until a function is given again
        "on_interrupted_call": agent.on_interrupted_call,
        "can_ask": agent.can_ask,
        "grounding": agent.grounding,
        "sandbox": _sandbox_in(agent),
        "output": describe_output(output_of(agent.output)),
        **({"instructions": agent.instructions} if isinstance(agent.instructions, str) else {}),
        **({"deps": _name(agent.deps)} if agent.deps is not None else {}),
        **({"hooks": [hook.name for hook in agent.hooks]} if agent.hooks else {}),
        "taint": agent.taint,
    }


def check_hooks_of_run(agent: Description, head: RunHead) -> None:
    """Raise `ConfigError` if an agent lacks hooks or output checks with which a run was started, or has others."""
    require_hooks(agent.hooks, head.run)
    checks = [function_name(check) for check in output_of(agent.output).checks]
    recorded_output = head.settings.get("output") or {}
    for kind, recorded, given in (
        ("hooks", head.settings.get("hooks", []), [hook.name for hook in agent.hooks]),
        ("output checks", recorded_output.get("checks", []), checks),
    ):
        if recorded != given:
            raise ConfigError(
                f"Run {head.run} was started with {_list(kind, recorded)}, and this agent has {_list(kind, given)}.",
                hint=f'Resume it in Python, with the agent that started it: agent.resume("{head.run}").',
            )


def _list(kind: str, names: list[str]) -> str:
    return f"the {kind} {', '.join(names)}" if names else f"no {kind}"


def check_run_arguments(question: str, now: float | None) -> None:
    """Raise `ConfigError` for arguments of a run that are invalid."""
    if not isinstance(question, str):
        hint = "Give a text, or a list of texts and files: [TEXT, plait.attach(PATH)]."
        raise ConfigError(f"The question is of type {type(question).__name__}.", hint=hint)
    if not question.strip():
        raise ConfigError("The question is empty.", hint="Say what is to be done.")
    try:
        question.encode()
    except UnicodeEncodeError as why:
        raise ConfigError(f"The question is no text: half a character at {why.start}.", hint="Send UTF-8.") from None
    if now is not None and type(now) not in (int, float):
        raise ConfigError(f"now is {now!r}.", hint="Give seconds since 1970, or None.")


def check_deps(wanted: Any, deps: Any) -> None:
    """Check the dependencies that a run is given. `wanted` is their declared type, or its recorded name, or None.

    Raises `ConfigError` if they are missing or of another type.
    """
    if wanted is None:
        return
    if deps is None:
        name = _name(wanted)
        raise ConfigError(
            f"This agent needs dependencies: {name}.",
            hint=f"Give them in Python: agent.run(question, deps={name}(...)), also to resume or fork.",
        )
    if isinstance(wanted, type):
        with suppress(TypeError):  # a protocol that cannot be checked
            if not isinstance(deps, wanted):
                raise ConfigError(f"The dependencies are {type(deps).__name__}.", hint=f"Give {wanted.__name__}(...).")


def check_contexts(tools: Iterable[Tool], deps: Any) -> None:
    """Raise `ConfigError` if a tool's context has other dependencies than the declared type."""
    for tool in tools:
        wanted = next(iter(get_args(tool.signature.context)), None)
        if not isinstance(wanted, type) or wanted in (object, type(None), Any):
            continue
        if deps is None:
            name = wanted.__name__
            raise ConfigError(f"The tool {tool.name} takes Context[{name}].", hint=f"Declare it: Agent(deps={name}).")
        with suppress(TypeError):  # not a class
            if not issubclass(deps, wanted):
                raise ConfigError(
                    f"The tool {tool.name} takes Context[{wanted.__name__}], and the agent has deps={_name(deps)}.",
                    hint="Give both the same type.",
                )


def _sandbox_in(agent: Description) -> str:
    """Return the sandbox's name. `auto` is resolved only for a loop that runs code."""
    runs_code = getattr(agent.loop, "runs_code", False)
    return AUTO if agent.sandbox == AUTO and not runs_code else name_of(agent.sandbox)


def sandbox_for(agent: Description, head: RunHead, ran_code: bool) -> str | Sandbox:
    """Return the recorded sandbox, in which an agent resumes or forks a run.

    Raises `ConfigError` if the agent names another sandbox and the run has run code (`ran_code`), because that session
    can only be restored in the recorded one.
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
    """Return an agent's fields from the head of one of its runs. Ignores the recorded tools if `tools_given`.

    Without `load_code`, no tool that needs trust is loaded: such tools can be shown to a model, but not called.
    Raises `ConfigError` if the loop was a Python object, which the record cannot name, or, with `load_code`, a tool.
    """
    for spec, source in zip(head.tools, head.sources, strict=False):
        if not source and not tools_given and load_code:
            raise ConfigError(
                f"The tool '{spec['name']}' of run {head.run} was given in Python.",
                hint="Name it with --tools file.py, or go on in Python: agent.resume(run).",
            )
    settings = head.settings
    loop = loops.make(head.loop["name"], head.loop["options"])
    # By default, such a loop shows none of a large set of tools. This run showed all that there were.
    showed_all = hasattr(loop, "told") and shown_by(head) is None
    limits = convert(settings.get("limits", {}), Limits)
    return {
        "loop": loop,
        "model": str(head.models.get("", {}).get("spec", "local")),
        "models": {phase: str(model["spec"]) for phase, model in head.models.items() if phase},
        "tools": tools_of(head, (SESSION, SEARCH), load_code),
        "limits": structs.replace(limits, tools=len(head.tools) if showed_all else settings.get("max_tools")),
        "prompts": settings.get("prompts"),
        "system": settings.get("system"),
        "approve": settings.get("approve", "never"),
        "on_interrupted_call": settings.get("on_interrupted_call", "skip"),
        "can_ask": settings.get("can_ask", True),
        "history": History(**settings.get("history", {}), embedder=settings.get("embedder", "local")),
        "grounding": settings.get("grounding", "off"),
        "taint": settings.get("taint", "off"),
        "sandbox": settings.get("sandbox", AUTO),
        "output": read_recorded_output(head),
        "instructions": settings.get("instructions", ""),
    }


def fields_for_replay(head: RunHead) -> dict[str, Any]:
    """Return the fields of an agent that replays a run from its record alone: tools that cannot be called, and models
    that cannot be asked."""
    models = {phase: recorded_model(described) for phase, described in head.models.items()}
    return {"tools": recorded_tools(head, (SESSION, SEARCH)), "model": models.pop("", "local"), "models": models}


def _require_one_of(name: str, value: object, known: tuple[str, ...]) -> None:
    _require(name, value, value in known, f"one of {', '.join(known)}")


def _require(name: str, value: object, fits: bool, wanted: str) -> None:
    if not fits:
        raise ConfigError(f"Agent({name}={repr_short(value, 200)}) is invalid.", hint=f"Give {wanted}.")
