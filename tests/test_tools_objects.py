"""Classes and objects as tools: their public methods, and a state that no other run sees."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import plait
from cli_support import action, final
from journal_rows import is_result
from plait.core.errors import ConfigError
from plait.tools import tools_from

MADE: list[str] = []


class Counter:
    """Counts."""

    def __init__(self, start: int = 0) -> None:
        MADE.append("made")
        self.count = start

    def add(self, number: int) -> int:
        """Adds to the count.

        number: how much
        """
        self.count += number
        return self.count

    async def read(self) -> int:
        """The count."""
        return self.count

    def undescribed(self, x):  # type: ignore[no-untyped-def]
        return x

    def _own(self) -> None:
        """Not for a model."""


class Marked(Counter):
    @plait.tool(read_only=True)
    def look(self, at: str) -> str:
        """Looks."""
        return f"{at}: {self.count}"


@pytest.fixture(autouse=True)
def _none_made() -> None:
    MADE.clear()


def seen(run: plait.Run) -> list[Any]:
    return [row.record.value.value for row in run.trace if is_result(row.record)]


def counting(tool: Any, **fields: Any) -> plait.Agent:
    script = [action("add", {"number": 2}), action("add", {"number": 3}), action("read"), final("ok")]
    return plait.Agent("react", model=plait.Scripted(script), tools=[tool], **{"journal": False, **fields})


def test_a_class_gives_its_public_methods_and_each_run_an_object_of_its_own(journal: Path) -> None:
    agent = counting(Counter, journal=journal)
    assert [spec.name for spec in agent.specs] == ["add", "read"] and MADE == []
    assert agent.specs[0].parameters["properties"]["number"]["type"] == "integer"
    assert "self" not in json.dumps(agent.specs[0].parameters)
    run = agent.run("?")
    assert seen(run) == [2, 5, 5] and seen(agent.run("again")) == [2, 5, 5] and MADE == ["made", "made"]
    assert agent.replay(run.id).whole and MADE == ["made", "made"]  # nothing is called, and nothing made
    assert seen(agent.fork(run.id, 3))[2:] == [0]  # a fork has an object of its own


def test_a_factory_makes_one_object_for_each_run() -> None:
    for factory in (plait.toolset(lambda: Counter(10)), partial(Counter, 10)):
        agent = counting(factory)
        assert seen(agent.run("?")) == [12, 15, 15] == seen(agent.run("again"))


def test_an_object_is_used_as_it_is() -> None:
    agent = counting(Counter(10))
    assert seen(agent.run("?")) == [12, 15, 15] and seen(agent.run("again")) == [17, 20, 20]


def test_methods_that_are_marked_as_tools_are_the_only_ones() -> None:
    for item in (Marked, Marked(3)):
        (tool,) = tools_from([item])
        assert (tool.name, tool.read_only, list(tool.spec.parameters["properties"])) == ("look", True, ["at"])
    model = plait.Scripted([action("look", "x"), final("ok")])
    assert seen(plait.Agent("react", model=model, tools=[Marked], journal=False).run("?")) == ["x: 0"]


class Needs:
    def __init__(self, place: str) -> None:
        self.place = place

    def go(self) -> str:
        """Goes."""
        return self.place


@pytest.mark.parametrize(
    ("item", "said"),
    [
        (Needs, r"can't be made without arguments.*plait.toolset\(lambda: Needs\(...\)\)"),
        (3, "int cannot be used as a tool"),
        (object(), "object cannot be used as a tool"),
        (plait.Agent(journal=False), "Agent cannot be used as a tool"),
        (plait.Limits, "Limits cannot be used as a tool"),
    ],
)
def test_what_has_no_methods_for_a_model_is_refused(item: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        tools_from([item])


def test_a_factory_that_fails_says_so() -> None:
    with pytest.raises(ConfigError, match="factory of a toolset failed: KeyError"):
        plait.toolset(lambda: {}["x"])
