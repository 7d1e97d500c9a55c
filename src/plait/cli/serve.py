"""`plait serve`: agents as models of an endpoint, as tools over MCP, and the window."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from plait.cli import options

if TYPE_CHECKING:
    from plait.config import Config
    from plait.window.agents import ServedAgent
    from plait.window.runs import RunManager

EPILOG = """\
\b
Examples:
  plait serve --tools calculator --model local
  plait serve --port 9000                       # the agents of plait.toml, [agents.NAME]
  PLAIT_SERVE_TOKEN=... plait serve --host 0.0.0.0

A client of chat completions asks http://127.0.0.1:8765/v1 for the model of an agent's name. Without a token only this
machine is served. Ctrl-C stops: runs under way have some seconds to end, then they are cancelled and can be resumed.
"""


@click.command(epilog=EPILOG, short_help="Serve agents as an endpoint.")
@click.option("--host", metavar="ADDRESS", help="Where to listen (default 127.0.0.1).")
@click.option(
    "--port", type=options.Number(0, 65535, whole=True), metavar="N", help="The port (default 8765; 0: a free one)."
)
@click.option("--name", metavar="NAME", help="Serve one agent of that name, made from the flags.")
@click.option("--thoughts", is_flag=True, help="Tell clients its thoughts and actions, as reasoning.")
@click.option("--resume", is_flag=True, help="Go on with runs that the server left when it died or stopped.")
@options.agent
@options.approve
@options.no_ask
@options.embedder
@options.journal
@options.config
def serve(host: str | None, port: int | None, name: str | None, thoughts: bool, resume: bool, **flags: Any) -> None:
    """Serve agents: those of plait.toml, `[agents.NAME]`, or else one made from the flags."""
    _installed()
    from plait.config import load
    from plait.window.auth import load_tokens
    from plait.window.listening import listen, serve_until_signal
    from plait.window.runs import RunManager
    from plait.window.settings import check_settings, override_address

    config = load()
    tokens = load_tokens()
    table = check_settings(override_address(config.serve, host, port), tokens, config.path)
    manager = RunManager(agents_of(config, name, thoughts, flags), table, tokens)
    left = len(manager.unfinished_runs())  # a journal that can't be read is told of before anybody is served
    sock = listen(table.host, table.port)
    with sock:
        serve_until_signal(
            manager, sock, lambda: begun(manager, sock.getsockname(), left, resume, flags["journal"]), resume=resume
        )


def _installed() -> None:
    from importlib.util import find_spec

    from plait.core.errors import UsageError

    for module in ("starlette", "uvicorn", "prometheus_client"):
        if find_spec(module) is None:
            raise UsageError(
                f"Serving needs the module {module}, which is not installed.", hint="pip install 'plait[window]'"
            )


def agents_of(config: Config, name: str | None, thoughts: bool, flags: dict[str, Any]) -> list[ServedAgent]:
    """The agents to serve. Raises `UsageError` where flags describe one and plait.toml has some."""
    from plait.cli.settings import agent_for
    from plait.cli.tabled import tabled
    from plait.core.errors import UsageError
    from plait.window.agents import serve_agent

    if name is not None or not config.agents:
        agent = agent_for(no_journal=False, **flags)
        return [serve_agent(name or "plait", agent, config.serve, description=_described(agent), thoughts=thoughts)]
    given = [flag for flag, value in flags.items() if flag != "journal" and value not in (None, (), False)]
    if given or thoughts:
        raise UsageError(
            f"{config.path} has agents of its own, and {_typed((given or ['thoughts'])[0])} describes another.",
            hint="Leave the flag out, or serve the one from the flags with --name NAME.",
        )
    return [tabled(config, each, flags, _described) for each in config.agents]


def _typed(name: str) -> str:
    """The flag as it is typed: `--model` for the parameter `models`."""
    context = click.get_current_context(silent=True)
    words = {each.name: each.opts[0] for each in (context.command.params if context else ())}
    return words.get(name, f"'{name}'")


def _described(agent: Any) -> str:
    tools = ", ".join(tool.name for tool in agent.specs)
    return f"The loop {agent.strategy.name}" + (f" with {tools}." if tools else ".")


def begun(manager: RunManager, address: tuple[Any, ...], left: int, resume: bool, journal: str | None) -> None:
    """Say where the server is, and how many runs an earlier one left."""
    import shlex

    from plait.cli.text import count

    host, port = str(address[0]), address[1]
    place = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    click.echo(f"Listening on {place} (process {os.getpid()}). Ctrl-C stops.", err=True)
    click.echo(f"Models for {place}/v1: {', '.join(manager.agents)}.", err=True)
    click.echo(f"Journal: {manager.journal.path}.", err=True)
    if not manager.tokens.required:
        click.echo("No token is set: this machine alone is served.", err=True)
    elif not manager.tokens.has_full:
        click.echo("PLAIT_SERVE_TOKEN is not set: clients are served, and nobody can open the window.", err=True)
    if left:
        again = f" --journal {shlex.quote(journal)}" if journal else ""
        how = "going on with them" if resume else f"`plait resume RUN{again}` goes on with one, --resume with all"
        click.echo(f"{count(left, 'run')} of an earlier server did not end: {how}.", err=True)
