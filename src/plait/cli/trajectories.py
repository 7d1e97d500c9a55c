"""`plait trajectories`: good runs written as lines of chat, for training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import click

from plait.cli import options

EPILOG = """\
\b
Examples:
  plait trajectories --comparison last -o train
  plait trajectories --all --loop react --model openai:gpt-5 --approved -o train

A run is good when a comparison graded it as successful, or a person marked it good (`plait mark`); never when a
person marked it bad. Exit codes: 0 lines are written, 3 there is none to write, 1 an error, 2 wrong usage.
"""


@click.command(epilog=EPILOG, short_help="Write good runs as lines of chat, for training.")
@click.argument("runs", metavar="[RUN...]", nargs=-1)
@click.option("--comparison", default="", metavar="NAME", help="The runs of a comparison: its name, or last.")
@click.option("--all", "every", is_flag=True, help="All runs on record.")
@click.option("-o", "--out", "folder", required=True, metavar="DIR", help="Where LOOP.PHASE.jsonl are written.")
@click.option("--loop", default="", metavar="LOOP", help="Runs of this loop only: react, or react(dialect=lines).")
@click.option("--model", default="", metavar="SPEC", help="Calls of this model only.")
@click.option(
    "--min-score",
    type=options.Number(0, 1),
    metavar="X",
    help="Of graded runs those with this score at least.",
)
@click.option("--approved", is_flag=True, help="Only runs that a person marked good.")
@click.option("--strict", is_flag=True, help="Without replies that the reader had to mend.")
@click.option("--force", is_flag=True, help="Write over files that are there.")
@options.journal
@options.config
@options.as_object
def trajectories(
    runs: Sequence[str],
    comparison: str,
    every: bool,
    folder: str,
    loop: str,
    model: str,
    min_score: float | None,
    approved: bool,
    strict: bool,
    force: bool,
    journal: str | None,
    as_object: bool,
) -> None:
    """Write the model calls of good runs to DIR, a file for each loop and phase, a line for each call.

    RUN is an id, the beginning of one, or `last`.
    """
    from plait.cli.group import leave
    from plait.cli.places import journal_file
    from plait.cli.text import as_json, clean, count
    from plait.lab.trajectories import find_trajectories

    good = find_trajectories(
        *runs,
        comparison=comparison,
        every=every,
        journal=journal_file(journal),
        loop=loop,
        model=model,
        min_score=min_score,
        approved=approved,
        strict=strict,
    )
    written = good.write(folder, force=force)
    if as_object:
        told = {
            "folder": written.folder,
            "files": written.files,
            "lines": written.lines,
            "runs": [each.run for each in good.runs],
            "runs_left_out": good.runs_left_out,
            "calls_left_out": written.calls_left_out,
        }
        click.echo(as_json(told, indent=1))
    else:
        for name, lines in written.files.items():
            click.echo(f"{clean(written.folder)}/{name}  {count(lines, 'line')}")
        click.echo(f"{count(written.lines, 'line')} of {count(len(good.runs), 'good run')}.")
        _left_out("Runs left out", good.runs_left_out)
        _left_out("Calls left out", written.calls_left_out)
    leave(0 if written.lines else 3)


def _left_out(what: str, reasons: Mapping[str, int]) -> None:
    if reasons:
        click.echo(f"{what}: {', '.join(f'{number:,} {why}' for why, number in reasons.items())}.")
