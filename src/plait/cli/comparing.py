"""What commands that compare share: Ctrl-C or SIGTERM cancels, progress goes to stderr, models are named by phase."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import Any, TextIO, TypeVar

import click

from plait.cli.group import CANCELLED, leave
from plait.cli.text import clean, duration, money
from plait.core.errors import UsageError
from plait.lab.run_comparison import Comparison
from plait.lab.schedule import Progress

T = TypeVar("T")
EVERY = 0.2
"""Seconds between two drawings of the line on a terminal."""


def go(work: Coroutine[Any, Any, T]) -> T | None:
    """What comes of it; None when it was cancelled. A second signal ends the process at once."""

    async def watched() -> T:
        task = asyncio.current_task()
        assert task is not None
        loop = asyncio.get_running_loop()

        def stop() -> None:
            if task.cancelling():
                os._exit(CANCELLED)
            os.write(2, b"\nCancelling: runs under way are put on the record. Ctrl-C again quits at once.\n")
            task.cancel()

        heeded = [each for each in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(each) != signal.SIG_IGN]
        for number in heeded:
            loop.add_signal_handler(number, stop)
        try:
            return await work
        finally:
            for number in heeded:
                loop.remove_signal_handler(number)

    with suppress(asyncio.CancelledError):
        return asyncio.run(watched())
    return None


def told(done: Comparison | None) -> Comparison:
    """What came of it; says what is not finished, and ends the command when it was cancelled."""
    if done is None:
        click.echo("Cancelled. The same command goes on where it was.", err=True)
        leave(CANCELLED)
    if done.unfinished:
        click.echo(f"Not finished: {done.unfinished.rstrip('.')}. The same command goes on where it was.", err=True)
    return done


def by_phase(given: Sequence[str]) -> dict[str, list[str]]:
    """The models that single phases have of their own, each given as PHASE=X,Y."""
    found: dict[str, list[str]] = {}
    for each in given:
        phase, equals, names = each.partition("=")
        if not equals or not phase.strip():
            raise UsageError(
                f"--model {each!r} names no phase.", hint="Write --model reason=X,Y; --models are for all."
            )
        found[phase.strip()] = several(names)
    return found


def several(names: str) -> list[str]:
    """The models of a list. Raises `UsageError` where it names none."""
    found = [name.strip() for name in names.split(",") if name.strip()]
    if not found:
        raise UsageError(f"{names!r} names no model.", hint="Such as --models local.")
    return found


class Watch:
    """Tells how far a comparison is: one line that changes on a terminal, a line a cell elsewhere."""

    def __init__(self, out: TextIO, *, quiet: bool) -> None:
        self._out = out
        self._quiet = quiet
        self._line = out.isatty()
        self._drawn = 0.0
        self._width = 0

    def __call__(self, progress: Progress) -> None:
        """Tell it. That nobody can read it must not end the comparison."""
        if self._quiet:
            return
        with suppress(OSError, ValueError):
            if progress.said:
                self._say(clean(progress.said))
            elif self._line:
                if progress.finished == progress.cells or time.monotonic() - self._drawn > EVERY:
                    self._draw(_far(progress))
            elif progress.result is not None:
                result = progress.result
                what = f"{result.grade.mark} · {result.variant} · {result.task} · {duration(result.seconds)}"
                self._say(f"{_far(progress)} · {clean(what)}")

    def close(self) -> None:
        """Leave the line."""
        if self._width:
            with suppress(OSError, ValueError):
                self._out.write("\n")
                self._out.flush()

    def _draw(self, text: str) -> None:
        self._drawn = time.monotonic()
        self._out.write("\r" + text.ljust(self._width))
        self._out.flush()
        self._width = len(text)

    def _say(self, text: str) -> None:
        self._out.write(("\r" + " " * self._width + "\r" if self._width else "") + text + "\n")
        self._out.flush()
        self._width = 0


def _far(progress: Progress) -> str:
    left = "" if progress.left is None else f" · {duration(progress.left)} left"
    usd = "price not known" if progress.usd is None else money(progress.usd)
    return f"{progress.finished:,} of {progress.cells:,}{left} · {usd}"
