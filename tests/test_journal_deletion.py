"""Runs can be deleted and texts redacted; a text result is stored once."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import plait
from cli_support import Shell, action, final
from plait.core.errors import JournalError, UnknownRun
from plait.journal import redaction
from plait.journal.results import Results
from plait.journal.sqlite import queries
from plait.journal.store import Journal, wait_for

SECRET = "the name of the patient is Joan Roe"


def agent(journal: Path, *, result: str = SECRET, **fields: object) -> plait.Agent:
    @plait.tool
    def look(key: str) -> str:
        """Look something up."""
        return result

    said = [action("look", "x"), final("done")]
    return plait.Agent("react", model=plait.Scripted(said), tools=[look], journal=journal, **fields)  # type: ignore[arg-type]


def bytes_of(folder: Path) -> bytes:
    return b"".join(each.read_bytes() for each in folder.rglob("*") if each.is_file())


def test_a_result_that_is_text_is_stored_once_and_read_as_before(tmp_path: Path) -> None:
    big = "".join(f"{n:x}." for n in range(60_000))
    run = agent(tmp_path / "j.db", result=big, limits=plait.Limits(observation_chars=500)).run("q")
    Journal.at(tmp_path / "j.db").close()
    assert len(big) < (tmp_path / "j.db").stat().st_size < 1.5 * len(big)
    [(_, seen)] = run.timeline.results
    assert seen.value == seen.text == big
    assert agent(tmp_path / "j.db", result=big).using(limits=plait.Limits(observation_chars=500)).replay("last").whole


# ---- deleting


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """A folder with three runs: two that ended, and a fork of the first."""
    shell = Shell(tmp_path)
    journal = Path(shell.env["PLAIT_JOURNAL"])
    made = agent(journal)
    first = made.run("one", session="s")
    made.run("two", session="s")
    made.fork(first.id, 2)
    Journal.at(journal).close()
    return shell


def ids(shell: Shell) -> list[str]:
    return [run.head.run for run in reversed(Journal(shell.env["PLAIT_JOURNAL"]).runs())]


def test_a_deleted_run_leaves_nothing_behind_and_its_fork_and_session_stay_readable(shell: Shell) -> None:
    first, second, fork = ids(shell)
    assert shell("rate", first, "good").code == 0
    done = shell("runs", "rm", first, second, "--yes")
    assert done.code == 0 and "Deleted 2 runs" in done.err, done.err
    assert ids(shell) == [fork]
    assert shell("show", fork).code == 0 and shell("runs", "--session", "s").code == 0
    gone = shell("show", first)
    assert gone.code == 2 and "may have been deleted" in gone.err
    assert wait_for(Results(Journal(shell.env["PLAIT_JOURNAL"]).store).list_ratings()) == {}
    assert shell("runs", "rm", fork, "--yes").code == 0
    assert SECRET.encode() not in bytes_of(shell.folder)


def test_nothing_is_deleted_without_yes_or_in_a_dry_run(shell: Shell) -> None:
    before = ids(shell)
    done = shell("runs", "rm", before[0])
    assert done.code == 2 and "--yes" in done.err and before[0] in done.out
    done = shell("runs", "prune", "--keep", "1", "--dry-run")
    assert done.code == 0 and done.out.split()[0] == before[1] and "2 runs would be deleted" in done.err
    assert shell("runs", "rm", before[0], "no-such-run", "--yes").code == 2
    assert ids(shell) == before


def test_prune_keeps_the_newest_and_reads_the_configuration(shell: Shell) -> None:
    before = ids(shell)
    assert "Plait cannot tell which runs are old" in shell("runs", "prune", "--yes").err
    assert shell("runs", "prune", "--older-than", "1d", "--yes").code == 0 and ids(shell) == before
    (shell.folder / "own.toml").write_text('[journal]\nkeep = 1\nolder_than = "0m"\n')
    done = shell("runs", "prune", "--yes", "--config", "own.toml")
    assert done.code == 0, done.err
    assert ids(shell) == before[-1:]
    assert shell("runs", "prune", "--older-than", "a year").code == 2


async def test_runs_that_go_on_or_wait_are_never_old(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.db", clock=lambda: time.time() - 1000)
    run = await agent(tmp_path / "j.db", approve="always").arun("q")
    assert run.status == "waiting"
    assert list(journal.old_runs(older_than=0.0, keep=0)) == []
    with pytest.raises(UnknownRun):
        await journal.store.delete(["nothing"])


# ---- redaction


@pytest.fixture
def redacted() -> Iterator[None]:
    plait.journal.redact_with(lambda text: text.replace("Joan Roe", "[name]"))
    yield
    plait.journal.redact_with(None)


@pytest.mark.usefixtures("redacted")
def test_the_redaction_function_sees_every_text_before_it_is_stored(tmp_path: Path) -> None:
    made = agent(tmp_path / "j.db")
    run = made.run("Who is Joan Roe?")
    assert run.status == "answered"
    assert made.replay(run.id).whole, "a replay compares what is stored"
    Journal.at(tmp_path / "j.db").close()
    assert b"Joan Roe" not in bytes_of(tmp_path) and b"[name]" in bytes_of(tmp_path)
    assert agent(tmp_path / "j.db").fork(run.id, 2).status == "answered"


async def test_a_run_that_is_deleted_while_it_is_read_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, store = await agent(tmp_path / "j.db").arun("q"), Journal.at(tmp_path / "j.db").store
    check_run = queries.check_run

    def delete_before(*values: Any) -> int:
        with sqlite3.connect(tmp_path / "j.db") as other:
            other.execute("DELETE FROM runs")
        return check_run(*values)

    monkeypatch.setattr(queries, "check_run", delete_before)
    with pytest.raises(UnknownRun, match="was deleted while it was read"):
        await store.find_run(run.id)


def test_a_redaction_function_that_fails_stores_nothing(tmp_path: Path) -> None:
    redaction.redact_with(lambda text: text[10_000])
    try:
        with pytest.raises(JournalError, match="redaction function failed, and nothing was stored: IndexError"):
            agent(tmp_path / "j.db").run("Who is Joan Roe?")
        redaction.redact_with(lambda text: None)  # type: ignore[arg-type, return-value]
        with pytest.raises(JournalError, match="returned NoneType"):
            agent(tmp_path / "j.db").run("Who is Joan Roe?")
    finally:
        redaction.redact_with(None)
    assert b"Joan" not in bytes_of(tmp_path)


def test_only_the_user_s_own_configuration_names_a_redaction_function(shell: Shell) -> None:
    (shell.folder / "mine.py").write_text("def redact(text):\n    return text.replace('Joan Roe', '[name]')\n")
    (shell.folder / "script.json").write_text(json.dumps([final("Joan Roe")]))
    (shell.folder / "near.toml").write_text('[journal]\nredact = "mine:redact"\n')
    words = ["run", "Who is Joan Roe?", "--model", "scripted:script.json"]
    env = {"XDG_CONFIG_HOME": str(shell.folder / "config"), "PYTHONPATH": str(shell.folder)}
    done = shell(*words, "--config", "near.toml", env=env)
    assert done.code == 2 and "Only your own configuration may set it" in done.err
    (shell.folder / "config" / "plait").mkdir(parents=True)
    (shell.folder / "near.toml").rename(shell.folder / "config" / "plait" / "plait.toml")
    done = shell(*words, "--journal", "r.db", env=env)
    assert (done.code, done.out) == (0, "Joan Roe\n"), done.err
    with sqlite3.connect(shell.folder / "r.db") as connection:
        text = str(connection.execute("SELECT question, head, outcome FROM runs").fetchall())
        text += str(connection.execute("SELECT data, body FROM events").fetchall())
    connection.close()
    assert "Joan" not in text and "[name]" in text
