"""The commands `plait runs`, `runs rm`, `runs prune` and `plait rate`, and the search for a recorded run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import click
from msgspec import to_builtins

from plait.cli import options
from plait.cli.output import print_json, print_table
from plait.config import load
from plait.core.errors import ConfigError, JournalError, UnknownRun
from plait.core.text import clean, format_count, one_line
from plait.journal.records import RunRow
from plait.journal.results import Results
from plait.journal.run_query import SORTS, RunQuery, make_query, parse_age
from plait.journal.store import Journal, wait_for
from plait.recorded_runs import describe_run, format_time, read_open_questions
from plait.runtime.conversations.sessions import check_session_name
from plait.runtime.spent import spent_in


def open_journal(given: str | None) -> Journal:
    """Return the journal that the option, the environment or the configuration names."""
    return Journal(options.journal_path(given))


def find_run(run: str, given: str | None) -> tuple[RunRow, Journal]:
    """Return a run by its id, the beginning of its id, or `last`, and its journal. Raises `JournalError`."""
    journal = open_journal(given)
    return journal.run(run), journal


@click.group(invoke_without_command=True)
@click.option("--limit", type=options.WHOLE, default=20, metavar="N", help="Maximum number of runs (default 20).")
@options.filters
@click.option("--sort", metavar="KEY", help=f"The greatest {', '.join(SORTS[1:])} first; with -KEY the smallest.")
@options.flag("--children", help="Also list child runs.")
@options.journal
@options.as_list
@click.pass_context
def runs(context: click.Context, /, journal: str | None, as_object: bool, **filters: Any) -> None:
    """List the recorded runs, newest first: id, time, status, loop, steps, tokens, USD, question.

    Tokens and USD are those of the run with its child runs.
    """
    if context.invoked_subcommand is not None:
        return
    if filters["session"] is not None:
        check_session_name(filters["session"])
    query, store = make_query(**filters), open_journal(journal)
    rows = store.find(query)
    if as_object:
        asked = [wait_for(read_open_questions(store.store, row)) for row in rows]
        print_json(
            [{**describe_run(row), "questions": to_builtins(each)} for row, each in zip(rows, asked, strict=True)]
        )
        return
    if not rows:
        which = f" that are {query.status}" if query.status else ""
        which += f" of the session {clean(query.session)}" if query.session else ""
        said = RunQuery(query.status, session=query.session, limit=query.limit, sort=query.sort)
        which += " that match" if query != said else ""
        click.echo(f"No runs{which} in {store.place}.{options.describe_no_match(filters)}", err=True)
        return
    lines = []
    for row in rows:
        spent = spent_in({"cost_usd": None, **row.totals})
        cost = "" if spent.cost_usd is None else f"{spent.cost_usd:.5f}"
        started = format_time(row.started)[:19].replace("T", " ")
        numbers = [str(row.totals.get("steps", "")), f"{spent.usage.tokens:,}", cost]
        lines.append([row.head.run, started, row.verdict, row.head.loop["name"], *numbers, one_line(row.head.question)])
    print_table(["run", "began", "status", "loop", ">steps", ">tokens", ">USD", "question"], lines)


yes = options.flag("--yes", help="Delete without asking.")
dry_run = options.flag("--dry-run", help="List the runs that would be deleted, and delete none.")


@runs.command("rm", short_help="Delete runs.")
@click.argument("names", metavar="RUN...", nargs=-1, required=True)
@yes
@dry_run
@options.journal
def rm(names: tuple[str, ...], yes: bool, dry_run: bool, journal: str | None) -> None:
    """Delete the runs RUN (ids, or beginnings of ids) with all requests, responses and results. This cannot be undone.

    Child runs are deleted with the run. Its forks and the other turns of its session stay readable.
    """
    store = open_journal(journal)
    rows = {row.head.run: row for row in map(store.run, names)}
    _delete_runs(store, lambda: [list(rows.values())], yes=yes, dry_run=dry_run)


@runs.command("prune", short_help="Delete old runs.")
@click.option("--older-than", metavar="AGE", help="Only runs that ended longer ago than this, such as 30d, 12h or 2w.")
@click.option("--keep", type=options.NumberType(0, whole=True), metavar="N", help="Never delete the N newest runs.")
@yes
@dry_run
@options.journal
def prune(older_than: str | None, keep: int | None, yes: bool, dry_run: bool, journal: str | None) -> None:
    """Delete old runs, 500 at a time. Runs in progress and runs that wait for the user or in a queue stay.

    Without flags, the table [journal] of plait.toml decides (older_than = "30d", keep = 100).
    """
    if older_than is None and keep is None:
        defaults = load().journal
        older_than, keep = defaults.older_than, defaults.keep
    if older_than is None and keep is None:
        raise ConfigError("Plait cannot tell which runs are old.", hint="Give --older-than 30d or --keep 100, or both.")
    store = open_journal(journal)
    age = parse_age(older_than) if older_than is not None else None
    _delete_runs(store, partial(store.old_runs, age, keep), yes=yes, dry_run=dry_run, skip_active=True)


def _delete_runs(
    journal: Journal,
    find: Callable[[], Iterable[Sequence[RunRow]]],
    *,
    yes: bool,
    dry_run: bool,
    skip_active: bool = False,
) -> None:
    """Delete the runs that `find` returns in batches, each batch in a transaction of its own."""

    def delete(rows: Sequence[RunRow]) -> int:
        return wait_for(journal.store.delete([row.head.run for row in rows], skip_active=skip_active))

    found = deleted = 0
    for rows in find():
        for row in rows:
            click.echo(f"{row.head.run}  {row.verdict}  {one_line(row.head.question)[:60]}")
        found += len(rows)
        deleted += delete(rows) if yes and not dry_run else 0
    number = format_count(found, "run")
    if dry_run or not found:
        would = f"{number} would be deleted from {journal.place}."
        click.echo(would if found else "No run to delete.", err=True)
        return
    if not yes:
        if not sys.stdin.isatty():
            raise ConfigError(f"{number} would be deleted.", hint="To delete without a question, add --yes.")
        click.confirm(f"Delete {number} from {journal.place}? This cannot be undone.", abort=True, err=True)
        deleted = sum(map(delete, find()))
    click.echo(f"Deleted {format_count(deleted, 'run')}.", err=True)
    try:
        wait_for(journal.store.compact())
    except JournalError as why:
        click.echo(f"The deleted texts may still be in free pages of the file: {why}", err=True)
    finally:
        journal.close()


@click.command()
@click.argument("run", metavar="RUN|list")
@click.argument("judgement", metavar="[good|bad]", type=click.Choice(["good", "bad"]), required=False)
@click.option("--why", default="", metavar="TEXT", help="The reason, for later readers.")
@options.journal
@options.as_object
def rate(run: str, judgement: str | None, why: str, journal: str | None, as_object: bool) -> None:
    """Rate RUN (an id, the beginning of one, or `last`) as good or bad, or list all ratings, newest first.

    A new rating replaces the old one. `plait trajectories` and `plait replay --run` use it; `--rated` selects by it.
    """
    results = Results(open_journal(journal).store)
    if run == "list" and judgement is None:
        made = sorted(wait_for(results.list_ratings()).values(), key=lambda each: (each.at, each.run), reverse=True)
        if as_object:
            print_json([_rating_as_json(each) for each in made])
            return
        if not made:
            click.echo("No run is rated yet. `plait rate RUN good` rates one.", err=True)
            return
        lines = []
        for each in made:
            try:
                head = wait_for(results.store.find_run(each.run)).head
                loop, question = str(head.loop["name"]), one_line(head.question)
            except UnknownRun:
                loop, question = "-", "(deleted)"
            said, reason = "good" if each.good else "bad", one_line(each.why) or "-"
            lines.append([each.run, said, format_time(each.at), loop, reason, question])
        print_table(["run", "rating", "when", "loop", "why", "question"], lines)
        return
    if judgement is None:
        raise ConfigError(f"Is {run} good or bad?", hint=f"`plait rate {run} good`, or `plait rate list`.")
    rating = wait_for(results.rate(run, judgement == "good", why))
    if as_object:
        print_json(_rating_as_json(rating), indent=None)
    else:
        click.echo(f"Run {rating.run} is rated {judgement}.", err=True)


def _rating_as_json(rating: Any) -> dict[str, Any]:
    said = {"why": rating.why or None, "by": rating.by or None}
    return {"run": rating.run, "good": rating.good, **said, "at": format_time(rating.at)}
