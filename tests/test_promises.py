"""Each promise of SECURITY.md names tests that attack it, and these exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import plait
from cli_support import action, final
from conftest import for_each
from plait.toolkits import calculator

HERE = Path(__file__).parent
SECURITY = (HERE.parent / "SECURITY.md").read_text("utf-8")
_, _, TABLE = SECURITY.partition("## Promises and the tests that attack them")
ROWS = [line.strip("| ").split(" | ") for line in TABLE.splitlines() if line.startswith("| ") and "`test_" in line]


def test_the_tests_of_each_promise_exist() -> None:
    assert ROWS
    for row in ROWS:
        named = re.findall(r"`(test_\w+\.py)::(test_\w+)`", row[1])
        assert named, row[0]
        for file, name in named:
            text = (HERE / file).read_text("utf-8")
            assert re.search(rf"^(async )?def {name}\(", text, re.M), f"{file} has no {name}"


def test_the_parts_of_the_campaign_exist() -> None:
    tree = ast.parse((HERE / "campaign" / "__main__.py").read_text("utf-8"))
    (table,) = (each.value for each in tree.body if isinstance(each, ast.AnnAssign))
    assert isinstance(table, ast.Dict)
    parts = {ast.literal_eval(key) for key in table.keys if key is not None}
    named = {part for row in ROWS for part in re.findall(r"`(\w+)`", row[2] if len(row) > 2 else "")}
    assert named <= parts


# -- attacks on promises that have no page of their own


@for_each(
    "text",
    [
        "__import__('os').system('touch broken')",
        "().__class__.__bases__[0].__subclasses__()",
        "exec('x = 1')",
        "open('/etc/passwd').read()",
        "[x for x in (1, 2)]",
        "(lambda: 1)()",
        "f'{1}'",
        "x := 1",
        "print(1)",
        "9**9**9**9",
        "\u2028__import__('os')",
        "ｅｖａｌ('1')",
    ],
)
def test_the_calculator_evaluates_no_python(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    replies = [action("calculator", {"expression": text}), final("over")]
    run = plait.Agent("react", model=plait.Scripted(replies), tools=[calculator], journal=False).run("?")
    (call,) = run.timeline.tool_calls
    assert call.observation is not None and not call.observation.ok, call
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("policy", [{"approve": "effects"}, {"taint": "ask"}])
def test_a_server_that_says_its_tool_changes_nothing_is_not_believed(policy: dict[str, str], tmp_path: Path) -> None:
    from mcp_support import command

    strange = plait.mcp(command(tmp_path / "log"), only=["price"])  # it says that it only reads
    replies = [action("price", {"item": "tea"}), final("over")]
    run = plait.Agent("react", model=plait.Scripted(replies), tools=strange, journal=tmp_path / "j.db", **policy).run(
        "?"
    )
    assert run.status == "waiting"
    assert strange[0].spec.has_effects
