"""The command `plait classics`: four published experiments, reproduced with the user's models."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import click

from plait.cli import options
from plait.cli.commands import exit_with
from plait.cli.compare import parse_models, parse_phase_models, run_comparison
from plait.cli.options import F
from plait.cli.output import print_json
from plait.cli.runs import find_run
from plait.core.errors import ConfigError, JournalError
from plait.lab.classics import (
    ClassicTable,
    make_loop_tables,
    make_phase_table,
    make_task_table,
    models_by_phase,
    question_suite,
    read_exchanges,
    render_exchanges,
    render_exchanges_markdown,
)
from plait.lab.run_comparison import Comparison, load_comparison
from plait.lab.tasks import Suite
from plait.loops import loop_from, parse_loops, word_of

BASICS = "basics:report"

_models = click.option("--models", default="local", metavar="X,Y", help="The models (default local).")
_suite = click.option("--suite", metavar="SUITE", help=f"The tasks (default {BASICS}).")
_question = click.option("--question", metavar="TEXT", help="One question of your own, instead of a suite.")
_loop = click.option("--loop", "loop", metavar="LOOP", help="The loop, as react or react(dialect=lines).")
_shared = options.combine(
    options.tools,
    options.jobs,
    options.budget,
    options.repeat_finished,
    options.limits,
    options.flag("--markdown", "as_markdown", help="Print Markdown."),
    options.as_object,
    options.journal,
    options.no_progress,
)


def _comparison(what: str) -> Callable[[F], F]:
    return click.option("--comparison", metavar="NAME", help=f"Run nothing: show {what} of a stored comparison.")


@click.group()
def classics() -> None:
    """Reproduce four published experiments with your models. Every run is recorded, and recorded runs are not repeated.

    Exit codes: 0 the table is complete, 4 the budget or an endpoint ended it early, 130 cancelled, 1 an error, 2 wrong
    usage.
    """


@classics.command("phases", short_help="Time and cost by phase, a row for each combination of phase models.")
@_models
@click.option("--model", "single", metavar="PHASE=X,Y", multiple=True, help="Models of one phase, instead of --models.")
@_suite
@_question
@click.option("--limit", type=options.WHOLE, default=3, metavar="N", help="The first N tasks (default 3).")
@options.hardware
@_comparison("the rows of `phased`")
@_shared
def phases(models: str, single: Sequence[str], limit: int, hardware: float | None, **flags: Any) -> None:
    """Seconds and USD of the loop `phased` by phase, for each combination of the models."""
    everywhere = parse_models(models)
    chosen = models_by_phase("phased", everywhere, parse_phase_models(single))
    if hardware is not None and flags["comparison"] is None and all(len(set(each)) < 2 for each in chosen.values()):
        raise ConfigError(
            "--hardware compares rows with the first one, and there is only one row.",
            hint="Name a model without the hardware first, then one with it: --models openai:NAME,local.",
        )
    suite = _choose_suite(flags)
    done = _compare(suite, flags, loops="phased", models=everywhere[:1], phases=chosen, limit=limit)
    table = make_phase_table(done, hardware=hardware)
    _print_and_exit("phases", done, flags, [table.draw()], table.json())


@classics.command("rewoo", short_help="Tokens of two loops on the same tasks: react and rewoo.")
@_models
@click.option("--loops", default="react,rewoo", metavar="A,B", help="The two loops (default react,rewoo).")
@_suite
@_question
@click.option("--limit", type=options.WHOLE, default=12, metavar="N", help="The first N tasks (default 12).")
@_comparison("the two loops")
@_shared
def rewoo(models: str, loops: str, limit: int, **flags: Any) -> None:
    """Calls and tokens of two loops on the same tasks: a row for each task, and the sum. One table for each model."""
    pair = [word_of(loop_from(word)) for word in parse_loops(loops)]
    if len(set(pair)) != 2:
        raise ConfigError(f"--loops {loops} does not name two loops.", hint="For example: react,rewoo.")
    done = _compare(_choose_suite(flags), flags, loops=loops, models=models, limit=limit)
    found = make_loop_tables(done, pair)
    _print_and_exit("rewoo", done, flags, [each.draw() for each in found], {"models": [each.json() for each in found]})


@classics.command("tasks", short_help="The six tasks of the world by model, with marks and steps.")
@_models
@_loop
@click.option("--suite", default="world:six", metavar="SUITE", help="Other tasks than the six (world:variations).")
@click.option("--limit", type=options.WHOLE, metavar="N", help="Only the first N tasks.")
@options.flag("--why", help="Say below the table what was wrong.")
@_comparison("the cells")
@_shared
def tasks(models: str, loop: str | None, suite: str, limit: int | None, why: bool, **flags: Any) -> None:
    """The six tasks of the offline world (A to F) by model: each cell has done, flaw or not done, and the steps.

    The loop is codeact unless --loop names another. Several, such as codeact,json, get a column each.
    """
    done = _compare(suite, flags, loops=loop or "codeact", models=models, limit=limit)
    table = make_task_table(done)
    _print_and_exit("tasks", done, flags, [table.draw(why=why)], table.json())


@classics.command("wire", short_help="The requests and responses of a run, as sent.")
@click.argument("question", required=False)
@_models
@_loop
@click.option("--run", metavar="RUN", help="Run nothing: show a recorded run, by its id or `last`.")
@options.flag("--full", help="Also print what was sent before.")
@_shared
def wire(question: str | None, models: str, loop: str | None, run: str | None, full: bool, **flags: Any) -> None:
    """Each request of a run with its stop strings, and each response, in order; `=` was sent before, `+` is new.

    QUESTION runs with --loop (default react) and the --tools; without it, the first task of basics runs.
    `plait show RUN --wire` prints the same byte for byte.
    """
    options.check_one_format(markdown=flags["as_markdown"], json=flags["as_object"])
    if run is not None and question is not None:
        raise ConfigError("A question and --run exclude each other.", hint="Choose one.")
    if question is not None and _names_run(question, flags["journal"]):
        raise ConfigError(
            f"{question!r} names a run, but this argument is a question.",
            hint=f"To show a recorded run, write: plait classics wire --run {question}",
        )
    whole, wanted = True, [run] if run is not None else []
    if run is None:
        suite = _choose_suite({**flags, "suite": None, "question": question})
        done = _compare(suite, flags, loops=loop or "react", models=models, limit=1)
        whole, wanted = done.whole, [result.run for result in done.results]
    objects = []
    for number, each in enumerate(wanted):
        row, store = find_run(each, flags["journal"])
        exchanged = read_exchanges(store.timeline(row.head.run))
        if flags["as_object"]:
            head = {"run": row.head.run, "question": row.head.question, "loop": row.head.loop["name"]}
            objects.append({**head, "exchanges": [one.json() for one in exchanged]})
        else:
            render = render_exchanges_markdown if flags["as_markdown"] else render_exchanges
            click.echo(("\n" if number else "") + render(row.head.question, exchanged, full=full))
    if flags["as_object"]:
        print_json({"table": "wire", "runs": objects})
    exit_with(0 if whole else 4)


def _names_run(word: str, journal: str | None) -> bool:
    """Return whether a word is `last`, or the beginning (six characters or more) of the id of a recorded run."""
    if word == "last":
        return True
    if not re.fullmatch(r"[0-9A-Za-z-]{6,}", word):
        return False
    try:
        find_run(word, journal)
    except JournalError:
        return False
    return True


def _choose_suite(flags: Mapping[str, Any]) -> str | Suite:
    """Return the suite that the options name. Raises `ConfigError` if they name two."""
    if flags["question"] is None:
        return flags["suite"] or BASICS
    if flags["suite"] is not None:
        raise ConfigError("--suite and --question exclude each other.", hint="Choose one.")

    return question_suite(flags["question"], flags["tools"])


def _compare(suite: str | Suite, flags: Mapping[str, Any], **wanted: Any) -> Comparison:
    """Return the comparison that a table shows: a stored one, or a new one that runs only missing cells."""
    options.check_one_format(markdown=flags["as_markdown"], json=flags["as_object"])
    if flags.get("comparison") is not None:
        return load_comparison(flags["comparison"], options.journal_path(flags["journal"]))
    tools = flags["tools"] if isinstance(suite, str) else ()  # a question's suite already has its tools
    return run_comparison(suite, flags, tools=tools, **wanted)


def _print_and_exit(
    name: str, comparison: Comparison, flags: Mapping[str, Any], drawn: Sequence[ClassicTable], value: Mapping[str, Any]
) -> NoReturn:
    """Print tables one below the other, or as one JSON object, and exit: 0 if everything is finished, else 4."""
    if flags["as_object"]:
        head = {"comparison": comparison.name, "suite": comparison.suite.word, "unfinished": comparison.unfinished}
        print_json({"table": name, **head, **value})
    else:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        for number, each in enumerate(drawn):
            click.echo(("\n" if number else "") + (each.markdown() if flags["as_markdown"] else each.text(width)))
    exit_with(0 if comparison.whole else 4)
