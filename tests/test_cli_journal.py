"""`plait journal` and `plait export --verify`: a journal as a whole, and files that left it."""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from cli_support import Shell, action, final


@pytest.fixture
def plait(tmp_path: Path) -> Shell:
    shell = Shell(tmp_path)
    model = shell.script([action("calculator", "6 * 7", "I multiply."), final("It is 42.")])
    assert shell("run", "What is 6 times 7?", "--model", model, "--tools", "calculator").code == 0
    return shell


def change(plait: Shell, sql: str) -> None:
    with closing(sqlite3.connect(plait.env["PLAIT_JOURNAL"])) as connection:
        connection.executescript(sql)


def exported(plait: Shell, tmp_path: Path) -> Path:
    file = tmp_path / "run.jsonl"
    file.write_text(plait("export", "last").out)
    return file


def signed(lines: list[str]) -> str:
    """Return lines with their digest, as somebody would make it who changes a file."""
    text = "".join(f"{line}\n" for line in lines)
    return text + json.dumps({"type": "digest", "sha256": hashlib.sha256(text.encode()).hexdigest()}) + "\n"


# -- the journal


def test_info_and_check_say_what_a_journal_holds_and_which_run_is_damaged(plait: Shell) -> None:
    info = json.loads(plait("journal", "info", "--json").out)
    assert (info["runs"], info["restored"]) == (1, None) and info["rows"] > 3 and info["size"] > 0
    assert "1 run" in plait("journal", "info").out
    whole = plait("journal", "check")
    assert whole.code == 0 and "are whole" in whole.out
    change(plait, "UPDATE events SET at = at + 1 WHERE seq = 3")
    broken = plait("journal", "check", "--json")
    assert broken.code == 1
    said = json.loads(broken.out)
    assert not said["whole"] and len(said["damage"]) == 1 and "row 3 is damaged" in said["damage"][0]
    assert "row 3 is damaged" in plait("journal", "check").out
    assert plait("replay", "last").code != 0


def test_restored_is_noted_and_says_how_many_runs_have_not_ended(plait: Shell) -> None:
    done = plait("journal", "restored")
    assert done.code == 0 and re.search(r"0 runs of \S+journal\.db have not ended", done.err)
    assert json.loads(plait("journal", "info", "--json").out)["restored"] is not None
    assert "may be missing" in plait("journal", "info").out


@pytest.mark.parametrize("word", ["info", "check", "restored"])
def test_a_journal_that_is_not_there_is_wrong_usage(plait: Shell, word: str, tmp_path: Path) -> None:
    done = plait("journal", word, "--journal", "none.db")
    assert done.code == 2 and "There is no journal at none.db" in done.err
    assert not (tmp_path / "none.db").exists()


# -- exported runs


def test_an_exported_run_agrees_with_its_digest_and_with_the_journal(plait: Shell, tmp_path: Path) -> None:
    file = exported(plait, tmp_path)
    last = json.loads(file.read_text().splitlines()[-1])
    assert signed(file.read_text().splitlines()[:-1]) == file.read_text() and last["type"] == "digest"
    done = plait("export", "--verify", "run.jsonl")
    assert done.code == 0 and "the journal has the same record" in done.out and last["sha256"] in done.out
    assert plait("export", "--verify", "-", given=file.read_text()).code == 0
    elsewhere = plait("export", "--verify", "run.jsonl", "--journal", "other.db")
    assert elsewhere.code == 0 and "does not have this run" in elsewhere.out


def test_a_changed_file_and_a_changed_journal_are_told_apart(plait: Shell, tmp_path: Path) -> None:
    file = exported(plait, tmp_path)
    whole = file.read_text()
    file.write_text(whole.replace("I multiply", "I divide"))
    done = plait("export", "--verify", "run.jsonl")
    assert done.code == 1 and "It was changed" in done.err
    file.write_text(signed(whole.replace("I multiply", "I divide").splitlines()[:-1]))
    done = plait("export", "--verify", "run.jsonl")
    assert done.code == 1 and "the journal has another record" in done.err


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n\n",
        "[1]\n5\n",
        "{}\n{}\n",
        "[" * 100_000 + "\n{}",
        signed(['{"head":{"run":"last"}}', "5"]),
        signed(['{"head":{"run":""}}']),
        signed(['{"head":{"run":"\\u001b[31mred"}}', "not json"]),
        signed(['{"head":{"run":{"a":1}}}', "\u2028"]),
    ],
)
def test_a_file_that_is_no_export_is_refused_without_a_traceback(plait: Shell, tmp_path: Path, text: str) -> None:
    (tmp_path / "odd.jsonl").write_text(text)
    for words, given in ((["odd.jsonl"], ""), (["-"], text)):
        done = plait("export", "--verify", *words, given=given)
        assert "Traceback" not in done.err and "defect" not in done.err, done.err
        assert "\x1b" not in done.out + done.err and "the same record" not in done.out


def test_bytes_that_are_no_text_and_missing_words_are_wrong_usage(plait: Shell, tmp_path: Path) -> None:
    (tmp_path / "odd.jsonl").write_bytes(bytes(range(256)) * 4)
    for words in (["--verify", "odd.jsonl"], ["--verify", "none.jsonl"], [], ["last", "--verify", "odd.jsonl"]):
        done = plait("export", *words)
        assert done.code in (1, 2) and "Traceback" not in done.err and "defect" not in done.err, done.err
