"""The agents behind runs: a served one looked at before it is asked, the one that made a run, and a changed one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from msgspec import to_builtins

from plait import loops
from plait.agent import Agent
from plait.journal.records import RunHead
from plait.runtime.described import settings_of
from plait.runtime.sessions import SESSION
from plait.runtime.showing import SEARCH
from plait.tools.load import at_server
from plait.window.errors import Rejected
from plait.window.settings import ServedAgent

FORKED = ("strategy", "options", "model", "models", "approve", "provenance")
"""What a fork may change from afar: nothing that names a file or loads code."""


def ready(served: ServedAgent, journal: str | Path | None) -> ServedAgent:
    """The agent with the server's journal, its tools and models looked at: what is wrong is told before it is asked."""
    agent = served.agent if served.agent.journal == journal else served.agent.using(journal=journal)
    _ = agent.specs, agent._resolved
    return replace(served, agent=agent)


def same(agent: Agent, head: RunHead) -> bool:
    """The agent makes the requests that a recorded run made, as far as its description says."""
    settings = to_builtins(settings_of(agent))
    loop = {"name": agent._loop.name, "options": loops.options_of(agent._loop)}
    if settings.get("sandbox") == "auto":
        del settings["sandbox"]  # a run goes on in the sandbox that is on its record
    said = all(head.settings.get(name) == value for name, value in settings.items())
    return said and loop == head.strategy and _tools(agent) == _recorded_tools(head)


def _tools(agent: Agent) -> set[str]:
    return {tool.name for tool in agent._toolset if not at_server(tool.source)}


def _recorded_tools(head: RunHead) -> set[str]:
    """The names of a run's tools: not of those that come by themselves, nor of a server's, which may change."""
    named = zip(head.tools, head.sources, strict=False)
    return {spec["name"] for spec, source in named if source not in (SESSION, SEARCH) and not at_server(source)}


def changed(agent: Agent, changes: dict[str, Any]) -> Agent:
    """The agent with fields changed, as `FORKED` allows. Raises `Rejected`."""
    for name in changes:
        if name not in FORKED:
            raise Rejected(
                400, f"A fork can't change '{name}'.", hint=f"It may change: {', '.join(FORKED)}.", param=name
            )
    loop, options = changes.pop("strategy", None), changes.pop("options", None)
    if loop is not None or options:
        kept = loops.options_of(agent._loop) if loop in (None, agent._loop.name) else {}
        changes["strategy"] = loops.make(loop or agent._loop.name, {**kept, **(options or {})})
    # A model for all phases is that: what single ones had is gone. Another loop may have other phases.
    phases = changes["strategy"].phases if "strategy" in changes else agent._loop.phases
    before = {} if "model" in changes else {phase: each for phase, each in agent.models.items() if phase in phases}
    changes["models"] = {**before, **changes.get("models", {})}
    return agent.using(**changes)
