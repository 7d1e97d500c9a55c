"""The lab measures which loop, with which model, is worth its price."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from plait.lab.comparison import Comparison, Contender
    from plait.lab.graders import load_grader
    from plait.lab.results import CellResult
    from plait.lab.run_comparison import acompare, compare, load_comparison
    from plait.lab.schedule import Progress
    from plait.lab.suites import load_suite
    from plait.lab.tasks import Grade, Grader, Suite, SuiteTask
    from plait.lab.trajectories import Trajectories, find_trajectories

__all__ = [
    "CellResult",
    "Comparison",
    "Contender",
    "Grade",
    "Grader",
    "Progress",
    "Suite",
    "SuiteTask",
    "Trajectories",
    "acompare",
    "compare",
    "find_trajectories",
    "load_comparison",
    "load_grader",
    "load_suite",
]

# Names are imported when they are first used.
_MODULES = {
    "run_comparison": ("acompare", "compare", "load_comparison"),
    "comparison": ("Comparison", "Contender"),
    "graders": ("load_grader",),
    "results": ("CellResult",),
    "schedule": ("Progress",),
    "suites": ("load_suite",),
    "tasks": ("Grade", "Grader", "Suite", "SuiteTask"),
    "trajectories": ("Trajectories", "find_trajectories"),
}


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"plait.lab.{module}"), name)
    raise AttributeError(f"module 'plait.lab' has no attribute '{name}'")
