"""`plait advise`: the cheapest loop and models that meet a demand, and how sure that is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from plait.cli import options

if TYPE_CHECKING:
    from plait.advice import Advice, Candidate

EPILOG = """\
\b
Examples:
  plait compare basics:report --strategies react,rewoo --models local --json > table.json
  plait advise table.json --at-least 80%
  plait advise table.json --at-least 0.9 --budget 0.002 --max-seconds 10

RESULTS is what `plait compare --json` printed, or the name of a comparison in the journal. Exit codes: 0 advice,
3 nothing meets the demand, 2 wrong usage.
"""
_MISSES = {
    "success": "too few done",
    "usd": "too dear",
    "price": "price not known",
    "seconds": "too slow",
    "tokens": "too many tokens",
    "runs": "no run",
    "changed": "changed loop",
    "here": "not here",
}


@click.command(epilog=EPILOG, short_help="The cheapest loop and models that meet a demand.")
@click.argument("results", metavar="RESULTS")
@options.at_least
@click.option("--budget", type=options.Number(), metavar="USD", help="The most a run may cost in the mean; 0 is free.")
@click.option("--max-seconds", type=options.NUMBER, metavar="S", help="The most a run may take in the median.")
@click.option("--max-tokens", type=options.NUMBER, metavar="N", help="The most tokens of a run in the mean.")
@click.option(
    "--include-changed",
    is_flag=True,
    help="Accept rows whose runs continued as another loop, or wrote tool calls as text.",
)
@options.journal
@options.config
@options.as_object
def advise(
    results: str,
    at_least: float | None,
    budget: float | None,
    max_seconds: float | None,
    max_tokens: float | None,
    include_changed: bool,
    journal: str | None,
    as_object: bool,
) -> None:
    """Name the cheapest loop and models of RESULTS that meet a demand, how sure that is, and the command to run them.

    The cheapest is that of the least USD; where these are equal, of the fewest tokens, then of the fewest seconds.
    """
    from plait.advice import advise as advised
    from plait.advice.choose import run_command
    from plait.cli.ending import CODES
    from plait.cli.group import leave
    from plait.cli.places import journal_file
    from plait.cli.text import as_json

    advice = advised(
        results,
        at_least=at_least,
        usd=budget,
        seconds=max_seconds,
        tokens=max_tokens,
        include_changed=include_changed,
        journal=journal_file(journal),
    )
    if as_object:
        click.echo(as_json(advice.json()))
    else:
        for sentence in advice.sentences():
            click.echo(_one(sentence))
        click.echo()
        _table(advice)
        if advice.chosen is not None:
            click.echo(f"\nRun it with: {_one(run_command(advice.chosen.row))}")
    leave(CODES["answered" if advice.chosen is not None else "failed"])


def _table(advice: Advice) -> None:
    from plait.cli.table import show_table

    head = ("loop", "models", "done", "of", "sure", "USD", "tokens", "s", "")
    rows = [tuple(_one(cell) for cell in _cells(advice, each)) for each in advice.candidates]
    show_table(head, rows, right=range(2, 8))


def _one(text: str) -> str:
    """On one line: names come from a file, and must not be able to draw."""
    from plait.cli.text import clean

    return " ".join(clean(text).split())


def _cells(advice: Advice, each: Candidate) -> tuple[str, ...]:
    from plait.advice.choose import show_probability, show_short

    row = each.row
    stands = "chosen" if each == advice.chosen else "next" if each == advice.runner_up else "meets it"
    return (
        row.strategy,
        row.who,
        f"{row.success * 100:.0f} %" if row.n else "-",
        f"{row.evidence[1]:,}",
        show_probability(each.sure).replace("more than ", ">").replace("less than ", "<")
        if row.n and advice.demand.at_least
        else "-",
        "-" if not row.n else "?" if row.cost_usd is None else show_short(row.cost_usd),
        f"{row.tokens:,.0f}" if row.n else "-",
        show_short(row.seconds) if row.n else "-",
        ", ".join(_MISSES[miss] for miss in each.misses) or stands,
    )
