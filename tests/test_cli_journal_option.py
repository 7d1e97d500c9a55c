"""A mistyped journal is an error of every command, and reading creates nothing. Dumb terminals get no colors."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from cli_support import Shell, final
from conftest import CAMPAIGN, for_each

READING = [
    "runs",
    "show last",
    "costs last",
    "replay last",
    "export last",
    "results list",
    "rate list",
    "runs prune --keep 1",
]
WRITING = ["run q --model scripted:script.json", "chat --model scripted:script.json", "resume last", "rate last good"]


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    made = Shell(tmp_path_factory.mktemp("journal"))
    made.script([final("42")] * 20)
    (made.folder / "here").mkdir()
    return made


@for_each("words", [*READING, *WRITING])
@for_each("journal", ["absent/runs.db", "here/absent/deeper/runs.db", "absent/"])
def test_a_journal_in_no_folder_is_an_error(shell: Shell, words: str, journal: str) -> None:
    done = shell(*words.split(), "--journal", journal)
    assert (done.code, done.out) == (2, ""), done.err
    assert f"there is no folder {journal.rpartition('/')[0]}." in done.err and "--journal" in done.err
    assert not (shell.folder / "absent").exists() and not list((shell.folder / "here").iterdir())


@pytest.mark.parametrize("words", READING)
def test_reading_creates_no_journal(shell: Shell, words: str) -> None:
    shell(*words.split(), "--journal", "here/typo.db")
    assert not list((shell.folder / "here").iterdir())


@pytest.mark.parametrize("journal", [".", "script.json/runs.db", "/proc/runs.db"])
def test_a_journal_where_no_file_can_be_is_a_wrong_option(shell: Shell, journal: str) -> None:
    done = shell("run", "q", "--model", "scripted:script.json", "--journal", journal)
    assert (done.code, done.out) == (2, "") and "can't be opened" in done.err and "--journal" in done.err, done.err


def test_the_variable_and_the_file_count_too(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    shell.env["PLAIT_JOURNAL"] = str(tmp_path / "absent/runs.db")
    assert shell("runs").code == 2
    del shell.env["PLAIT_JOURNAL"]
    (tmp_path / "plait.toml").write_text('[run]\njournal = "gone/runs.db"\n')
    done = shell("runs")
    assert done.code == 2 and "there is no folder" in done.err and "gone" in done.err
    (tmp_path / "plait.toml").unlink()
    shell.env["XDG_STATE_HOME"] = str(tmp_path / "state")
    shell.script([final("42")])
    assert shell("run", "q", "--model", "scripted:script.json").code == 0, "the default journal makes its folder"


@pytest.mark.parametrize(
    "env, colors, controls",
    [
        ({"TERM": "xterm-256color"}, True, True),
        ({"TERM": "dumb"}, False, False),
        ({"TERM": "unknown"}, False, False),
        ({"TERM": "xterm-256color", "NO_COLOR": "1"}, False, True),
        ({"TERM": "dumb", "NO_COLOR": "1"}, False, False),
        ({"TERM": "xterm-256color", "NO_COLOR": ""}, True, True),
    ][:: 1 if CAMPAIGN else 2],
)
def test_a_terminal_without_colors_gets_none(shell: Shell, env: dict[str, str], colors: bool, controls: bool) -> None:
    master, slave = os.openpty()
    process = shell.start("run", "q", "--model", "scripted:script.json", stdout=slave, stderr=slave, env=env)
    os.close(slave)
    shown = b""
    try:
        while piece := os.read(master, 65536):
            shown += piece
    except OSError:  # Linux: the other side is closed
        pass
    os.close(master)
    assert process.wait(60) == 0
    assert b"answered" in shown
    assert bool(re.search(rb"\x1b\[(?:\d+;)*(?:3[0-9]|9[0-7])(?:;\d+)*m", shown)) is colors, shown
    assert (b"\x1b" in shown) is controls, shown


def test_a_pipe_gets_no_colors(shell: Shell) -> None:
    done = shell("run", "q", "--model", "scripted:script.json", env={"TERM": "xterm-256color"})
    assert "\x1b" not in done.out + done.err and "answered" in done.err
