"""Restarts a command when files of its agents change: `plait serve --reload`."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from plait.core.text import clean

SUFFIXES = (".py", ".toml", ".j2")
"""Code, settings and prompts. Tools may write other files while they work."""
PAUSE, SHARE = 0.3, 20
"""Seconds between two looks at the files, and how many times as long as a look the pause is at least."""


def fork_at_changes(folders: Iterable[Path]) -> bool:
    """Return in a new process, now and after each change of a file in the folders. Returns whether it is a restart.

    The calling process does not return: it watches the files, ends the process with SIGTERM at a change, and starts the
    next one when it has ended. If a process ends with an error, such as one of the agent's code, it waits for the next
    change. Signals are passed on; after one, it exits with the code of the last process.
    """
    child, stopped, is_restart = 0, False, False
    code: int | None = 0

    def pass_on(number: int, _: Any) -> None:
        nonlocal stopped
        stopped = True
        if child:
            with suppress(ProcessLookupError):
                os.kill(child, number)

    def look_again() -> set[tuple[str, int, int]]:
        """Return the files after a pause. In a large folder the pause is longer, so that watching costs little."""
        time.sleep(PAUSE)
        began = time.process_time()
        found = list_files(roots)
        pause_end = time.monotonic() + SHARE * (time.process_time() - began)
        while not stopped and (left := pause_end - time.monotonic()) > 0:
            time.sleep(min(left, PAUSE))  # a signal does not end a sleep
        return found

    roots = {each.resolve() for each in folders}
    handled = [each for each in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(each) != signal.SIG_IGN]
    before = {number: signal.signal(number, pass_on) for number in handled}
    while not stopped:
        seen = list_files(roots)
        is_alive, kept_open = os.pipe()
        signal.pthread_sigmask(signal.SIG_BLOCK, handled)  # the new process gets none before it has its handlers
        if (child := os.fork()) == 0:
            os.setpgid(0, 0)  # Ctrl-C goes to the first process alone, which passes it on
            os.close(kept_open)
            threading.Thread(target=_end_with, args=(is_alive,), daemon=True).start()
            for number, handler in before.items():
                signal.signal(number, handler)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, handled)
            return is_restart
        signal.pthread_sigmask(signal.SIG_UNBLOCK, handled)
        os.close(is_alive)
        code = None
        while not stopped and (now := look_again()) == seen:
            if code is None and (code := _exit_code(child, os.WNOHANG)) is not None:
                child = 0
                if code == 0:
                    sys.exit(0)
                click.echo(f"The server ended with code {code}. It starts again when a file changes.", err=True)
        while not stopped and now != (now := look_again()):
            pass  # an editor or git still writes
        if not stopped:
            names = dict.fromkeys(os.path.relpath(each[0]) for each in sorted(now ^ seen))
            click.echo(f"Changed: {clean(', '.join(names))}. The server starts again.", err=True)
            if child:
                os.kill(child, signal.SIGTERM)
        code = _exit_code(child) if child else code
        child = 0
        os.close(kept_open)
        is_restart = True
    sys.exit(code)


def list_files(folders: Iterable[Path]) -> set[tuple[str, int, int]]:
    """Return the watched files below folders, with time and size. Leaves out hidden folders and environments."""
    found = set()
    for folder in folders:
        for place, below, names in os.walk(folder):
            below[:] = [
                each
                for each in below
                if each[0] != "."
                and each not in ("__pycache__", "node_modules")
                and not os.path.exists(os.path.join(place, each, "pyvenv.cfg"))
            ]
            for name in names:
                if name.endswith(SUFFIXES):
                    with suppress(OSError):
                        about = os.stat(path := os.path.join(place, name))
                        found.add((path, about.st_mtime_ns, about.st_size))
    return found


def _exit_code(child: int, flags: int = 0) -> int | None:
    """Return the exit code of a process; with WNOHANG, None while it lives."""
    ended, status = os.waitpid(child, flags)
    return os.waitstatus_to_exitcode(status) if ended else None


def _end_with(pipe: int) -> None:
    """End this process when the one that made it is gone, also by SIGKILL: the pipe closes then."""
    os.read(pipe, 1)
    os.kill(os.getpid(), signal.SIGTERM)
