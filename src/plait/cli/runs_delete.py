"""`plait runs rm` and `plait runs prune`: delete runs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from plait.cli import options

if TYPE_CHECKING:
    from plait.journal.records import RunRow
    from plait.journal.store import Journal

UNITS = {"m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}

yes = click.option("--yes", is_flag=True, help="Delete without asking.")
dry_run = click.option("--dry-run", is_flag=True, help="List the runs that would be deleted, and delete none.")


@click.command("rm", short_help="Delete runs.")
@click.argument("names", metavar="RUN...", nargs=-1, required=True)
@yes
@dry_run
@options.journal
@options.config
def rm(names: tuple[str, ...], yes: bool, dry_run: bool, journal: str | None) -> None:
    """Delete the runs RUN (ids, or beginnings of ids) with all requests, responses and results. This cannot be undone.

    Forks of a deleted run and the other turns of its session stay readable.
    """
    from plait.cli.record import open_journal

    kept = open_journal(journal)
    rows = {row.head.run: row for row in map(kept.run, names)}
    _delete(kept, list(rows.values()), yes=yes, dry_run=dry_run)


@click.command("prune", short_help="Delete old runs.")
@click.option("--older-than", metavar="AGE", help="Only runs that ended longer ago than this, such as 30d, 12h or 2w.")
@click.option("--keep", type=options.Number(0, whole=True), metavar="N", help="Never delete the N newest runs.")
@yes
@dry_run
@options.journal
@options.config
def prune(older_than: str | None, keep: int | None, yes: bool, dry_run: bool, journal: str | None) -> None:
    """Delete old runs. Runs that go on or wait for a person stay.

    Without flags, the table [journal] of plait.toml says which (older_than = "30d", keep = 100).
    """
    from plait.cli.record import open_journal
    from plait.config import load
    from plait.core.errors import UsageError

    if older_than is None and keep is None:
        said = load().journal
        older_than, keep = said.older_than, said.keep
    if older_than is None and keep is None:
        raise UsageError("Nothing says which runs are old.", hint="Give --older-than 30d or --keep 100, or both.")
    kept = open_journal(journal)
    rows = kept.old_runs(seconds_of(older_than) if older_than is not None else None, keep) if kept.path.exists() else []
    _delete(kept, rows, yes=yes, dry_run=dry_run)


def seconds_of(age: str) -> float:
    """The seconds of an age such as 30d. Raises `UsageError`."""
    from plait.core.errors import UsageError

    found = re.fullmatch(r"(\d+(?:\.\d+)?)([mhdw])", age.strip())
    if found is None:
        raise UsageError(f"{age!r} is not an age.", hint="Give a number and m, h, d or w, such as 30d.")
    return float(found[1]) * UNITS[found[2]]


def _delete(journal: Journal, rows: list[RunRow], *, yes: bool, dry_run: bool) -> None:
    import asyncio
    import sys

    from plait.cli.text import clean, count
    from plait.core.errors import JournalError, UsageError

    for row in rows:
        question = " ".join(clean(row.head.question).split())[:60]
        click.echo(f"{row.head.run}  {row.status}  {question}")
    number = count(len(rows), "run")
    if dry_run or not rows:
        click.echo(f"{number} would be deleted from {journal.path}." if rows else "No run is to be deleted.", err=True)
        return
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError(f"{number} would be deleted.", hint="To delete without a question, add --yes.")
        click.confirm(f"Delete {number} from {journal.path}? This cannot be undone.", abort=True, err=True)

    async def delete() -> None:
        for row in rows:
            await journal.delete(row.head.run)

    asyncio.run(delete())
    click.echo(f"Deleted {number}.", err=True)
    try:
        journal.compact()
    except JournalError as why:
        click.echo(f"The deleted texts may still be in the file's free pages: {why}", err=True)
    finally:
        journal.close()
