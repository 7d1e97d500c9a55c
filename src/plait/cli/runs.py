"""`plait runs`: what is on record."""

from __future__ import annotations

import click

from plait.cli import options
from plait.cli.runs_delete import prune, rm

STATES = ["answered", "failed", "stopped", "cancelled", "waiting", "crashed", "running", "interrupted"]


@click.group(invoke_without_command=True, short_help="List the runs on record; delete runs.")
@click.option("--limit", type=options.WHOLE, default=20, metavar="N", help="At most so many (20).")
@click.option("--status", type=click.Choice(STATES), help="Only those that ended so.")
@click.option("--session", metavar="NAME", help="Only those of that conversation.")
@options.journal
@options.config
@click.option("--json", "as_object", is_flag=True, help="Print one JSON list on stdout.")
@click.pass_context
def runs(
    context: click.Context, limit: int, status: str | None, session: str | None, journal: str | None, as_object: bool
) -> None:
    """List the runs on record, newest first: id, when, status, loop, steps, tokens, USD, question."""
    if context.invoked_subcommand is not None:
        return
    from plait.cli.record import listed, open_journal
    from plait.cli.table import show_table
    from plait.cli.text import as_json, clean
    from plait.runtime.sessions import named

    if session is not None:
        named(session)
    kept = open_journal(journal)
    rows = kept.runs(limit, status, session) if kept.path.exists() else []
    if as_object:
        click.echo(as_json([listed(row) for row in rows], indent=1))
        return
    if not rows:
        which = (f" that are {status}" if status else "") + (f" of the session {clean(session)}" if session else "")
        click.echo(f"No runs{which} in {kept.path}.", err=True)
        return
    lines = []
    for each in map(listed, rows):
        used = sum(each["usage"][kind] or 0 for kind in ("input_tokens", "output_tokens"))
        cost = "" if each["cost_usd"] is None else f"{each['cost_usd']:.5f}"
        question = " ".join(clean(each["question"]).split())
        when = each["started"][:19].replace("T", " ")
        steps = str(each["steps"] if each["steps"] is not None else "")
        lines.append([each["run"], when, each["status"], each["strategy"], steps, f"{used:,}", cost, question])
    show_table(["run", "began", "status", "loop", "steps", "tokens", "USD", "question"], lines, right={4, 5, 6})


runs.add_command(rm)
runs.add_command(prune)
