"""A table that is ready to be printed: its columns, and sentences below it."""

from __future__ import annotations

from msgspec import Struct

from plait.lab import grid
from plait.lab.comparison import Comparison
from plait.lab.words import not_measured


class Drawn(Struct, frozen=True):
    """`title` stands above ("": nothing does), `notes` below, a line each."""

    columns: tuple[grid.Column, ...]
    notes: tuple[str, ...] = ()
    title: str = ""

    def text(self, width: int | None = None) -> str:
        """For a terminal of some width; None: as wide as it is."""
        table, left_out = grid.text(self.columns, width)
        notes = [*self.notes, *([f"No room for: {', '.join(left_out)}."] if left_out else [])]
        parts = [self.title, table, "\n".join(grid.wrapped(note, width) for note in notes)]
        return "\n\n".join(filter(None, parts))

    def markdown(self) -> str:
        """In Markdown."""
        notes = "\n".join(f"- {grid.escaped(note)}" for note in self.notes)
        title = f"**{grid.escaped(self.title)}**" if self.title else ""
        return "\n\n".join(filter(None, (title, grid.markdown(self.columns), notes)))


def missing(comparison: Comparison) -> tuple[str, ...]:
    """Which cells were not measured or not finished, and why."""
    unfinished = (f"Not finished: {comparison.unfinished.rstrip('.')}.",) if comparison.unfinished else ()
    return (*not_measured(comparison), *unfinished)
