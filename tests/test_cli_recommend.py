"""`plait recommend`: what they print, on what stream, and how they end."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from cli_support import Shell, final


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    shell = Shell(tmp_path)
    one, two = shell.script([final("cheap")], "one.json"), shell.script([final("dear")], "two.json")
    rows = [
        line("react(dialect=lines)", one, 28, 0.001),
        line("react", two, 32, 0.002),
        line("json", one, 12, 0.0005),
        line("mine", one, 32, None),
    ]
    (tmp_path / "table.json").write_text(json.dumps({"name": "sums", "suite": "basics:report", "rows": rows}))
    return shell


def line(loop: str, model: str, successes: int, cost: float | None) -> dict[str, Any]:
    return {
        "loop": loop,
        "models": {"act": model},
        "successes": successes,
        "n": 32,
        "tasks": 32,
        "interval": [0.4, 0.95],
        "tokens": 1234.5,
        "seconds": 2.25,
        "cost_usd": cost,
    }


def test_it_prints_the_advice_the_candidates_and_a_command_that_runs(shell: Shell) -> None:
    ended = shell("recommend", "table.json", "--at-least", "80%")
    assert (ended.code, ended.err) == (0, "")
    lines = ended.out.splitlines()
    assert lines[0].startswith("react(dialect=lines) with scripted:one.json: 88 % of 32 tasks (40-95); 8")
    assert any(each.startswith("Next: react with scripted:two.json: 100 % of 32 tasks") for each in lines)
    assert any(each.startswith("Cheaper, but seen to do too few: json with scripted:one.json: 38 %") for each in lines)
    assert any(each.startswith("Can't be run here: mine with scripted:one.json: There is no loop") for each in lines)
    (head,) = (number for number, each in enumerate(lines) if each.startswith("loop "))
    columns = [each.split() for each in lines[head + 1 : head + 5]]
    assert [each[0] for each in columns] == ["json", "react(dialect=lines)", "react", "mine"]
    assert columns[0][-3:] == ["too", "few", "done"] and columns[1][-1] == "chosen" and columns[2][-1] == "next"
    command = lines[-1].removeprefix("Run it with: ")
    assert command == 'plait run "..." --loop react --set dialect=lines --model scripted:one.json'
    # A turn in lines is read by react(dialect=lines) too when it only answers.
    ran = shell(*shlex.split(command)[1:], "--quiet")
    assert (ran.code, ran.out) == (0, "cheap\n")


def test_json_is_one_object_with_every_digit(shell: Shell) -> None:
    found = shell("recommend", "table.json", "--at-least", "0.8", "--json").object
    assert found["chosen"]["loop"] == "react(dialect=lines)" and found["chosen"]["success"] == 28 / 32
    assert found["demand"] == {"at_least": 0.8, "usd": None, "seconds": None, "tokens": None, "include_changed": False}
    assert found["results"]["name"] == "sums" and len(found["results"]["digest"]) == 64
    assert [each["loop"] for each in found["candidates"]] == ["json", "react(dialect=lines)", "react", "mine"]
    assert found["candidates"][3]["unmet"] == ["here"] and found["text"] and found["command"].startswith("plait run")


@pytest.mark.parametrize(
    ("flags", "chosen"),
    [
        (["--at-least", "95%"], "react"),
        (["--at-least", "0.3"], "json"),
        (["--budget", "0.0015"], "react(dialect=lines)"),
        (["--at-least", "0", "--max-tokens", "1234.5"], "json"),
        (["--max-seconds", "2.25"], "react(dialect=lines)"),
    ],
)
def test_each_demand_is_taken_from_its_flag(flags: list[str], chosen: str, shell: Shell) -> None:
    assert shell("recommend", "table.json", *flags, "--json").object["chosen"]["loop"] == chosen


@pytest.mark.parametrize(
    "flags",
    [["--budget", "0"], ["--max-seconds", "2"], ["--max-tokens", "1000"], ["--at-least", "95%", "--budget", "0.001"]],
)
def test_where_nothing_meets_it_the_code_is_three_and_the_nearest_is_told(flags: list[str], shell: Shell) -> None:
    ended = shell("recommend", "table.json", *flags)
    assert ended.code == 3
    assert ended.out.startswith("No row of sums meets the demand: at least ")
    assert "Nearest in " in ended.out and "Run it with" not in ended.out
    as_object = shell("recommend", "table.json", *flags, "--json")
    assert as_object.code == 3 and as_object.object["chosen"] is None and as_object.object["nearest"]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["absent.json"], "There is no file absent.json"),
        (["tools.py"], "tools.py is not JSON"),
        (["one.json"], "no list of `rows`"),
        (["."], "There is no file ."),
        (["table.json", "--at-least", "80"], "is not a share from 0 to 1"),
        (["table.json", "--at-least", "nan"], "is not a share from 0 to 1"),
        (["table.json", "--budget", "-1"], "usd is -1.0"),
        (["table.json", "--budget", "nan"], "usd is nan"),
        (["table.json", "--max-seconds", "0"], "above zero"),
    ],
)
def test_what_cant_be_understood_is_wrong_usage(args: list[str], said: str, shell: Shell) -> None:
    ended = shell("recommend", *args)
    assert (ended.code, ended.out) == (2, "")
    assert said in ended.err


def test_control_characters_in_results_do_not_reach_the_terminal(shell: Shell) -> None:
    rows = [{**line("react", "scripted:\x1b[2Jone.json", 32, None)}, line("json\x1b]0;x\x07", "x\ny", 3, 0.1)]
    (shell.folder / "bad.json").write_text(json.dumps({"rows": rows}))
    ended = shell("recommend", "bad.json")
    assert "\x1b" not in ended.out + ended.err and "\x07" not in ended.out + ended.err
    assert not any(each.startswith("y") for each in ended.out.splitlines()), "nor do they draw lines of their own"
