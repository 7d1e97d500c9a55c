"""Tests of agents: no real models, a journal of their own, and recorded runs as tests (docs/testing.md).

pytest loads `pytest_plugin.py` by itself. Without pytest, use the functions here.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from plait.models.real_models import SWITCH, RealModelForbidden

if TYPE_CHECKING:
    from plait.testing.from_record import answer_in_order as answer_in_order
    from plait.testing.from_record import recorded_agent as recorded_agent

__all__ = ["RealModelForbidden", "allow_real_models", "answer_in_order", "forbid_real_models", "recorded_agent"]


@contextmanager
def forbid_real_models() -> Iterator[None]:
    """Raise `RealModelForbidden` at each request to an endpoint and each start of a local model meanwhile.

    It holds for the whole process and its child processes. `PLAIT_REAL_MODELS=forbid` in the environment does the same.
    """
    with set_variable(SWITCH, "forbid"):
        yield


@contextmanager
def allow_real_models() -> Iterator[None]:
    """Allow real models meanwhile, where they are forbidden."""
    with set_variable(SWITCH, "allow"):
        yield


@contextmanager
def set_variable(name: str, value: str) -> Iterator[None]:
    """Set an environment variable meanwhile."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = before


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module 'plait.testing' has no attribute '{name}'")
        from plait.testing import from_record  # it needs all of Plait

        return getattr(from_record, name)
