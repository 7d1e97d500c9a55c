"""From flags, environment, `plait.toml` and defaults, in this order, to an agent."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec
from msgspec import structs

from plait import loops
from plait.agent import Agent
from plait.cli.options import existing
from plait.cli.places import journal_file
from plait.config import RunDefaults, load
from plait.core import CodeLimits
from plait.core.errors import UsageError
from plait.journal.records import RunHead
from plait.runtime.described import USUAL
from plait.runtime.limits import Limits
from plait.sandbox import AUTO

# A phase, also one of the loop that is fallen back to: `react.act`.
_PHASE = re.compile(r"([A-Za-z_]\w*(?:[.-]\w+)*)=(.+)", re.DOTALL)
LIMITS = {
    "max_steps": "steps",
    "max_calls": "calls",
    "max_tokens": "tokens",
    "max_cost": "usd",
    "max_seconds": "seconds",
}


def agent_for(
    *,
    strategy: str | None,
    settings: Sequence[str],
    models: Sequence[str],
    tools: Sequence[str],
    prompts: str | None,
    journal: str | None,
    no_journal: bool,
    system: str | None,
    approve: str | None,
    no_ask: bool,
    embedder: str | None = None,
    provenance: str | None = None,
    sandbox: str | None = None,
    code_limit: Sequence[str] = (),
    show_tools: int | None = None,
    results: str | None = None,
    at_least: float | None = None,
    usual: str = "react",
    said: RunDefaults | None = None,
    **limits: float | None,
) -> Agent:
    """The agent that `plait run` runs; `usual` is the loop where nothing is said. Raises `UsageError`.

    `said`: a table of `plait.toml`, None for `[run]`.
    """
    said = said if said is not None else load().run
    if journal is not None and no_journal:
        raise UsageError("--journal and --no-journal contradict each other.", hint="Give one of them.")
    loop = strategy or os.environ.get("PLAIT_STRATEGY") or said.strategy or usual
    auto = chosen_by(said, results, at_least, _limits(said, limits)) if loop == "auto" else {}
    if not auto and (results is not None or at_least is not None):
        flag = "--results" if results is not None else "--at-least"
        raise UsageError(f"{flag} is for choosing a loop, and '{loop}' is one.", hint="Give --strategy auto.")
    # The file's options are options of the file's loop: another one chosen by a flag knows nothing of them.
    options = {**(said.set if loop == (said.strategy or "react") else {}), **pairs(settings)}
    everywhere, single = models_of(models)
    general = everywhere or os.environ.get("PLAIT_MODEL")
    if auto and options:
        raise UsageError("Options are those of a loop that is named, and this one is chosen.", hint="Leave out --set.")
    return Agent(
        "auto" if auto else loops.make(loop, options),
        model=general or said.model or USUAL,
        # A model for all, said nearer by than the file, is for all.
        models=single if general else {**said.models, **single},
        tools=tuple(tools) or tuple(said.tools),
        limits=Limits(**_limits(said, limits)),
        prompts=prompts or said.prompts,
        system=text_of(system) if system is not None else None,
        journal=False if no_journal else journal_file(journal, said),
        approve=_approve(approve or said.approve or "never"),
        can_ask=not no_ask,
        embedder=_embedder(embedder or said.embedder),
        provenance=cast(Any, provenance or said.provenance or "off"),
        sandbox=sandbox or said.sandbox or AUTO,
        show_tools=said.show_tools if show_tools is None else show_tools,
        code_limits=_code_limits({**said.code, **pairs(code_limit, "--code-limit", "seconds=5")}),
        **auto,
    )


def lab_settings(
    *,
    prompts: str | None,
    provenance: str | None,
    sandbox: str | None,
    code_limit: Sequence[str],
    show_tools: int | None,
    **limits: float | None,
) -> dict[str, Any]:
    """The fields of an agent that all cells of a comparison have; what is not said is left out. Raises `UsageError`."""
    said = {name: value for name, value in limits.items() if value is not None}
    given = {"prompts": prompts, "provenance": provenance, "sandbox": sandbox, "show_tools": show_tools}
    fields: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if said:
        fields["limits"] = Limits(**_limits(RunDefaults(), limits))
    if code_limit:
        fields["code_limits"] = _code_limits(pairs(code_limit, "--code-limit", "seconds=5"))
    return fields


def chosen_by(
    said: RunDefaults, results: str | None, at_least: float | None, limits: Mapping[str, Any]
) -> dict[str, Any]:
    """What a loop is chosen by: the results, and as the demand what a run may take and how often it must succeed."""
    from plait.advice import Demand

    share = said.at_least if at_least is None else at_least
    most: dict[str, Any] = {name: limits.get(name) for name in ("usd", "seconds", "tokens")}
    return {"results": results or said.results, "demand": Demand(0.8 if share is None else share, **most)}


def agent_again(
    head: RunHead,
    *,
    journal: str | None,
    strategy: str | None = None,
    settings: Sequence[str] = (),
    models: Sequence[str] = (),
    tools: Sequence[str] = (),
    prompts: str | None = None,
    load_tools: bool = False,
    **changes: Any,
) -> Agent:
    """The agent of a recorded run, changed by what the flags say. Raises `UsageError`."""
    recorded = head.strategy["name"]
    loop = strategy or recorded
    if strategy or settings:
        kept = head.strategy["options"] if loop == recorded else {}
        changes["strategy"] = loops.make(loop, {**kept, **pairs(settings)})
    everywhere, single = models_of(models)
    if everywhere:
        changes.update(model=everywhere, models=single)
    elif single or loop != recorded:
        phases = loops.make(loop).phases
        before = {phase: str(model["spec"]) for phase, model in head.models.items() if phase in phases}
        changes["models"] = {**before, **single}
    if tools:
        changes["tools"] = tuple(tools)
    if prompts is not None:
        changes["prompts"] = prompts
    return Agent.recorded(head, journal=journal_file(journal), load_tools=load_tools or None, **changes)


def limits_over(head: RunHead, flags: Mapping[str, float | None]) -> Limits:
    """A recorded run's limits, those that flags name changed."""
    recorded = msgspec.convert(head.settings.get("limits", {}), Limits)
    return structs.replace(recorded, **{field: flags[name] for name, field in LIMITS.items() if flags.get(name)})


def pairs(settings: Sequence[str], flag: str = "--set", example: str = "misses=5") -> dict[str, str]:
    """`K=V` of a flag as a mapping. Raises `UsageError` where there is no `=`."""
    found = {}
    for each in settings:
        key, equals, value = each.partition("=")
        if not equals or not key:
            raise UsageError(f"{flag} {each}: it is given as K=V.", hint=f"Such as {flag} {example}.")
        found[key.strip().replace("-", "_")] = value
    return found


def models_of(models: Sequence[str]) -> tuple[str | None, dict[str, str]]:
    """`--model SPEC` and `--model PHASE=SPEC` told apart: a spec never begins with a bare word and `=`."""
    everywhere: str | None = None
    single: dict[str, str] = {}
    for each in models:
        if match := _PHASE.fullmatch(each):
            single[match[1]] = match[2]
        elif not each.strip():
            raise UsageError("--model is empty.", hint="Such as local, or openai:NAME.")
        else:
            everywhere = each
    return everywhere, single


def text_of(name: str) -> str:
    """A file's text as it is, line ends included. Raises `UsageError`."""
    path: Path = existing(name)
    try:
        return path.read_bytes().decode()
    except OSError as why:
        raise UsageError(f"{name} can't be read: {why.strerror}.") from why
    except UnicodeDecodeError as why:
        raise UsageError(f"{name} is not UTF-8 text: byte {why.start} can't be read.") from why


def _limits(said: RunDefaults, flags: Mapping[str, float | None]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, field in LIMITS.items():
        value = flags.get(name)
        if value is None:
            value = getattr(said, name)
        if value is not None:
            found[field] = value
    return found


def _code_limits(said: Mapping[str, Any]) -> CodeLimits:
    for name, value in said.items():
        if name not in CodeLimits.__struct_fields__:
            known = ", ".join(CodeLimits.__struct_fields__)
            raise UsageError(f"There is no limit '{name}' of code.", hint=f"There are: {known}.")
        try:
            unusable = not 0 < float(value) < float("inf") or (name != "seconds" and float(value) % 1 != 0)
        except (TypeError, ValueError):
            unusable = True
        if unusable:
            what = "a number" if name == "seconds" else "a whole number"
            raise UsageError(f"The limit '{name}' of code is {value!r}.", hint=f"Give {what} above zero.")
    try:
        return msgspec.convert(said, CodeLimits, strict=False)
    except msgspec.ValidationError as why:
        raise UsageError(f"The limits of code can't be used: {why}.") from why


def _embedder(word: str | None) -> str:
    """The embedder's word, looked at before anything runs: a session asks it only when it is searched."""
    if word is None or word == "local":
        return "local"
    from plait.search import embedder

    embedder(word)
    return word


def _approve(word: str) -> Any:
    if word not in ("never", "effects", "always", "plan"):
        raise UsageError(f"approve is {word!r}.", hint="It is one of never, effects, always, plan.")
    return word
