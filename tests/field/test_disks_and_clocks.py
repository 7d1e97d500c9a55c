"""Slow, shared and full disks, and clocks that jump, as people met them. README.md names the thread of each test."""

from __future__ import annotations

import itertools
import re
import sqlite3
import threading
import time
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from endpoint_runs import WARM, run_against, run_plait

import plait
from models_server import Asked
from plait import user_folders
from plait.core.errors import JournalError
from plait.journal.schedules import next_time
from plait.journal.sqlite import faults
from plait.models.wires.error_bodies import read_retry_after

ANSWER = "Thought: k\nFinal Answer: 21"


def scripted(journal: Path, *replies: str) -> plait.Agent:
    return plait.Agent("react", model=plait.Scripted(list(replies) or [ANSWER] * 9), journal=journal)


# Disks


def test_an_empty_file_that_a_killed_start_left_becomes_a_journal(journal: Path) -> None:
    journal.touch()
    assert scripted(journal).run("?").answer == "21"
    assert "21" in run_plait("show", "last", "--journal", str(journal))


def test_a_lock_at_the_start_is_waited_for(journal: Path) -> None:
    assert scripted(journal).run("?").answer == "21"
    other = sqlite3.connect(journal, check_same_thread=False, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    release = threading.Timer(0.3, lambda: (other.execute("COMMIT"), other.close()))
    release.start()
    assert scripted(journal).run("?").answer == "21"
    release.join()


MOUNTS = """\
22 1 0:21 / / rw,relatime - overlay overlay rw
36 22 0:32 / /data rw,relatime shared:1 - nfs4 10.0.0.8:/volume rw,vers=4.2
37 36 0:33 / /data/local\\040disk rw - ext4 /dev/sda1 rw
38 22 0:34 / /shared rw - fuse.sshfs me@host: rw
"""


@pytest.fixture
def mounts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mountinfo").write_text(MOUNTS.replace("/shared", str(tmp_path / "shared")))
    monkeypatch.setattr(user_folders, "MOUNTS", tmp_path / "mountinfo")


def test_a_journal_on_nfs_is_named_by_doctor_and_by_its_errors(mounts: None, tmp_path: Path) -> None:
    assert user_folders.find_network(Path("/data/plait/journal.db")) == "nfs4"
    local = (Path("/data/local disk/journal.db"), Path("/tmp/j.db"))
    assert [user_folders.find_network(each) for each in local] == ["", ""]
    locked = sqlite3.OperationalError("database is locked")
    locked.sqlite_errorcode = sqlite3.SQLITE_BUSY  # type: ignore[misc]
    error = faults.translate(locked, Path("/data/journal.db"))
    assert isinstance(error, JournalError) and "nfs4" in error.hint and "PostgreSQL" in error.hint
    (tmp_path / "shared").mkdir()
    from plait.cli.doctor import _examine_journal

    (tmp_path / "link").symlink_to(tmp_path / "shared")
    assert user_folders.find_network(tmp_path / "link" / "runs.db") == "fuse.sshfs"
    place = tmp_path / "shared" / "runs.db"
    assert "on fuse.sshfs" in _examine_journal(str(place)).detail
    assert scripted(place).run("?").answer == "21"
    found = _examine_journal(str(place))
    assert (found.state, "PostgreSQL" in found.fix) == ("broken", True)


def test_a_run_whose_disk_is_full_says_so_and_resumes_when_there_is_room(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = scripted(journal)
    agent.run("?")
    with sqlite3.connect(journal) as connection:
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.close()
    from plait.journal.sqlite import connections

    real = sqlite3.connect

    def connect_full(*args: object, **options: object) -> sqlite3.Connection:
        made = real(*args, **options)  # type: ignore[call-overload]
        made.execute(f"PRAGMA max_page_count = {pages}")
        return made  # type: ignore[no-any-return]

    from plait.journal.sqlite.store import SqliteStore
    from plait.journal.store import wait_for

    wait_for(SqliteStore._shared.pop(journal.resolve()).close())
    monkeypatch.setattr(connections.sqlite3, "connect", connect_full)
    long = "a word " * 20_000
    with pytest.raises(JournalError, match="the disk is full") as raised:
        scripted(journal).run(long)
    assert "Free some space" in raised.value.hint
    monkeypatch.setattr(connections.sqlite3, "connect", real)
    wait_for(SqliteStore._shared.pop(journal.resolve()).close())
    assert scripted(journal).run(long).answer == "21"


# Clocks


def test_turns_stay_in_their_order_if_the_clock_jumps_back_or_stands_still(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, begin = time.time, time.time()
    for clock in (itertools.count(begin, -3600.0), itertools.repeat(begin - 90_000)):
        monkeypatch.setattr(time, "time", lambda clock=clock: next(clock))
        agent = scripted(journal)
        runs = [agent.run(f"question {number}", session="s") for number in range(4)]
        monkeypatch.setattr(time, "time", real)
        assert all(run.seconds >= 0 for run in runs)
        sent = run_plait("show", runs[-1].id, "--wire", "--journal", str(journal))
        found = re.findall(r"question (\d)", sent.partition("--- response")[0])
        assert found[-4:] == ["0", "1", "2", "3"], sent
        assert agent.replay(runs[-1].id).whole


BERLIN = ZoneInfo("Europe/Berlin")


def times(every: str, after: datetime, count: int) -> list[str]:
    at, found = after.timestamp(), []
    for _ in range(count):
        at = next_time(every, "Europe/Berlin", at)
        found.append(datetime.fromtimestamp(at, BERLIN).strftime("%d. %H:%M"))
    return found


def test_a_daily_schedule_begins_once_on_the_days_of_the_clock_change() -> None:
    fall, spring = datetime(2026, 10, 24, 12, tzinfo=BERLIN), datetime(2026, 3, 28, 12, tzinfo=BERLIN)
    assert times("30 2 * * *", fall, 3) == ["25. 02:30", "26. 02:30", "27. 02:30"]
    days = [each[:3] for each in times("30 2 * * *", spring, 3)]
    assert days == ["29.", "30.", "31."]


def test_a_schedule_of_each_quarter_of_an_hour_does_not_stop_for_an_hour() -> None:
    at = datetime(2026, 10, 25, 0, 50, tzinfo=UTC).timestamp()  # 02:50 in summer time
    ticks = []
    for _ in range(6):
        at = next_time("*/15 * * * *", "Europe/Berlin", at)
        ticks.append(datetime.fromtimestamp(at, UTC).strftime("%H:%M"))
    assert ticks == ["01:00", "01:15", "01:30", "01:45", "02:00", "02:15"]


@pytest.mark.parametrize("skew", [-7200, 7200])
def test_a_date_to_retry_after_is_read_by_the_servers_clock(skew: int) -> None:
    async def asks_to_wait(asked: Asked) -> None:
        now = time.time() + skew
        dates = {"Date": now, "Retry_After": now + 20}
        headers = {name: format_datetime(datetime.fromtimestamp(at, UTC), usegmt=True) for name, at in dates.items()}
        await asked.answer(429, {"error": {"message": "slow down"}}, **headers)

    made = run_against(asks_to_wait, WARM)
    assert made.answer == "21 degrees." and 18 <= made.pauses[0] <= 21


@pytest.mark.parametrize("date", ["", "now", "2026-11-27"])
def test_a_date_that_cannot_be_read_leaves_the_own_clock(date: str) -> None:
    until = format_datetime(datetime.fromtimestamp(time.time() + 20, UTC), usegmt=True)
    wait = read_retry_after({"Retry-After": until, "Date": date})
    assert wait is not None and 15 < wait < 21
