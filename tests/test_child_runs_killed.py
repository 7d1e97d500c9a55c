"""A kill anywhere in a tree of runs repeats no effect and loses none."""

from __future__ import annotations

from pathlib import Path

import pytest

from crash_support import ANSWER, TREES, kill_and_resume, run_script


@pytest.mark.parametrize("tree", TREES)
def test_a_kill_at_any_point_of_a_tree_repeats_and_loses_no_effect(tree: str, tmp_path: Path) -> None:
    """A sample of the points; the campaign kills at every one."""
    whole = run_script(tmp_path / "whole", tree)
    assert (whole["status"], whole["answer"], whole["children"]) == ("answered", ANSWER, 2)
    points = len(whole["points"])
    assert points > 60
    step = points // 5
    found = {
        point: kill_and_resume(tmp_path / str(point), tree, point, *((3,) if point % 2 else ()))
        for point in range(1, points + 1, step)
    }
    assert {point: each.wrong for point, each in found.items() if each.wrong} == {}
    assert {point: each for point, each in found.items() if each.repeated or each.lost} == {}
    assert sum(each.kills for each in found.values()) >= len(found)
