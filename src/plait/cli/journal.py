"""`plait journal`: what a journal holds, whether it is whole, and that it came back from a backup."""

from __future__ import annotations

import click

from plait.cli import options
from plait.cli.commands import exit_with
from plait.cli.main import CRASHED
from plait.cli.output import print_json
from plait.cli.runs import open_journal
from plait.core.text import clean, format_count
from plait.journal.carry import copy
from plait.journal.store import open_store, wait_for
from plait.recorded_runs import format_time


@click.group()
def journal() -> None:
    """Look at a journal as a whole."""


@journal.command("info", short_help="Show what the journal holds.")
@options.as_object
@options.journal
def info(as_object: bool, journal: str | None) -> None:
    """Show where the journal is, its version, how much it holds, and when it came back from a backup."""
    found = wait_for(open_journal(journal).store.info())
    restored = format_time(found.restored) if found.restored else None
    if as_object:
        fields = ("place", "version", "runs", "rows", "size")
        print_json({**{name: getattr(found, name) for name in fields}, "restored": restored}, indent=None)
        return
    click.echo(clean(found.place))
    size = f"{found.size / 1e6:,.1f} MB, " if found.size else ""
    click.echo(f"{format_count(found.runs, 'run')}, {format_count(found.rows, 'row')}, {size}schema {found.version}")
    if restored:
        click.echo(f"Rows from before {restored} may be missing. Runs that had not ended need approval for effects.")


@journal.command("check", short_help="Name what is damaged or missing.")
@options.as_object
@options.journal
def check(as_object: bool, journal: str | None) -> None:
    """Read every row of every run, and name what is damaged or missing.

    Exit codes: 0 all is whole, 1 something is damaged: these runs are not resumed or replayed, all others are.
    """
    store = open_journal(journal).store
    wrong = wait_for(store.check())
    if as_object:
        print_json({"whole": not wrong, "damage": wrong})
    elif wrong:
        for each in wrong:
            click.echo(clean(each))
    else:
        found = wait_for(store.info())
        click.echo(f"{format_count(found.runs, 'run')} and {format_count(found.rows, 'row')} are whole.")
    exit_with(CRASHED if wrong else 0)


@journal.command("restored", short_help="Say that it came back from a backup.")
@options.journal
def restored(journal: str | None) -> None:
    """Say that the journal came back from a backup, a snapshot or a copy.

    Runs that had not ended may have called tools since the backup, which the journal does not know. When one of them is
    resumed, each call with effects needs approval. Call this once, before any run is resumed, or any worker starts.
    Runs that waited in a queue begin only after `plait queue --retry RUN`. Schedules leave out the times that passed.
    """
    store = open_journal(journal).store
    count = wait_for(store.mark_restored())
    runs = f"{format_count(count, 'run')} of {clean(store.place)} {'has' if count == 1 else 'have'} not ended"
    click.echo(f"{runs}: when resumed, each call with effects needs approval.", err=True)


@journal.command("migrate", short_help="Bring an earlier Plait's journal up to date.")
@options.journal
def migrate(journal: str | None) -> None:
    """Bring the tables of a journal that an earlier version of Plait made up to date.

    Make a backup first, and stop every older Plait that uses the journal.
    """
    store = open_journal(journal).store
    before, after = wait_for(store.migrate())
    done = f"was brought from schema {before} to {after}" if before < after else f"has schema {after} already"
    click.echo(f"{clean(store.place)} {done}.", err=True)


@journal.command("copy", short_help="Copy the runs of one journal into another.")
@click.argument("source")
@click.argument("target")
def copy_journal(source: str, target: str) -> None:
    """Copy the ended runs of the journal SOURCE into TARGET, such as a file into a database. Each is a path or an
    address. Runs that are there already are left as they are.

    Runs that can still go on are named and not copied: a run must never go on in two places. Exit codes: 0 all others
    are there, 1 some could not be copied, and are named.
    """
    stores = [open_store(options.journal_path(each)) for each in (source, target)]
    count, left, wrong = wait_for(copy(*stores))
    click.echo(f"{format_count(count, 'run')} of {clean(stores[0].place)} stand in {clean(stores[1].place)}.", err=True)
    if left:
        some = ", ".join(left[:5]) + (" ..." if len(left) > 5 else "")
        click.echo(f"Not copied, because they can still go on: {format_count(len(left), 'run')}: {some}.", err=True)
    for each in wrong:
        click.echo(clean(each), err=True)
    exit_with(CRASHED if wrong else 0)
