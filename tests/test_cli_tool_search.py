"""`plait tools search` and `plait run --max-tools`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli_support import Shell, action, final, question


@pytest.fixture
def plait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.setenv("PLAIT_CACHE", str(tmp_path / "cache"))
    return Shell(tmp_path)


def test_tools_are_searched_by_what_they_do(plait: Shell) -> None:
    done = plait("tools", "search", "compute a sum", "--tools", "calculator", "--tools", "tools.py", "-k", "2")
    lines = done.out.splitlines()
    assert done.code == 0 and len(lines) == 2
    score, _, line = lines[0].partition("  ")
    assert float(score) > float(lines[1].partition("  ")[0])
    assert line.startswith("`calculator(expression: str) -> str`: ")


def test_as_json_with_scores_and_parameters(plait: Shell) -> None:
    found = json.loads(plait("tools", "search", "send a text", "--tools", "tools.py", "--json").out)
    assert len(found) == 3
    assert found[0]["name"] == "send" and "text" in found[0]["parameters"]["properties"]
    assert found[0]["score"] > found[1]["score"] >= found[2]["score"]


def test_the_tools_of_the_file_are_searched_where_no_flag_names_any(plait: Shell) -> None:
    (plait.folder / "plait.toml").write_text('[run]\ntools = ["tools.py"]\n')
    plait("trust")
    found = json.loads(plait("tools", "search", "anything", "-k", "50", "--json").out)
    assert {each["name"] for each in found} == {"send", "hang", "stubborn", "hostile", "long"}


@pytest.mark.parametrize(
    "wrong", [["  "], ["x", "-k", "0"], ["x", "--embedder", "nobody"], ["x", "--tools", "absent.py"]]
)
def test_wrong_usage_is_told(plait: Shell, wrong: list[str]) -> None:
    done = plait("tools", "search", *wrong)
    assert done.code == 2 and not done.out and "Traceback" not in done.err


def test_a_run_shows_the_tools_that_fit_and_goes_on_with_them(plait: Shell) -> None:
    script = plait.script([action("method_search", "send"), action("send", "hi"), final("ok")])
    told = ["--tools", "tools.py", "--approve", "effects", "--max-tools", "1"]
    done = plait("run", "Say a lot, as many words as you can", "--model", script, *told, "--json")
    run = json.loads(done.out)["run"]
    assert done.code == 5
    wire = plait("show", run, "--wire").out
    assert "long" in wire and "stubborn" not in wire.partition("`send(")[0]
    assert plait("resume", run, *question(plait, run), "--answer", "yes").code == 0
    assert (plait.folder / "sent.txt").read_text() == "hi\n"
    assert plait("replay", run).code == 0


def test_the_number_may_stand_in_the_file(plait: Shell) -> None:
    (plait.folder / "plait.toml").write_text('[run]\ntools = ["tools.py"]\nmax_tools = 0\n')
    plait("trust")
    plait("run", "q", "--model", plait.script([final("ok")]))
    assert "method_search" in plait("show", "last", "--wire").out
    plait("run", "q", "--model", plait.script([final("ok")]), "--max-tools", "9")
    assert "method_search" not in plait("show", "last", "--wire").out
    assert plait("run", "q", "--max-tools", "-1").code == 2
