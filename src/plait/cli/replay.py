"""`plait replay`: does the loop still make the requests that are on record?"""

from __future__ import annotations

import click

from plait.cli import options


@click.command(short_help="Compare a record with what the loop does now.")
@click.argument("run")
@options.tools
@options.load_tools
@options.prompts
@options.journal
@options.config
@options.as_object
def replay(
    run: str, tools: tuple[str, ...], load_tools: bool, prompts: str | None, journal: str | None, as_object: bool
) -> None:
    """Take the loop through the record of RUN and compare every request byte by byte. Nothing is performed.

    Exits with 0 when nothing differs, with 1 at the first difference, which is shown.
    """
    from plait.cli.group import CRASHED, leave
    from plait.cli.record import found
    from plait.cli.settings import agent_again
    from plait.cli.text import as_json, count, one_line
    from plait.core.errors import ReplayDiffers

    row, _ = found(run, journal)
    agent = agent_again(row.head, journal=journal, tools=tools, load_tools=load_tools, prompts=prompts)
    try:
        same = agent.replay(row.head.run)
    except ReplayDiffers as why:
        if as_object:
            differs = {"step": why.at, "expected": why.expected, "found": why.found, "message": str(why)}
            click.echo(as_json({"run": row.head.run, "same": False, "differs": differs}))
        click.echo(one_line(str(why)), err=True)
        leave(CRASHED)
    if as_object:
        found_now = {"same": True, "steps": same.steps, "requests": same.requests, "whole": same.whole}
        click.echo(as_json({"run": same.run, **found_now}))
        return
    compared = f"{count(same.requests, 'request')} in {count(same.steps, 'step')}"
    ended = "" if same.outcome is None else f", ended as {same.outcome.status}"
    rest = ended if same.whole else "; the record ends there"
    click.echo(f"Run {same.run} is the same, byte for byte: {compared}{rest}.")
