"""`plait results`: comparisons on record, and their tables once more."""

from __future__ import annotations

from typing import Any

import click

from plait.cli import options
from plait.cli.tables import output


@click.group(short_help="List comparisons on record, and show their tables.")
def results() -> None:
    """Comparisons on record: nothing is run."""


@results.command("list")
@options.as_object
@options.journal
@options.config
def list_(as_object: bool, journal: str | None) -> None:
    """List the comparisons, newest first."""
    import time

    from plait.cli.places import journal_file
    from plait.cli.table import show_table
    from plait.cli.text import as_json, clean
    from plait.journal.results import Results
    from plait.journal.store import Journal

    kept = Results(Journal.at(journal_file(journal)))
    rows = []
    for each in kept.comparisons():
        cells = each.head["cells"]
        finished = len(kept.results(cells))
        rows.append((each, finished, len(cells)))
    if as_object:
        told = [
            {"name": each.name, "suite": each.head["suite"]["word"], "finished": finished, "cells": cells}
            for each, finished, cells in rows
        ]
        click.echo(as_json(told, indent=1))
        return
    if not rows:
        click.echo("There is no comparison yet. `plait compare` makes one.", err=True)
        return
    lines = [
        [
            clean(each.name),
            clean(each.head["suite"]["word"]),
            f"{finished:,} of {cells:,}",
            time.strftime("%Y-%m-%d %H:%M", time.localtime(each.started)),
            clean(", ".join(dict.fromkeys(row["strategy"] for row in each.head["contenders"]))),
        ]
        for each, finished, cells in rows
    ]
    show_table(["name", "suite", "cells", "begun", "loops"], lines, right=(2,))


@results.command("show")
@click.argument("name")
@output
@options.journal
@options.config
def show_(name: str, journal: str | None, output: dict[str, Any]) -> None:
    """Print the table of a comparison: its NAME, the beginning of one, or `last`."""
    from plait.cli.places import journal_file
    from plait.cli.tables import checked, show
    from plait.lab.run_comparison import load_comparison

    checked(output)
    show(load_comparison(name, journal_file(journal)), **output)
