"""The lab measures which loop, with which model, is worth its price."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from plait.lab.comparison import Comparison as Comparison
    from plait.lab.comparison import Contender as Contender
    from plait.lab.graders import load_grader as load_grader
    from plait.lab.results import CellResult as CellResult
    from plait.lab.run_comparison import acompare as acompare
    from plait.lab.run_comparison import compare as compare
    from plait.lab.run_comparison import load_comparison as load_comparison
    from plait.lab.schedule import Progress as Progress
    from plait.lab.suites import load_suite as load_suite
    from plait.lab.tasks import Grade as Grade
    from plait.lab.tasks import Grader as Grader
    from plait.lab.tasks import Suite as Suite
    from plait.lab.tasks import SuiteTask as SuiteTask
    from plait.lab.trajectories import Trajectories as Trajectories
    from plait.lab.trajectories import find_trajectories as find_trajectories

# Names are imported when they are first used.
_NAMES = {
    "run_comparison": "acompare compare load_comparison",
    "comparison": "Comparison Contender",
    "graders": "load_grader",
    "results": "CellResult",
    "schedule": "Progress",
    "suites": "load_suite",
    "tasks": "Grade Grader Suite SuiteTask",
    "trajectories": "Trajectories find_trajectories",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"plait.lab.{_MODULES[name]}"), name)
