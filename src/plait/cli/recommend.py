"""The command `plait recommend`: the cheapest loop and models that meet a demand, and how sure that is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from plait.cli import options
from plait.cli.commands import exit_with
from plait.cli.output import print_json, print_table
from plait.cli.run_output import CODES
from plait.core.text import one_line
from plait.lab.recommend.choose import run_command, show_probability, show_short

if TYPE_CHECKING:
    from plait.lab.recommend import Candidate, Recommendation

EPILOG = """\
\b
Examples:
  plait compare basics:report --loops react,rewoo --models local --json > table.json
  plait recommend table.json --at-least 80%
  plait recommend table.json --at-least 0.9 --budget 0.002 --max-seconds 10

RESULTS is the output of `plait compare --json`, or the name of a comparison in the journal. Exit codes: 0 a row meets
the demand, 3 no row meets it, 2 wrong usage.
"""
_MISSES = {
    "success": "too few done",
    "usd": "too expensive",
    "price": "price not known",
    "seconds": "too slow",
    "tokens": "too many tokens",
    "runs": "no run",
    "changed": "changed loop",
    "here": "not here",
}


@click.command(epilog=EPILOG)
@click.argument("results", metavar="RESULTS")
@options.at_least
@click.option(
    "--budget", "usd", type=options.NumberType(), metavar="USD", help="Maximum average cost per run; 0 is free."
)
@click.option("--max-seconds", "seconds", type=options.NUMBER, metavar="S", help="Maximum median time per run.")
@click.option("--max-tokens", "tokens", type=options.NUMBER, metavar="N", help="Maximum average tokens per run.")
@options.flag(
    "--include-changed", help="Accept rows whose runs continued as another loop, or wrote tool calls as text."
)
@options.journal
@options.as_object
def recommend(results: str, journal: str | None, as_object: bool, **demand: Any) -> None:
    """Name the cheapest loop and models of RESULTS that meet a demand, how sure that is, and the command to run them.

    The cheapest has the lowest USD; if these are equal, the fewest tokens, then the fewest seconds.
    """
    from plait.lab.recommend import recommend as make_recommendation

    recommendation = make_recommendation(results, journal=options.journal_path(journal), **demand)
    if as_object:
        print_json(recommendation.json(), indent=None)
    else:
        # Names come from a file and must not contain terminal markup.
        for sentence in recommendation.sentences():
            click.echo(one_line(sentence))
        click.echo()
        heads = ["loop", "models", ">done", ">of", ">sure", ">USD", ">tokens", ">s", ""]
        print_table(
            heads, [[one_line(cell) for cell in _cells(recommendation, each)] for each in recommendation.candidates]
        )
        if recommendation.chosen is not None:
            click.echo(f"\nRun it with: {one_line(run_command(recommendation.chosen.row))}")
    exit_with(CODES["answered" if recommendation.chosen is not None else "failed"])


def _cells(recommendation: Recommendation, each: Candidate) -> list[str]:
    row = each.row
    stands = "chosen" if each == recommendation.chosen else "next" if each == recommendation.runner_up else "meets it"
    sure = show_probability(each.sure).replace("more than ", ">").replace("less than ", "<")
    ran = [
        f"{row.success * 100:.0f} %",
        sure if recommendation.demand.at_least else "-",
        "?" if row.cost_usd is None else show_short(row.cost_usd),
        f"{row.tokens:,.0f}",
        show_short(row.seconds),
    ]
    done, sure, *used = ran if row.n else ["-"] * len(ran)
    verdict = ", ".join(_MISSES[miss] for miss in each.unmet) or stands
    return [row.loop, row.who, done, f"{row.evidence[1]:,}", sure, *used, verdict]
