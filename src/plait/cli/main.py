"""The start and the end of the program `plait`. It imports only what `plait --version` needs."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from typing import NoReturn

CRASHED, WRONG_USAGE, CANCELLED = 1, 2, 130


def main() -> None:
    """Run the command line and exit with its code. Errors print one line; PLAIT_DEBUG=1 prints the traceback."""
    if sys.argv[1:] == ["--version"]:
        from plait import __version__

        print(f"plait {__version__}")
        return
    # Open closed standard streams on the null device. Otherwise the next file that is opened, such as the journal,
    # would get the number of a standard stream.
    for name, number, mode in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number, which is this one
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115
    try:
        sys.unraisablehook = _report_dropped
        if signal.getsignal(signal.SIGTERM) != signal.SIG_IGN:
            signal.signal(signal.SIGTERM, signal.default_int_handler)  # like Ctrl-C
        from plait.cli.commands import finish_telemetry, plait, prepare_process, report_error

        prepare_process()
        if "_PLAIT_COMPLETE" in os.environ:
            plait.main(prog_name="plait")  # click's own shell completion
        code = 0
        try:
            no_colors = os.environ.get("NO_COLOR") or os.environ.get("TERM") in ("dumb", "unknown")
            with plait.make_context("plait", sys.argv[1:], color=False if no_colors else None) as context:
                plait.invoke(context)
        except BaseException as error:
            code = report_error(error)
        finally:
            finish_telemetry()
    except BaseException as error:
        if not isinstance(error, KeyboardInterrupt) and not isinstance(error.__cause__, KeyboardInterrupt):
            raise
        with contextlib.suppress(OSError):
            print("Cancelled.", file=sys.stderr)
        code = CANCELLED
    _exit(code)


def _report_dropped(dropped: sys.UnraisableHookArgs) -> None:
    """Quit if Python drops a KeyboardInterrupt, as it does in callbacks of imports. The command would go on."""
    if issubclass(dropped.exc_type, KeyboardInterrupt):
        os.write(2, b"Cancelled.\n")
        os._exit(CANCELLED)
    sys.__unraisablehook__(dropped)


def _exit(code: int) -> NoReturn:
    _exit_on_signal(CANCELLED)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            # The reader is gone. The rest goes to the null device, so that Python does not complain at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    # Everything is printed. A later Ctrl-C ends whatever still delays the exit, and the exit code stays the same.
    _exit_on_signal(code)
    if code == CANCELLED:
        # A busy thread (a download, a tool) would delay an orderly exit. The journal is already written.
        os._exit(code)
    sys.exit(code)


def _exit_on_signal(code: int) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, lambda *_: os._exit(code))
