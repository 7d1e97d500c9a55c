"""Keeps what goes wrong in telemetry from what is observed."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar, cast

from plait.runtime.tracing import UNWATCHED

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")

logger = logging.getLogger("plait")


def quiet(method: Callable[Concatenate[S, P], None]) -> Callable[Concatenate[S, P], None]:
    """A method that never raises: what would is said to the log."""

    @functools.wraps(method)
    def called(self: S, /, *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            method(self, *args, **kwargs)
        except Exception:
            logger.debug("telemetry went wrong", exc_info=True)

    return called


def opened(make: Callable[P, R]) -> Callable[P, R]:
    """Makes a span, and where that fails one that observes nothing."""

    @functools.wraps(make)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return make(*args, **kwargs)
        except Exception:
            logger.debug("telemetry went wrong", exc_info=True)
            return cast(R, UNWATCHED)

    return called
