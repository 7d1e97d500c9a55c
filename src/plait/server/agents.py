"""The agents that a server offers, and the agents that resume and fork recorded runs."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from msgspec import structs, to_builtins

from plait import loops
from plait.agent import Agent
from plait.config import ServeTable
from plait.core.errors import ConfigError
from plait.journal.records import RunHead
from plait.loops.registry import AUTO_LOOP
from plait.runtime.agents.agent_description import change_loop_and_models
from plait.runtime.agents.agent_fields import record_settings
from plait.runtime.calls.tool_selection import SEARCH
from plait.runtime.conversations.sessions import SESSION
from plait.tools.load import is_mcp_word

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True)
class ServedAgent:
    """An agent and the name that clients use for it. `thoughts`: whether clients get its thoughts. `word`: what `-a`
    takes for it, "" if it was made otherwise."""

    name: str
    agent: Agent
    description: str = ""
    thoughts: bool = False
    word: str = ""
    created: int = field(default_factory=lambda: int(time.time()))

    @property
    def about(self) -> str:
        """Return the description, or what the agent is made of."""
        tools = ", ".join(spec.name for spec in self.agent.specs[:20])
        return self.description or f"The loop {self.agent._loop.name}{f' with {tools}' if tools else ''}."


def serve_agent(
    name: str, agent: Agent, table: ServeTable, *, description: str = "", thoughts: bool = False, word: str = ""
) -> ServedAgent:
    """Offer an agent, with at most the server's time for a run. Raises `ConfigError` for a bad name."""
    if not _NAME.fullmatch(name):
        hint = "Use letters, digits, '.', '_' and '-', 64 at most."
        raise ConfigError(f"{name!r} can't be an agent's name.", hint=hint)
    own = agent.limits.seconds
    limits = structs.replace(agent.limits, seconds=table.seconds if own is None else min(own, table.seconds))
    return ServedAgent(name, agent.using(limits=limits), description, thoughts, word)


def prepare_agents(agents: Iterable[ServedAgent]) -> dict[str, ServedAgent]:
    """Return the agents by name, all with the first one's journal. Loads their tools and models, so that errors show
    before a client asks. Raises `ConfigError`."""
    by_name = {each.name: each for each in agents}
    if not by_name:
        raise ConfigError("There is no agent to serve.", hint="Name one in plait.toml: [agents.NAME].")
    journal = next(iter(by_name.values())).agent.journal
    if journal is False:
        raise ConfigError("A server needs a journal for its runs.", hint="Leave out journal=False.")
    for name, served in by_name.items():
        agent = served.agent if served.agent.journal == journal else served.agent.using(journal=journal)
        agent._parts.check_prices()
        _ = agent._parts.models, agent.specs  # an error in them shows now
        by_name[name] = replace(served, agent=agent)
    return by_name


def makes_same_requests(agent: Agent, head: RunHead) -> bool:
    """Return whether an agent would make the same requests as a recorded run, judged by its settings."""
    settings = to_builtins(record_settings(agent))
    loop = {"name": agent._loop.name, "options": loops.options_of(agent._loop)}
    if settings.get("sandbox") == "auto":
        del settings["sandbox"]  # a resumed run uses the sandbox of its journal
    if loop != head.loop or any(head.settings.get(name) != value for name, value in settings.items()):
        return False
    # Leave out tools that Plait adds, and those of an MCP server, which may change.
    recorded = {
        spec["name"]
        for spec, source in zip(head.tools, head.sources, strict=False)
        if source not in (SESSION, SEARCH) and not is_mcp_word(source)
    }
    return recorded == {tool.name for tool in agent._parts.toolset if not is_mcp_word(tool.source)}


def change_agent(agent: Agent, changes: dict[str, Any], limits: Mapping[str, Any] = {}) -> Agent:
    """Return the agent with another `loop`, other `options` of its loop, another `model` or other `models`, other
    `instructions`, `prompts` (by LOOP/NAME; the agent's other ones stay) and `limits`. Raises `ConfigError`."""
    agent_fields = {name: value for name, value in changes.items() if name not in ("instructions", "prompts")}
    fields = agent if agent.loop != AUTO_LOOP else agent.using(loop=agent._loop)
    changed = change_loop_and_models(fields, **agent_fields)
    if "loop" in changes and isinstance(agent.prompts, Mapping):
        changed["prompts"] = None  # they are those of the loop before
    made = agent.using(**changed)
    texts = {"instructions": changes["instructions"]} if "instructions" in changes else {}
    if "prompts" in changes:
        texts["prompts"] = {**made._parts.prompts.list_own_templates(), **changes["prompts"]}
    return made.using(limits=structs.replace(made.limits, **limits), **texts) if limits or texts else made
