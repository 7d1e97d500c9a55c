"""`plait export`: a run's record for other programs."""

from __future__ import annotations

import click

from plait.cli import options


@click.command(short_help="Write a run's record as lines of JSON.")
@click.argument("run")
@options.journal
@options.config
def export(run: str, journal: str | None) -> None:
    """Write the record of RUN: a line of JSON for the run, then one for every row, bodies included."""
    from plait.cli.record import found
    from plait.journal.export import lines

    row, kept = found(run, journal)
    for line in lines(row, kept.iter_rows(row.head.run)):
        click.echo(line)
