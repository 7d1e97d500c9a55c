"""The commands `plait serve` and `plait mcp`: agents served over HTTP, or over stdin and stdout."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec import structs

from plait.cli import mcp_login, options
from plait.cli.agent_options import find_agent, make_agent, make_configured_agent
from plait.cli.process import empty_stdin, stdout_to_stderr
from plait.cli.reload import fork_at_changes
from plait.config import ServeTable, load
from plait.core.errors import ConfigError
from plait.core.text import clean, format_count
from plait.installation import install_hint
from plait.named_agents import anchor_agent
from plait.proxies import is_this_machine
from plait.runtime.agents.options import list_fields

if TYPE_CHECKING:
    from plait.config import Config
    from plait.server.agents import ServedAgent

EPILOG = """\
\b
Examples:
  plait serve --tools calculator --model local
  plait serve -a support:agent --reload         # an agent in support.py; starts again when its files change
  plait serve --port 9000                       # the agents of plait.toml, [agents.NAME]
  PLAIT_SERVE_TOKEN=... plait serve --host 0.0.0.0

A chat-completions client uses http://127.0.0.1:8765/v1 with an agent's name as the model. Without a token, only this
machine is served. Ctrl-C stops the server: current runs get some seconds to end, then they are cancelled and can be
resumed.
"""
_name = click.option("--name", metavar="NAME", help="Serve one agent of this name, made from the flags.")
_agent_flags = options.combine(options.named_agents, options.agent(), options.journal)


@click.command(epilog=EPILOG)
@options.combine(*map(options.make_option, list_fields(ServeTable)))
@_name
@options.flag("--thoughts", help="Send thoughts and actions to clients, as reasoning.")
@options.flag("--resume", help="Continue the runs that an earlier server did not finish.")
@options.flag("--reload", help="Start again when .py, .toml or .j2 files here change, and continue the runs.")
@_agent_flags
def serve(
    host: str | None, port: int | None, name: str | None, thoughts: bool, resume: bool, reload: bool, **flags: Any
) -> None:
    """Serve agents: those of plait.toml, `[agents.NAME]`, or one made from the flags."""
    require_modules("Serving", {"starlette": "server", "uvicorn": "server", "prometheus_client": "server"})
    from plait.server.auth import load_tokens
    from plait.server.listening import listen, serve_until_signal
    from plait.server.runs import RunManager

    if reload:  # this process watches, and a new one goes on here after each change
        places = [Path(anchor_agent(word)).parent for word in flags["words"] if ".py" in word]
        resume = fork_at_changes([Path.cwd(), *places]) or resume
    config = load()
    tokens = load_tokens()
    given = {name: value for name, value in (("host", host), ("port", port)) if value is not None}
    folder = config.path.parent if config.path is not None else Path.cwd()
    table = structs.replace(config.serve, datasets=str(folder / config.serve.datasets), **given)
    manager = RunManager(served_agents(config, name, thoughts, flags), table, tokens)
    if not is_this_machine(table.host) and not manager.needs_token:
        text = f"Without a token the server listens on this machine alone, and {table.host} is another address."
        raise ConfigError(text, hint="Set PLAIT_SERVE_TOKEN, or leave --host at 127.0.0.1.")
    unfinished = len(manager.unfinished_runs())  # report an unreadable journal before the server starts
    sock = listen(table.host, table.port)
    with sock:
        address, number = map(str, sock.getsockname()[:2])
        url = f"http://{f'[{address}]' if ':' in address else address}:{number}"

        def announce() -> None:
            click.echo(f"Listening on {url} (process {os.getpid()}). Ctrl-C stops.", err=True)
            click.echo(f"Models for {url}/v1: {clean(', '.join(manager.agents))}.", err=True)
            click.echo(f"Journal: {manager.journal.place}.", err=True)
            if not manager.needs_token:
                click.echo("No token is set: only this machine is served.", err=True)
            elif not tokens.open_pages and not manager.proxy_users.are_set:
                said = "clients are served, but nobody can open the web page"
                click.echo(f"PLAIT_SERVE_TOKEN is not set: {said}.", err=True)
            if unfinished:
                words = " ".join(("plait resume RUN", *options.journal_words(flags["journal"])))
                how = "Resuming now." if resume else f"`{words}` continues one, --resume continues all."
                click.echo(f"{format_count(unfinished, 'run')} of an earlier server did not end. {how}", err=True)

        asyncio.run(serve_until_signal(manager, sock, announce, resume=resume))


MCP_EPILOG = """\
\b
Examples:
  plait mcp --tools calculator --model local
  plait mcp                                     # the agents of plait.toml, [agents.NAME]
  plait mcp login https://example.com/mcp       # at a server whose tools an agent uses

An MCP client starts this command and talks to it on stdin and stdout; `plait serve` offers the same at /mcp, over HTTP.
It ends when stdin ends, or with Ctrl-C: current runs get some seconds to end, and can be resumed.
"""


@click.group(epilog=MCP_EPILOG, invoke_without_command=True, subcommand_metavar="[login | logout]")
@_name
@_agent_flags
@click.pass_context
def mcp(context: click.Context, /, name: str | None, **flags: Any) -> None:
    """Serve agents as MCP tools on stdin and stdout: those of plait.toml, or one made from the flags."""
    if context.invoked_subcommand is not None:
        return
    require_modules("Serving MCP", {"mcp": "mcp", "prometheus_client": "server"})
    from plait.server.mcp_server import serve_stdio
    from plait.server.runs import RunManager

    # Report errors before reading the client's first message. A loaded tool file must not read these messages or write
    # between the answers.
    with empty_stdin(), stdout_to_stderr():
        config = load()
        manager = RunManager(served_agents(config, name, False, flags), config.serve)
        manager.unfinished_runs()  # report an unreadable journal before a client relies on it
    click.echo(
        f"MCP on stdin and stdout: {clean(', '.join(manager.agents))}. Journal: {manager.journal.place}.", err=True
    )
    asyncio.run(serve_stdio(manager))


mcp.add_command(mcp_login.login)
mcp.add_command(mcp_login.logout)


def require_modules(what: str, extras: dict[str, str]) -> None:
    for module, extra in extras.items():
        if find_spec(module) is None:
            raise ConfigError(f"{what} needs the module {module}, which is not installed.", hint=install_hint(extra))


def served_agents(config: Config, name: str | None, thoughts: bool, flags: dict[str, Any]) -> list[ServedAgent]:
    """Return the agents to serve. Raises `ConfigError` if the flags describe one and plait.toml has some."""
    from plait.server.agents import serve_agent

    if words := flags.pop("words"):
        if name is not None and len(words) > 1:
            raise ConfigError("--name names one agent, and several are given.", hint="Name them in plait.toml.")
        made = []
        for word in words:
            if word in config.agents:
                made.append(_agent_of_table(config, word, flags))
                continue
            # Its name is `name`, its own, or the last part of its module or file, or the name there if that is not
            # just `agent`.
            agent = find_agent(word, flags)
            place, _, variable = word.rpartition(":")
            own = name or (agent.name if agent.name != anchor_agent(word) else None)
            own = own or (variable if place and variable != "agent" else Path(place or word).stem.rpartition(".")[2])
            made.append(serve_agent(own, agent, config.serve, thoughts=thoughts, word=word))
        return made
    if name is not None or not config.agents:
        agent = make_agent(flags)
        return [serve_agent(name or "plait", agent, config.serve, thoughts=thoughts)]
    given = [flag for flag, value in flags.items() if flag != "journal" and value not in (None, (), False)]
    if given or thoughts:
        params = {each.name: each.opts[0] for each in click.get_current_context().command.params}
        raise ConfigError(
            f"{config.path} defines agents, and {params[(given or ['thoughts'])[0]]} describes another.",
            hint="Leave the flag out, or serve the agent from the flags with --name NAME.",
        )
    return [_agent_of_table(config, each, flags) for each in config.agents]


def _agent_of_table(config: Config, name: str, flags: dict[str, Any]) -> ServedAgent:
    """Return the agent of `[agents.NAME]`, with its tools and models checked. Raises `ConfigError` that names the file,
    the table and the key."""
    from plait.server.agents import serve_agent

    table = config.agents[name]
    try:
        agent = make_configured_agent(config, name, flags)
    except ConfigError as why:
        raise _at_place(config.place(name, _wrong_key(config, name, flags, why)), why) from why
    with _errors_at(config, name, ""):
        about, thoughts = table.get("description", ""), table.get("thoughts", False)
        made = serve_agent(name, agent, config.serve, description=about, thoughts=thoughts, word=name)
    try:
        _ = made.agent._parts.models
    except ConfigError as why:
        for phase, model in made.agent.models.items():
            with _errors_at(config, name, f"models.{phase}"):
                made.agent._parts.find_model(model)
        raise _at_place(config.place(name, "model"), why) from why
    with _errors_at(config, name, "tools"):
        _ = made.agent.specs
    return made


def _wrong_key(config: Config, name: str, flags: dict[str, Any], error: ConfigError) -> str:
    """Return the key of a table without which the error disappears; "" if no key causes it."""
    # Try these keys last: without a loop, its options belong to another one.
    last = ("set", "models", "loop")
    for key in sorted(config.agents[name], key=lambda key: last.index(key) if key in last else -1):
        try:
            make_configured_agent(config, name, flags, without=key)
        except ConfigError as other:
            if other.message == error.message:
                continue
        return key
    return ""


@contextmanager
def _errors_at(config: Config, name: str, key: str) -> Iterator[None]:
    try:
        yield
    except ConfigError as why:
        raise _at_place(config.place(name, key), why) from why


def _at_place(place: str, why: ConfigError) -> ConfigError:
    return ConfigError(f"{place}: {why.message}", hint=why.hint)
