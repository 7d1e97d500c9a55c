"""The commands `plait mcp login` and `plait mcp logout`."""

from __future__ import annotations

import click

from plait.cli import options
from plait.core.errors import ConfigError
from plait.core.text import clean

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
    from plait.tools.mcp.tools import mcp_login

    def ask_for_address(url: str) -> str:
        click.echo(f"Open this address and log in:\n{clean(url)}", err=True)
        return str(click.prompt("The address to which the browser was sent", err=True, hide_input=True))

    mcp_login(address, paste=ask_for_address if paste else None)
    click.echo(f"You are logged in at {clean(address)}.", err=True)


@click.command()
@click.argument("address")
def logout(address: str) -> None:
    """Delete the stored login at an MCP server."""
    from plait.tools.mcp.server import parse_server
    from plait.tools.mcp.tools import require_mcp

    require_mcp()
    from plait.tools.mcp.login import LoginFile

    path = LoginFile(parse_server(address).address).path
    if not path.exists():
        raise ConfigError(f"There is no login at {clean(address)}.", hint="Give the address as for plait mcp login.")
    path.unlink()
    click.echo(f"The login at {clean(address)} is deleted. The server may still accept it until it ends.", err=True)
