"""The command `plait classics`: four published experiments, reproduced with the user's models."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from html import escape
from itertools import zip_longest
from typing import Any, NoReturn

import click
import msgspec

from plait.cli import options
from plait.cli.agent_options import make_loops, split_models
from plait.cli.commands import exit_with
from plait.cli.compare import parse_models, run_comparison
from plait.cli.main import CRASHED
from plait.cli.options import F
from plait.cli.output import check_writable, print_json, write_file
from plait.cli.runs import find_run
from plait.core.errors import ConfigError, JournalError
from plait.lab.classics import (
    crashed_results,
    make_phase_table,
    make_task_table,
    make_token_tables,
    make_wire_table,
    question_suite,
    read_exchanges,
    render_exchanges,
    replace_published_models,
)
from plait.lab.comparison import Comparison
from plait.lab.grid import WIDTH, ReportTable, fence_text
from plait.lab.run_comparison import load_comparison
from plait.lab.suites import load_suite, replace_questions
from plait.lab.tasks import Suite
from plait.loops import word_of
from plait.user_files import read_text

BASICS = "basics:report"

_several = click.option(
    "--models",
    "several",
    metavar="X,Y",
    help="Several models, each for all phases (default local). Excludes --model SPEC, not --model PHASE=SPEC.",
)
_models = options.repeatable(
    "--model",
    "models",
    "[PHASE=]SPEC",
    "The model (default local), or with PHASE= that of one phase. SPEC without PHASE= excludes --models.",
)
_settings = options.repeatable("--set", "settings", "K=V", "An option of each loop that has it.")
_suite = click.option("--suite", metavar="SUITE", help=f"The tasks (default {BASICS}).")
_question = click.option("--question", metavar="TEXT", help="One question of your own, instead of a suite.")
_loop = click.option("--loop", "loop", metavar="LOOP", help="The loop, as react or react(dialect=lines).")
_schedule = options.combine(options.jobs, options.budget)
_shared = options.combine(
    _models,
    _settings,
    options.agent(only=("tools", "limits", "prompts", "system")),
    options.repeat_finished,
    options.text_formats,
    click.option("--html", metavar="FILE", help="Also write one HTML file."),
    options.journal,
    options.no_progress,
)


def _comparison(what: str) -> Callable[[F], F]:
    return click.option("--comparison", metavar="NAME", help=f"Run nothing: show {what} of a stored comparison.")


@click.group()
def classics() -> None:
    """Reproduce four published experiments with your models. Every run is recorded, and recorded runs are not repeated.

    Each table shows the published figures beside yours. Exit codes: 0 the table is complete, 1 a run crashed or another
    error, 4 the budget or an endpoint ended it early, 130 cancelled, 2 wrong usage.
    """


@classics.command("phases", short_help="Seconds, USD and tokens of `phased`, a row for each choice of phase models.")
@options.repeatable("--row", "rows", "PHASE=X,...", "A row: reason=X,react=X,reply=Y. Repeatable.")
@click.option(
    "--published", metavar="NAME=X,...", help="The seven published rows, with your models: 'gpt-*=openai:NAME,*=local'."
)
@_several
@_suite
@_question
@click.option("--limit", type=options.WHOLE, default=3, metavar="N", help="The first N tasks (default 3).")
@options.hardware
@_comparison("the rows of `phased`")
@_schedule
@_shared
def phases(rows: Sequence[str], published: str | None, limit: int, hardware: float | None, **flags: Any) -> None:
    """Seconds, USD and tokens of the loop `phased`: a row for each --row, or for each of the --models.

    A phase that a row does not name has the model of --model.
    """
    if rows and published:
        raise ConfigError("--row and --published exclude each other.", hint="Choose one.")
    paired = _parse_row(published, "--published") if published else None
    wanted = replace_published_models(paired) if paired else [_parse_row(row, "--row") for row in rows]
    if not flags["comparison"]:
        hint = "Name a model without the hardware first, then one with it: --models openai:NAME,local."
        options.check_hardware(hardware, len(wanted or _general_models(flags)), hint)
    done = _compare(_choose_suite(flags), flags, "phased", rows=wanted or None, limit=limit)
    _print_and_exit("phases", done, flags, [make_phase_table(done, hardware=hardware, paired=paired)])


@classics.command("tokens", short_help="Tokens of two loops on the same tasks: react and rewoo.")
@click.option("--loops", default="react,rewoo", metavar="A,B", help="The two loops (default react,rewoo).")
@_several
@_suite
@_question
@click.option("--limit", type=options.WHOLE, default=12, metavar="N", help="The first N tasks (default 12).")
@_comparison("the two loops")
@_schedule
@_shared
def tokens(loops: str, limit: int, **flags: Any) -> None:
    """Calls and tokens of two loops on the same tasks: a row for each task, and the sum. One table for each model."""
    pair = [word_of(loop) for loop in make_loops(loops, flags["settings"])]
    if len(set(pair)) != 2:
        raise ConfigError(f"--loops {loops} does not name two loops.", hint="For example: react,rewoo.")
    done = _compare(_choose_suite(flags), flags, loops, limit=limit)
    _print_and_exit("tokens", done, flags, make_token_tables(done, pair))


@classics.command("tasks", short_help="The six tasks of the world by model, with marks and steps.")
@_several
@_loop
@click.option("--suite", default="world:six", metavar="SUITE", help="Other tasks than the six (world:variations).")
@click.option("--tasks", "wordings", metavar="FILE", help="Other wordings of the tasks: a text file, a line a task.")
@click.option("--limit", type=options.WHOLE, metavar="N", help="Only the first N tasks.")
@options.flag("--why", help="Say below the table what was wrong.")
@_comparison("the cells")
@_schedule
@_shared
def tasks(loop: str | None, suite: str, wordings: str | None, limit: int | None, why: bool, **flags: Any) -> None:
    """The six tasks of the offline world (A to F) by model: each cell has done, flaw or not done, and the steps.

    The loop is codeact unless --loop names another. Several, such as codeact,json, get a column each.
    """
    chosen = replace_questions(load_suite(suite), read_text(wordings)) if wordings is not None else suite
    done = _compare(chosen, flags, loop or "codeact", limit=limit)
    _print_and_exit("tasks", done, flags, [make_task_table(done, why=why)])


@classics.command("wire", short_help="The requests and responses of a run, as sent, and their tokens.")
@click.argument("question", required=False)
@_several
@_loop
@click.option("--run", metavar="RUN", help="Run nothing: show a recorded run, by its id or `last`.")
@options.flag("--full", help="Also print what was sent before.")
@_shared
def wire(question: str | None, loop: str | None, run: str | None, full: bool, **flags: Any) -> None:
    """Each request of a run with its stop strings, and each response, in order; `=` was sent before, `+` is new.

    QUESTION runs with --loop (default react) and the --tools; without it, the first task of basics runs. A table of the
    tokens follows. This view is for reading; `plait show RUN --wire` prints the exact bytes.
    """
    if run is not None and question is not None:
        raise ConfigError("A question and --run exclude each other.", hint="Choose one.")
    with suppress(JournalError):  # `last`, or the beginning of an id of six characters or more
        is_id = bool(re.fullmatch(r"[0-9A-Za-z-]{6,}", question or ""))
        if question == "last" or (is_id and find_run(str(question), flags["journal"])):
            hint = f"To show a recorded run, write: plait classics wire --run {question}"
            raise ConfigError(f"{question!r} names a run, but this argument is a question.", hint=hint)
    _check_output(flags)
    flags |= {"suite": None, "question": question, "jobs": 1, "budget": None}  # one run
    done = _compare(_choose_suite(flags), flags, loop or "react", limit=1) if run is None else None
    found, texts, objects = [], [], []
    cells = [] if done is None else [each.run for each in done.results] + [each.run for each in done.not_measured]
    for each in [run] if run is not None else cells:
        row, store = find_run(each, flags["journal"])
        head, exchanged = row.head, read_exchanges(store.timeline(row.head.run))
        found.append(make_wire_table(exchanged, beside=head.loop["name"] == "react"))
        width = None if flags["as_markdown"] else _width()
        texts.append(render_exchanges(head.question, exchanged, full=full, width=width))
        about = {"run": head.run, "question": head.question, "loop": head.loop["name"]}
        objects.append({**about, "exchanges": msgspec.to_builtins(exchanged)})
    _print_and_exit("wire", done, flags, found, texts, {"runs": objects})


def _choose_suite(flags: Mapping[str, Any]) -> str | Suite:
    """Return the suite that the options name. Raises `ConfigError` if they name two."""
    if flags["question"] is None:
        return flags["suite"] or BASICS
    if flags["suite"] is not None:
        raise ConfigError("--suite and --question exclude each other.", hint="Choose one.")
    return question_suite(flags["question"])


def _parse_row(text: str, flag: str) -> dict[str, str]:
    """Return the models of `reason=X,react=X,reply=Y`, by what stands before the first `=` of each."""
    found = {}
    for part in filter(None, map(str.strip, text.split(","))):
        name, equals, model = part.partition("=")
        if not equals or not name.strip() or not model.strip():
            hint = f"For example: {flag} reason=local,reply=local."
            raise ConfigError(f"{flag} {part!r} is not NAME=MODEL.", hint=hint)
        found[name.strip()] = model.strip()
    return found


def _general_models(flags: Mapping[str, Any]) -> list[str]:
    """Return the models for all phases. Raises `ConfigError` if two options name them."""
    single = split_models(flags["models"])[0]
    if single and flags["several"]:
        raise ConfigError("--models and --model MODEL exclude each other.", hint="Write --model PHASE=MODEL.")
    return [single] if single else parse_models(flags["several"] or "local")


def _compare(suite: str | Suite, flags: Mapping[str, Any], loops: str, **wanted: Any) -> Comparison:
    """Return the comparison that a table shows: a stored one, or a new one that runs only missing cells."""
    _check_output(flags)
    if flags.get("comparison") is not None:
        return load_comparison(flags["comparison"], options.journal_path(flags["journal"]))
    phases = {phase: [model] for phase, model in split_models(flags["models"])[1].items()}
    made, models = make_loops(loops, flags["settings"]), _general_models(flags)
    return run_comparison(suite, flags, loops=made, models=models, phases=phases, **wanted)


def _check_output(flags: Mapping[str, Any]) -> None:
    """Raise `ConfigError` for output that cannot be printed, before anything runs."""
    options.check_one_format(csv=flags["as_csv"], markdown=flags["as_markdown"], json=flags["as_object"])
    if flags["html"]:
        check_writable(flags["html"])


def _join(texts: Iterable[str], tables: Iterable[str]) -> str:
    """Join tables, each below its text if there are texts."""
    return "\n\n".join(part for pair in zip_longest(texts, tables) for part in pair if part)


def _width() -> int:
    return min(WIDTH, shutil.get_terminal_size().columns) if sys.stdout.isatty() else WIDTH


def _print_and_exit(
    name: str,
    comparison: Comparison | None,
    flags: Mapping[str, Any],
    tables: Sequence[ReportTable],
    texts: Sequence[str] = (),
    more: Mapping[str, Any] | None = None,
) -> NoReturn:
    """Print tables, each below its text, in the chosen format. Exit with 0 if every run is finished and none crashed,
    with 1 if one crashed, else with 4."""
    if flags["as_object"]:
        head = {"table": name}
        if comparison is not None:
            head |= {"comparison": comparison.name, "suite": comparison.suite.word, "unfinished": comparison.unfinished}
        drawn = [{"title": each.title, "rows": each.rows, "notes": each.notes} for each in tables]
        print_json({**head, "tables": drawn, **(more or {})})
    elif flags["as_csv"]:
        shown = [each.csv().partition("\n") for each in tables]  # one line of heads for all tables
        click.echo("".join([*("".join(each[:2]) for each in shown[:1]), *(each[2] for each in shown)]), nl=False)
    elif flags["as_markdown"]:
        click.echo(_join(map(fence_text, texts), [each.markdown() for each in tables]))
    else:
        click.echo(_join(texts, [each.text(_width()) for each in tables]))
    if flags["html"]:
        from plait.lab.page import render_tables_page

        page = _join([f"<pre>{escape(text)}</pre>" for text in texts], [each.html() for each in tables])
        write_file(flags["html"], render_tables_page(f"plait classics {name}", page))
    if comparison is not None and crashed_results(comparison):
        exit_with(CRASHED)
    exit_with(0 if comparison is None or comparison.whole else 4)
