"""An agent's description: how it is checked, recorded in the head of its runs, and read back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import fields
from difflib import get_close_matches
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar, cast, get_args

from msgspec import structs, to_builtins

from plait import loops
from plait.core import Loop, traits_of
from plait.core.errors import ConfigError
from plait.core.notebook import repr_short
from plait.journal.records import RunHead
from plait.journal.store import without_password
from plait.loops.compaction import COMPACT
from plait.models.base import Model
from plait.models.recorded import recorded_model
from plait.models.settings import ModelSettings, read_settings
from plait.runtime.agents.agent_fields import AgentFields, is_model, list_hooks, name_value, restore_settings
from plait.runtime.agents.instructions import check_instructions
from plait.runtime.agents.options import check_options, list_fields, without_option
from plait.runtime.agents.output import output_of
from plait.runtime.calls.recorded_tools import recorded_tools, tools_of
from plait.runtime.calls.tool_selection import SEARCH, shown_by
from plait.runtime.conversations.sessions import SESSION
from plait.runtime.hooks import require_hooks
from plait.runtime.limits import Limits
from plait.runtime.templates.prompts import PromptBook
from plait.sandbox import AUTO, BACKENDS, Sandbox, name_of, packages_of, sandbox
from plait.tools import Tool
from plait.tools.load import check_word, tools_from
from plait.tools.tool import function_name
from plait.user_functions import require_plain

T = TypeVar("T")


def suggest_arguments(made: type[T]) -> type[T]:
    """Let the `TypeError` for an unknown argument of a dataclass name the nearest one that it has, and the signature
    show the types of its arguments without their options."""
    make, every = made.__init__, {item.name for item in fields(cast(Any, made))}
    known = [name for name in every if not name.startswith("_")]
    make.__annotations__.update({name: without_option(kind) for name, kind in make.__annotations__.items() if kind})

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


def book_of(loop: Loop, given: Path | Mapping[str, str] | None) -> PromptBook:
    """Return the prompts of a loop and of the loops it may fall back to. Files of a folder, or texts by LOOP/NAME,
    replace the built-in ones."""
    other = loops.fallback_of(loop)
    others = (book_of(other, given),) if other is not None else ()
    return PromptBook(loop.name, given, traits_of(loop).prompts, others)


def check_fields(agent: AgentFields[Any, Any], loop: Loop) -> None:
    """Check the agent's fields. Raises `ConfigError` for a field that is invalid or does not fit the agent's loop."""
    check_options(agent)
    _check_phases(agent.models, loop)
    for phase, model in agent.models.items():
        _require(f"models[{phase!r}]", model, is_model(model), 'a model, such as "local" or "openai:NAME"')
    settings = agent.settings
    if isinstance(settings, Mapping):
        many = all(isinstance(each, ModelSettings) for each in settings.values())
        _require("settings", settings, many, 'plait.ModelSettings(...), or {"act": plait.ModelSettings(...)}')
        _check_phases(settings, loop)
    for each in settings.values() if isinstance(settings, Mapping) else [settings]:
        read_settings(to_builtins(each), "Agent(settings=)")
    require_plain(loop.run, f"run of the loop '{loop.name}'", "Give a generator, which yields effects.")
    if callable(agent.approve):
        require_plain(agent.approve, "approve=", "Give a plain function; a hook's before_tool may be async.")
    if isinstance(agent.sandbox, str) and agent.sandbox not in (AUTO, *BACKENDS):
        sandbox(agent.sandbox)  # raises an error that lists the sandboxes
    if not isinstance(agent.instructions, str):
        check_instructions(agent.instructions)
    output_of(agent.output)
    if agent.approve == "plan" and not traits_of(loop).makes_plan:
        hint = "Choose 'rewoo' or 'compiler', or approve effects."
        raise ConfigError(f"The loop '{loop.name}' makes no plan that could be approved.", hint=hint)


def _check_phases(names: Iterable[str], loop: Loop) -> None:
    phases = loops.phases_of(loop)
    for phase in names:
        if phase not in {*phases, COMPACT, ""}:
            hint = f"Its phases: {', '.join(phases)}. '{COMPACT}' writes summaries."
            raise ConfigError(f"The loop '{loop.name}' has no phase {phase!r}.", hint=hint)


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


def changed_fields(agent: AgentFields[Any, Any]) -> dict[str, str]:
    """Return each field that is not the default as text, for a `repr`. Models appear by name, without keys."""
    found = {"model": _show_model(agent.model)}
    if agent.models:
        found["models"] = f"{{{', '.join(f'{phase!r}: {_show_model(each)}' for phase, each in agent.models.items())}}}"
    if agent.tools:
        found["tools"] = f"[{', '.join(map(name_value, agent.tools))}]"
    if agent.hooks:
        found["hooks"] = f"[{', '.join(hook.name for hook in list_hooks(agent))}]"
    for each in list_fields(AgentFields):
        value = getattr(agent, each.name)
        if each.name not in ("loop", "model", "models", "tools", "hooks") and value != each.default:
            shown = str(value) if isinstance(value, Path) else value
            shown = without_password(value) if each.name == "journal" and isinstance(value, str) else shown
            found[each.name] = name_value(value) if callable(value) else repr_short(shown, 200)
    return found


def _show_model(model: str | Model) -> str:
    return repr(model if isinstance(model, str) else model.spec)


def check_hooks_of_run(agent: AgentFields[Any, Any], head: RunHead) -> None:
    """Raise `ConfigError` if an agent lacks hooks or output checks with which a run was started, or has others."""
    require_hooks(list_hooks(agent), head.run)
    checks = [function_name(check) for check in output_of(agent.output).checks]
    recorded_output = head.settings.get("output") or {}
    for kind, recorded, given in (
        ("hooks", head.settings.get("hooks", []), [hook.name for hook in list_hooks(agent)]),
        ("output checks", recorded_output.get("checks", []), checks),
    ):
        if recorded != given:
            raise ConfigError(
                f"Run {head.run} was started with {_list(kind, recorded)}, and this agent has {_list(kind, given)}.",
                hint=f'Resume it with the agent that started it: -a module:agent, or agent.resume("{head.run}").',
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
    Raises `ConfigError` if they are missing or of another type."""
    if wanted is None:
        return
    if deps is None:
        name = name_value(wanted)
        raise ConfigError(
            f"This agent needs dependencies: {name}.",
            hint=f"In Python: agent.run(question, deps={name}(...)), or Agent(make_deps=FUNCTION). On the command "
            "line: -a module:agent, or --deps module:function.",
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
                    f"The tool {tool.name} takes Context[{wanted.__name__}], and the agent has "
                    f"deps={name_value(deps)}.",
                    hint="Give both the same type.",
                )


def sandbox_for(agent: AgentFields[Any, Any], head: RunHead, ran_code: bool) -> str | Sandbox:
    """Return the recorded sandbox, in which an agent resumes or forks a run.

    Raises `ConfigError` if the record names packages that the agent does not, and if the agent names another sandbox
    and the run has run code (`ran_code`), because that session can only be restored in the recorded one.
    """
    recorded = str(head.settings.get("sandbox", AUTO))
    packages = set(packages_of(recorded)).difference(packages_of(agent.sandbox))
    if packages and (ran_code or agent.sandbox == AUTO):
        raise ConfigError(
            f"Run {head.run} ran its code with packages that this agent does not name: {', '.join(sorted(packages))}.",
            hint=f"To allow them, use sandbox='{recorded}' (--sandbox {recorded}).",
        )
    if agent.sandbox == AUTO:
        return recorded
    name = name_of(agent.sandbox)
    if ran_code and recorded not in (name, AUTO):
        raise ConfigError(
            f"Run {head.run} ran its code in the sandbox '{recorded}', and this agent's is '{name}'.",
            hint=f"Use sandbox='{recorded}', or leave it out.",
        )
    return agent.sandbox


def change_loop_and_models(
    fields: AgentFields[Any, Any],
    loop: str | None = None,
    options: Mapping[str, Any] = {},
    model: str | Model | None = None,
    models: Mapping[str, str | Model] = {},
) -> dict[str, Any]:
    """Return the fields of an agent that change with another loop, other options of its loop, or other models. Options
    stay as long as the loop stays. A model for all phases replaces those of single phases; another loop keeps those of
    the phases that it has. Raises `ConfigError`."""
    if not (loop or options or model or models):
        return {}
    changed: dict[str, Any] = {}
    before = dict(fields.models) if model is None else {}
    if model is not None:
        changed["model"] = model
    if loop is not None or options:
        now = loop_of(fields.loop)
        kept = loops.options_of(now) if loop in (None, now.name) else {}
        changed["loop"] = made = loops.make(loop or now.name, {**kept, **options})
        before = {phase: each for phase, each in before.items() if phase in made.phases}
    return {**changed, "models": {**before, **models}}


def fields_in(head: RunHead, *, tools_given: bool = False, load_code: bool = True) -> dict[str, Any]:
    """Return an agent's fields from the head of one of its runs. Ignores the recorded tools if `tools_given`.

    Without `load_code`, no tool that needs trust is loaded: such tools can be shown to a model, but not called.
    Raises `ConfigError` if the loop was a Python object, which the record cannot name, or, with `load_code`, a tool.
    """
    for spec, source in zip(head.tools, head.sources, strict=False):
        if not source and not tools_given and load_code:
            hint = "Name the agent: -a module:agent; or the tool: --tools file.py; or call agent.resume(run)."
            raise ConfigError(f"The tool '{spec['name']}' of run {head.run} was given in Python.", hint=hint)
    loop = loops.make(head.loop["name"], head.loop["options"])
    # By default, such a loop shows none of a large set of tools. This run showed all that there were.
    showed_all = traits_of(loop).most_tools is not None and shown_by(head) is None
    fields = restore_settings(head)
    if not load_code and packages_of(str(fields.get("sandbox", AUTO))):
        fields["sandbox"] = AUTO  # a record of others does not choose what is imported
    if not load_code:
        fields.pop("context_files", None)  # nor which files are read
    limits = fields.get("limits", Limits())
    return {
        **fields,
        "loop": loop,
        "name": head.agent,
        "model": str(head.models.get("", {}).get("spec", "local")),
        "models": {phase: str(model["spec"]) for phase, model in head.models.items() if phase},
        "tools": tools_of(head, (SESSION, SEARCH), load_code),
        "limits": structs.replace(limits, tools=len(head.tools) if showed_all else head.settings.get("max_tools")),
    }


def fields_for_replay(head: RunHead) -> dict[str, Any]:
    """Return the fields of an agent that replays a run from its record alone: tools that cannot be called, and models
    that cannot be asked."""
    models = {phase: recorded_model(described) for phase, described in head.models.items()}
    return {"tools": recorded_tools(head, (SESSION, SEARCH)), "model": models.pop("", "local"), "models": models}


def _require(name: str, value: object, fits: bool, wanted: str) -> None:
    if not fits:
        raise ConfigError(f"Agent({name}={repr_short(value, 200)}) is invalid.", hint=f"Give {wanted}.")
