"""The lab: which loop, with which model, at what price."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from plait.lab.base import Grade, Grader, Suite, Task
    from plait.lab.comparing import acompare, compare, kept
    from plait.lab.comparison import Comparison, Contender
    from plait.lab.graders.registry import grader
    from plait.lab.result import Result
    from plait.lab.running import Progress
    from plait.lab.suites import suite
    from plait.lab.training import Trajectories, trajectories

# Names are imported when they are first used.
_PLACES = {
    "Comparison": "plait.lab.comparison",
    "Contender": "plait.lab.comparison",
    "Grade": "plait.lab.base",
    "Grader": "plait.lab.base",
    "Progress": "plait.lab.running",
    "Result": "plait.lab.result",
    "Suite": "plait.lab.base",
    "Task": "plait.lab.base",
    "Trajectories": "plait.lab.training",
    "acompare": "plait.lab.comparing",
    "compare": "plait.lab.comparing",
    "grader": "plait.lab.graders.registry",
    "kept": "plait.lab.comparing",
    "suite": "plait.lab.suites",
    "trajectories": "plait.lab.training",
}

__all__ = [
    "Comparison",
    "Contender",
    "Grade",
    "Grader",
    "Progress",
    "Result",
    "Suite",
    "Task",
    "Trajectories",
    "acompare",
    "compare",
    "grader",
    "kept",
    "suite",
    "trajectories",
]


def __getattr__(name: str) -> Any:
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module 'plait.lab' has no attribute '{name}'")
    from importlib import import_module

    return getattr(import_module(place), name)
