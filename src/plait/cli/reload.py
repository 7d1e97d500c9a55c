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

SUFFIXES = (".py", ".toml", ".j2")
"""Code, settings and prompts. Tools may write other files while they work."""
PAUSE = 0.3
"""Seconds between two looks at the files."""


def fork_at_changes(folders: Iterable[Path]) -> bool:
    """Return in a new process, now and after each change of a file in the folders. Returns whether it is a restart.

    The calling process does not return: it watches the files, ends the process with SIGTERM at a change, and starts the
    next one when it has ended. If a process ends with an error, such as one of the agent's code, it waits for the next
    change. Signals are passed on; after one, it exits with the code of the last process.
    """
    child, stopped, is_restart = 0, False, False

    def pass_on(number: int, _: Any) -> None:
        nonlocal stopped
        stopped = True
        with suppress(ProcessLookupError):
            os.kill(child, number)

    roots = {each.resolve() for each in folders}
    handled = [each for each in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(each) != signal.SIG_IGN]
    while True:
        seen = list_files(roots)
        is_alive, kept_open = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        before = {number: signal.signal(number, signal.SIG_IGN) for number in handled}
        if (child := os.fork()) == 0:
            os.setpgid(0, 0)  # Ctrl-C goes to the first process alone, which passes it on
            os.close(kept_open)
            threading.Thread(target=_end_with, args=(is_alive,), daemon=True).start()
            for number, handler in before.items():
                signal.signal(number, handler)
            return is_restart
        os.close(is_alive)
        for number in handled:
            signal.signal(number, pass_on)
        code: int | None = None
        while not stopped and (now := list_files(roots)) == seen:
            time.sleep(PAUSE)
            if code is None and (code := _exit_code(child, os.WNOHANG)):
                click.echo(f"The server ended with code {code}. It starts again when a file changes.", err=True)
            if code == 0:
                sys.exit(0)
        while not stopped and now != (now := list_files(roots)):  # until an editor or git has written all
            time.sleep(PAUSE)
        if not stopped:
            names = sorted(os.path.relpath(each[0]) for each in now ^ seen)
            click.echo(f"Changed: {', '.join(dict.fromkeys(names))}. The server starts again.", err=True)
        if code is None:
            if not stopped:
                os.kill(child, signal.SIGTERM)
            code = _exit_code(child)
        os.close(kept_open)
        if stopped:
            sys.exit(code)
        for number, handler in before.items():
            signal.signal(number, handler)
        is_restart = True


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
