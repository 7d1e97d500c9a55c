"""Shows how far a download is: a bar in a terminal, a line each tenth in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

Progress: TypeAlias = Callable[[int, int], None]
"""Told (bytes done, bytes in all), again and again; the first number never falls."""


@contextmanager
def default_progress(name: str, own: Progress | None) -> Iterator[Progress]:
    """The caller's own callback, or a bar or lines on stderr, whichever fits where stderr goes."""
    if own is not None:
        yield own
    elif sys.stderr is None:
        yield lambda done, total: None
    elif sys.stderr.isatty():
        with _bar(name) as bar:
            yield bar
    else:
        yield _Lines(name)


class _Lines:
    def __init__(self, name: str) -> None:
        self.name = name
        self.said = -1

    def __call__(self, done: int, total: int) -> None:
        tenth = done * 10 // max(total, 1)
        if tenth > self.said:
            self.said = tenth
            print(f"fetching {self.name}: {tenth * 10}% of {total / 1e6:,.0f} MB", file=sys.stderr, flush=True)


@contextmanager
def _bar(name: str) -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("fetching {task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(name, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
