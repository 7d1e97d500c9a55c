"""An agent from its table of `plait.toml`: what is wrong with it is told with the file, the table and the key."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from msgspec import structs

from plait.core.errors import UsageError

if TYPE_CHECKING:
    from plait.agent import Agent
    from plait.config import AgentTable, Config
    from plait.window.agents import ServedAgent

LAST = ("set", "models", "strategy")
"""The keys that are looked at last for what is wrong: without a loop its options are another's."""


def tabled(config: Config, name: str, flags: dict[str, Any], described: Callable[[Agent], str]) -> ServedAgent:
    """The agent of `[agents.NAME]` as it is served, its tools and models looked at. Raises `UsageError`."""
    from plait.window.agents import serve_agent

    said = config.agents[name]
    try:
        agent = _agent(said, flags)
    except UsageError as why:
        raise _at(config.place(name, _blamed(said, flags, why)), why) from why
    with _blaming(config, name, ""):
        made = serve_agent(name, agent, config.serve, thoughts=said.thoughts)
    with _blaming(config, name, "tools"):
        _ = made.agent.specs
    _models(config, name, made.agent)
    return replace(made, description=said.description or described(made.agent))


def _agent(said: AgentTable, flags: dict[str, Any]) -> Agent:
    from plait.cli.settings import agent_for

    # What an agent's table says is worth a flag: the environment is for the one agent of a command line.
    general = (said.model,) if said.model else ()
    models = (*general, *(f"{phase}={model}" for phase, model in said.models.items()))
    own = {**flags, "strategy": said.strategy, "models": models, "approve": said.approve}
    return agent_for(no_journal=False, said=said, **own)


def _blamed(said: AgentTable, flags: dict[str, Any], why: UsageError) -> str:
    """The key without which that error is not there; "" for none."""
    usual = type(said)()
    keys = [key for key in structs.asdict(said) if getattr(said, key) != getattr(usual, key)]
    for key in sorted(keys, key=lambda key: LAST.index(key) if key in LAST else -1):
        try:
            _agent(structs.replace(said, **{key: getattr(usual, key)}), flags)
        except UsageError as still:
            if still.message == why.message:
                continue
        return key
    return ""


def _models(config: Config, name: str, agent: Agent) -> None:
    """Look at an agent's models. Raises `UsageError` naming the one that can't be."""
    try:
        _ = agent._resolved
    except UsageError as why:
        from plait.models.resolve import resolve_all

        for phase, model in agent.models.items():
            with _blaming(config, name, f"models.{phase}"):
                resolve_all({phase: model}, lambda: config.models)
        raise _at(config.place(name, "model"), why) from why


@contextmanager
def _blaming(config: Config, name: str, key: str) -> Iterator[None]:
    try:
        yield
    except UsageError as why:
        raise _at(config.place(name, key), why) from why


def _at(place: str, why: UsageError) -> UsageError:
    return UsageError(f"{place}: {why.message}", hint=why.hint)
