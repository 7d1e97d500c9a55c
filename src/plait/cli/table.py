"""A table as text: columns parted by two spaces, a row cut to the terminal's width, whole in a pipe."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Collection, Sequence

import click


def show_table(
    head: Sequence[str], rows: Sequence[Sequence[str]], *, right: Collection[int] = (), err: bool = False
) -> None:
    """Print rows under their heads. `right`: the numbers of the columns that are set to the right; `err`: on stderr."""
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    room = shutil.get_terminal_size().columns if (sys.stderr if err else sys.stdout).isatty() else None
    for row in (head, *rows):
        cells = [cell.rjust(widths[i]) if i in right else cell.ljust(widths[i]) for i, cell in enumerate(row[:-1])]
        line = "  ".join([*cells, row[-1]]).rstrip()
        if room is not None and len(line) > room:
            line = line[: max(1, room - 1)] + "…"
        click.echo(line, err=err)
