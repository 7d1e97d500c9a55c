"""numpy's own threads, held back while we multiply."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import Any

_inside = 0
_inside_lock = threading.Lock()
_outside: AbstractContextManager[object] = nullcontext()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """While anybody is inside, numpy multiplies with one thread a caller.

    Its own threads wait by spinning: beside any other busy process a query took 260 ms in place of 10. The setting is
    the process's, so the first who comes in makes it and the last who leaves puts back what was.
    """
    global _inside, _outside
    with _inside_lock:
        if not _inside:
            _outside = _blas()
            _outside.__enter__()
        _inside += 1
    try:
        yield
    finally:
        with _inside_lock:
            _inside -= 1
            if not _inside:
                _outside.__exit__(None, None, None)


def _blas() -> AbstractContextManager[object]:
    controller = _controller()
    return nullcontext() if controller is None else controller.limit(limits=1, user_api="blas")


@cache
def _controller() -> Any:
    try:
        from threadpoolctl import ThreadpoolController
    except ImportError:
        return None  # slower beside others, and no less right
    return ThreadpoolController()
