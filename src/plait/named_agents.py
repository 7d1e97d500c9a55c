"""Agents by name: `module:agent` and `file.py:agent` in Python, `[agents.NAME]` in plait.toml.

The head of a run has the name of the agent that made it. That name only selects among the agents that a user or a
trusted configuration names. It is never imported: a journal from elsewhere could name anything.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from plait.agent import Agent
from plait.core.errors import ConfigError
from plait.tools.load import load_object
from plait.tools.user_code import run_file, show_error
from plait.user_functions import call_plain

if TYPE_CHECKING:
    from plait.config import Config

HINT = "Name a plait.Agent, or a function without arguments that returns one."


def load_agent(word: str) -> Agent[Any]:
    """Import an agent: `module:agent`, `file.py:agent`, or `file.py` with one agent. A function is called for it. An
    agent without a name gets the word as its name, with a file's whole path. Raises `ConfigError`."""
    if (file := word.strip()).endswith(".py"):
        agents = {key: value for key, value in vars(run_file(file, "file")).items() if isinstance(value, Agent)}
        if len({id(each) for each in agents.values()}) != 1:
            several = f"has the agents {', '.join(agents)}" if agents else "has no agent"
            raise ConfigError(f"{file!r} {several}.", hint=f"Name one: {file}:{next(iter(agents), 'NAME')}.")
        found: Any = next(iter(agents.values()))
    else:
        found = load_object(word, "an agent")
    if callable(found) and not isinstance(found, Agent):
        try:
            found = call_plain(found)
        except ConfigError:
            raise
        except (Exception, SystemExit) as why:
            raise ConfigError(f"{word!r} makes no agent: {show_error(why)}.", hint=HINT) from why
    if not isinstance(found, Agent):
        raise ConfigError(f"{word!r} is a {type(found).__name__} and no agent.", hint=HINT)
    return found if found.name else found.using(name=anchor_agent(word))


def anchor_agent(word: str) -> str:
    """Return the word with the whole path of its file, so that it names the same agent from any folder."""
    place, _, name = word.strip().rpartition(":")
    if word.strip().endswith(".py"):
        return os.path.abspath(os.path.expanduser(word.strip()))
    return f"{os.path.abspath(os.path.expanduser(place))}:{name}" if place.endswith(".py") else word.strip()


def find_configured_name(config: Config, agent: str) -> str | None:
    """Return NAME of the `[agents.NAME]` whose runs have this agent's name; None if there is none. Imports only what
    the configuration names."""
    words = {name: str(table["agent"]) for name, table in config.agents.items() if "agent" in table}
    for name in config.agents:
        if agent in (name, anchor_agent(words.get(name, name))):
            return name
    for name, word in words.items():
        with suppress(ConfigError):  # whoever uses that agent is told
            if load_agent(word).name == agent:
                return name
    return None
