"""What each store of runs must do: SQLite in a file, SQLite in memory, and the dictionary of `memory_store.py`.

A new store is added to `STORES`. Claims that only a file can keep (another process, a locked file, damage) are in
test_journal_*.py.
"""

from __future__ import annotations

import asyncio
import json
import random
import string
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from conftest import CAMPAIGN
from memory_store import KeptLog, MemoryStore
from plait.core import Call, File, Observation
from plait.core.errors import ConfigError, JournalError, RecordChanged, SessionBusy, UnknownRun
from plait.journal.carry import pack
from plait.journal.owner import new_run_id, owner_of_this_process
from plait.journal.postgres.store import PostgresStore
from plait.journal.records import (
    IntentRecord,
    LastTurn,
    NoteRecord,
    ParentCall,
    Record,
    RequestRecord,
    ResultRecord,
    Resumption,
    RunHead,
)
from plait.journal.results import Results
from plait.journal.run_query import SORTS, RunQuery
from plait.journal.spending import Reservation, SpendAmount, SpendBound
from plait.journal.sqlite.store import SqliteStore
from plait.journal.store import ENDED, TITLES, Journal, read_timeline
from postgres_server import shared_server

ME = owner_of_this_process()
GONE = f"{ME.split(':')[0]}:999999999:1:{':'.join(ME.split(':')[3:])}"
"""The owner of a process of this machine that is gone."""
ELSEWHERE = "another-host:1:1:another-boot:1"

STORES: dict[str, Callable[[Path], Any]] = {
    "file": lambda folder: SqliteStore(folder / "runs.db"),
    "memory": lambda folder: SqliteStore(":memory:"),
    "dictionary": lambda folder: MemoryStore(),
    "postgres": lambda folder: PostgresStore(shared_server().new_journal()),
}


@pytest.fixture(params=STORES)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Any]:
    made = STORES[request.param](tmp_path)
    yield made
    await made.close()


def head(run: str, question: str = "q", **fields: Any) -> RunHead:
    return RunHead(run, question, {"name": "react", "options": {}}, {"": {"spec": "scripted:x"}}, **fields)


def note(text: str) -> Record:
    return NoteRecord("", 1, "note", text)


def request(n: int) -> Record:
    return IntentRecord(f"{n}a0", n, "request", RequestRecord("act", "scripted:x", "/chat"))


async def end(log: Any, status: str = "answered", answer: Any = "a", **totals: Any) -> None:
    await log.end(status, {"type": status, "answer": answer}, totals)


async def texts(store: Any, run: str) -> list[str]:
    return [row.record.text for row in await store.read_rows(run)]


# -- the record of a run


async def test_rows_come_back_in_order_with_their_exact_bodies(store: Any) -> None:
    log = await store.begin(head("r"), ME, [(note("first"), None)])
    bodies = [b'{"messages":["' + b"long " * 1000 * n + b'"]}' for n in range(5)] + [bytes(range(256)), b""]
    for n, body in enumerate(bodies):
        await log.append((request(n), body))
    log.buffer((note("with the end"), None))
    await end(log)
    rows = await store.read_rows("r")
    assert [row.seq for row in rows] == list(range(9))
    assert [row.body for row in rows[1:8]] == bodies
    assert rows[0].record == note("first") and rows[8].record == note("with the end")
    assert [row.at for row in rows] == sorted(row.at for row in rows)
    assert [row.body async for row in store.iter_rows("r")] == [row.body for row in rows]
    assert [row.seq for row in await store.read_rows("r", 6)] == [7, 8]
    shown = await store.read_rows("r", 1, until=3, bodies=False)
    assert [(row.seq, row.body) for row in shown] == [(2, None), (3, None)]
    assert len((await read_timeline(store, "r")).model_calls) == 7


async def test_what_is_appended_is_there_for_others_when_it_is_awaited(store: Any, tmp_path: Path) -> None:
    log = await store.begin(head("r"), ME)
    await log.append((note("1"), None))
    await log.append((note("2"), None), (note("3"), None), durable=True)
    log.buffer((note("4"), None))
    other = SqliteStore(tmp_path / "runs.db") if store.place == str(tmp_path / "runs.db") else store
    assert (await texts(other, "r"))[:3] == ["1", "2", "3"]
    await log.append()
    assert await texts(other, "r") == ["1", "2", "3", "4"]
    await other.close()


async def test_nothing_can_be_put_on_the_record_of_a_run_that_has_ended(store: Any) -> None:
    log = await store.begin(head("r"), ME)
    await end(log)
    with pytest.raises(JournalError):
        await log.append((note("late"), None))
    row = await store.find_run("r")
    assert (row.status, row.outcome, row.owner) == ("answered", {"type": "answered", "answer": "a"}, "")
    assert await store.read_rows("r") == []


async def test_secrets_are_in_no_row(store: Any) -> None:
    log = await store.begin(head("r", "my key-12345678"), ME, secrets=["key-12345678"])
    await log.append((request(0), b'{"k":"key-12345678"}'), (note("key-12345678"), None))
    await log.end("answered", {"type": "answered", "answer": "key-12345678"}, {})
    rows, row = await store.read_rows("r"), await store.find_run("r")
    assert "12345678" not in f"{rows} {row}" and rows[0].body == log.scrub(b'{"k":"key-12345678"}')


async def test_two_runs_never_have_one_id(store: Any) -> None:
    await store.begin(head("r"), ME)
    with pytest.raises(JournalError):
        await store.begin(head("r"), ME)


async def test_the_turns_of_a_session_begin_one_after_another(store: Any) -> None:
    turns = [head(f"r{i}", session="trip") for i in range(8)]
    begun = await asyncio.gather(
        *(store.begin(each, ME, after_turn=LastTurn()) for each in turns), return_exceptions=True
    )
    (log,) = (each for each in begun if not isinstance(each, BaseException))
    assert {getattr(each, "status", "") for each in begun if each is not log} == {"running"}
    assert all(isinstance(each, SessionBusy) and each.run == log.run for each in begun if each is not log)
    await end(log)
    with pytest.raises(SessionBusy) as busy:  # it was read before that turn came
        await store.begin(head("late", session="trip"), ME, after_turn=LastTurn())
    assert (busy.value.status, busy.value.run) == ("", log.run)
    (last,) = await store.list_turns("trip")
    second = await store.begin(head("second", session="trip"), ME, after_turn=LastTurn.of([last]))
    with pytest.raises(SessionBusy):  # it was read while it went on
        await store.begin(head("late", session="trip"), ME, after_turn=LastTurn(last.run, last.updated - 1))
    fork = await store.begin(head("fork", session="trip", parent=log.run, fork_at=1), ME)
    other = await store.begin(head("other", session="else"), ME, after_turn=LastTurn())
    await asyncio.gather(end(second), end(fork), end(other))
    assert [each.run for each in await store.list_turns("trip")] == [log.run, "second"]


async def test_runs_that_write_at_the_same_time_keep_their_own_order(store: Any) -> None:
    async def write(name: str) -> None:
        log = await store.begin(head(name), ME)
        for n in range(20):
            append = random.choice([log.append, partial(log.append, durable=True), log.buffer])
            if (done := append((note(f"{name} {n}"), None))) is not None:
                await done
        await end(log)

    names = [f"run-{i}" for i in range(12)]
    await asyncio.gather(*map(write, names))
    for name in names:
        assert await texts(store, name) == [f"{name} {n}" for n in range(20)]


async def test_whoever_is_cancelled_takes_nothing_back(store: Any) -> None:
    log = await store.begin(head("r"), ME)

    async def write(n: int) -> None:
        await log.append((note(str(n)), None), durable=True)

    tasks = [asyncio.create_task(write(n)) for n in range(10)]
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await log.append((note("last"), None))
    found = await texts(store, "r")
    assert found[-1] == "last" and found[:-1] == [str(n) for n in range(10)]


# -- claims and doubts


@pytest.mark.parametrize("status", ["waiting", "cancelled", "crashed"])
async def test_a_run_that_has_not_ended_for_good_can_be_claimed_and_goes_on_at_its_next_row(
    store: Any, status: str
) -> None:
    await end(await store.begin(head("r"), ME, [(request(0), b"body 0")]), status)
    log = await store.claim("r", ME, records=[(note("resumed"), None)])
    assert (await store.find_run("r")).status == "running"
    await log.append((request(1), b"body 1"))
    await end(log)
    assert [row.body for row in await store.read_rows("r")] == [b"body 0", None, b"body 1"]


@pytest.mark.parametrize("status", sorted(ENDED))
async def test_a_run_that_has_ended_is_claimed_by_nobody(store: Any, status: str) -> None:
    await end(await store.begin(head("r"), ME), status)
    with pytest.raises(JournalError, match="has ended"):
        await store.claim("r", ME, force=True)


async def test_a_run_is_claimed_from_a_process_that_is_gone_and_from_no_other(store: Any) -> None:
    await store.begin(head("gone"), GONE)
    await store.begin(head("far"), ELSEWHERE)
    mine = await store.begin(head("mine"), ME)
    assert [await store.is_holder_gone(owner) for owner in (GONE, ELSEWHERE, ME)] == [True, None, False]
    assert (await store.find_run("gone")).status == "interrupted"
    assert (await store.claim("gone", ME)).run == "gone"
    for run in ("far", "mine"):
        with pytest.raises(JournalError):
            await store.claim(run, ME)
    assert (await store.claim("far", ME, force=True)).run == "far"
    with pytest.raises(JournalError):
        await store.claim("mine", ME, force=True)
    assert await store.read_rows(mine.run) == []


async def test_an_answer_is_recorded_only_if_nobody_wrote_since_it_was_given(store: Any) -> None:
    await end(await store.begin(head("r"), ME, [(note("asked"), None)]), "waiting")
    with pytest.raises(RecordChanged):
        await store.claim("r", ME, rows=0, records=[(note("answer"), None)])
    assert (await store.find_run("r")).status == "waiting"
    await store.claim("r", ME, rows=1, records=[(note("answer"), None)])
    assert await texts(store, "r") == ["asked", "answer"]


async def test_what_had_not_ended_before_a_restore_may_lack_rows_and_its_record_says_so(store: Any) -> None:
    async def resume(run: str) -> bool:
        resumed = NoteRecord("", 0, "resumed", value=Resumption({}))
        log = await store.claim(run, ME, records=[(resumed, None)])
        noted = (await store.read_rows(run))[-1].record.value.lost
        await end(log, "cancelled")
        return bool(noted)

    await end(await store.begin(head("before"), ME), "cancelled")
    await end(await store.begin(head("over"), ME))
    await asyncio.sleep(0.002)
    assert await store.mark_restored() == 1 and (await store.info()).restored > 0
    await asyncio.sleep(0.002)
    await end(await store.begin(head("after"), ME), "cancelled")
    assert await resume("after") is False
    assert await resume("before") is True
    assert await resume("before") is False  # its record says it already


# -- the index


async def test_a_run_is_found_by_the_beginning_of_its_id(store: Any) -> None:
    for run in ("20260101-a", "20260101-ab", "20260102-c"):
        await end(await store.begin(head(run), ME))
    await end(await store.begin(head("20260103-child", caller=ParentCall("20260102-c", "1.0")), ME))
    assert (await store.find_run("20260101-a")).head.run == "20260101-a"
    assert (await store.find_run("20260102")).head.run == "20260102-c"
    assert (await store.find_run("last")).head.run == "20260102-c"
    for wrong in ("2026", "x", ""):
        with pytest.raises(UnknownRun):
            await store.find_run(wrong)


async def test_all_stores_list_the_same_runs_for_the_same_query(tmp_path: Path) -> None:
    """40 runs and 200 queries by chance, in each store."""
    chance = random.Random(7)
    stores = [make(tmp_path) for make in STORES.values()]
    words = ["Lyon", "ÉTÉ", "nice", "%_", "'quoted'"]
    for n in range(40):
        fields: dict[str, Any] = {
            "session": chance.choice(["", "", "trip", "work"]),
            "label": chance.choice(["", "cell", f"serve:ada:{chance.choice(['bot', 'b.t'])}:k{n}"]),
            "parent": chance.choice(["", "", f"run-{n - 1:02}"]) if n else "",
            "caller": ParentCall(f"run-{chance.randrange(n):02}", "1.0") if n and chance.random() < 0.2 else None,
            "user": chance.choice(["", "ada", 'o"b', "été"]),
            "agent": chance.choice(["", "bot", "shop:agent"]),
            "tags": tuple(chance.sample(["a", "b", ",", '"', "a,b", "\\"], chance.randint(0, 3))),
        }
        asked = " ".join(chance.sample(words, 2))
        status = chance.choice(["answered", "failed", "waiting", "running", "gone"])
        guards = {name: [1] for name in ("taint", "approvals") if chance.random() < 0.3}
        outcome = {"type": status, **chance.choice([{"answer": f"in {asked}"}, {"reason": "why " + words[n % 5]}])}
        totals: dict[str, Any] = {}
        if chance.random() < 0.8:
            totals = {"steps": n % 4, "input_tokens": n % 7, "output_tokens": 2, "seconds": n / 8, **totals}
            totals |= {"cost_usd": chance.choice([None, 0.0, 0.25, 1.5]), "calls": n}
        if chance.random() < 0.3:
            totals["tree"] = {
                "runs": 2,
                "input_tokens": 9,
                "output_tokens": n,
                "cost_usd": chance.choice([None, 0.5, 2.0]),
            }
        totals |= {"guards": guards} if guards else {}
        mark = chance.choice(["", "right", "wrong"])
        for store in stores:
            vars(store)["_clock"] = lambda n=n: float(n)
            made = RunHead(
                f"run-{n:02}", asked, {"name": "react" if n % 3 else "json"}, {"": {"spec": f"m{n % 2}"}}, **fields
            )
            log = await store.begin(made, GONE if status == "gone" else ME)
            if isinstance(log, KeptLog):
                log.started = float(n)
            if status not in ("running", "gone"):
                await log.end(status, outcome, totals)
            if mark and made.label == "cell":
                grade = {"mark": mark, "success": mark == "right"}
                await store.keep("result", "cell", made.run, json.dumps({"grade": grade}).encode())
            if n % 3 == 0:
                await store.keep("rating", made.run, made.run, json.dumps({"good": n % 2 == 0, "why": "'"}).encode())
    for sort in ["", *(sign + each for each in SORTS for sign in ("", "-"))]:
        whole = [row.id for row in await stores[0].list_runs(RunQuery(sort=sort))]
        for store in stores:  # pages of 3 are the whole list, each run once
            pages = [await store.list_runs(RunQuery(sort=sort, limit=3))]
            while pages[-1]:
                pages.append(await store.list_runs(RunQuery(sort=sort, limit=3, before=pages[-1][-1].n)))
            assert [row.id for page in pages for row in page] == whole, sort
            if sort.strip("-") not in ("", "started"):
                with pytest.raises(ConfigError, match="999"):
                    await store.list_runs(RunQuery(sort=sort, before=999))
    matched: dict[str, bool] = {}
    for n in range(400 if CAMPAIGN else 220):
        asked_for = {
            "status": ["answered", "failed", "waiting", "running", "interrupted"],
            "loop": ["react", "json"],
            "model": ["m0", "m1", "m2"],
            "session": ["trip", "none"],
            "label": ["ce", "serve:"],
            "labels": [("cell",), ("cell", "x")],
            "agent": ["bot", "b.t", "shop:agent", "b*"],
            "user": ["ada", 'o"b', "été", "nobody"],
            "tags": [("a",), (",",), ('"',), ("a", "b"), ("a,b",), ("\\",), ("none",)],
            "grade": ["right", "wrong"],
            "rated": ["good", "bad"],
            "since": [10.0, 20.5],
            "until": [10.0, 30.0],
            "min_cost": [0.0, 0.25, 1.0],
            "max_cost": [0.0, 0.5],
            "words": ["lyon", "été nice", "WHY", "%_", "in"],
            "parent": [f"run-{n:02}" for n in range(20)],
            "caller": [f"run-{n:02}" for n in range(10)],
            "numbers": [(1, 5, 9), tuple(range(1, 30))],
            "children": [True],
            "is_tainted": [True],
            "is_open": [True],
            "before": [10, 20],
            "sort": [sign + each for each in SORTS for sign in ("", "-")],
            "limit": [0, 1, 3],
        }
        chosen = chance.sample(sorted(asked_for), chance.randint(0, 3))
        query = RunQuery(**{name: chance.choice(asked_for[name]) for name in chosen})
        found = [[(row.id, row.status, row.n, row.rating) for row in await store.list_runs(query)] for store in stores]
        assert all(each == found[0] for each in found), query
        sums = [await store.list_totals(query, models=n % 2 == 0) for store in stores]
        assert all(each == sums[0] for each in sums) and [each.run for each in sums[0]] == [
            run for run, *_ in found[0]
        ], query
        matched |= {name: True for name in chosen if found[0]}
    assert set(matched) == set(asked_for)  # each filter has found something
    for label in ("serve:", ""):
        values = [await store.list_values(label) for store in stores]
        assert all(each == values[0] for each in values) and values[0]["sessions"] == ["trip", "work"]
    for store in stores:
        await store.close()


async def test_turns_are_numbered_and_those_before_a_run_are_found(store: Any) -> None:
    for n, session in enumerate(["a", "b", "a", "a", "b"]):
        await end(
            await store.begin(head(f"r{n}", f"question {n}", session=session), ME), answer={"n": n} if n == 2 else "a"
        )
    await end(await store.begin(head("fork", session="a", parent="r2"), ME))
    turns = await store.list_turns("a")
    assert [(each.number, each.run, each.answer) for each in turns] == [
        (1, "r0", "a"),
        (2, "r2", '{"n":2}'),
        (3, "r3", "a"),
    ]
    assert [each.number for each in await store.list_turns("a", limit=2)] == [2, 3]
    assert [each.run for each in await store.list_turns("a", before="r3")] == ["r0", "r2"]
    assert [each.run for each in await store.list_turns("a", before="fork")] == ["r0"]
    assert await store.list_turns("none") == [] and await store.list_turns("") == []
    assert [(each.name, each.turns, each.question) for each in await store.list_sessions()] == [
        ("b", 2, "question 4"),
        ("a", 3, "question 3"),
    ]
    assert len(await store.list_sessions(1)) == 1


async def test_conversations_are_listed_by_owner_words_and_place(store: Any) -> None:
    assert await store.list_sessions(owner="", words="x") == []
    for i, session in enumerate(["a", "@x/b", "c", "@x/d", "@xy/e", "a", "Ä 100%"]):
        await end(await store.begin(head(f"run{i}", f"Question {i} Ä", session=session), ME), answer="it's so")
    await end(await store.begin(head("fork", "Question 0 Ä", session="c", parent="run2"), ME))
    await store.keep(TITLES, "a", "", json.dumps({"title": "Über 100%", "words": "über 100%"}).encode())

    async def names(**wanted: Any) -> list[str]:
        return [each.name for each in await store.list_sessions(**wanted)]

    assert await names(owner="") == ["c", "Ä 100%", "a"]
    assert await names(owner="@x/") == ["@x/d", "@x/b"]
    assert await names(owner="", words="QUESTION 5") == ["a"]
    assert await names(owner="", words="100% üBER") == ["a"]
    assert await names(owner="@x/", words="ä 4") == await names(owner="@z/") == []
    assert await names(owner="@x/", words="IT'S ä 1") == ["@x/b"]
    first, second, third = await store.list_sessions(owner="")
    assert [each.n for each in await store.list_sessions(owner="", before=first.n)] == [second.n, third.n]
    assert await names(owner="", limit=1) == ["c"]
    assert (third.first, third.question, third.turns) == ("Question 0 Ä", "Question 5 Ä", 2)


# -- contents, deleting, carrying


async def test_files_are_stored_once_and_go_with_the_last_run_that_has_them(store: Any) -> None:
    picture = File.from_bytes(b"\x89PNG\r\n\x1a\n" + bytes(100), "a.png")
    file = picture.attachment
    for run in ("one", "two"):
        log = await store.begin(head(run, attachments=(file,)), ME, contents={file.digest: picture.data})
        await end(log)
    assert await store.read_contents([file]) == {file.digest: picture.data}
    assert await store.delete(["one"]) == 1
    await store.compact()
    assert await store.read_contents([file]) == {file.digest: picture.data}
    await store.delete(["two"])
    await store.compact()
    with pytest.raises(JournalError):
        await store.read_contents([file])


async def test_a_deleted_run_takes_its_child_runs_and_its_rating_along(store: Any) -> None:
    await end(await store.begin(head("top"), ME, [(note("x"), None)]))
    await end(await store.begin(head("child", caller=ParentCall("top", "1.0")), ME))
    await end(await store.begin(head("grandchild", caller=ParentCall("child", "1.0")), ME))
    await end(await store.begin(head("fork", parent="top"), ME))
    going = await store.begin(head("going"), ME)
    results = Results(store)
    await results.rate("top", True)
    await results.rate("fork", False, "wrong")
    with pytest.raises(JournalError):
        await store.delete(["going"])
    await store.delete(["top"])
    await store.compact()
    assert [row.head.run for row in await store.list_runs(RunQuery(children=True))] == ["going", "fork"]
    assert {run: each.good for run, each in (await results.list_ratings()).items()} == {"fork": False}
    await end(going)


async def test_old_runs_are_deleted_in_batches_that_can_be_repeated(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plait.journal.store.BATCH", 3)
    for n in range(8):
        await end(await store.begin(head(f"old{n}"), ME))
    waiting = await store.begin(head("waiting"), ME)
    await end(await store.begin(head("its child", caller=ParentCall("waiting", "1.0")), ME))
    await end(waiting, "waiting", answer=None)
    going = await store.begin(head("going"), ME)
    await end(await store.begin(head("its other child", caller=ParentCall("going", "1.0")), ME))
    await end(await store.begin(head("new"), ME))
    journal = Journal(store=store)

    async def list_left() -> list[str]:
        return [row.head.run for row in await store.list_runs(RunQuery(children=True))]

    batches = await asyncio.to_thread(list, journal.old_runs(0.0, keep=1))
    assert [len(rows) for rows in batches] == [1, 3, 3, 1]
    for rows in batches[:2]:  # then it is interrupted
        names = [row.head.run for row in rows]
        both = await asyncio.gather(*(store.delete(names, skip_active=True) for _ in range(2)))
        assert sum(both) == len(names)
    for rows in await asyncio.to_thread(list, journal.old_runs(0.0, keep=1)):
        await store.delete([row.head.run for row in rows], skip_active=True)
    assert await list_left() == ["new", "its other child", "going", "its child", "waiting"]
    assert await asyncio.to_thread(list, journal.old_runs(3600.0)) == []
    # What was old when it was listed may go on by now, and is left then.
    assert await store.delete(["new", "waiting", "going", "gone"], skip_active=True) == 1
    assert (await list_left())[0] == "its other child"
    await end(going)


async def test_a_batch_is_deleted_as_a_whole_or_not_at_all(store: Any) -> None:
    for run in ("one", "two"):
        await end(await store.begin(head(run), ME))
    going = await store.begin(head("going"), ME)
    for wanted, error in ((["one", "nobody", "two"], UnknownRun), (["one", "going"], JournalError)):
        with pytest.raises(error):
            await store.delete(wanted)
    if not isinstance(store, MemoryStore):
        assert len(await store.list_runs()) == 3
    await end(going)


async def test_a_result_is_kept_once_and_a_comparison_is_replaced(store: Any) -> None:
    results = Results(store)
    await end(await store.begin(head("r", label="cell"), ME))
    await results.keep("cell", "r", b'{"grade":{"mark":"right"}}')
    await results.keep("cell", "other", b"{}")
    assert await results.read(["cell", "none"]) == {"cell": b'{"grade":{"mark":"right"}}'}
    assert (await store.find_run("r")).grade == {"mark": "right"}
    await results.save("table", {"cells": ["cell"]})
    await results.save("table", {"cells": ["cell"]}, {"rows": []})
    await results.save("table", {"cells": []})
    (kept,) = await results.list_comparisons()
    assert (kept.head, kept.summary) == ({"cells": []}, {"rows": []})
    assert list(await results.find_runs(["cell"])) == ["cell"]
    await results.forget(["cell"])
    assert await results.read(["cell"]) == {} and await results.find_runs(["cell"]) == {}


async def test_a_run_is_carried_to_each_other_store_as_it_is(store: Any, tmp_path: Path) -> None:
    log = await store.begin(head("r"), ME, [(request(0), b"body")])
    call = Call("pay", {"x": 1}, "c")
    await log.append((IntentRecord("1.0", 1, "call", call), None), durable=True)
    await log.append((ResultRecord("1.0", 1, "call", Observation("paid")), None))
    await end(log, calls=3)
    carried = await pack(store, "r")
    for n, make in enumerate(STORES.values()):
        (folder := tmp_path / str(n)).mkdir()
        other = make(folder)
        assert await other.add([carried]) and await other.add([carried])
        row = await other.find_run("r")
        assert (row.totals, row.started, row.updated) == ({"calls": 3}, carried.started, carried.updated)
        assert await other.read_rows("r") == await store.read_rows("r")
        await other.close()


async def test_of_carried_runs_all_are_added_or_none(store: Any) -> None:
    other = MemoryStore()
    for run in ("new", "taken"):
        await end(await other.begin(head(run), ME))
    await asyncio.sleep(0.001)
    await end(await store.begin(head("taken"), ME))
    assert not await store.add([await pack(other, "new"), await pack(other, "taken")])
    assert [row.head.run for row in await store.list_runs()] == ["taken"]
    with pytest.raises(JournalError):
        await pack(store, (await store.begin(head("going"), ME)).run)


async def test_the_store_in_memory_of_a_process_makes_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    journal = Journal.at(":memory:")
    run = (await journal.store.begin(head(new_run_id()), ME)).run
    assert (await Journal.at(":memory:").store.find_run(run)).head.run == run
    assert not list(tmp_path.iterdir())
    await journal.store.close()


async def test_a_store_says_what_it_holds_and_that_it_is_whole(store: Any) -> None:
    for run in string.ascii_lowercase[:3]:
        await end(await store.begin(head(run), ME, [(note("x"), None)] * 2))
    found = await store.info()
    assert (found.runs, found.rows, found.restored) == (3, 6, 0.0) and found.place == store.place
    assert await store.check() == []


def bound(name: str, usd: int | None = None, tokens: int | None = None, runs: int | None = None) -> SpendBound:
    return SpendBound(name, 2e9, usd, tokens, runs)


async def counters(store: Any) -> dict[str, tuple[int, ...]]:
    return {
        each.name: (each.usd, each.tokens, each.runs, each.held_usd, each.held_tokens)
        for each in await store.list_counters(0)
    }


async def test_a_request_reserves_in_all_counters_or_in_none_and_settles_once(store: Any) -> None:
    narrow, wide = bound("b", usd=10, tokens=100), bound("a", runs=1)
    first = Reservation("1", "r", "0a0", SpendAmount(6, 60, 1))
    assert await store.reserve(first, [narrow, wide]) == []
    assert await counters(store) == {"a": (0, 0, 1, 6, 60), "b": (0, 0, 1, 6, 60)}
    found = await store.reserve(Reservation("2", "s", "0a0", SpendAmount(5, 1)), [wide, narrow])
    assert [each.name for each in found] == ["a", "b"] and found[1].held_usd == 6
    assert (await store.reserve(Reservation("2", "s", "0a0", SpendAmount(1, 41)), [narrow]))[0].held_tokens == 60
    assert await store.reserve(
        Reservation("2", "s", "0a0", SpendAmount(1, 1, 1)), [wide, narrow]
    )  # of one run, one has begun
    assert await store.list_reserved("r") == [first] and await store.list_reserved("s") == []
    for _ in range(2):
        await store.settle("1", SpendAmount(7, 50, 1))
    assert await counters(store) == {"a": (7, 50, 1, 0, 0), "b": (7, 50, 1, 0, 0)}
    assert [(each.beyond_usd, each.beyond_tokens) for each in await store.list_counters(0)] == [(1, 0)] * 2
    assert [each.most_usd for each in await store.list_counters(0)] == [None, 10]
    assert await store.list_counters(2e9) == [] == await store.list_reserved("r")
    assert await store.reserve(Reservation("3", "r", "1a0", SpendAmount(3, 50)), [narrow]) == []
    await store.settle("3", SpendAmount())  # it was not sent
    assert (await counters(store))["b"] == (7, 50, 1, 0, 0)


async def test_reservations_at_once_never_exceed_a_limit(store: Any) -> None:
    bounds, over, reserved = [bound(name, usd=100) for name in "abc"], [], []

    async def spend(n: int) -> None:
        chance = random.Random(n)
        for i in range(8):
            asked = Reservation(f"{n}.{i}", "r", "k", SpendAmount(chance.randint(1, 30), 1))
            some = chance.sample(bounds, chance.randint(1, 3))
            if not await store.reserve(asked, some):
                reserved.append(asked)
                over.extend(it for it in await store.list_counters(0) if it.usd + it.held_usd > 100)
                await store.settle(asked.id, SpendAmount(chance.randint(0, asked.amount.usd) if i % 2 else 0))

    await asyncio.gather(*(spend(n) for n in range(12)))
    assert over == [] and len(reserved) > 10
    assert all(each.held_usd == each.held_tokens == 0 for each in await store.list_counters(0))
