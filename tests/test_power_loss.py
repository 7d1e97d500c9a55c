"""The intent of an effect is on the disk before the effect: a loss of power repeats none."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from power_loss import lose_power

pytestmark = pytest.mark.skipif(shutil.which("strace") is None, reason="strace traces the writes and syncs")


def test_no_effect_is_repeated_after_a_loss_of_power(tmp_path: Path) -> None:
    results = lose_power(8, 3, tmp_path)
    assert [each.wrong for each in results] == [[]] * 8
    assert sum(each.resumed for each in results) > 8 and sum(each.in_doubt for each in results) > 0


def test_without_syncs_effects_are_repeated(tmp_path: Path) -> None:
    results = lose_power(8, 3, tmp_path, unsynced=True)
    assert any("repeated" in text or "missing" in text for each in results for text in each.wrong)
