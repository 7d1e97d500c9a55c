"""The commands of `plait chat` that change who answers. What is wrong with one is raised, and nothing is changed."""

from __future__ import annotations

import difflib
import shlex
from typing import TYPE_CHECKING, Any

from plait.core.errors import UsageError

if TYPE_CHECKING:
    from plait.cli.chat import Talk


def model(talk: Talk, rest: str) -> None:
    """The model of each phase; with a name, another one."""
    from plait import config, loops
    from plait.cli.settings import models_of
    from plait.models.resolve import resolve
    from plait.runtime.described import loop_of

    agent = talk.agent
    everywhere, single = models_of(words_of(rest)) if rest else (None, {})
    for spec in filter(None, (everywhere, *single.values())):
        resolve(spec, config.load().models)  # says what is wrong with it, now and not in the next turn
    if rest:
        kept = {} if everywhere else dict(agent.models)
        agent = talk.changed(model=everywhere or agent.model, models={**kept, **single})
        talk.agent = agent
    phases = loops.phases_of(loop_of(agent.strategy))
    asked = {phase: str(agent.models.get(phase, agent.models.get("", agent.model))) for phase in phases}
    if len(set(asked.values())) == 1:
        talk.say(f"Model: {next(iter(asked.values()))}")
    else:
        talk.say("Models: " + ", ".join(f"{phase}={spec}" for phase, spec in asked.items()))


def strategy(talk: Talk, rest: str) -> None:
    """The loop; with a name, another one."""
    from plait import loops
    from plait.cli.settings import pairs
    from plait.runtime.described import loop_of

    if not rest:
        loop = loop_of(talk.agent.strategy)
        options = " ".join(f"{key}={value}" for key, value in loops.options_of(loop).items())
        talk.say(f"Strategy: {loop.name}{f' ({options})' if options else ''}")
        talk.say(f"There are: {', '.join(loops.names())}. `plait strategies list` tells of each.")
        return
    name, *settings = words_of(rest)
    loop = loops.make(name, pairs(settings, "/strategy", "react dialect=lines"))
    phases = {*loops.phases_of(loop), ""}
    models = talk.agent.models
    kept = {phase: spec for phase, spec in models.items() if phase in phases}
    talk.agent = talk.changed(strategy=loop, models=kept)
    talk.say(f"Strategy: {loop.name}")
    if gone := [f"{phase}={spec}" for phase, spec in models.items() if phase not in phases]:
        talk.say(f"It has other phases; left out: {', '.join(gone)}. /model tells which model each asks.")


def tools(talk: Talk, rest: str) -> None:
    """The tools; some are added or taken away."""
    held: list[Any] = list(talk.agent.tools)
    if rest:
        for word in words_of(rest):
            if word.startswith("-") and len(word) > 1:
                held.remove(_held(word[1:], held))
            elif word in held:
                raise UsageError(f"The tools of {word} are there already.")
            else:
                held.append(word)
        changed = talk.changed(tools=tuple(held))
        _ = changed.specs  # loads them, and says what is wrong
        talk.agent = changed
    if not held:
        talk.say("No tools. /tools calculator adds one; `plait tools list` says what there is.")
        return
    words, names = ", ".join(map(str, held)), ", ".join(spec.name for spec in talk.agent.specs)
    talk.say(f"Tools: {words}" if words == names else f"Tools: {words}\nThey are: {names}")


def words_of(rest: str) -> list[str]:
    """The words as a shell would part them; the command of an MCP server is one word to its end."""
    if rest.lstrip("-").startswith("mcp:"):
        return [rest]
    try:
        return shlex.split(rest)
    except ValueError as why:
        raise UsageError(f"{rest}: {why}.", hint="Close the quotes.") from why


def _held(word: str, held: list[Any]) -> Any:
    found = next((each for each in held if str(each) == word), None)
    if found is None:
        near = difflib.get_close_matches(word, [str(each) for each in held], 1)
        have = ", ".join(map(str, held)) or "none"
        raise UsageError(
            f"There are no tools {word}.", hint=f"Did you mean -{near[0]}?" if near else f"There are: {have}."
        )
    return found
