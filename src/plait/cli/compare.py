"""`plait compare`: the same tasks through every loop and model, in one table."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from plait.cli import options
from plait.cli.tables import output, unwatched

if TYPE_CHECKING:
    from plait.lab.schedule import CellEngine

EPILOG = """\
\b
Examples:
  plait compare basics:report --strategies react,json,rewoo --models local --limit 12
  plait compare tasks.jsonl --strategies all --models openai:gpt-5-mini,local --tools lookup:cities.json --budget 2
  plait compare basics:tuning --strategies "react,react(dialect=lines)" --html table.html
  plait compare world --strategies phased --model reason=openai:gpt-5,local --model reply=local

Every run is on the record. Started again, the same command goes on where it was, and what is finished is not run
again. Exit codes: 0 all is finished, 4 the budget or an endpoint ended it early, 130 cancelled, 1 an error, 2
wrong usage.
"""


@click.command(epilog=EPILOG, short_help="Compare loops and models on the same tasks.")
@click.argument("suite", metavar="SUITE|FILE")
@click.option(
    "--strategies", default="all", metavar="A,B", help="Loops, as react or react(dialect=lines); all (default)."
)
@click.option("--models", "names", default="local", metavar="X,Y", help="Models for all phases (default local).")
@click.option(
    "--model",
    "phases",
    metavar="PHASE=X,Y",
    multiple=True,
    help="Models of one phase: each combination is compared. Can be repeated.",
)
@click.option("--repeat", type=options.WHOLE, default=1, metavar="N", help="Run each task N times (default 1).")
@click.option("--limit", type=options.WHOLE, metavar="N", help="The first N tasks only.")
@click.option("--jobs", type=options.WHOLE, default=1, metavar="N", help="Runs at once (default 1).")
@click.option(
    "--budget",
    type=options.NUMBER,
    metavar="USD",
    help="Begin no run when this is spent, or would be by what runs cost on average.",
)
@click.option("--name", metavar="NAME", help="The comparison's name (default: made from what is compared).")
@click.option("--again", is_flag=True, help="Run what is finished once more.")
@click.option("--engine", type=click.Choice(["here", "ray"]), default="here", help="Where runs are performed.")
@click.option("--address", metavar="ADDRESS", help="With --engine ray: the cluster (default: one on this machine).")
@options.tools
@options.show_tools
@options.limits
@options.provenance
@options.code
@options.prompts
@output
@options.journal
@options.config
@unwatched
def compare(
    suite: str,
    strategies: str,
    names: str,
    phases: Sequence[str],
    repeat: int,
    limit: int | None,
    jobs: int,
    budget: float | None,
    name: str | None,
    again: bool,
    engine: str,
    address: str | None,
    tools: Sequence[str],
    journal: str | None,
    quiet: bool,
    output: dict[str, Any],
    **flags: Any,
) -> None:
    """Run every task of SUITE through loops and models, and print one table.

    SUITE is basics[:report|tuning], world, gsm8k:FILE, hotpotqa:FILE and so on, or a FILE of tasks (docs/suites.md).
    """
    from plait.cli.aside import stdout_aside
    from plait.cli.comparing import Watch, by_phase, go, told
    from plait.cli.group import leave
    from plait.cli.places import journal_file
    from plait.cli.settings import lab_settings
    from plait.cli.tables import checked, show
    from plait.lab.run_comparison import acompare

    checked(output)
    settings = lab_settings(**flags)
    watch = Watch(sys.stderr, quiet=quiet)
    place = journal_file(journal)
    with stdout_aside():
        found = go(
            acompare(
                suite,
                strategies=strategies,
                models=names,
                phases=by_phase(phases),
                tools=tools,
                repeat=repeat,
                limit=limit,
                jobs=jobs,
                budget=budget,
                name=name or "",
                again=again,
                journal=place,
                engine=_engine(engine, address),
                tell=watch,
                **settings,
            )
        )
    watch.close()
    done = told(found)
    show(done, **output)
    leave(0 if done.whole else 4)


def _engine(name: str, address: str | None) -> CellEngine | None:
    from plait.core.errors import UsageError

    if name == "ray":
        from plait.lab.ray import RayEngine

        return RayEngine(address)
    if address:
        raise UsageError("--address is that of a Ray cluster.", hint="Give --engine ray as well.")
    return None
