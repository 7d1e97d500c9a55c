"""Damaged files never make a resumed run repeat an effect, and every damaged row that is read is reported."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import journal_damage
import plait
from journal_damage import TEXTS, Template
from plait.core.errors import JournalError
from plait.core.events import Noted
from plait.journal import effects
from plait.journal.effects import EffectsFile, Mark
from plait.journal.salvage import salvage
from plait.journal.store import Journal


def test_no_damage_repeats_an_effect_and_every_damaged_row_is_reported() -> None:
    results = journal_damage.run(18, 5, [Template(3, "during", True)])
    wrong = [(case, result) for case, result in results if result.wrong]
    assert not wrong, wrong
    assert {result.ended for _, result in results} >= {"waiting", "refused"}


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a run that was killed within its third send, the first rows of it checkpointed."""
    template = Template(3, "during", True)
    return journal_damage.make_templates(tmp_path_factory.mktemp("killed"), [template])[template]


@pytest.fixture
def place(killed: Path, tmp_path: Path) -> Path:
    """A copy of them."""
    return Path(shutil.copytree(killed, tmp_path / "place"))


def sent(place: Path) -> list[str]:
    return (place / "tally").read_text().split()


def side(place: Path) -> Path:
    (file,) = (place / "j.db-effects").iterdir()
    return file


def test_rows_lost_with_the_wal_leave_their_calls_in_doubt_and_others_need_approval(place: Path) -> None:
    (place / "j.db-wal").write_bytes(b"")
    agent = journal_damage.agent(place)
    run = agent.resume("last")
    assert (run.status, sent(place)) == ("waiting", ["one", "two", "three"])
    assert "four" in str(run.reason) and "The journal may have lost rows" in str(run.reason)
    noted = [event.text for event in run.events if isinstance(event, Noted) and event.kind == "journal"]
    assert len(noted) == 1 and "The journal has lost rows of this run: it had at least" in noted[0]
    doubts = [row.record for row in run.trace if "whether the call took effect" in str(row.record).lower()]
    assert doubts, "the calls whose rows were lost are observed as in doubt"
    for _ in range(2):  # what was found stays known when the run waits and goes on
        run = agent.resume(run, "yes")
    assert run.status == "answered" and sent(place) == list(TEXTS)
    assert agent.replay("last").whole


def test_a_journal_copied_without_its_files_asks_before_each_call_or_repeats_when_told_to(place: Path) -> None:
    shutil.rmtree(place / "j.db-effects")
    run = journal_damage.agent(place).resume("last")
    assert run.status == "waiting" and "four" in str(run.reason) and sent(place) == ["one", "two", "three"]
    [noted] = [event.text for event in run.events if isinstance(event, Noted) and event.kind == "journal"]
    assert "is missing" in noted
    run = journal_damage.agent(place).using(on_interrupted_call="repeat").resume(run, "no")
    assert run.status == "answered" and sent(place) == ["one", "two", "three", "five"]


def test_an_undamaged_run_goes_on_without_a_question(place: Path) -> None:
    run = journal_damage.agent(place).resume("last")
    assert (run.status, sent(place)) == ("answered", list(TEXTS))


@pytest.mark.parametrize("rows", [(3,), (2, 5), (0, 1, 7)])
def test_every_changed_row_is_named_and_nothing_is_performed(place: Path, rows: tuple[int, ...]) -> None:
    with closing(sqlite3.connect(place / "j.db")) as connection, connection:
        for seq in rows:
            connection.execute("UPDATE events SET data = replace(data, 't', 'T') WHERE seq = ?", (seq,))
    with pytest.raises(JournalError) as told:
        journal_damage.agent(place).resume("last")
    assert ", ".join(f"row {seq} is damaged" for seq in rows) in str(told.value) and "salvage" in str(told.value)
    assert sent(place) == ["one", "two", "three"]
    for read in (Journal(place / "j.db").rows, journal_damage.agent(place).replay):
        with pytest.raises(JournalError, match=f"row {rows[-1]} is damaged"):
            read("last")


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ("DELETE FROM events WHERE seq IN (2, 3)", "rows 2 to 3 are missing"),
        ("UPDATE events SET body = x'00' WHERE seq = 1", "row 1 is damaged"),
        ("UPDATE events SET at = at + 1 WHERE seq = 4", "row 4 is damaged"),
        ("UPDATE events SET data = 7 WHERE seq = 4", "row 4 is damaged"),
        ("UPDATE events SET data = CAST(x'ff' AS TEXT) WHERE seq = 4", "row 4 is damaged"),
        ("UPDATE runs SET head = replace(head, 'send', 'sent')", "its own row in the table of runs is damaged"),
        ("UPDATE runs SET status = 'waiting'", "its own row in the table of runs is damaged"),
    ],
)
def test_missing_rows_and_changed_columns_are_found(place: Path, change: str, what: str) -> None:
    with closing(sqlite3.connect(place / "j.db")) as connection, connection:
        connection.execute(change)
    with pytest.raises(JournalError, match=what):
        journal_damage.agent(place).resume("last")


def test_missing_rows_at_the_end_of_an_ended_run_are_found(tmp_path: Path) -> None:
    agent = plait.Agent("react", model=plait.Scripted(["Final Answer: 4"]), journal=tmp_path / "j.db")
    agent.run("q")
    with closing(sqlite3.connect(tmp_path / "j.db")) as connection, connection:
        connection.execute("DELETE FROM events WHERE seq = 2")
    with pytest.raises(JournalError, match=r"row 2 is missing|rows 2 to 2 are missing"):
        agent.replay("last")


def test_a_salvaged_run_keeps_what_is_known_of_its_effects(place: Path, tmp_path: Path) -> None:
    with closing(sqlite3.connect(place / "j.db")) as connection, connection:
        connection.execute("UPDATE events SET body = x'00' WHERE seq = 3")
    new = tmp_path / "saved"
    new.mkdir()
    done = salvage(place / "j.db", new / "j.db")
    assert (done.cut, done.rows) == (1, 3)
    shutil.copy(place / "tally", new)
    run = journal_damage.agent(new).resume("last")
    assert run.status == "waiting" and sent(new) == ["one", "two", "three"]


# ---- the file beside the journal


def test_the_file_is_synced_before_the_call_and_removed_when_the_run_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    monkeypatch.setattr(effects.os, "fdatasync", lambda descriptor: order.append("sync"))

    @plait.tool
    def send(text: str) -> str:
        """Send."""
        order.append(f"send {text}, {len(list((tmp_path / 'j.db-effects').iterdir()))} file")
        return "sent"

    said = ['Action:\n```json\n{"action": "send", "action_input": "a"}\n```', "Final Answer: x"]
    agent = plait.Agent("react", model=plait.Scripted(said), tools=[send], journal=tmp_path / "j.db")
    assert agent.run("q").status == "answered"
    assert order == ["sync", "send a, 1 file"]
    assert list((tmp_path / "j.db-effects").iterdir()) == []


def test_a_run_whose_tools_may_all_be_repeated_makes_no_file(tmp_path: Path) -> None:
    said = ['Action:\n```json\n{"action": "calculator", "action_input": "1+1"}\n```', "Final Answer: x"]
    agent = plait.Agent("react", model=plait.Scripted(said), tools=["calculator"], journal=tmp_path / "j.db")
    assert agent.run("q").status == "answered" and not (tmp_path / "j.db-effects").exists()


def test_a_call_is_not_made_when_the_file_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    @plait.tool
    def send(text: str) -> str:
        """Send."""
        made.append(text)
        return "sent"

    def full(descriptor: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(effects.os, "fdatasync", full)
    said = ['Action:\n```json\n{"action": "send", "action_input": "a"}\n```', "Final Answer: x"]
    agent = plait.Agent("react", model=plait.Scripted(said), tools=[send], journal=tmp_path / "j.db")
    run = agent.run("q")
    assert (run.status, made) == ("crashed", []) and "No space left on device" in str(run.reason)


@pytest.mark.parametrize("name", ["../../etc/passwd", "a/b", "", "x" * 300, "ü"])
def test_a_run_of_any_name_has_its_file_in_the_folder(tmp_path: Path, name: str) -> None:
    file = EffectsFile(tmp_path / "j.db", name)
    file.start(0)
    assert file.path.parent == tmp_path / "j.db-effects" and file.path.is_file()


def test_every_byte_of_the_file_counts(tmp_path: Path) -> None:
    rows = ["a" * 32, "b" * 32, "c" * 32]
    file = EffectsFile(tmp_path / "j.db", "r")
    file.start(0)
    file.add([Mark(0, rows[0], "1" * 32)])
    file.add([Mark(2, rows[2], "2" * 32), Mark(2, rows[2], "3" * 32)])
    assert EffectsFile(tmp_path / "j.db", "r").compare(rows) is None
    data = file.path.read_bytes()
    for at in range(0, len(data), 3):
        file.path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        assert EffectsFile(tmp_path / "j.db", "r").compare(rows) is not None, at
    file.path.write_bytes(data)
    lost = EffectsFile(tmp_path / "j.db", "r").compare(rows[:2])
    assert lost is not None and lost.calls == ("2" * 32, "3" * 32) and "at least 3, and 2 are left" in lost.why
    assert EffectsFile(tmp_path / "j.db", "r").compare([rows[1], *rows[1:]]) is not None
    assert EffectsFile(tmp_path / "j.db", "other").compare(rows) is not None


def test_a_fork_has_a_file_of_its_own_that_fits(place: Path) -> None:
    agent = journal_damage.agent(place)
    first = agent.resume("last")
    forked = agent.fork(first.id, 3)
    assert forked.status == "answered" and sent(place) == [*TEXTS, *TEXTS[2:]]
