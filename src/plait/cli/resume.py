"""`plait resume`: go on with a run."""

from __future__ import annotations

from typing import Any

import click

from plait.cli import options


@click.command(short_help="Go on with a run.")
@click.argument("run")
@click.option("--answer", metavar="TEXT", help="What the person says: to a question, or yes / no / why not.")
@click.option(
    "--in-doubt",
    type=click.Choice(["skip", "repeat"]),
    help="A call that may have happened: leave it, or make it again (default as the run began).",
)
@options.tools
@click.option("--force", is_flag=True, help="Take over a run that another machine began.")
@options.journal
@options.config
@options.as_object
@options.quiet
def resume(
    run: str,
    answer: str | None,
    in_doubt: str | None,
    tools: tuple[str, ...],
    force: bool,
    journal: str | None,
    as_object: bool,
    quiet: bool,
) -> None:
    """Go on with RUN (an id, the beginning of one, or `last`) that waits, was cancelled or was interrupted.

    Nothing that is on record is done again. Output and exit codes are those of `plait run`.
    """
    from plait.cli.record import found
    from plait.cli.run import perform
    from plait.cli.settings import agent_again

    row, _ = found(run, journal)
    changes: dict[str, Any] = {"in_doubt": in_doubt} if in_doubt else {}
    agent = agent_again(row.head, journal=journal, tools=tools, **changes)
    perform(
        lambda emit, person: agent.aresume(row.head.run, answer, emit=emit, force=force, person=person),
        as_object=as_object,
        quiet=quiet,
        journal=journal,
    )
