"""A run that is killed after any write to the journal ends as it would have ended: each kind of step, each guard.

`step_scenarios.py` and `guard_scenarios.py` have the runs, and `row_kills.find_faults` what holds for each of them. The
tests kill each run at one point, drawn by its name; `python tests/campaign rows` kills at all points.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from conftest import for_each, some_of
from lifecycle_scenarios import (
    LIFECYCLES,
    content_of,
    find_lifecycle_faults,
    find_needless_verify,
    find_unrecorded,
    name_file,
)
from row_kills import SCENARIOS, find_faults, kill_points, perform

RIGHT = [name for name, scenario in SCENARIOS.items() if not scenario.wrong]
WRONG = [
    pytest.param(name, marks=pytest.mark.xfail(reason=scenario.wrong, strict=True))
    for name, scenario in SCENARIOS.items()
    if scenario.wrong
]


@pytest.mark.parametrize("name", some_of(RIGHT, 8))
def test_a_run_killed_after_a_row_ends_as_if_it_had_not_been_killed(name: str, tmp_path: Path) -> None:
    chance = random.Random(name)
    kills = {0: f"{chance.choice(['after', 'before'])}:{chance.randint(2, 6)}"}
    assert find_faults(perform(tmp_path, name, kills, seed=chance.randint(0, 9))) == []


@pytest.mark.parametrize("name", WRONG)
def test_an_undisturbed_run_ends_as_it_should(name: str, tmp_path: Path) -> None:
    assert find_faults(perform(tmp_path, name)) == []


def test_each_write_of_each_process_is_a_point_at_which_a_run_is_killed(tmp_path: Path) -> None:
    """The run begins, plans a call and waits; another process gives the answer, makes the call, asks a model, ends."""
    name = "act, approved"
    whole = perform(tmp_path, name)
    assert find_faults(whole) == [] and len(whole.writes) == 2 and min(whole.writes) >= 3
    points = [point for point in kill_points(whole) if "after" in str(point)]
    ended = [perform(tmp_path / str(i), name, point) for i, point in enumerate(points)]
    assert [each.kills for each in ended] == [1] * sum(whole.writes)
    assert [fault for each in ended for fault in find_faults(each)] == []
    assert sum(each.last["in_doubt"] != [] for each in ended) == 1  # right after the intent, before the call


@pytest.mark.parametrize("name", [name for name in RIGHT if name.startswith("grounding")])
def test_a_run_killed_right_before_its_end_ends_as_if_it_had_not_been_killed(name: str, tmp_path: Path) -> None:
    """The loop has seen the check of its answer, which has no row: the guards restore it."""
    writes = perform(tmp_path / "whole", name).writes
    kills = {len(writes) - 1: f"before:{writes[-1]}"}
    assert find_faults(perform(tmp_path / "killed", name, kills)) == []


@pytest.mark.parametrize("signal", ["", ":TERM"])
def test_a_run_with_dependencies_files_and_verify_that_gets_a_signal_ends_as_if_it_had_not(
    signal: str, tmp_path: Path
) -> None:
    """Its child run has dependencies of its own, and is about to record its effect."""
    ended = [
        perform(tmp_path / str(write), "open, a child", {0: f"before:{write}{signal}", 1: f"time:0.2{signal}"})
        for write in (5, 6, 7)  # it is the 6th, or another one if rows in line are written before
    ]
    assert [fault for each in ended for fault in find_faults(each)] == []
    assert min(each.kills for each in ended) >= 1 and all(each.terms for each in ended) == bool(signal)
    assert [each.last["files"] for each in ended] == [["a", "one", "two"]] * 3
    assert signal or any("verify" in line for each in ended for line in each.tally)


@for_each(
    ("lines", "fault"),
    [
        ("open d-1-0, use d-1-0, close d-1-0, ended 1", ""),
        ("open d-1-0, open d-2-0, use d-2-0, close d-2-0, ended 2", ""),
        ("open d-1-0, use d-1-0, ended 1", "left open: d-1-0"),
        ("open d-1-0, close d-1-0, use d-1-0, ended 1", "use of d-1-0, which is not open"),
        ("open d-1-0, close d-1-0, close d-1-0, ended 1", "close of d-1-0, which is not open"),
        ("use d-1-0, open d-1-0", "use of d-1-0, which is not open"),
        ("open d-1-0, close d-1-0, open d-1-0, close d-1-0", "opened twice: d-1-0"),
    ],
)
def test_what_is_used_while_closed_or_left_open_is_found(lines: str, fault: str) -> None:
    assert find_lifecycle_faults(lines.split(", ")) == [fault][: bool(fault)]


def test_needless_questions_late_results_and_broken_files_are_found() -> None:
    lines = ["do one#k", "verify k", "verify k"]
    assert find_needless_verify(lines, Counter("k")) == ["k"] and find_needless_verify(lines[:2], Counter("k")) == []
    assert find_unrecorded([*lines, "ask echo"], Counter("k")) == ["k"]
    assert (
        find_unrecorded(["ask echo", *lines], Counter("k")) == find_unrecorded([*lines, "read x"], Counter("o")) == []
    )
    assert name_file("a.bin", content_of("a")) == "a" != name_file("a.bin", content_of("b"))
    assert all(scenario.files and not scenario.wrong for scenario in LIFECYCLES.values())
