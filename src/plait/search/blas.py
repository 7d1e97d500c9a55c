"""Limits numpy to one thread per product while Plait multiplies."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

_inside = 0
_inside_lock = threading.Lock()
_before: list[tuple[Any, int]] = []


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Let numpy multiply with one thread per caller while a caller is inside.

    numpy's own threads wait by spinning. Beside another busy process, a query took 260 ms instead of 10. The setting
    belongs to the process: the first caller that enters makes it, and the last that leaves restores the one before.
    """
    global _inside, _before
    with _inside_lock:
        if not _inside:
            _before = [(library, library.get_num_threads()) for library in _libraries()]
            _set_threads([(library, 1) for library, _ in _before])
        _inside += 1
    try:
        yield
    finally:
        with _inside_lock:
            _inside -= 1
            if not _inside:
                _set_threads(_before)


def _set_threads(counts: list[tuple[Any, int]]) -> None:
    """Set the number of threads of each library, whichever thread set it last.

    threadpoolctl lets one thread control OpenBLAS, and silently ignores all others. So a limit set in one thread did
    nothing if another thread was inside `threadpool_limits`, or had been the first to enter here.
    """
    for library, count in counts:
        clear = getattr(library, "clear_controlling_thread", lambda force: None)
        clear(force=True)
        library.set_num_threads(count)
        clear(force=True)


@cache
def _libraries() -> tuple[Any, ...]:
    try:
        from threadpoolctl import ThreadpoolController
    except ImportError:
        return ()  # slower beside others, and no less right
    return tuple(ThreadpoolController().select(user_api="blas").lib_controllers)
