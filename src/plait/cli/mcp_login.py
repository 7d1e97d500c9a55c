"""The commands `plait mcp login` and `plait mcp logout`."""

from __future__ import annotations

import asyncio
from importlib.util import find_spec

import click

from plait.cli import options
from plait.core.errors import ConfigError
from plait.core.text import clean
from plait.installation import install_hint

LOGIN_EPILOG = """\
\b
Examples:
  plait mcp login https://example.com/mcp
  plait mcp login --paste https://example.com/mcp     # the browser is on another machine

The login is stored in a file that only you can read, and is refreshed when it ends. Runs use it for this address.
"""


@click.command(epilog=LOGIN_EPILOG)
@click.argument("address")
@options.flag("--paste", help="Ask for the address to which the browser was sent, instead of waiting for it here.")
def login(address: str, paste: bool) -> None:
    """Log in at an MCP server that wants OAuth, in the browser."""
    if find_spec("mcp") is None:
        raise ConfigError("Logging in needs the package mcp, which is not installed.", hint=install_hint("mcp"))
    from plait.tools.mcp.login import make_login
    from plait.tools.mcp.server import parse_server

    async def ask_for_address() -> str:
        words = "The address to which the browser was sent"
        return str(await asyncio.to_thread(click.prompt, words, err=True, hide_input=True))

    def show(url: str) -> None:
        click.echo(f"Open this address and log in:\n{clean(url)}", err=True)

    place = asyncio.run(make_login(parse_server(address).address, show, ask_for_address if paste else None))
    click.echo(f"You are logged in at {clean(address)}. The login is stored in {place}.", err=True)


@click.command()
@click.argument("address")
def logout(address: str) -> None:
    """Delete the stored login at an MCP server."""
    from plait.tools.mcp.login import LoginFile
    from plait.tools.mcp.server import parse_server

    path = LoginFile(parse_server(address).address).path
    if not path.exists():
        raise ConfigError(f"There is no login at {clean(address)}.", hint="Give the address as for plait mcp login.")
    path.unlink()
    click.echo(f"The login at {clean(address)} is deleted. The server may still accept it until it ends.", err=True)
