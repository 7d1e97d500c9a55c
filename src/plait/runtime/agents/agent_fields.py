"""The fields of an agent, each with the declaration of its option. To add an option, add a field here and use it."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeAlias, cast

from msgspec import UNSET, Struct, convert, to_builtins
from typing_extensions import TypedDict, TypeVar

from plait.core import Loop, traits_of
from plait.journal.records import RunHead
from plait.loops.registry import AUTO_LOOP
from plait.models.base import Model
from plait.models.resolve import ModelAccess
from plait.models.settings import NO_SETTINGS, AgentSettings
from plait.runtime.agents.dependencies import load_make_deps
from plait.runtime.agents.options import Option, list_fields, list_options
from plait.runtime.agents.output import OutputForm, OutputT, describe_output, output_of, read_recorded_output
from plait.runtime.calls.context import Context, DepsT
from plait.runtime.conversations.sessions import History
from plait.runtime.guard import Guard
from plait.runtime.hooks import Hook
from plait.runtime.limits import Limits
from plait.runtime.run_spec import Approve, Claims, Grounding, OnInterruptedCall, Taint
from plait.runtime.spend_limits import SpendLimit
from plait.sandbox import AUTO, Sandbox, name_of
from plait.tools.tool import Tool, ToolSource
from plait.user_files import read_json_object, read_text, read_text_or_file

D = TypeVar("D", default=Any)
"""The type of dependencies, where it may be neither co- nor contravariant."""
ToolForm: TypeAlias = Tool[Context[D]] | Tool[Context[None]] | str | ToolSource
"""What `Agent.tools` takes, as a checker sees it. It rejects a `plait.tool` for other dependencies. It knows nothing
of the parameters of a plain function, which is an object like any other."""
Instructions: TypeAlias = str | Callable[[D], str] | Callable[[], str]
MakeDeps: TypeAlias = Callable[[], D | Awaitable[D] | AbstractAsyncContextManager[D]]
"""Makes the dependencies of a run (see `open_deps`)."""


def name_value(given: object) -> str:
    """Return the name of a function, a class, or an object's class; a text itself."""
    return given if isinstance(given, str) else str(getattr(given, "__name__", type(given).__name__))


def is_model(given: object) -> bool:
    """Return whether a value is a model, or the word for one."""
    return bool(given.strip()) if isinstance(given, str) else isinstance(given, Model) and not isinstance(given, type)


def _is_path(given: object) -> bool:
    return isinstance(given, str | Path) and bool(str(given))


def _record_sandbox(agent: AgentFields[Any, Any]) -> str:
    """Return the sandbox's name. `auto` is resolved only for a loop that runs code."""
    runs_code = traits_of(agent.loop).runs_code
    return AUTO if agent.sandbox == AUTO and not runs_code else name_of(agent.sandbox)


@dataclass(frozen=True, repr=False, kw_only=True)
class AgentFields(Generic[DepsT, OutputT]):
    """The fields of an agent. `Agent` adds what it does with them."""

    loop: Annotated[
        str | Loop,
        Option(
            "The loop: a name of `plait loops list`, or an object with options. auto is chosen by the model.",
            "--loop NAME",
            "The loop (see `plait loops list`); auto is chosen by the model.",
            separate=Option("An option of the loop.", "--set K=V", many="pairs", key="set"),
            variable="PLAIT_LOOP",
            trust="allowed",
            stored="head",
            page="loops.md",
        ),
    ] = field(default=AUTO_LOOP, kw_only=False)
    model: Annotated[
        str | Model,
        Option(
            "The model, for all phases or for one: local, local:NAME, openai:NAME, ...",
            "--model [PHASE=]SPEC",
            variable="PLAIT_MODEL",
            trust="same",
            fits=is_model,
            wanted='a model, such as "local" or "openai:NAME"',
            stored="head",
            page="models.md",
        ),
    ] = "local"
    models: Annotated[
        Mapping[str, str | Model],
        Option(
            'Models of single phases: `{"act": "openai:gpt-5"}`.',
            many="pairs",
            trust="same",
            wanted='a mapping from phases to models, such as {"act": "local"}',
            stored="head",
        ),
    ] = field(default_factory=dict)
    settings: Annotated[
        AgentSettings,
        Option(
            "Settings of the requests, for all phases or for one: effort=low, act.temperature=0.",
            "--model-setting [PHASE.]K=V",
            many="pairs",
            key="model_settings",
            wanted='plait.ModelSettings(...), or {"act": plait.ModelSettings(...)}',
            stored="head",
            page="models.md#settings",
        ),
    ] = NO_SETTINGS
    tools: Annotated[
        Iterable[ToolForm[DepsT]],
        Option(
            "Tools, functions, objects, classes (each run gets its own instance), or words such as calculator.",
            "--tools WORD",
            "Tools: calculator, lookup:FILE, file.py, module:name.",
            many="words",
            trust="allowed",
            stored="head",
        ),
    ] = ()
    limits: Annotated[Limits, Option("What a run may use, and how many tools the model sees")] = field(default=Limits())
    spend: Annotated[
        Iterable[SpendLimit | str],
        Option(
            "What all runs together may spend in a day or month: `plait.SpendLimit` objects or words.",
            "--spend LIMIT",
            "What all runs may spend: usd=5,per=day,user=* (also tokens, runs, per=month, agent, tag, zone).",
            many="words",
            key="",
            stored="",
            page="limits.md#spend-limits",
        ),
    ] = ()
    grounding: Annotated[
        Grounding, Option("What to do about argument values that the model made up.", "--grounding", trust="same")
    ] = "off"
    claims: Annotated[
        Claims,
        Option(
            "What to do about an answer that says that something was done, if no call did it.", "--claims", trust="same"
        ),
    ] = "off"
    taint: Annotated[
        Taint, Option("Ask before calls with effects once outside content was read.", "--taint", trust="same")
    ] = "off"
    hooks: Annotated[
        Iterable[Hook[DepsT] | Guard[DepsT] | str],
        Option(
            "Objects of subclasses of `plait.Hook` or `plait.Guard`, or words such as redact.",
            "--hook WORD",
            "A hook: redact, hosts:HOST,... rate:TOOL=CALLS,... retry:ATTEMPTS.",
            many="words",
            adds=True,
            trust="same",
            record=lambda agent: [hook.name for hook in list_hooks(agent)],
        ),
    ] = ()
    sandbox: Annotated[
        str | Sandbox,
        Option(
            "Where a loop's code runs: auto, process or monty; process:pandas,numpy has installed packages.",
            "--sandbox NAME",
            trust="same",
            fits=lambda given: isinstance(given, str) or (hasattr(given, "open") and hasattr(given, "name")),
            record=_record_sandbox,
        ),
    ] = AUTO
    prompts: Annotated[
        str | Path | Mapping[str, str] | None,
        Option(
            'A folder whose files replace the built-in prompts, or texts: `{"react/system": TEMPLATE}`.',
            "--prompts DIR",
            "A folder whose files replace the built-in prompts.",
            fits=lambda given: given is None or isinstance(given, Mapping) or _is_path(given),
            wanted="the path of a folder, a mapping from LOOP/NAME to templates, or None",
            record=lambda agent: str(given.resolve()) if isinstance(given := find_prompts(agent), Path) else given,
            page="prompts.md",
        ),
    ] = None
    system: Annotated[
        str | None,
        Option(
            "A system prompt in place of the loop's, byte for byte.", "--system FILE", read=read_text, page="prompts.md"
        ),
    ] = None
    instructions: Annotated[
        Instructions[DepsT],
        Option(
            "Instructions for the model, beside the prompts: a text, or a function (of `deps`) that returns one.",
            "--instructions TEXT|@FILE",
            "Instructions for the model, beside the prompts.",
            read=read_text_or_file,
            wanted="a text, or a function that returns one",
            record=lambda agent: agent.instructions if isinstance(agent.instructions, str) else UNSET,
            page="output.md#instructions",
        ),
    ] = ""
    context_files: Annotated[
        str | Path | None,
        Option(
            "A project's folder whose AGENTS.md, with those above and below, are instructions.",
            "--context-files DIR",
            fits=lambda given: given is None or _is_path(given),
            wanted="the path of a folder, or None",
            record=lambda agent: os.path.abspath(Path(given).expanduser()) if (given := agent.context_files) else None,
            page="skills.md#context-files",
        ),
    ] = None
    output: Annotated[
        OutputForm[OutputT],
        Option(
            "The type of the answer: a type, a JSON Schema, or an `OutputType`, which also has checks.",
            "--schema FILE",
            "A JSON Schema that the answer has to fit.",
            read=read_json_object,
            fits=lambda given: True,  # `output_of` checks it
            record=lambda agent: describe_output(output_of(agent.output)),
            restore=read_recorded_output,
        ),
    ] = str  # type: ignore[assignment]
    approve: Annotated[
        Approve,
        Option(
            "Which calls need the user's approval: a word, or a function of a call. plan: the plan as a whole.",
            "--approve",
            "Which tool calls need the user's approval, or `plan` for the plan as a whole.",
            trust="same",
            record=lambda agent: agent.approve if isinstance(agent.approve, str) else "always",
            page="plans.md",
        ),
    ] = "never"
    can_ask: Annotated[
        bool, Option("Whether the model may ask the user.", "--no-ask", "The model may not ask the user.", switch=False)
    ] = True
    history: Annotated[
        History,
        Option(
            "How many earlier turns of a session a run sees, and what searches the others.",
            record=lambda agent: agent.history.stored_settings,
            restore=lambda head: History(**head.settings.get("history", {})),
            page="sessions.md",
        ),
    ] = field(default=History())
    on_interrupted_call: Annotated[
        OnInterruptedCall,
        Option("What a resumed run does with a call that may have happened.", "--on-interrupted-call", page="runs.md"),
    ] = "skip"
    journal: Annotated[
        str | Path | Literal[False] | None,
        Option(
            "The file, or the address of PostgreSQL, that stores runs; None for the default file, False for none.",
            "--journal PLACE",
            "The journal to use: a file, or postgresql://USER@HOST/DATABASE.",
            variable="PLAIT_JOURNAL",
            fits=lambda given: given is None or given is False or _is_path(given),
            wanted="a path, an address, False for no journal, or None",
            stored="",
        ),
    ] = None
    deps: Annotated[
        type[DepsT] | None,
        Option(
            "The type of the object that tools get as `Context.deps`; each run is given one.",
            fits=lambda given: given is None or callable(given),
            wanted="the type of the dependencies, or None",
            record=lambda agent: name_value(agent.deps) if agent.deps is not None else None,
            restore=lambda head: None,
            page="tools.md#context",
        ),
    ] = None
    make_deps: Annotated[
        MakeDeps[DepsT] | None,
        Option(
            "Makes the dependencies of a run that is given none: a function, or an async context manager, which is "
            "closed at the end of the run.",
            "--deps MODULE:NAME",
            "The function or async context manager that makes the dependencies of a run: module:name or file.py:name.",
            key="deps",
            read=load_make_deps,
            fits=lambda given: given is None or callable(given),
            wanted="a function that makes the dependencies, or None",
            stored="",
            page="tools.md#context",
        ),
    ] = None
    name: Annotated[str, Option("The agent's name, by which the journal lists its runs.", stored="head")] = ""
    _access: ModelAccess = field(default=None, compare=False)  # type: ignore[assignment]
    """The configuration and the keys with which the agent was made. Copies keep them."""


class AgentChanges(TypedDict, Generic[D], total=False):
    """The fields of `AgentFields` except `output` and `deps`, which `Agent.using` takes. A test compares the two."""

    loop: str | Loop
    model: str | Model
    models: Mapping[str, str | Model]
    settings: AgentSettings
    tools: Iterable[ToolForm[D]]
    limits: Limits
    spend: Iterable[SpendLimit | str]
    grounding: Grounding
    claims: Claims
    taint: Taint
    hooks: Iterable[Hook[D] | Guard[D] | str]
    sandbox: str | Sandbox
    prompts: str | Path | Mapping[str, str] | None
    system: str | None
    instructions: Instructions[D]
    context_files: str | Path | None
    approve: Approve
    can_ask: bool
    history: History
    on_interrupted_call: OnInterruptedCall
    journal: str | Path | Literal[False] | None
    make_deps: MakeDeps[D] | None
    name: str


def find_prompts(agent: AgentFields[Any, Any]) -> Path | Mapping[str, str] | None:
    """Return the folder of an agent's prompts, or their texts."""
    given = agent.prompts
    return dict(given) if isinstance(given, Mapping) else Path(given) if given is not None else None


def list_hooks(agent: AgentFields[Any, Any]) -> tuple[Hook | Guard, ...]:
    """Return an agent's hooks as objects, which `Agent` has made of words."""
    return cast("tuple[Hook | Guard, ...]", agent.hooks)


OPTIONS = list_options(AgentFields)
"""All options of an agent, those of its limits and history too."""


def record_settings(agent: AgentFields[Any, Any]) -> dict[str, Any]:
    """Return the settings to record in the head of an agent's runs."""
    found = {}
    for each in list_fields(AgentFields):
        if each.stored == "settings":
            found[each.name] = each.record(agent) if each.record else to_builtins(getattr(agent, each.name))
    return {name: value for name, value in found.items() if value is not UNSET}


def restore_settings(head: RunHead) -> dict[str, Any]:
    """Return the fields of an agent that the settings in a head say. Those that are Python objects are left out."""
    found = {}
    for each in list_fields(AgentFields):
        if each.restore is not None:
            found[each.name] = each.restore(head)
        elif each.name in head.settings:
            value = head.settings[each.name]
            is_struct = isinstance(each.hint, type) and issubclass(each.hint, Struct)
            found[each.name] = convert(value, each.hint) if is_struct else value
    return found
