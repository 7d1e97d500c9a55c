"""`plait mcp`: agents as tools of an MCP server, over stdin and stdout."""

from __future__ import annotations

from typing import Any

import click

from plait.cli import options

EPILOG = """\
\b
Examples:
  plait mcp --tools calculator --model local
  plait mcp                                     # the agents of plait.toml, [agents.NAME]

It is begun by a client of MCP, which talks to it on stdin and stdout; `plait serve` has the same at /mcp, over HTTP. It
ends when stdin does, or with Ctrl-C: runs under way have some seconds to end, and can be resumed.
"""


@click.command(epilog=EPILOG, short_help="Serve agents over MCP, on stdin and stdout.")
@click.option("--name", metavar="NAME", help="Serve one agent of that name, made from the flags.")
@options.agent
@options.approve
@options.no_ask
@options.embedder
@options.journal
@options.config
def mcp(name: str | None, **flags: Any) -> None:
    """Serve agents as MCP tools on stdin and stdout: those of plait.toml, or else one made from the flags."""
    from importlib.util import find_spec

    from plait.core.errors import UsageError

    for module, extra in (("mcp", "mcp"), ("prometheus_client", "window")):
        if find_spec(module) is None:
            raise UsageError(
                f"Serving MCP needs the module {module}, which is not installed.", hint=f"pip install 'plait[{extra}]'"
            )
    from plait.cli.aside import stdin_aside, stdout_aside
    from plait.cli.serve import agents_of
    from plait.config import load
    from plait.window.mcp_server import serve_stdio
    from plait.window.runs import RunManager
    from plait.window.settings import check_limits

    # What is wrong is told before the client's words are waited for. What a tool's file does when it is loaded must
    # neither read them nor write among the answers.
    with stdin_aside(), stdout_aside():
        config = load()
        manager = RunManager(agents_of(config, name, False, flags), check_limits(config.serve, config.path))
        manager.unfinished_runs()  # a journal that can't be read is told of before a client trusts its runs to it
    click.echo(f"MCP on stdin and stdout: {', '.join(manager.agents)}. Journal: {manager.journal.path}.", err=True)
    serve_stdio(manager)
