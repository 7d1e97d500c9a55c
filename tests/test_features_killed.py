"""A run with skills, memory, hosted tools, MCP, messages, background work or reviewers that is killed ends as it would
have, repeats no effect, and replays. `python tests/campaign features` kills at all points, in all loops."""

from __future__ import annotations

from pathlib import Path

import pytest

from conftest import some_of
from feature_kills import kill_feature, perform_feature
from feature_scenarios import CASES, FEATURES
from postgres_server import shared_server

QUICK = [case for case in CASES if case[1] != "codeact"]


@pytest.mark.parametrize(("feature", "loop"), some_of(QUICK, 26, 3))
def test_a_run_with_a_feature_that_is_killed_ends_as_if_it_had_not_been(
    feature: str, loop: str, tmp_path: Path
) -> None:
    point = "after result call" if FEATURES[feature].effects else "after model"
    found = kill_feature(tmp_path, feature, loop, point)
    assert (found.wrong, found.kills) == ([], 1)


@pytest.mark.parametrize(("feature", "loop"), [("background sub-agent", "json"), ("reviewer", "tool_calling")])
def test_the_same_holds_in_postgres(feature: str, loop: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KILL_ADDRESS", shared_server().address)
    found = kill_feature(tmp_path, feature, loop, "after result call")
    assert (found.wrong, found.kills) == ([], 1)


@pytest.mark.parametrize(
    ("fault", "point", "figure"),
    [("repeat", "after send", "repeated"), ("lose", 0, "lost"), ("differ", 0, "differing")],
)
def test_a_repeated_and_a_lost_effect_and_another_replay_are_noticed(
    fault: str, point: str | int, figure: str, tmp_path: Path
) -> None:
    kills = [point] if point else []
    found = kill_feature(tmp_path, "todo", "react", *kills, fault=fault)
    assert getattr(found, figure) == 1 and found.wrong


@pytest.mark.parametrize("loop", ["rewoo", "compiler"])
def test_a_turn_that_the_provider_paused_goes_on_in_a_plan_and_in_its_steps(loop: str, tmp_path: Path) -> None:
    found = perform_feature(tmp_path, "hosted search, paused", loop)
    last = "it is b" if loop == "rewoo" else "value of b"
    assert (found["status"], sorted(found["effects"])) == ("answered", ["one", f"three {last}", "two value of a"])
