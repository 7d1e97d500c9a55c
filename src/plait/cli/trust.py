"""`plait trust`: let a folder's configuration run code and send keys."""

from __future__ import annotations

from pathlib import Path

import click


@click.command(short_help="Trust the configuration of this folder.")
@click.argument("file", default="plait.toml", metavar="[FILE]")
@click.option("--remove", is_flag=True, help="Take the trust back.")
def trust(file: str, remove: bool) -> None:
    """Trust FILE (default ./plait.toml) with its present content.

    Without trust, Plait does not read a folder's file that runs code, sends a key, or uses an address off this
    machine. After a change the file has to be trusted again. Exit codes: 0 done, 2 wrong usage.
    """
    from plait import trust as trusted
    from plait.cli.text import clean

    place = Path(file)
    if remove:
        trusted.distrust(place)
        click.echo(f"Not trusted any more: {place.absolute()}")
        return
    for each in trusted.trust(place):
        click.echo(f"Allowed: {clean(each)}")
    click.echo(f"Trusted: {place.absolute()}")
