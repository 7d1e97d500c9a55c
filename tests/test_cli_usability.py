"""Claims about help on the command line: near commands, words that name a run, tables that fit the terminal."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli_support import Shell
from plait.lab.grid import TableColumn, render_grid


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@pytest.mark.parametrize(
    ("words", "meant"), [(("rnu",), "run"), (("classics", "wrie"), "wire"), (("run", "--modle", "x"), "--model")]
)
def test_a_mistyped_command_or_option_gets_a_suggestion(shell: Shell, words: tuple[str, ...], meant: str) -> None:
    done = shell(*words)
    assert done.code == 2 and done.err.count("Did you mean") == 1
    assert meant in done.err.partition("Did you mean")[2]


def test_a_word_that_names_a_run_is_no_question_for_classics_wire(shell: Shell) -> None:
    done = shell("classics", "wire", "last")
    assert done.code == 2 and "plait classics wire --run last" in done.err


def test_a_table_fits_and_names_that_differ_in_the_middle_stay_whole() -> None:
    names = tuple(f"react(dialect=lines, misses={n}, transcript=chat, constrain=True)" for n in range(3))
    columns = [
        TableColumn("loop", names, left=True),
        TableColumn("success", ("1", "2", "3")),
        TableColumn("USD", ("0.1", "0.2", "0.3")),
    ]
    shown, left_out = render_grid(columns, 40)
    assert all(len(line) <= 40 for line in shown.splitlines()) and not left_out
    for n in range(3):
        assert f"misses={n}" in shown
    assert render_grid(columns)[0].count("\n") == 3, "in a pipe a row is a line"


def test_a_name_without_a_place_to_cut_is_wrapped_as_well() -> None:
    names = ("x" * 50 + "1" + "y" * 50, "x" * 50 + "2" + "y" * 50)
    shown, _ = render_grid([TableColumn("name", names, left=True), TableColumn("n", ("1", "2"))], 30)
    assert all(len(line) <= 30 for line in shown.splitlines())
    assert "".join(line.split()[0] for line in shown.splitlines()[1:5]) == names[0]
