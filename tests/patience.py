"""Bounds on time that hold on a busy machine too."""

from __future__ import annotations

import os
import time
from collections.abc import Callable


def patience(seconds: float) -> float:
    """A bound of `seconds` on a machine at rest, and more of them by as much as more programs want its cores."""
    return seconds * (1 + os.getloadavg()[0] / (os.cpu_count() or 1))


def cpu_seconds(work: Callable[[], object], enough: float = 0.0) -> float:
    """The CPU seconds of this thread in the fastest of up to five tries; a try within `enough` is the last one.

    Other programs slow single tries down, also in CPU time: they share the caches and the cores.
    """
    fastest = float("inf")
    for _ in range(5):
        began = time.thread_time()
        work()
        fastest = min(fastest, time.thread_time() - began)
        if fastest < enough:
            break
    return fastest
