"""Takes a built-in guard out of the chain of each run of this process: for tests that show what depends on it.

As a pytest plugin it takes one out of a whole test run; `python tests/campaign removed` does that for each guard, and
lists the test files that fail, which must be those of that guard:

    PYTHONPATH=tests PLAIT_WITHOUT_GUARD=taint python -m pytest -p without_guard tests/test_replay.py

Programs that tests start by themselves keep all guards.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from plait.runtime import runs
from plait.runtime.guard import Guard
from plait.runtime.guards.hooks import HookGuard

GUARDS: dict[str, Callable[[Guard], bool]] = {
    "breaker": lambda guard: guard.name == "breaker",
    "limits": lambda guard: guard.name == "limits",
    "hooks": lambda guard: isinstance(guard, HookGuard),
    "grounding": lambda guard: guard.name in ("grounding", "sources"),
    "output": lambda guard: guard.name in ("output", "output_after_hooks"),
    "taint": lambda guard: guard.name == "taint",
    "spend": lambda guard: guard.name == "spend",
    "approvals": lambda guard: guard.name == "approvals",
    "hosted": lambda guard: guard.name == "hosted",
}
"""The built-in guards: which guards of a chain are meant by a name."""


def remove_guard(name: str, patch: pytest.MonkeyPatch) -> None:
    """Leave a guard out of all runs that begin from here."""
    make, is_meant = runs.make_guards, GUARDS[name]

    def make_others(*given: Any, **more: Any) -> list[Guard]:
        return [guard for guard in make(*given, **more) if not is_meant(guard)]

    patch.setattr(runs, "make_guards", make_others)


def pytest_configure(config: pytest.Config) -> None:
    """Leave out the guard that the environment names, in this process and its workers."""
    if name := os.environ.get("PLAIT_WITHOUT_GUARD"):
        remove_guard(name, pytest.MonkeyPatch())
