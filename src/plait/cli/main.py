"""Where the command `plait` starts. Imports nothing that `plait --version` can do without."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from typing import NoReturn

CANCELLED = 130


def main() -> None:
    """Run the command line and end with its exit code. No traceback, unless PLAIT_DEBUG is set."""
    if sys.argv[1:] == ["--version"]:
        from plait import __version__

        print(f"plait {__version__}")
        return
    try:
        if signal.getsignal(signal.SIGTERM) != signal.SIG_IGN:
            signal.signal(signal.SIGTERM, _interrupt)
        from plait.cli.group import perform

        code = perform(sys.argv[1:])
    except KeyboardInterrupt:
        _say("Cancelled.")
        code = CANCELLED
    _end(code)


def _interrupt(*_: object) -> NoReturn:
    """SIGTERM does what Ctrl-C does."""
    raise KeyboardInterrupt


def _say(text: str) -> None:
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr)


def _end(code: int) -> NoReturn:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            # Whoever read our output has gone: what is left goes nowhere, and nothing complains at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    if code == CANCELLED:
        # A thread that still works (a download, a tool) would hold up an orderly end. The record is written.
        os._exit(code)
    sys.exit(code)
