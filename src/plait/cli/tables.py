"""How a comparison's table is printed: as text, Markdown, CSV or JSON, and as an HTML file beside it."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from plait.cli import options

if TYPE_CHECKING:
    from plait.lab.run_comparison import Comparison

_FLAGS = options.combine(
    click.option("--by-phase", is_flag=True, help="What each phase took, as well."),
    click.option("--by", "about", default="", metavar="FIELD", help="Success by a field of the tasks, such as steps."),
    click.option("--pairs", is_flag=True, help="Each two rows on the same tasks, as well."),
    click.option("--markdown", "as_markdown", is_flag=True, help="As tables in Markdown."),
    click.option("--csv", "as_csv", is_flag=True, help="The rows as comma-separated values."),
    click.option("--json", "as_object", is_flag=True, help="One JSON object on stdout, with every digit."),
    click.option("--cells", is_flag=True, help="Each finished cell, its grade and its run, as well."),
    click.option("--html", metavar="FILE", help="Write one HTML file as well, with pictures and every run."),
)
unwatched = click.option("--quiet", is_flag=True, help="Do not tell the progress.")
NAMES = ("by_phase", "about", "pairs", "as_markdown", "as_csv", "as_object", "cells", "html")


def output(function: Callable[..., Any]) -> Callable[..., Any]:
    """Options of how a table is printed, given to the command as one dictionary `output`."""

    @wraps(function)
    def command(**flags: Any) -> Any:
        return function(output={name: flags.pop(name) for name in NAMES}, **flags)

    return _FLAGS(command)


def checked(output: dict[str, Any]) -> None:
    """Raises `UsageError` for what can't be printed, before anything is run."""
    from plait.core.errors import UsageError

    if output["as_markdown"] + output["as_csv"] + output["as_object"] > 1:
        raise UsageError("--csv, --markdown and --json exclude each other.", hint="Choose one.")
    if output["cells"] and output["as_csv"]:
        raise UsageError("--csv has the rows only.", hint="--json --cells has each cell with every digit.")
    if output["html"]:
        place = Path(output["html"]).expanduser()
        if place.is_dir() or not place.absolute().parent.is_dir():
            raise UsageError(f"{output['html']} can't be written.", hint="Name a file in a folder that is there.")
        from plait.lab.page import check_report_extra

        check_report_extra()


def show(
    comparison: Comparison,
    *,
    by_phase: bool,
    about: str,
    pairs: bool,
    as_markdown: bool,
    as_csv: bool,
    as_object: bool,
    cells: bool,
    html: str | None,
) -> None:
    """Print a comparison's table on stdout, and write its page."""
    from plait.cli.text import as_json
    from plait.lab import report

    if as_object:
        click.echo(as_json(report.as_object(comparison, cells=cells), indent=1))
    elif as_csv:
        click.echo(report.render_csv(comparison), nl=False)
    elif as_markdown:
        click.echo(report.render_markdown(comparison, phases=by_phase, all_pairs=pairs, by=about, cells=cells))
    else:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        shown = report.render_text(comparison, width=width, phases=by_phase, all_pairs=pairs, by=about, cells=cells)
        click.echo(shown)
    if html:
        from plait.lab.page import render_page
        from plait.lab.run_comparison import events_reader

        place = Path(html).expanduser()
        place.write_text(render_page(comparison, record=events_reader(comparison)), encoding="utf-8")
        click.echo(f"Written: {place}", err=True)
