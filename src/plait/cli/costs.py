"""`plait costs`: what runs took and cost, phase by phase, side by side."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from plait.cli import options

if TYPE_CHECKING:
    from plait.cli.combinations import Line
    from plait.cli.spent import Head

EPILOG = """\
\b
Examples:
  plait costs last
  plait costs --last 6 --mean --tokens
  plait costs API_RUN LOCAL_RUN --hardware 1500

Seconds are those of model and tool calls, each for itself. A cell and its neighbours add up to "in all" as they
are shown. "-": the loop has no such phase; "?": a price is not known.
"""


@click.command(epilog=EPILOG, short_help="What runs cost and took, by phase.")
@click.argument("runs", metavar="[RUN...]", nargs=-1)
@click.option("--last", type=options.WHOLE, metavar="N", help="The N newest runs, oldest first, behind those named.")
@click.option("--mean", is_flag=True, help="One row for all runs of the same loop and models: their mean.")
@click.option("--tokens", is_flag=True, help="The tokens of each phase as well: in, of these cached, out.")
@click.option("--rates", is_flag=True, help="The price of each model as well, and where it is from.")
@click.option(
    "--hardware",
    type=options.NUMBER,
    metavar="USD",
    help="After how many runs hardware of this price is paid, by what a run costs less than the first row's.",
)
@click.option("--csv", "as_csv", is_flag=True, help="As comma-separated values.")
@click.option("--markdown", "as_markdown", is_flag=True, help="As a table in Markdown.")
@options.journal
@options.config
@click.option("--json", "as_object", is_flag=True, help="As one JSON list on stdout, with every digit.")
def costs(
    runs: tuple[str, ...],
    last: int | None,
    mean: bool,
    tokens: bool,
    rates: bool,
    hardware: float | None,
    as_csv: bool,
    as_markdown: bool,
    journal: str | None,
    as_object: bool,
) -> None:
    """Compare what each RUN (an id, the beginning of one, or `last`) took and cost: a row a run, a column a phase."""
    from plait.cli.combinations import averaged, line_of, table
    from plait.cli.record import found, open_journal
    from plait.core.errors import UsageError

    if as_csv + as_markdown + as_object > 1:
        raise UsageError("--csv, --markdown and --json exclude each other.", hint="Choose one.")
    kept = open_journal(journal)
    wanted = {row.head.run: row for row in (found(run, journal)[0] for run in runs)}
    for row in reversed(kept.runs(last)) if last else ():
        wanted.setdefault(row.head.run, row)
    if not wanted:
        raise UsageError("No run is named.", hint="Name runs by id, or `last`, or the newest with --last N.")
    lines = {run: line_of(row, kept.rows(run)) for run, row in wanted.items()}
    shown = averaged(lines.values()) if mean else list(lines.values())
    if hardware is not None and len(shown) < 2:
        raise UsageError(
            "--hardware compares rows with the first one, and there is only one row.",
            hint="Name a run without the hardware first, then one with it.",
        )
    paid = [_paid(hardware, shown[0], line) for line in shown] if hardware is not None else []
    if as_object:
        _objects(shown, paid)
        return
    heads, rows = table(shown, mean=mean, tokens=tokens)
    if paid:
        heads.append(("paid back after", True))
        for cells, after in zip(rows, paid, strict=True):
            words = str(after) if as_csv else f"{after:,} runs" if isinstance(after, int) else str(after)
            cells.append("-" if after is None else words)
    if as_csv:
        _csv(heads, rows, shown, rates=rates)
    elif as_markdown:
        _markdown(heads, rows)
        _notes(rows, shown, tokens=tokens, rates=rates, bullet="- ")
    else:
        _text(heads, rows)
        _notes(rows, shown, tokens=tokens, rates=rates)


def _paid(hardware: float | None, first: Line, line: Line) -> int | str | None:
    """The number of runs, "never" or "?" (a price is not known); None for the first row itself."""
    from plait.runtime.spending import runs_until

    if line is first or hardware is None:
        return None
    before, after = first.mean_nanos, line.mean_nanos
    if before is None or after is None:
        return "?"
    runs = runs_until(hardware, before - after)
    return "never" if runs is None else runs


def _objects(lines: Sequence[Line], paid: Sequence[int | str | None]) -> None:
    from plait.cli.text import as_json

    told: list[dict[str, Any]] = [line.json() for line in lines]
    for each, after in zip(told, paid, strict=bool(paid)):
        each["paid_back_after_runs"] = "not known" if after == "?" else after
    click.echo(as_json(told, indent=1))


def _text(heads: Sequence[Head], rows: Sequence[Sequence[str]]) -> None:
    """The table: in a terminal names are cut or wrapped, so that its lines fit; in a pipe it is whole."""
    from plait.lab import grid

    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    columns = [
        grid.TableColumn(name, tuple(row[i] for row in rows), left=not right) for i, (name, right) in enumerate(heads)
    ]
    click.echo(grid.render_grid(columns, width)[0])


def _markdown(heads: Sequence[Head], rows: Sequence[Sequence[str]]) -> None:
    click.echo("| " + " | ".join(_cell(name) for name, _ in heads) + " |")
    click.echo("|" + "|".join("--:" if right else "---" for _, right in heads) + "|")
    for row in rows:
        click.echo("| " + " | ".join(map(_cell, row)) + " |")


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def _csv(heads: Sequence[Head], rows: Sequence[Sequence[str]], lines: Sequence[Line], *, rates: bool) -> None:
    import csv
    import io

    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*(name for name, _ in heads), *(["rates"] if rates else [])])
    for row, line in zip(rows, lines, strict=True):
        writer.writerow([*row, *(["; ".join(_rates([line]))] if rates else [])])
    click.echo(out.getvalue(), nl=False)


def _notes(
    rows: Sequence[Sequence[str]], lines: Sequence[Line], *, tokens: bool, rates: bool, bullet: str = ""
) -> None:
    """What stands below the table."""
    from plait.cli.text import clean

    said = _rates(lines) if rates else []
    if any(cell == "?" for row in rows for cell in row):
        said.append("?: a price is not known")
    guessed = {clean(row.model): None for line in lines for row in line.spent if row.usage.estimated}
    if tokens and guessed:
        said.append(f"tokens estimated from the length of the text: {', '.join(guessed)}")
    if said:
        click.echo("\n" + "\n".join(bullet + each for each in said))


def _rates(lines: Sequence[Line]) -> list[str]:
    from plait.cli.spent import rate_words
    from plait.cli.text import clean

    said = [f"{clean(model)}: {clean(rate_words(rate))}" for line in lines for (_, model), rate in line.rates.items()]
    return list(dict.fromkeys(said))
