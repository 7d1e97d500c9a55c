"""Damage of a run is named, the run is neither resumed nor replayed, and all other runs of the journal are."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

import pytest

import journal_damage
import plait
from journal_damage import TEXTS, Template
from journal_rows import resumed
from patience import patience
from plait.core.errors import JournalError
from plait.core.events import Noted
from plait.journal.owner import owner_of_this_process
from plait.journal.records import RunHead
from plait.journal.sqlite import schema
from plait.journal.sqlite.queries import find_run
from plait.journal.sqlite.store import SqliteStore
from plait.journal.store import Journal, RunLog, wait_for


def test_no_damage_repeats_an_effect_and_every_damaged_row_is_reported() -> None:
    results = journal_damage.run(10, 5, [Template(3, "during", True)])
    wrong = [(case, result) for case, result in results if result.wrong]
    assert not wrong, wrong
    assert {end for _, result in results for end in result.ends} >= {"answered", "refused", "waiting", "whole"}


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of three runs: the second was killed within its third send, its first rows checkpointed; the first and
    the third have ended."""
    template, folder = Template(3, "during", True), tmp_path_factory.mktemp("killed")
    place = journal_damage.make_templates(folder, [template], before=ask)[template]
    ask(place)
    Journal.at(place / "j.db").close()
    return place


def short_agent(place: Path) -> plait.Agent:
    return plait.Agent("react", model=plait.Scripted(["Final Answer: 4"]), journal=place / "j.db")


def ask(place: Path) -> plait.Run[Any]:
    """Make a short run in the same journal."""
    return short_agent(place).run("q")


@pytest.fixture
def place(killed: Path, tmp_path: Path) -> Path:
    """A copy of them."""
    return Path(shutil.copytree(killed, tmp_path / "place"))


def sent(place: Path) -> list[str]:
    return (place / "tally").read_text().split()


def change(place: Path, statement: str) -> None:
    with closing(sqlite3.connect(place / "j.db")) as connection, connection:
        assert connection.execute(statement).rowcount > 0


def names(place: Path) -> list[str]:
    """The ids of the three runs, in the order they began."""
    with closing(sqlite3.connect(place / "j.db")) as connection:
        return [name for (name,) in connection.execute("SELECT id FROM runs ORDER BY n")]


def require_refused(place: Path, what: str) -> None:
    """Check that every reader of the second run names the damage, and that the others are whole."""
    first, second, third = names(place)
    agent, journal = journal_damage.make_agent(place), Journal(place / "j.db")
    readers: list[Callable[[str], Any]] = [agent.resume, agent.replay, journal.rows, lambda run: agent.fork(run, 1)]
    for read in readers:
        with pytest.raises(JournalError) as told:
            read(second)
        assert what in told.value.message and second in told.value.message, told.value
        assert "plait journal check" in told.value.hint
    assert sent(place) == ["one", "two", "three"]
    for run in (first, third):
        assert short_agent(place).replay(run).whole and agent.resume(run).answer == "4"
    (damage,) = wait_for(journal.store.check())
    assert what in damage and second in damage
    assert ask(place).status == "answered"


def test_an_undamaged_run_goes_on_without_a_question(place: Path) -> None:
    run = journal_damage.make_agent(place).resume(names(place)[1])
    assert (run.status, sent(place)) == ("answered", list(TEXTS))
    assert wait_for(Journal(place / "j.db").store.check()) == []


@pytest.mark.parametrize("rows", [(3,), (2, 5), (0, 1, 7)])
def test_every_changed_row_is_named(place: Path, rows: tuple[int, ...]) -> None:
    for seq in rows:
        change(place, f"UPDATE events SET data = replace(data, 't', 'T') WHERE run = 2 AND seq = {seq}")
    require_refused(place, ", ".join(f"row {seq} is damaged" for seq in rows))


@pytest.mark.parametrize("column", [each.name for each in schema.EVENTS.columns[3:]])
def test_a_row_is_damaged_whatever_column_is_changed(place: Path, column: str) -> None:
    values = {"kind": "'note'", "data": "data || ' '", "body": "x'00'"}
    value = values.get(column, f"coalesce({column}, 6) + 1")
    change(place, f"UPDATE events SET {column} = {value} WHERE run = 2 AND seq = 4")
    require_refused(place, "row 4 is damaged")


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        ("DELETE FROM events WHERE run = 2 AND seq IN (2, 3)", "rows 2 to 3 are missing"),
        ("DELETE FROM events WHERE run = 2 AND seq = 0", "row 0 is missing"),
        ("UPDATE events SET run = 7 WHERE run = 2 AND seq = 3", "row 3 is missing"),
        ("UPDATE events SET data = 7 WHERE run = 2 AND seq = 4", "row 4 is damaged"),
        ("UPDATE events SET data = CAST(x'ff' AS TEXT) WHERE run = 2 AND seq = 4", "row 4 is damaged"),
        ("UPDATE events SET at = 'late' WHERE run = 2 AND seq = 4", "row 4 is damaged"),
        ("UPDATE events SET body = 'text' WHERE run = 2 AND seq = 1", "row 1 is damaged"),
        ("UPDATE events SET seq = seq + 90 WHERE run = 2 AND seq > 3", "rows 4 to 93 are missing"),
        ("UPDATE runs SET head = replace(head, 'send', 'sent') WHERE n = 2", "its own row in the table of runs"),
        ("UPDATE runs SET status = 'waiting' WHERE n = 2", "its own row in the table of runs"),
        ("UPDATE runs SET totals = '{\"steps\": 1}' WHERE n = 2", "its own row in the table of runs"),
    ],
)
def test_missing_rows_and_changed_columns_are_named(place: Path, statement: str, what: str) -> None:
    change(place, statement)
    require_refused(place, what)


def test_a_row_of_another_run_is_damage(place: Path) -> None:
    """The check sum goes on from that of the run: a row is not taken for one of another run."""
    change(place, "UPDATE events SET run = 9 WHERE run = 2 AND seq = 0")
    change(place, "UPDATE events SET run = 2 WHERE run = 1 AND seq = 0")
    with pytest.raises(JournalError, match="row 0 is damaged"):
        journal_damage.make_agent(place).resume(names(place)[1])


def test_missing_rows_at_the_end_of_an_ended_run_are_found(place: Path) -> None:
    change(place, "DELETE FROM events WHERE run = 3 AND seq = 2")
    with pytest.raises(JournalError, match="row 2 is missing"):
        journal_damage.make_agent(place).replay(names(place)[2])


def test_a_run_whose_entry_in_the_index_of_ids_is_damaged_is_not_said_to_be_missing(place: Path) -> None:
    second = names(place)[1]
    with closing(sqlite3.connect(place / "j.db")) as connection:
        query = "SELECT rootpage FROM sqlite_master WHERE name = 'sqlite_autoindex_runs_1'"
        (page,) = connection.execute(query).fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    data = bytearray((place / "j.db").read_bytes())
    at = data.index(second.encode(), (page - 1) * size, page * size)
    data[at : at + 1] = b"9"
    (place / "j.db").write_bytes(data)
    with pytest.raises(JournalError, match="its entry in the index of ids is damaged"):
        journal_damage.make_agent(place).resume(second)


async def test_a_run_that_begins_while_it_is_looked_up_is_no_damage(tmp_path: Path) -> None:
    """Another process begins it between the question to the index and the list of ids."""

    class Late(sqlite3.Connection):
        def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
            if sql.startswith("SELECT id FROM runs"):
                wait_for(begin())
            return super().execute(sql, *values)

    async def begin() -> None:
        await SqliteStore(tmp_path / "j.db").begin(RunHead("late", "q", {"name": "react"}, {}), "gone")

    await SqliteStore(tmp_path / "j.db").begin(RunHead("first", "q", {"name": "react"}, {}), "gone")
    with closing(sqlite3.connect(tmp_path / "j.db", factory=Late, check_same_thread=False)) as connection:
        assert (await asyncio.to_thread(find_run, connection, "late", tmp_path / "j.db"))[1].head.run == "late"


# -- a journal that came back from a backup


def test_after_a_restore_each_call_with_effects_of_an_interrupted_run_needs_approval(place: Path) -> None:
    assert wait_for(Journal(place / "j.db").store.mark_restored()) == 1
    second, agent = names(place)[1], journal_damage.make_agent(place)
    run = agent.resume(second)
    assert (run.status, sent(place)) == ("waiting", ["one", "two", "three"])
    assert "four" in str(run.reason) and "The journal may have lost rows" in str(run.reason)
    noted = [event.text for event in run.events if isinstance(event, Noted) and event.kind == "journal"]
    assert len(noted) == 1 and "came back from a backup" in noted[0]
    for _ in range(2):  # it stays known when the run waits and goes on
        run = agent.resume(run, "yes")
    assert run.status == "answered" and sent(place) == list(TEXTS)
    assert agent.replay(second).whole


def test_after_a_restore_calls_are_made_when_the_user_says_that_they_may_be_repeated(place: Path) -> None:
    wait_for(Journal(place / "j.db").store.mark_restored())
    run = journal_damage.make_agent(place).using(on_interrupted_call="repeat").resume(names(place)[1])
    assert run.status == "answered" and sent(place)[2:] == ["three", "three", "four", "five"]


def test_an_effect_that_a_damaged_byte_of_the_wal_hides_needs_approval(tmp_path: Path) -> None:
    """SQLite leaves out all that stands behind the damaged frame. What it hid has an effect only in the first case."""
    template = Template(3, "during", True)
    made = journal_damage.make_templates(tmp_path, [template])[template]
    for damaged in (True, False):
        place = Path(shutil.copytree(made, tmp_path / str(damaged)))
        wal = place / "j.db-wal"
        data = bytearray(wal.read_bytes())
        if damaged:
            data[100] ^= 1
        else:  # an older effect may stand in a page that the checkpoint has copied already
            data += data[-4120:]
        wal.write_bytes(data)
        run = journal_damage.make_agent(place).resume("last")
        noted = [event.text for event in run.events if isinstance(event, Noted) and event.kind == "journal"]
        if damaged:
            assert (run.status, sent(place)) == ("waiting", ["one", "two", "three"])
            assert "-wal file was damaged" in noted[0]
        else:
            assert (run.status, sent(place), noted) == ("answered", list(TEXTS), [])


@pytest.mark.parametrize("filled", [b"", b'\x7fffffffeffect{"type":"intent"' * 200])
def test_a_wal_of_any_length_from_elsewhere_is_looked_at_for_a_bounded_time(place: Path, filled: bytes) -> None:
    """Its frames are zeros that no disk holds; their salts are those of the first. Its pages may hold anything."""
    with (place / "j.db-wal").open("wb") as file:
        file.write(bytes(56) + filled)
        file.truncate(1 << 40)
    began = time.monotonic()
    assert ask(place).status == "answered"
    assert time.monotonic() - began < patience(20)


def test_what_a_restore_asks_for_stays_when_the_resumed_run_is_left_at_once(place: Path) -> None:
    store, second = Journal(place / "j.db").store, names(place)[1]
    wait_for(store.mark_restored())
    log = wait_for(store.claim(second, owner_of_this_process(), records=[(resumed(), None)]))
    assert "came back from a backup" in wait_for(store.read_rows(second))[-1].record.value.lost
    wait_for(_end(log))
    run = journal_damage.make_agent(place).resume(second)
    assert run.status == "waiting" and "The journal may have lost rows" in str(run.reason)


async def _end(log: RunLog) -> None:
    await log.end("cancelled", {"type": "cancelled", "reason": "x"}, {})


def test_runs_that_begin_after_a_restore_or_had_ended_before_it_are_as_ever(place: Path) -> None:
    wait_for(Journal(place / "j.db").store.mark_restored())
    first, agent = names(place)[0], journal_damage.make_agent(place)
    assert short_agent(place).replay(first).whole
    (place / "tally").write_text("")
    assert agent.run("Send the five texts.").status == "answered" and sent(place) == list(TEXTS)
    assert short_agent(place).fork(first, 1).status == "answered"


def test_after_a_restore_child_runs_that_the_backup_does_not_have_ask_before_their_effects(tmp_path: Path) -> None:
    done: list[str] = []
    journal, backup = tmp_path / "j.db", tmp_path / "backup.db"

    @plait.tool
    def send(text: str) -> str:
        """Send."""
        done.append(text)
        return "sent"

    @plait.tool(read_only=True)
    def look(text: str) -> str:
        """Look."""
        with closing(sqlite3.connect(journal)) as connection:
            connection.execute(f"VACUUM INTO '{backup}'")
        return "seen"

    def make_agent() -> plait.Agent:
        child = plait.Agent("react", model=plait.Scripted([action("send"), "Final Answer: x"]), tools=[send])
        said = [action("look"), action("helper"), "Final Answer: y"]
        tools = [look, child.as_tool("helper", "Helps.")]
        return plait.Agent("react", model=plait.Scripted(said), tools=tools, journal=journal)

    assert make_agent().run("q").answer == "y" and done == ["a"]
    Journal.at(journal).close()
    backup.replace(journal)
    wait_for(Journal(journal).store.mark_restored())
    run = make_agent().resume("last")
    assert run.status == "waiting" and done == ["a"], run


def action(tool: str) -> str:
    return f'Action:\n```json\n{{"action": "{tool}", "action_input": "a"}}\n```'


# -- the intent of an effect


class Watched(sqlite3.Connection):
    """A connection that notes how its commits are synced."""

    synced: ClassVar[list[int]] = []

    def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
        if sql == "COMMIT" or (sql.startswith("INSERT") and not self.in_transaction):
            Watched.synced.append(super().execute("PRAGMA synchronous").fetchone()[0])
        return super().execute(sql, *values)


def test_an_effect_waits_until_its_intent_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connect: Any = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *words, **more: connect(*words, **more, factory=Watched))
    monkeypatch.setattr(Watched, "synced", [])
    last: list[int] = []

    @plait.tool
    def send(text: str) -> str:
        """Send."""
        last.append(Watched.synced[-1])
        return "sent"

    @plait.tool(idempotent=True)
    def put(text: str) -> str:
        """Put."""
        return "put"

    said = [action("send"), action("put"), "Final Answer: x"]
    agent = plait.Agent("react", model=plait.Scripted(said), tools=[send, put], journal=tmp_path / "j.db")
    assert agent.run("q").status == "answered"
    assert last == [2], "FULL"
    assert Watched.synced[1:].count(2) == 1, "nothing else waits for the disk, but for new tables"


def test_a_call_is_not_made_when_its_intent_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    @plait.tool
    def send(text: str) -> str:
        """Send."""
        made.append(text)
        return "sent"

    class Full(sqlite3.Connection):
        def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
            if sql.startswith("INSERT") and '"work":"call"' in str(values):
                error = sqlite3.OperationalError("database or disk is full")
                error.sqlite_errorcode = sqlite3.SQLITE_FULL
                raise error
            return super().execute(sql, *values)

    connect: Any = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *words, **more: connect(*words, **more, factory=Full))
    said = ['Action:\n```json\n{"action": "send", "action_input": "a"}\n```', "Final Answer: x"]
    agent = plait.Agent("react", model=plait.Scripted(said), tools=[send], journal=tmp_path / "j.db")
    run = agent.run("q")
    assert (run.status, made) == ("crashed", []) and "disk is full" in str(run.reason)
