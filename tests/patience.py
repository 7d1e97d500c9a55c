"""Bounds on wall time that hold on a busy machine too."""

from __future__ import annotations

import os


def patience(seconds: float) -> float:
    """A bound of `seconds` on a machine at rest, and more of them by as much as more programs want its cores."""
    return seconds * (1 + os.getloadavg()[0] / (os.cpu_count() or 1))
