"""Keeps stdout for the answer: what tools print while a run goes on, and the programs they start, goes to stderr."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def stdout_aside() -> Iterator[None]:
    """Send the process's stdout to stderr for a while, and what Python holds back of it by the end as well.

    Done below Python, on the file descriptors: a program that a tool starts writes there too. Where stdout is
    closed there is nothing to keep.
    """
    try:
        out = sys.stdout.fileno()
        sys.stdout.flush()
        kept = os.dup(out)
    except (OSError, ValueError, AttributeError):
        yield
        return
    try:
        _point(out, at=2)
        yield
    finally:
        with suppress(OSError, ValueError):
            sys.stdout.flush()
        os.dup2(kept, out)
        os.close(kept)


def _point(out: int, at: int) -> None:
    try:
        os.dup2(at, out)
    except OSError:  # stderr is closed
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, out)
        os.close(nowhere)
