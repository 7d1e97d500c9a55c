"""The commands `plait compare` and `plait results`: they run comparisons with progress and print their tables."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from itertools import product
from typing import Any, NoReturn, TextIO, TypeVar

import click

from plait.cli import options
from plait.cli.agent_options import find_agent, make_fields, parse_model_settings, read_values
from plait.cli.commands import exit_with
from plait.cli.main import CANCELLED, CRASHED
from plait.cli.output import check_writable, format_seconds, format_usd, print_json, print_table, write_file
from plait.cli.process import cancellable, stdout_to_stderr
from plait.cli.run_output import CODES
from plait.core.errors import ConfigError
from plait.core.text import clean, shorten
from plait.journal.results import Results
from plait.journal.store import Journal, wait_for
from plait.lab import report
from plait.lab.comparison import Comparison
from plait.lab.plan import TEXTS
from plait.lab.run_comparison import acompare, events_reader, load_comparison
from plait.lab.schedule import OnProgress, Progress
from plait.lab.workers import CellWorkers, end_with_parent, parent_to_work_for
from plait.runtime.agents.agent_fields import OPTIONS, AgentFields

EPILOG = """\
\b
Examples:
  plait compare basics:report --loops react,json,rewoo --models local --limit 12
  plait compare tasks.jsonl --loops all --models openai:gpt-5-mini,local --tools lookup:cities.json --budget 2
  plait compare basics:tuning --loops "react,react(dialect=lines)" --html table.html
  plait compare basics:report --loops react --models openai:gpt-5 --model-setting effort=low,high
  plait compare tasks.jsonl -a support:agent --instructions "Be brief." --instructions @long.txt
  plait compare world --loops phased --model reason=openai:gpt-5,local --model reply=local
  plait compare tasks.jsonl --loops all --jobs 8 --workers 4

Every run is recorded. The same command continues where it stopped and does not repeat finished runs. Exit codes: 0
everything is finished, 4 the budget or an endpoint ended it early, 130 cancelled, 1 an error or --fail-if, 2 wrong
usage.
"""
T = TypeVar("T")
CONTINUE = "The same command continues where it stopped."

table_output = options.combine(
    options.flag("--by-phase", help="Also show what each phase took."),
    click.option("--by", "about", default="", metavar="FIELD", help="Success by a field of the tasks, such as steps."),
    options.flag("--pairs", help="Also compare each two rows on the same tasks."),
    options.text_formats,
    options.flag("--cells", help="Also list each finished cell with its grade and its run."),
    click.option("--html", metavar="FILE", help="Also write one HTML file with charts and every run."),
)
"""The options for printing a comparison's table."""


@click.command(epilog=EPILOG)
@click.argument("suite", metavar="SUITE|FILE")
@click.option("--loops", metavar="A,B", help="Loops, as react or react(dialect=lines), also of agents; default all.")
@options.named_agents
@click.option("--models", metavar="X,Y", help="Models for all phases (default local, or those of an agent).")
@options.repeatable(
    "--model", "phases", "PHASE=X,Y", "Models of one phase: each combination is compared. Can be repeated."
)
@options.repeatable(
    "--model-setting",
    "model_settings",
    "[PHASE.]K=V,W",
    "A setting of the requests (effort=low,high): each combination is compared. Can be repeated.",
)
@click.option("--repeat", type=options.WHOLE, default=1, metavar="N", help="Run each task N times (default 1).")
@click.option("--limit", type=options.WHOLE, metavar="N", help="Only the first N tasks.")
@options.jobs
@options.budget
@options.fail_if
@click.option("--name", default="", metavar="NAME", help="The comparison's name (default: made from its parts).")
@options.repeat_finished
@click.option("--workers", type=options.WHOLE, metavar="N", help="Perform the runs in N processes, each with --jobs.")
@options.agent(without=("loop", "model", "settings", "approve", "can_ask", "on_interrupted_call"), compared=TEXTS)
@table_output
@options.journal
@options.no_progress
def compare(suite: str, words: Sequence[str], phases: Sequence[str], workers: int | None, **flags: Any) -> None:
    """Run every task of SUITE through loops, agents and models, and print one table.

    SUITE is basics[:report|tuning], world, gsm8k:FILE, hotpotqa:FILE, ..., or a FILE of tasks (docs/suites.md).
    """
    check_table_output(flags)
    by_phase: dict[str, list[str]] = {}
    for each in phases:
        phase, equals, names = each.partition("=")
        if not equals or not phase.strip():
            hint = "Write --model reason=X,Y; --models is for all phases."
            raise ConfigError(f"--model {each!r} names no phase.", hint=hint)
        by_phase[phase.strip()] = parse_models(names)
    axes: list[list[str]] = []
    for each in flags["model_settings"]:  # [PHASE.]K=V,W: lists and JSON are one value
        key, _, values = each.partition("=")
        whole = key.rpartition(".")[2].replace("-", "_") in ("stop", "extra_body", "extra_headers")
        axes.append([each] if whole else [f"{key}={value.strip()}" for value in values.split(",")])
    same, command = ("loops", "models", "repeat", "limit", "name"), [sys.executable, "-m", "plait", *sys.argv[1:]]
    shared = {name: value for name, value in flags.items() if name not in (*TEXTS, "tools")}
    done = run_comparison(
        suite,
        {**flags, **dict.fromkeys(TEXTS)},
        agents={word: find_agent(word, shared) for word in words},
        texts=parse_texts(**{name: flags[name] for name in TEXTS}),
        phases=by_phase,
        settings=[parse_model_settings(row) for row in product(*axes)],
        workers=CellWorkers(command, workers) if workers and parent_to_work_for() is None else None,
        **{name: flags[name] for name in same},
    )
    print_comparison(done, flags)
    exit_after(done, flags["fail_if"])


def exit_after(comparison: Comparison, fail_if: str | None) -> NoReturn:
    """Exit with 4 if a comparison is not finished, else as --fail-if says."""
    if not comparison.whole:
        exit_with(CODES["stopped"])
    is_failed = {
        "worse": any(each.a == comparison.contenders[0].key and each.word == "better" for each in comparison.pairs),
        "wrong": not all(each.grade.success for each in comparison.results if each.cell),  # recorded runs have no cell
    }
    exit_with(CRASHED if fail_if and is_failed[fail_if] else 0)


def run_comparison(suite: Any, flags: Mapping[str, Any], **wanted: Any) -> Comparison:
    """Run what is not finished of a comparison, with its progress on stderr. Exit if it is cancelled. `flags` has the
    options that all comparisons share, `wanted` the other arguments of `acompare`."""
    wanted |= {name: flags[name] for name in ("jobs", "budget", "again")}
    if parent_to_work_for() is not None:
        wanted["again"] = False  # the parent has seen to it
    wanted |= {"journal": options.journal_path(flags["journal"]), **make_fields(read_values(flags), AgentFields)}
    done = wait_for_comparison(lambda tell: acompare(suite, tell=tell, **wanted), quiet=flags["quiet"])
    if parent_to_work_for() is not None:
        click.echo(done.unfinished)
        exit_after(done, None)
    if done.unfinished:
        click.echo(f"Not finished: {done.unfinished.rstrip('.')}. Fix the cause, and run the same command.", err=True)
    return done


def wait_for_comparison(begin: Callable[[OnProgress], Coroutine[Any, Any, T]], *, quiet: bool) -> T:
    """Return what a comparison comes to, with its progress on stderr. Exit if it is cancelled."""
    progress, done = ComparisonProgress(sys.stderr, quiet=quiet), None
    parent = parent_to_work_for()
    try:
        with stdout_to_stderr(), cancellable(begin(progress), how_to_resume=lambda: CONTINUE) as (loop, task):
            ending = loop.create_task(end_with_parent(parent, task)) if parent is not None else None
            done = loop.run_until_complete(task)
            if ending is not None:
                ending.cancel()
    finally:
        progress.close()
    if done is None:
        if parent is None:
            click.echo(f"Cancelled. {CONTINUE}", err=True)
        exit_with(CANCELLED)
    return done


def parse_texts(
    prompts: Sequence[str], system: Sequence[str], instructions: Sequence[str]
) -> dict[str, dict[str, str]] | None:
    """Return the combinations of these, named by what differs; None without any. Raises `ConfigError`."""
    found = {}
    read = {each.name: each.read for each in OPTIONS if each.name in TEXTS}
    given = [(name, values) for name, values in zip(TEXTS, (prompts, system, instructions), strict=True) if values]
    for row in product(*(values for _, values in given)):
        parts = [shorten(value, 30)[0] for (_, values), value in zip(given, row, strict=True) if len(values) > 1]
        found[", ".join(parts)] = {name: read[name](value) for (name, _), value in zip(given, row, strict=True)}
    return found if given else None


def parse_models(names: str) -> list[str]:
    """Return the models of a list. Raises `ConfigError` if it is empty."""
    found = [name.strip() for name in names.split(",") if name.strip()]
    if not found:
        raise ConfigError(f"{names!r} names no model.", hint="For example: --models local.")
    return found


class ComparisonProgress:
    """Show the progress of a comparison: one live line in a terminal, elsewhere one line per cell."""

    def __init__(self, out: TextIO, *, quiet: bool) -> None:
        self._out = out
        self._quiet = quiet
        self._shows_cells = parent_to_work_for() is None  # which shows those of all workers
        self._last = ""
        self._status: Any = None
        if out.isatty() and not quiet and self._shows_cells:
            from rich.console import Console

            self._status = Console(file=out, highlight=False, emoji=False, markup=False).status("")

    def __call__(self, progress: Progress) -> None:
        """Show progress. Ignores an unwritable stream."""
        left = "" if progress.left is None else f" · {format_seconds(progress.left)} left"
        done = f"{progress.finished:,} of {progress.cells:,}{left} · {format_usd(progress.usd)}"
        if progress.said:
            self._print(clean(progress.said))
        elif self._status is not None:
            self._last = done
            self._status.update(done)
            self._status.start()
        elif self._shows_cells and (result := progress.result) is not None:
            what = f"{result.grade.mark} · {result.variant} · {result.task} · {format_seconds(result.seconds)}"
            self._print(f"{done} · {clean(what)}")

    def close(self) -> None:
        """End the live line and leave its last text."""
        if self._status is not None:
            with suppress(OSError, ValueError):
                self._status.stop()
                if self._last:
                    self._print(self._last)

    def _print(self, text: str) -> None:
        if self._quiet:
            return
        with suppress(OSError, ValueError):
            if self._status is not None:
                self._status.console.print(text)
            else:
                print(text, file=self._out, flush=True)


def check_table_output(flags: Mapping[str, Any]) -> None:
    """Raise `ConfigError` for a table that cannot be printed, before anything runs."""
    options.check_one_format(csv=flags["as_csv"], markdown=flags["as_markdown"], json=flags["as_object"])
    if flags["cells"] and flags["as_csv"]:
        raise ConfigError("--csv has the rows only.", hint="--json --cells has each cell with every digit.")
    if flags["html"]:
        from plait.lab.page import check_report_extra

        check_writable(flags["html"])
        check_report_extra()


def print_comparison(comparison: Comparison, flags: Mapping[str, Any]) -> None:
    """Print a comparison's table on stdout, and write its page."""
    named = {"phases": "by_phase", "all_pairs": "pairs", "by": "about", "cells": "cells"}
    extras: dict[str, Any] = {name: flags[option] for name, option in named.items()}
    if flags["as_object"]:
        print_json(report.as_object(comparison, cells=flags["cells"]))
    elif flags["as_csv"]:
        click.echo(report.render_csv(comparison), nl=False)
    elif flags["as_markdown"]:
        click.echo(report.render_markdown(comparison, **extras))
    else:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        click.echo(report.render_text(comparison, width=width, **extras))
    if flags["html"]:
        from plait.lab.page import render_page

        write_file(flags["html"], render_page(comparison, record=events_reader(comparison)))


@click.group()
def results() -> None:
    """Stored comparisons: nothing is run."""


@results.command("list")
@options.as_object
@options.journal
def list_results(as_object: bool, journal: str | None) -> None:
    """List the comparisons, newest first."""
    found = wait_for(Results(Journal.at(options.journal_path(journal)).store).list_progress())
    if as_object:
        print_json([{name: each[name] for name in ("name", "suite", "finished", "cells")} for each in found])
    elif not found:
        click.echo("No comparison is stored yet. `plait compare` makes one.", err=True)
    else:
        lines = [
            [
                clean(each["name"]),
                clean(each["suite"]),
                f"{each['finished']:,} of {each['cells']:,}",
                time.strftime("%Y-%m-%d %H:%M", time.localtime(each["started"])),
                clean(", ".join(each["loops"])),
            ]
            for each in found
        ]
        print_table(["name", "suite", ">cells", "begun", "loops"], lines)


@results.command("show")
@click.argument("name")
@table_output
@options.journal
def show_results(name: str, journal: str | None, **flags: Any) -> None:
    """Print the table of a comparison: its NAME, the beginning of one, or `last`."""
    check_table_output(flags)
    print_comparison(load_comparison(name, options.journal_path(journal)), flags)
