"""What the commands of `plait tables` share: their options, and the comparison that a table is drawn from."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from plait.cli import options
from plait.cli.tables import unwatched

if TYPE_CHECKING:
    from plait.lab.classics import ClassicTable
    from plait.lab.run_comparison import Comparison
    from plait.lab.tasks import Suite

models = click.option("--models", "names", default="local", metavar="X,Y", help="The models (default local).")
question = click.option("--question", metavar="TEXT", help="One question of your own, in place of a suite.")
strategy = click.option("--strategy", "loop", metavar="LOOP", help="The loop, as react or react(dialect=lines).")
_SHARED = options.combine(
    options.tools,
    click.option("--jobs", type=options.WHOLE, default=1, metavar="N", help="Runs at once (default 1)."),
    click.option("--budget", type=options.NUMBER, metavar="USD", help="Begin no run that would cost more in all."),
    click.option("--again", is_flag=True, help="Run what is finished once more."),
    options.limits,
    click.option("--markdown", "as_markdown", is_flag=True, help="In Markdown."),
    options.as_object,
    options.journal,
    options.config,
    unwatched,
)
_RUNNING = ("tools", "jobs", "budget", "again", "journal", "quiet")
_LIMITS = ("max_steps", "max_calls", "max_tokens", "max_cost", "max_seconds")


def shared(function: Callable[..., Any]) -> Callable[..., Any]:
    """Options of how a table's runs are run, given to the command as one dictionary `running`; and of how it is
    printed."""

    @wraps(function)
    def command(**flags: Any) -> Any:
        from plait.core.errors import UsageError

        running = {name: flags.pop(name) for name in (*_RUNNING, *_LIMITS)}
        if flags["as_markdown"] and flags["as_object"]:
            raise UsageError("--markdown and --json exclude each other.", hint="Choose one.")
        return function(running=running, **flags)

    return _SHARED(command)


def recorded(what: str) -> Callable[[Any], Any]:
    """The option to draw from a comparison that is on record."""
    return click.option("--comparison", "recorded", metavar="NAME", help=f"Run nothing: {what} of a comparison's runs.")


def suite_of(word: str | None, asked: str | None, tools: Sequence[str], usual: str) -> str | Suite:
    """The suite that the flags name. Raises `UsageError` where they name two."""
    from plait.core.errors import UsageError

    if asked is None:
        return word or usual
    if word is not None:
        raise UsageError("--suite and --question exclude each other.", hint="Choose one.")
    from plait.lab.classics import question_suite

    return question_suite(asked, tools)


def compared(
    suite: str | Suite,
    *,
    running: Mapping[str, Any],
    strategies: str,
    models: str | Sequence[str],
    phases: Mapping[str, Sequence[str]] | None = None,
    limit: int | None = None,
    recorded: str | None = None,
) -> Comparison:
    """The comparison, run as far as it is not on record; or one that is. Ends the command when it is cancelled."""
    from plait.cli.aside import stdout_aside
    from plait.cli.comparing import Watch, go, told
    from plait.cli.places import journal_file
    from plait.cli.settings import lab_settings
    from plait.lab.run_comparison import acompare, load_comparison

    place = journal_file(running["journal"])
    if recorded is not None:
        return load_comparison(recorded, place)
    settings = lab_settings(
        prompts=None,
        provenance=None,
        sandbox=None,
        code_limit=(),
        show_tools=None,
        **{name: running[name] for name in _LIMITS},
    )
    watch = Watch(sys.stderr, quiet=running["quiet"])
    with stdout_aside():
        found = go(
            acompare(
                suite,
                strategies=strategies,
                models=models,
                phases=phases,
                tools=() if not isinstance(suite, str) else running["tools"],
                limit=limit,
                jobs=running["jobs"],
                budget=running["budget"],
                again=running["again"],
                journal=place,
                tell=watch,
                **settings,
            )
        )
    watch.close()
    return told(found)


def show(drawn: Sequence[ClassicTable], *, as_markdown: bool) -> None:
    """Print tables, one below the other."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for number, each in enumerate(drawn):
        click.echo(("\n" if number else "") + (each.markdown() if as_markdown else each.text(width)))


def show_object(name: str, comparison: Comparison, told: Mapping[str, Any]) -> None:
    """Print a table as one JSON object."""
    from plait.cli.text import as_json

    head = {
        "table": name,
        "comparison": comparison.name,
        "suite": comparison.suite.word,
        "unfinished": comparison.unfinished,
    }
    click.echo(as_json({**head, **told}, indent=1))


def ended(comparison: Comparison) -> None:
    """End the command: 0 all is finished, 4 it is not."""
    from plait.cli.group import leave

    leave(0 if comparison.whole else 4)
