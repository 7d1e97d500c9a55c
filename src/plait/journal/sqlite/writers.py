"""The journals' writers of this process, at its end and when it forks."""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from plait.journal.sqlite.writer import Writer


watched: weakref.WeakSet[Writer] = weakref.WeakSet()
"""The writers to close at the process's end, and to stop while the process forks."""
_forking = threading.Lock()
_stopped: list[Writer] = []
"""The writers that wait while the process forks."""
_inherited: list[Writer] = []
"""Those that a fork brought along: never used and never closed, because their connections are the parent's."""


def _close_all() -> None:
    """Have what was written stand in one file, without a -wal file beside it."""
    for each in list(watched):
        if each.pid == os.getpid():
            each.close()


def _stop_all() -> None:
    """Before a fork: no thread is inside SQLite, whose locks the child would inherit without the thread."""
    _forking.acquire()
    _stopped.extend(watched)
    for each in _stopped:
        each.in_sqlite.acquire()


def _go_on() -> None:
    for each in _stopped:
        each.in_sqlite.release()
    _stopped.clear()
    _forking.release()


def _leave_behind() -> None:
    for each in _stopped:
        each.leave_to_parent()
    _inherited.extend(_stopped)
    _go_on()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_stop_all, after_in_parent=_go_on, after_in_child=_leave_behind)
