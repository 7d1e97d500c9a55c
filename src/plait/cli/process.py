"""The event loop, signals and standard streams of a command that performs runs."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from plait.cli.main import CANCELLED

T = TypeVar("T")


@contextmanager
def cancellable(
    work: Coroutine[Any, Any, T], *, how_to_resume: Callable[[], str], on_signal: Callable[[int], object] | None = None
) -> Iterator[tuple[asyncio.AbstractEventLoop, asyncio.Task[T]]]:
    """Yield an event loop and `work` as its task. Ctrl-C and SIGTERM cancel it; the cancellation is not raised.

    The first signal cancels the work, which then records that. A second signal ends the process. The handlers are
    Python's, not the event loop's, so the second signal works even if the loop is blocked. `how_to_resume` returns the
    sentence to print then. While it returns "", nothing is recorded, and the first signal ends everything.
    """
    loop = asyncio.new_event_loop()
    task = loop.create_task(work)
    signals = 0

    def cancel() -> None:
        task.cancel()
        loop.call_later(1, os.write, 2, b"\nCancelling. Ctrl-C again quits at once.\n")

    def handle(number: int, _: object) -> None:
        nonlocal signals
        signals += 1
        if on_signal is not None:
            on_signal(number)
        if signals > 1:
            # os.write, because the interrupted code may itself be writing to stderr.
            with suppress(OSError):
                os.write(2, f"\n{f'Quit at once. {how_to_resume()}'.strip()}\n".encode())
            os._exit(CANCELLED)
        if not how_to_resume():
            # Nothing is recorded yet, and an import may block the loop, so do not wait.
            raise KeyboardInterrupt
        if not task.done():
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(cancel)

    # Keep ignoring an ignored signal: a shell starts background jobs with Ctrl-C ignored.
    handled = [each for each in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(each) != signal.SIG_IGN]
    before = {number: signal.signal(number, handle) for number in handled}
    wait_for_threads = True
    try:
        yield loop, task
    except (asyncio.CancelledError, KeyboardInterrupt):
        wait_for_threads = False
    finally:
        try:
            pending = asyncio.all_tasks(loop)
            for each in pending:
                each.cancel()
            if pending:
                loop.run_until_complete(asyncio.wait(pending, timeout=2))
            loop.run_until_complete(loop.shutdown_asyncgens())
            if wait_for_threads:
                loop.run_until_complete(loop.shutdown_default_executor())
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            loop.close()


@contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """Redirect stdout to stderr, so that what tools print does not mix with the answer.

    The file descriptor is redirected, because programs that a tool starts write there too.
    """
    try:
        out = sys.stdout.fileno()
        sys.stdout.flush()
        saved = os.dup(out)
    except (OSError, ValueError, AttributeError):  # stdout is closed
        yield
        return
    try:
        try:
            os.dup2(2, out)
        except OSError:  # stderr is closed
            _point_at_null(out, os.O_WRONLY)
        yield
    finally:
        with suppress(OSError, ValueError):
            sys.stdout.flush()
        os.dup2(saved, out)
        os.close(saved)


@contextmanager
def empty_stdin() -> Iterator[None]:
    """Make stdin appear empty, so that loaded code cannot read what a client sends."""
    try:
        saved = os.dup(0)
    except OSError:  # stdin is closed
        yield
        return
    try:
        _point_at_null(0, os.O_RDONLY)
        yield
    finally:
        os.dup2(saved, 0)
        os.close(saved)


def _point_at_null(number: int, flags: int) -> None:
    null = os.open(os.devnull, flags)
    os.dup2(null, number)
    os.close(null)
