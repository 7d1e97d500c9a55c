"""The journal keeps what it is told, in order, exactly, for several runs, claims and readers."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
import random
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from fork_server import run_forked
from journal_rows import begin, end, reply, request, response
from plait.core import Call, Observation, Reply, Usage
from plait.core.errors import JournalError, RecordChanged
from plait.journal import codec
from plait.journal import owner as owners
from plait.journal.export import export, lines
from plait.journal.memory import MemoryLog
from plait.journal.owner import new_run_id, owner_of_this_process
from plait.journal.records import IntentRecord, NoteRecord, RunHead
from plait.journal.run_query import RunQuery
from plait.journal.sqlite.log import SqliteLog
from plait.journal.store import Journal, default_place

ME = owner_of_this_process()


def head(run: str = "", **more: Any) -> RunHead:
    return RunHead(run or new_run_id(), "How many?", {"name": "react", "options": {}}, {"": {"spec": "m"}}, **more)


def think(n: int, phase: str = "act") -> IntentRecord:
    return request(f"{n}a0", n + 1, phase=phase)


def note(n: int, text: str = "x") -> NoteRecord:
    return NoteRecord(f"n{n}", 1, "test", text)


RECORDS = [
    (think(0), b'{"messages":["one"],"stop":[]}'),
    (response("0a0"), b"\xff\x00 not text"),
    (reply("0", Reply("go on", usage=Usage(10, 2), cost=0.001)), None),
    (begin("1.0", Call("add", {"a": 1})), None),
    (end("1.0", Observation("1", value={"k": [1, None]})), None),
    (end("1.1", Observation("no", "raised", note="again?"), asked=Call("add", [2, "x"])), None),
    (think(2), b'{"messages":["one","two"],"stop":[]}'),
]


async def test_what_is_appended_is_read_back_in_order_and_exactly(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "deep" / "folder" / "j.db")
    log = await journal.store.begin(head("r1", parent="r0", fork_at=7), ME, RECORDS[:2])
    await log.append(*RECORDS[2:4])
    log.buffer(RECORDS[4])
    assert len(journal.rows("r1")) == 4 and len(log.line) == 1  # a buffered record has no commit of its own
    await log.append(RECORDS[5])
    log.buffer(RECORDS[6])
    await log.end("answered", {"type": "answered", "answer": 3}, {"steps": 2})
    rows = journal.rows("r1")
    assert [(row.record, row.body) for row in rows] == RECORDS
    assert [row.seq for row in rows] == list(range(7))
    run = journal.run("r1")
    assert (run.status, run.outcome, run.totals, run.owner) == (
        "answered",
        {"type": "answered", "answer": 3},
        {"steps": 2},
        "",
    )
    assert run.head == head("r1", parent="r0", fork_at=7) == journal.head("r1")
    assert (tmp_path / "deep" / "folder" / "j.db").stat().st_mode & 0o077 == 0  # for its owner's eyes only


async def test_a_run_that_has_ended_takes_no_more(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.db")
    log = await journal.store.begin(head(), ME)
    await log.end("failed", {}, {})
    with pytest.raises(JournalError, match="has ended"):
        await log.append((note(0), None))
    with pytest.raises(JournalError, match="already in the journal"):
        await journal.store.begin(head(log.run), ME)


async def test_64_runs_at_once_each_keep_their_order(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.db")

    async def run(i: int) -> str:
        log = await journal.store.begin(head(), ME)
        for n in range(20):
            await log.append((note(n, f"{i}"), None), (think(n), f"{i} asks {n}".encode() * 10))
            await asyncio.sleep(random.Random(i * n).random() / 1000)
        await log.end("answered", {}, {"i": i})
        return log.run

    names = await asyncio.gather(*map(run, range(64)))
    for i, name in enumerate(names):
        rows = journal.rows(name)
        assert [row.seq for row in rows] == list(range(40))
        assert [row.record for row in rows[::2]] == [note(n, f"{i}") for n in range(20)]
        assert [row.body for row in rows[1::2]] == [f"{i} asks {n}".encode() * 10 for n in range(20)]
        assert journal.run(name).status == "answered"


async def test_what_was_awaited_is_committed_also_when_runs_share_a_commit(tmp_path: Path) -> None:
    """Another connection sees the rows the moment an append was awaited, with one run and with several."""
    journal, other = Journal(tmp_path / "j.db"), Journal(tmp_path / "j.db")
    logs = [await journal.store.begin(head(), ME)]
    await logs[0].append((note(0), None))
    assert len(other.rows(logs[0].run)) == 1
    logs += [await journal.store.begin(head(), ME) for _ in range(3)]
    waiting = [log.append((note(1), None)) for log in logs]
    for log, done in zip(logs, waiting, strict=True):
        await done
        assert len(other.rows(log.run)) == 1 + (log is logs[0])


async def test_cancelling_who_waits_does_not_lose_the_record(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.db")
    first, second = [await journal.store.begin(head(), ME) for _ in range(2)]

    async def add(log: SqliteLog) -> None:
        await log.append((note(0), None))

    tasks = [asyncio.create_task(add(log)) for log in (first, second)]
    await asyncio.sleep(0)
    tasks[0].cancel()
    assert [type(each) for each in await asyncio.gather(*tasks, return_exceptions=True)] == [
        asyncio.CancelledError,
        type(None),
    ]
    assert len(journal.rows(first.run)) == len(journal.rows(second.run)) == 1


def test_threads_with_event_loops_of_their_own_share_a_journal(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.db", busy_seconds=60)
    names: list[str] = []

    async def run() -> None:
        for _ in range(5):
            log = await journal.store.begin(head(), ME)
            for n in range(10):
                await log.append((note(n), None))
            await log.end("answered", {}, {})
            names.append(log.run)

    threads = [threading.Thread(target=lambda: asyncio.run(run())) for _ in range(6)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(names) == 30
    expected = [f"n{n}" for n in range(10)]
    assert all([row.record.key for row in journal.rows(name)] == expected for name in names)
    journal.close()


async def test_a_deleted_file_is_made_anew_by_the_next_run(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    journal = Journal.at(path)
    assert Journal.at(path).store is journal.store
    await (await journal.store.begin(head("old"), ME)).end("answered", {}, {})
    for each in tmp_path.iterdir():
        each.unlink()
    await (await journal.store.begin(head("new"), ME)).end("answered", {}, {})
    assert [run.head.run for run in journal.runs()] == ["new"]
    journal.close()


async def test_a_long_run_is_read_piece_by_piece_in_any_thread(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.db")
    log = await journal.store.begin(head(), ME)
    for n in range(1000):
        log.buffer((note(n), None))
    await log.end("answered", {}, {})
    keys = [f"n{n}" for n in range(1000)]
    both = await asyncio.gather(*(_read_keys(journal, log.run) for _ in range(4)))
    assert both == [keys] * 4 and [row.record.key for row in journal.iter_rows(log.run)] == keys
    for wait in (0.0, 0.001, 0.003):
        reading = asyncio.create_task(_read_keys(journal, log.run))
        await asyncio.sleep(wait)
        reading.cancel()
        assert [type(each) for each in await asyncio.gather(reading, return_exceptions=True)] in (
            [asyncio.CancelledError],
            [list],
        )
    some = journal.store.iter_rows(log.run)
    assert (await anext(some)).record == note(0)
    await some.aclose()
    journal.close()


async def _read_keys(journal: Journal, run: str) -> list[str]:
    return [row.record.key async for row in journal.store.iter_rows(run)]


# ---- finding runs


async def test_a_run_is_found_by_the_beginning_of_its_id(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.db")
    for name in ("20260101-120000-aaaaaa", "20260101-120000-aabbbb", "20260102-090000-cccccc"):
        await (await journal.store.begin(head(name), ME)).end("answered", {}, {})
    assert journal.run("20260102").head.run == "20260102-090000-cccccc"
    assert journal.run("last").head.run == "20260102-090000-cccccc"
    with pytest.raises(JournalError, match=r"More than one run begins with '20260101': .*aaaaaa, .*aabbbb"):
        journal.run("20260101")
    with pytest.raises(JournalError, match=r"no run '20260102-090000-cccccx'.*Did you mean .*cccccc"):
        journal.run("20260102-090000-cccccx")
    with pytest.raises(JournalError, match="no run ''"):
        journal.run("")
    for typed, near in (
        ("20260102-090000-ccccxc", "20260102-090000-cccccc"),
        ("20260102-09000x", "20260102-090000-cccccc"),  # one sign of a beginning
        ("bbbb", "20260101-120000-aabbbb"),  # the end of an id
        ("20260101-235959-zzzzzz", ""),  # only the day is the same
        ("lst", ""),
        ("nosuchrun", ""),
        ("01", ""),
    ):
        with pytest.raises(JournalError) as why:
            journal.run(typed)
        assert why.value.hint == (f"Did you mean {near}? " if near else "") + "`plait runs` lists them.", typed
    assert [run.head.run[-6:] for run in journal.runs(limit=2)] == ["cccccc", "aabbbb"]
    assert journal.runs(status="failed") == []


def test_reading_never_makes_a_file(tmp_path: Path) -> None:
    path = tmp_path / "no" / "j.db"
    journal = Journal(path)
    for read in (
        journal.runs,
        lambda: journal.run("last"),
        lambda: journal.rows("last"),
        lambda: journal.head("x"),
    ):
        with pytest.raises(JournalError, match=f"no journal at {path} yet"):
            read()
    assert not path.parent.exists()


async def test_a_run_can_be_deleted_but_not_while_it_goes_on(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.db")
    log = await journal.store.begin(head(), ME, [(note(0, "y" * 500_000), None)])
    kept = await journal.store.begin(head(), ME, RECORDS)
    await kept.end("answered", {}, {})
    with pytest.raises(JournalError, match="still going on"):
        await journal.store.delete([log.run])
    await log.end("failed", {}, {})
    await journal.store.delete([log.run])
    await journal.store.compact()
    journal.close()
    assert (tmp_path / "j.db").stat().st_size < 100_000
    assert [run.head.run for run in journal.runs()] == [kept.run]
    assert [(row.record, row.body) for row in journal.rows(kept.run)] == RECORDS


def test_the_default_place_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("PLAIT_JOURNAL", raising=False)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_place() == tmp_path / ".local/state/plait/journal.db"
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert default_place() == Path("/state/plait/journal.db")
    monkeypatch.setenv("PLAIT_JOURNAL", "~/mine.db")
    assert default_place() == Path(Journal().place) == tmp_path / "mine.db"


# ---- names and owners


def test_run_ids_are_unique_and_sort_by_time() -> None:
    at = 1795233301.25
    assert new_run_id(at, random.Random(1)).startswith("20261121-035501-")
    same = [new_run_id(at, random.Random(1)) for _ in range(500)]  # the same luck every time
    assert len(set(same)) == 500
    times = [at + each / 512 for each in range(2000)]
    names = [new_run_id(each) for each in times]
    assert names == sorted(names) and len({len(name) for name in names}) == 1


def test_an_owner_is_alive_dead_or_elsewhere() -> None:
    host, pid, start = ME.split(":")[:3]
    assert (host, int(pid)) == (os.uname().nodename, os.getpid()) and int(start) > 0
    assert owners.life_of(ME) == "alive"
    assert owners.life_of(f"{host}:{pid}:{int(start) - 1}") == "dead"  # another process had the number before
    assert owners.life_of(f"elsewhere:{pid}:{start}") == "elsewhere"
    assert owners.life_of("") == owners.life_of("nonsense") == "dead"
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        of_child = f"{host}:{child.pid}:{owners._start_of(child.pid)}"
        assert owners.life_of(of_child) == "alive"
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # dead, but a zombie: nobody took notice
        assert owners.life_of(of_child) == "dead"
    finally:
        child.communicate()
    assert owners.life_of(of_child) == "dead"


WRITES_AND_DIES = """
import asyncio, os, signal, sys
from plait.journal.store import Journal
from plait.journal.owner import owner_of_this_process
from plait.journal.records import IntentRecord, NoteRecord, RequestRecord, RunHead

async def main():
    head = RunHead("left", "q", {"name": "react"}, {})
    log = await Journal(sys.argv[1]).store.begin(head, owner_of_this_process())
    for n in range(30):
        for phase in ("plan", "act"):
            body = (phase + "".join(f" turn {k}" for k in range(n)) + " end").encode()
            asked = IntentRecord(f"{n}a0", n, "request", RequestRecord(phase, "m", "p"))
            await log.append((asked, body), (NoteRecord(f"n{n}", n, "k", "t"), None))
    log.buffer((NoteRecord("n99", 1, "k", "only buffered"), None))
    print("ready", flush=True)
    if sys.argv[2] == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    sys.stdin.read()

asyncio.run(main())
"""


async def test_a_run_whose_process_was_killed_is_interrupted_and_can_be_claimed_once(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    done = run_forked(["-c", WRITES_AND_DIES, path, "die"])
    assert done.returncode == -9, done.stderr
    journal = Journal(path)
    assert [run.status for run in journal.runs()] == ["interrupted"] == [journal.runs(status="interrupted")[0].status]
    assert journal.runs(status="running") == []
    before = journal.rows("left")
    assert len(before) == 120 and before[-2].body == b"act" + b"".join(b" turn %d" % k for k in range(29)) + b" end"
    log = await journal.store.claim("left", ME)
    assert journal.run("left").status == "running"
    with pytest.raises(JournalError, match="still going on, in this very process"):
        await journal.store.claim("left", ME)
    more = b"act" + b"".join(b" turn %d" % k for k in range(30)) + b" end"
    await log.append((think(30), more))
    stored = journal_column(path, "SELECT base, length(body) FROM events ORDER BY id DESC LIMIT 1")
    assert stored == [(118, 8)]  # told from the last request of its phase, which this process never saw
    await log.end("waiting", {"type": "waiting", "kind": "question", "reason": "?"}, {})
    after = journal.rows("left")
    assert after[:120] == before and after[120].body == more and after[120].seq == 120
    assert journal.run("left").status == "waiting"
    log = await journal.store.claim("left", ME)  # one that waits can be gone on with
    assert journal.run("left").outcome is None
    del log
    assert (await journal.store.claim("left", ME)).run == "left"  # its log is gone: it was left behind in this process


async def test_a_run_that_goes_on_elsewhere_is_not_claimed(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    command = [sys.executable, "-c", WRITES_AND_DIES, str(path), "live"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None and child.stdout.readline() == b"ready\n"
        journal = Journal(path)
        assert journal.run("left").status == "running"
        for force in (False, True):
            with pytest.raises(JournalError, match=f"still going on, in process {child.pid}"):
                await journal.store.claim("left", ME, force=force)
        child.communicate()
    assert (await journal.store.claim("left", ME)).run == "left"


async def test_a_run_left_by_another_host_needs_force_and_its_old_writer_is_noticed(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.db")
    old = await journal.store.begin(head("r"), "far-away:123:456", [(note(0), None)])
    with pytest.raises(JournalError, match=r"on host far-away.*--force"):
        await journal.store.claim("r", ME)
    new = await journal.store.claim("r", ME, force=True)
    await new.append((note(1), None))
    with pytest.raises(JournalError, match="Another process writes to this run"):
        await old.append((note(2), None))
    assert [row.record for row in journal.rows("r")] == [note(0), note(1)]


# ---- odd values


@pytest.mark.parametrize(
    ("value", "back"),
    [
        ("half a pair \ud83d", "half a pair \ud83d"),
        (10**40, 10**40),
        ({1: "a", (2, 3): "b"}, {"1": "a", "(2, 3)": "b"}),
        (float("nan"), None),
        ("\x00", "\x00"),
        ({3, 4}, [3, 4]),
        (object, "<class 'object'>"),
    ],
)
async def test_no_record_is_lost_to_an_odd_value(value: Any, back: Any, tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.db")
    log = await journal.store.begin(head(), ME)
    await log.append((end("0.0", Observation("t", value=value)), None))
    (row,) = journal.rows(log.run)
    assert row.record == end("0.0", Observation("t", value=back))
    assert list(lines(journal.run(log.run), [row]))


async def test_a_result_that_is_its_text_is_stored_once(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.db")
    log = await journal.store.begin(head(), ME)
    seen = end("0.0", Observation("a long text", value="a long text"))
    await log.append((seen, None))
    await log.end("answered", {}, {})
    stored = sqlite3.connect(journal.place).execute("SELECT data FROM events").fetchone()[0]
    assert stored.count("a long text") == 1
    assert [row.record for row in journal.rows(log.run)] == [seen]


@pytest.mark.parametrize(
    "data",
    [
        '{"type":"result","key":"0.0","step":1,"work":"call","value":{"text":7}}',
        '{"type":"intent","key":"0a0","step":1,"work":"request"}',
        '{"type":"intent","key":"no key","step":1,"work":"sleep"}',
        '{"type":"note","key":"","step":0,"kind":"resumed"}',
    ],
)
def test_a_row_whose_key_or_values_cannot_be_read_is_a_journal_error(data: str) -> None:
    with pytest.raises(JournalError, match="can't be read"):
        codec.decode_record(data)


async def test_totals_of_guards_tell_what_a_conversation_read_and_what_is_in_doubt(
    tmp_path: Path,
) -> None:
    journal = Journal(tmp_path / "j.db")
    carried: dict[str, dict[str, Any]] = {
        "clean": {"guards": {"taint": [], "approvals": []}},
        "outside": {"guards": {"taint": ["the web"]}},
        "doubt": {"guards": {"approvals": [["send", {"text": "x"}]]}},
        "old": {},
    }
    for session, totals in carried.items():
        log = await journal.store.begin(head(session, session=session, label="one:x"), ME)
        await log.end("answered", {"answer": session}, totals)
    for query, found in (
        (RunQuery(is_tainted=True, label="one:"), {"outside"}),
        (RunQuery(is_tainted=True, session="doubt"), set()),
        (RunQuery(is_open=True), {"doubt"}),
    ):
        assert {row.head.run for row in await journal.store.list_runs(query)} == found


async def test_a_value_that_holds_itself_is_cut_not_fatal(tmp_path: Path) -> None:
    ring: list[Any] = []
    ring.append(ring)
    journal = Journal(tmp_path / "j.db")
    log = await journal.store.begin(head(), ME)
    await log.append((end("0.0", Observation("t", value=ring)), None))
    assert len(journal.rows(log.run)) == 1


# ---- secrets

SECRET = 'sk-"quoted"\\é-0123456789'


async def test_a_secret_is_nowhere_in_the_files(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.db")
    secrets = (SECRET, "another-secret", "short")
    asked = RunHead("r", f"Is {SECRET} good?", {"name": "react"}, {"": {"key": SECRET}}, settings={"k": [SECRET]})
    body = json.dumps({"messages": [{"content": f"use {SECRET} and short"}]}, ensure_ascii=False).encode()
    url = b"GET /?key=sk-%22quoted%22%5C%C3%A9-0123456789 " + SECRET.encode()
    log = await journal.store.begin(asked, ME, [(think(0), body)], secrets=secrets)
    nested = json.dumps({"arguments": json.dumps({"key": SECRET})}).encode()
    await log.append((response("0a0", error=SECRET), url), (note(1, f"x{SECRET}y"), None), (think(2), nested))
    await log.append((end("3.0", Observation(SECRET, value={SECRET: "another-secret"})), None))
    everything = b"".join(each.read_bytes() for each in tmp_path.iterdir())
    await log.end("waiting", {"answer": SECRET}, {"x": SECRET})
    log = await journal.store.claim("r", ME, secrets=secrets)
    await log.append((think(4), body + b"!"))
    everything += b"".join(each.read_bytes() for each in tmp_path.iterdir())
    assert b"0123456789" not in everything and b"another-secret" not in everything
    rows = journal.rows("r")
    assert rows[0].body == body.replace(json.dumps(SECRET, ensure_ascii=False)[1:-1].encode(), b"[secret]")
    assert rows[0].body == log.scrub(body) and b"and short" in body
    assert rows[-1].body == log.scrub(body + b"!")
    assert rows[2].record == note(1, "x[secret]y")
    assert journal.run("r").head.question == "Is [secret] good?"


# ---- export and memory


async def test_a_run_is_exported_as_lines_that_hold_everything(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.db", clock=lambda: 1795233301.25)
    log = await journal.store.begin(head("r"), ME, RECORDS)
    await log.end("answered", {"type": "answered", "answer": 3}, {"steps": 2})
    *written, last = lines(journal.run("r"), journal.rows("r"))
    digest = hashlib.sha256("".join(f"{line}\n" for line in written).encode()).hexdigest()
    assert json.loads(last) == {"type": "digest", "sha256": digest}
    told = list(map(json.loads, written))
    assert told == list(export(journal.run("r"), journal.rows("r")))
    assert told[0]["head"]["question"] == "How many?" and told[0]["outcome"]["answer"] == 3
    assert told[1] == {
        "type": "intent",
        "seq": 0,
        "at": "2026-11-21T03:55:01.250+00:00",
        "key": "0a0",
        "step": 1,
        "work": "request",
        "asked": {"phase": "act", "model": "m", "path": "chat/completions"},
        "body": '{"messages":["one"],"stop":[]}',
    }
    packed = [base64.b64decode(each["body_base64"]) if "body_base64" in each else None for each in told[1:]]
    plain = [each["body"].encode() if "body" in each else None for each in told[1:]]
    assert [one or other for one, other in zip(packed, plain, strict=True)] == [body for _, body in RECORDS]
    assert "body_base64" in told[2]


async def test_a_memory_log_keeps_the_same_rows_as_a_journal(tmp_path: Path) -> None:
    secrets = ("go on go on",)
    journal = Journal(tmp_path / "j.db", clock=lambda: 5.0)
    logs = (
        await journal.store.begin(head("r"), ME, RECORDS[:1], secrets=secrets),
        memory := MemoryLog(head("r"), secrets=secrets),
    )
    memory.buffer(*RECORDS[:1])
    for log in logs:
        await log.append(*RECORDS[1:5], (note(1, "go on go on"), b"well, go on go on"))
        log.buffer(*RECORDS[5:])
        await log.end("answered", {"type": "answered", "answer": 3}, {"steps": 2})
    found = [structs.replace(row, at=5.0) for row in memory.read_rows()]
    assert found == journal.rows("r") and len(found) == 8
    assert (memory.run, memory.outcome, memory.totals) == ("r", journal.run("r").outcome, journal.run("r").totals)
    json.dumps(list(export(journal.run("r"), memory.read_rows())))


def journal_column(path: Path, question: str) -> list[Any]:
    import sqlite3

    connection = sqlite3.connect(path)
    try:
        return connection.execute(question).fetchall()
    finally:
        connection.close()


async def test_a_claim_by_rows_that_were_read_before_somebody_wrote_records_nothing(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.db")
    await (await journal.store.begin(head("r"), ME)).end("waiting", {}, {})
    log = await journal.store.claim("r", ME, rows=0, records=((note(0), None),))
    await log.end("waiting", {}, {})
    with pytest.raises(RecordChanged, match="changed by another process"):
        await journal.store.claim("r", ME, rows=0, records=((note(1), None),))
    assert [row.record for row in journal.rows("r")] == [note(0)] and journal.run("r").status == "waiting"
    assert (await journal.store.claim("r", ME, rows=1)).run == "r"
