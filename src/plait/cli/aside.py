"""Keeps stdout for the answer: what tools print while a run goes on, and the programs they start, goes to stderr.

Stdin is kept in the same way where a client speaks on it.
"""

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


@contextmanager
def stdin_aside() -> Iterator[None]:
    """Let whatever reads the process's stdin for a while find its end: what stands there is for who reads it after."""
    try:
        kept = os.dup(0)
    except OSError:  # it is closed
        yield
        return
    nowhere = os.open(os.devnull, os.O_RDONLY)
    try:
        os.dup2(nowhere, 0)
        yield
    finally:
        os.dup2(kept, 0)
        for each in (kept, nowhere):
            os.close(each)


def _point(out: int, at: int) -> None:
    try:
        os.dup2(at, out)
    except OSError:  # stderr is closed
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, out)
        os.close(nowhere)
