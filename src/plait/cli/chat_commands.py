"""The commands of `plait chat`: lines that begin with a slash show the conversation or change the agent."""

from __future__ import annotations

import difflib
import shlex
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from plait import config, loops
from plait.cli.agent_options import parse_pairs, split_models
from plait.cli.costs import phase_table
from plait.cli.output import format_seconds, format_tokens, format_usd, print_table
from plait.cli.run_output import view_for
from plait.core.errors import ConfigError, PlaitError
from plait.core.text import format_count, one_line
from plait.models.resolve import resolve
from plait.recorded_runs import format_time
from plait.runtime.conversations.attachments import attach
from plait.runtime.conversations.sessions import check_session_name, fresh_name
from plait.runtime.costs import in_all, merge_spending, spending
from plait.runtime.recorded_events import make_events, recorded_loop
from plait.tools import toolkit_names

if TYPE_CHECKING:
    from plait.cli.chat import Chat

COMMANDS: dict[str, tuple[str, str]] = {
    "help": ("", "List the commands."),
    "attach": ("[FILE ...]", "Add files to the next question: images, PDF or text files; without FILE, remove them."),
    "show": ("[TURN]", "Show the last turn, or the one with that number, step by step."),
    "cost": ("", "Show the time and cost of the session, by phase."),
    "model": ("[[PHASE=]SPEC ...]", "Show the model of each phase, or change it."),
    "loop": ("[NAME [K=V ...]]", "Show the loops, or change the loop."),
    "tools": ("[WORD | -WORD ...]", "Show the tools, add or remove some."),
    "prompt": ("[NAME [K=V ...]]", "Show the prompts of the agent's MCP servers, or ask one of them."),
    "sessions": ("", "List the conversations, newest first."),
    "session": ("NAME", "Switch to another conversation."),
    "new": ("[NAME]", "Start a new conversation."),
    "quit": ("", "End the chat, like Ctrl-D."),
}
ALIASES = {"why": "show", "exit": "quit", "costs": "cost", "models": "model", "loops": "loop", "tool": "tools"}
LISTED_ALIASES = {"show": ", /why", "quit": ", /exit"}
MAX_SESSIONS = 20
"""The number of sessions that /sessions lists."""


class ChatCommands:
    def __init__(self, chat: Chat) -> None:
        self.chat = chat

    def run(self, line: str) -> None:
        """Run a command. An invalid one is reported and changes nothing."""
        word, _, rest = line[1:].partition(" ")
        name = ALIASES.get(word, word)
        try:
            if name not in COMMANDS:
                near = difflib.get_close_matches(word, [*COMMANDS, *ALIASES], 1)
                meant = f"Did you mean /{near[0]}? " if near else ""
                hint = f"{meant}/help lists the commands; // sends a line that begins with a slash."
                raise ConfigError(f"There is no command /{word}.", hint=hint)
            if rest.strip() and not COMMANDS[name][0]:
                raise ConfigError(f"/{word} takes no words.", hint=f"Write /{word} alone.")
            getattr(self, f"_{name}")(rest.strip())
        except PlaitError as why:
            self.chat.say(f"Error: {why}")

    def completions(self, words: list[str]) -> Iterable[str]:
        """Return what Tab may offer for the last of these words."""
        if len(words) == 1:
            offered = [f"/{name} " if arguments else f"/{name}" for name, (arguments, _) in COMMANDS.items()]
            return offered if words[0].startswith("/") else []
        try:
            match words[0]:
                case "/session":
                    return [each.name for each in self.chat.journal.sessions(MAX_SESSIONS)]
                case "/loop":
                    return loops.names()
                case "/tools" | "/tool":
                    return [*toolkit_names(), *(f"-{each}" for each in self.chat.agent.tools)]
        except PlaitError:
            pass
        return []

    # -- showing

    def _help(self, rest: str) -> None:
        rows = [
            [f"/{name} {arguments}".rstrip() + LISTED_ALIASES.get(name, ""), what]
            for name, (arguments, what) in COMMANDS.items()
        ]
        print_table(["command", "what it does"], rows, err=True)
        self.chat.say("Changes apply from the next turn. // sends a line that begins with a slash;")
        self.chat.say("a line that ends in a backslash continues in the next one. Ctrl-C cancels a turn.")

    def _show(self, rest: str) -> None:
        chat = self.chat
        turns = chat.journal.turns(chat.session)
        if not turns:
            raise ConfigError(f"The session {chat.session} has no turn yet.", hint="Ask something first.")
        if rest and not (rest.isdecimal() and 1 <= int(rest) <= len(turns)):
            raise ConfigError(f"There is no turn {rest}.", hint=f"There are turns 1 to {len(turns)}.")
        turn = turns[int(rest) - 1 if rest else -1]
        row = chat.journal.run(turn.run)
        chat.say(f"Turn {turn.number}: {turn.question}")
        view = view_for(sys.stderr)
        for event in make_events(chat.journal.timeline(turn.run, bodies=False), recorded_loop(row.head)):
            view(event)
        view.close()
        chat.say(f"{row.status} · run {turn.run}")

    def _attach(self, rest: str) -> None:
        chat = self.chat
        chat.files = (*chat.files, *map(attach, _split_words(rest))) if rest else ()
        said = ", ".join(str(each.attachment) for each in chat.files)
        chat.say(f"With the next question: {said}" if said else "The next question has no files.")

    def _cost(self, rest: str) -> None:
        chat = self.chat
        turns = chat.journal.turns(chat.session)
        spent = merge_spending(
            part for turn in turns for part in spending(chat.journal.timeline(turn.run, bodies=False))
        )
        whole = in_all(spent)
        parts = [format_count(len(turns), "turn"), format_count(whole.calls, "model call"), format_tokens(whole.usage)]
        parts += [format_seconds(whole.seconds), format_usd(whole.cost_usd)]
        chat.say(" · ".join([f"Session {chat.session}", *parts]))
        if spent:
            print_table(*phase_table(spent), err=True)

    def _sessions(self, rest: str) -> None:
        found = self.chat.journal.sessions(MAX_SESSIONS + 1)
        if not found:
            self.chat.say("No session is stored yet.")
            return
        rows = [
            [
                "*" if each.name == self.chat.session else "",
                one_line(each.name),
                str(each.turns),
                format_time(each.started)[:16].replace("T", " "),
                one_line(each.question),
            ]
            for each in found[:MAX_SESSIONS]
        ]
        print_table(["", "session", ">turns", "last", "question"], rows, err=True)
        if len(found) > MAX_SESSIONS:
            self.chat.say("There are more. `plait runs --session NAME` lists the turns of one.")

    # -- switching

    def _session(self, rest: str) -> None:
        chat = self.chat
        if not rest:
            chat.say(f"This is the session {chat.session}. /sessions lists all; /session NAME switches to one.")
            return
        name = check_session_name(_parse_name(rest))
        known = [each.name for each in chat.journal.sessions(1000)]
        chat.switch_session(name)
        if near := difflib.get_close_matches(name, known, 1) if name not in known else []:
            chat.say(f"It is new. Did you mean {near[0]}? /session {shlex.quote(near[0])} switches to it.")

    def _new(self, rest: str) -> None:
        name = check_session_name(_parse_name(rest)) if rest else fresh_name()
        if rest and self.chat.journal.turns(name, limit=1):
            hint = f"/session {shlex.quote(name)} switches to it."
            raise ConfigError(f"There is a session {name} already.", hint=hint)
        self.chat.switch_session(name, unnamed=not rest)

    def _quit(self, rest: str) -> None:
        self.chat.ended = True

    # -- changing the agent

    def _model(self, rest: str) -> None:
        chat = self.chat
        if rest:
            for_all, by_phase = split_models(_split_words(rest))
            for spec in filter(None, (for_all, *by_phase.values())):
                resolve(spec, config.load().models)  # report an error now, not in the next turn
            before = {} if for_all else dict(chat.agent.models)
            chat.agent = chat.agent.using(model=for_all or chat.agent.model, models={**before, **by_phase})
        agent = chat.agent
        phases = loops.phases_of(agent._loop)
        asked = {phase: str(agent.models.get(phase, agent.models.get("", agent.model))) for phase in phases}
        if len(set(asked.values())) == 1:
            chat.say(f"Model: {next(iter(asked.values()))}")
        else:
            chat.say("Models: " + ", ".join(f"{phase}={spec}" for phase, spec in asked.items()))

    def _loop(self, rest: str) -> None:
        chat = self.chat
        if not rest:
            loop = chat.agent._loop
            options = " ".join(f"{key}={value}" for key, value in loops.options_of(loop).items())
            chat.say(f"Loop: {loop.name}{f' ({options})' if options else ''}")
            chat.say(f"There are: {', '.join(loops.names())}. `plait loops list` describes each.")
            return
        name, *settings = _split_words(rest)
        loop = loops.make(name, parse_pairs(settings, "/loop", "react dialect=lines"))
        phases = {*loops.phases_of(loop), ""}
        models = chat.agent.models
        same = {phase: spec for phase, spec in models.items() if phase in phases}
        chat.agent = chat.agent.using(loop=loop, models=same)
        chat.say(f"Loop: {loop.name}")
        if dropped := [f"{phase}={spec}" for phase, spec in models.items() if phase not in phases]:
            chat.say(f"It has other phases; left out: {', '.join(dropped)}. /model shows the model of each phase.")

    def _tools(self, rest: str) -> None:
        chat = self.chat
        tools: list[Any] = list(chat.agent.tools)
        if rest:
            for word in _split_words(rest):
                if word.startswith("-") and len(word) > 1:
                    words = [str(each) for each in tools]
                    if word[1:] not in words:
                        near = difflib.get_close_matches(word[1:], words, 1)
                        hint = f"Did you mean -{near[0]}?" if near else f"There are: {', '.join(words) or 'none'}."
                        raise ConfigError(f"There are no tools {word[1:]}.", hint=hint)
                    del tools[words.index(word[1:])]
                elif word in tools:
                    raise ConfigError(f"The tools of {word} are there already.")
                else:
                    tools.append(word)
            changed = chat.agent.using(tools=tuple(tools))
            _ = changed.specs  # load them, to report errors now
            chat.agent = changed
        if not tools:
            chat.say("No tools. /tools calculator adds one; `plait tools list` lists them.")
            return
        given, names = ", ".join(map(str, tools)), ", ".join(spec.name for spec in chat.agent.specs)
        chat.say(f"Tools: {given}" if given == names else f"Tools: {given}\nThey are: {names}")

    def _prompt(self, rest: str) -> None:
        from plait.tools.mcp.resources import format_prompt, list_prompts
        from plait.tools.mcp.server import MCP_LOOP
        from plait.tools.mcp.tools import McpTool

        chat = self.chat
        origins = dict.fromkeys(tool.origin for tool in chat.agent._parts.toolset if isinstance(tool, McpTool))
        found = {origin: MCP_LOOP.wait(list_prompts(origin.connect())) for origin in origins}
        if not rest:
            rows = [[name, text] for prompts in found.values() for name, text in prompts.items()]
            if rows:
                print_table(["prompt", "what it does"], rows, err=True)
            else:
                chat.say("No prompts: no MCP server of the agent has one.")
            return
        name, *given = _split_words(rest)
        origin = next((each for each, prompts in found.items() if name in prompts), None)
        if origin is None:
            raise ConfigError(f"No MCP server of the agent has a prompt {name}.", hint="/prompt lists them.")
        text = MCP_LOOP.wait(format_prompt(origin.connect(), name, {k: str(v) for k, v in parse_pairs(given).items()}))
        chat.say(f"The server's prompt:\n{text}")
        if click.confirm("Ask this?", err=True):
            chat.take_turn(text)


def _split_words(rest: str) -> list[str]:
    """Split words like a shell. The command of an MCP server is one word to its end."""
    if rest.lstrip("-").startswith("mcp:"):
        return [rest]
    try:
        return shlex.split(rest)
    except ValueError as why:
        raise ConfigError(f"{rest}: {why}.", hint="Close the quotes.") from why


def _parse_name(rest: str) -> str:
    """Return a name, which may contain spaces, with or without quotes."""
    words = _split_words(rest)
    return words[0] if len(words) == 1 else rest
