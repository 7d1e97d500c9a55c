"""Where the command `plait` starts. Imports nothing that `plait --version` can do without."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import warnings
from typing import NoReturn

CANCELLED = 130


def main() -> None:
    """Run the command line and end with its exit code. No traceback, unless PLAIT_DEBUG is set."""
    if sys.argv[1:] == ["--version"]:
        from plait import __version__

        print(f"plait {__version__}")
        return
    _open_all()
    try:
        if signal.getsignal(signal.SIGTERM) != signal.SIG_IGN:
            signal.signal(signal.SIGTERM, _interrupt)
        from plait.cli.group import perform

        warnings.showwarning = lambda message, *_: _say(f"Warning: {message}")
        code = perform(sys.argv[1:])
    except KeyboardInterrupt:
        _say("Cancelled.")
        code = CANCELLED
    _end(code)


def _open_all() -> None:
    """Give a closed stdin, stdout or stderr a place that leads nowhere.

    Else the next file that is opened, such as the journal, would be given its number, and our words.
    """
    for name, number, mode in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free, which is this one
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115


def _interrupt(*_: object) -> NoReturn:
    """SIGTERM does what Ctrl-C does."""
    raise KeyboardInterrupt


def _say(text: str) -> None:
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr)


def _end(code: int) -> NoReturn:
    _on_signal(CANCELLED)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            # Whoever read our output has gone: what is left goes nowhere, and nothing complains at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    # All is done and told: a Ctrl-C that comes now ends what still holds us up, and the code stays what it is.
    _on_signal(code)
    if code == CANCELLED:
        # A thread that still works (a download, a tool) would hold up an orderly end. The record is written.
        os._exit(code)
    sys.exit(code)


def _on_signal(code: int) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, lambda *_: os._exit(code))
