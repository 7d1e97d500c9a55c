"""`plait mark`: what a person thinks of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from plait.cli import options

if TYPE_CHECKING:
    from plait.journal.results import Mark, Results


@click.command(short_help="Mark a run good or bad; list the marks.")
@click.argument("run", metavar="RUN|list")
@click.argument("judgement", metavar="[good|bad]", type=click.Choice(["good", "bad"]), required=False)
@click.option("--why", default="", metavar="TEXT", help="Why, for whoever reads it later.")
@options.journal
@options.config
@options.as_object
def mark(run: str, judgement: str | None, why: str, journal: str | None, as_object: bool) -> None:
    """Mark RUN (an id, the beginning of one, or `last`) as good or bad, or list all marks, the newest first.

    A run has one mark: a new one takes the place of the one before. What it is good for: `plait trajectories`.
    """
    import asyncio

    from plait.cli.record import open_journal
    from plait.core.errors import UsageError
    from plait.journal.results import Results

    results = Results(open_journal(journal))
    if run == "list" and judgement is None:
        _list(results, as_object=as_object)
        return
    if judgement is None:
        raise UsageError(f"Is {run} good or bad?", hint=f"`plait mark {run} good`, or `plait mark list`.")
    made = asyncio.run(results.mark(run, judgement == "good", why))
    if as_object:
        from plait.cli.text import as_json

        click.echo(as_json(_told(made)))
    else:
        click.echo(f"Run {made.run} is marked {judgement}.", err=True)


def _list(results: Results, *, as_object: bool) -> None:
    from plait.cli.record import at
    from plait.cli.table import show_table
    from plait.cli.text import as_json, clean
    from plait.core.errors import UnknownRun

    marks = sorted(results.marks().values(), key=lambda mark: (mark.at, mark.run), reverse=True)
    if as_object:
        click.echo(as_json([_told(mark) for mark in marks], indent=1))
        return
    if not marks:
        click.echo("No run is marked yet. `plait mark RUN good` marks one.", err=True)
        return
    lines = []
    for mark in marks:
        try:
            head = results.journal.head(mark.run)
            loop, question = str(head.strategy["name"]), " ".join(clean(head.question).split())
        except UnknownRun:
            loop, question = "-", "(deleted)"
        why = " ".join(clean(mark.why).split())
        lines.append([mark.run, "good" if mark.good else "bad", at(mark.at), loop, why or "-", question])
    show_table(["run", "mark", "when", "loop", "why", "question"], lines)


def _told(mark: Mark) -> dict[str, Any]:
    from plait.cli.record import at

    return {"run": mark.run, "good": mark.good, "why": mark.why or None, "at": at(mark.at)}
