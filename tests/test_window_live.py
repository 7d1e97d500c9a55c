"""Live events: read off the journal, resumed where they broke off, nothing lost and nothing twice."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import plait
from plait.journal.owner import owner_of_this_process
from plait.journal.records import NoteRecord, RunHead
from plait.journal.store import Journal
from plait.view import run_search
from plait.view.live import RunFollower, follow_list, follow_run, last_seen_row, run_document
from plait.view.run_search import ListWatch
from window_support import action, answer, react


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


def read(data: bytes) -> tuple[int | None, dict[str, Any] | None]:
    """An event's id and data."""
    lines = dict(line.split(": ", 1) for line in data.decode().strip().split("\n") if not line.startswith(":"))
    named = lines.get("id")
    if "data" not in lines or "event" in lines:
        return None, None
    return (int(named) if named else None), json.loads(lines["data"])


async def gathered(stream: AsyncIterator[bytes], steps: dict[int, dict[str, Any]]) -> list[int]:
    """Take events to their end into `steps`, as a page does; their ids."""
    ids = []
    async for each in stream:
        id, data = read(each)
        if data is None:
            continue
        if id is not None:
            ids.append(id)
        for step in data["steps"]:
            held = steps.setdefault(step["n"], {})
            held.update({item["id"]: item for item in step["items"]})
    return ids


def items(document: dict[str, Any]) -> dict[int, dict[str, Any]]:
    return {step["n"]: {item["id"]: item for item in step["items"]} for step in document["steps"]}


async def test_events_from_any_row_on_lead_to_the_same_page(journal: Path) -> None:
    run = await react(journal).arun("?")
    store = Journal.at(journal)
    whole = json.loads(json.dumps(items(run_document(store, run.id))))
    for after in (None, -1, 0, 3, 7, run_document(store, run.id)["seq"]):
        steps: dict[int, dict[str, Any]] = {}
        if after is not None and after >= 0:  # what the page had when the connection broke
            follower = RunFollower(store, run.id)
            follower._read(until=after)
            steps = items({"steps": follower.timeline.changes()})
        await gathered(follow_run(store, run.id, after), steps)
        assert json.loads(json.dumps({str(n): each for n, each in steps.items()})) == whole


async def test_a_run_that_goes_on_is_followed_to_its_end(journal: Path) -> None:
    """Rows are written one by one while the events are read: each is told once, in order."""
    store = Journal.at(journal)
    head = RunHead("20260101-000000-growth", "?", {"name": "react", "options": {}}, {"": {"spec": "x"}})
    log = await store.store.begin(head, owner_of_this_process())
    stream = follow_run(store, head.run, None)
    told: list[str] = []

    async def follow() -> list[int]:
        ids = []
        async for each in stream:
            id, data = read(each)
            if data is not None:
                assert id is not None
                ids.append(id)
                told.extend(item["text"][0] for step in data["steps"] for item in step["items"])
        return ids

    task = asyncio.ensure_future(follow())
    for number in range(20):
        await log.append((NoteRecord(f"n{number}", 1 + number // 5, "note", f"remark {number}"), None))
        await asyncio.sleep(0.05)
    await log.end("answered", {"type": "answered", "answer": "x"}, {})
    ids = await asyncio.wait_for(task, 60)
    assert told == [f"remark {number}" for number in range(20)]
    assert ids == sorted(ids) and ids[-1] == 19
    assert len(set(ids)) > 2  # it was not told all at once at the end


async def test_a_run_that_waits_is_followed_until_it_is_answered(journal: Path) -> None:
    agent = react(journal, [action("send", {"text": "x"}), answer("sent")], approve="effects")
    run = await agent.arun("?")
    stream = follow_run(Journal.at(journal), run.id, None)
    await anext(stream)
    _, first = read(await anext(stream))
    asked = run.outcome.question  # type: ignore[union-attr]
    assert first is not None and first["run"]["status"] == "waiting" and first["waiting"][0]["item"] == f"w{asked}"
    await agent.aresume(run, "yes")
    last = None
    async for each in stream:
        _, data = read(each)
        last = data or last
    assert last is not None and last["run"]["status"] == "answered" and last["waiting"] == []


async def test_the_list_is_told_of_runs_that_begin_and_end(journal: Path) -> None:
    store = Journal.at(journal)
    await react(journal, [answer("x")]).arun("earlier")
    stream = follow_list(ListWatch(store))
    await anext(stream)
    _, first = read(await anext(stream))
    assert first is not None and [run["question"] for run in first["runs"]] == ["earlier"]  # none is missed between
    hold = asyncio.Event()

    @plait.tool(read_only=True)
    async def look() -> str:
        "Waits."
        await hold.wait()
        return "seen"

    async def next_of(question: str) -> str:
        async for each in stream:
            _, data = read(each)
            for run in (data or {"runs": []})["runs"]:
                if run["question"] == question:
                    return str(run["status"])
        raise AssertionError

    told = asyncio.ensure_future(next_of("later"))
    await asyncio.sleep(0)
    task = asyncio.ensure_future(react(journal, [action("look"), answer("x")], tools=(look,)).arun("later"))
    assert await asyncio.wait_for(told, 60) == "running"
    hold.set()
    await task
    assert await asyncio.wait_for(next_of("later"), 60) == "answered"
    await stream.aclose()  # type: ignore[attr-defined]


def test_where_to_begin_is_told_by_the_header_first() -> None:
    assert last_seen_row("12", "3") == 12
    assert last_seen_row(None, "3") == 3
    assert last_seen_row("x", None) is None
    assert last_seen_row("9" * 5000, "-1") == -1  # no row has that number
    assert last_seen_row("\u00b2", "--5") is None


async def test_what_the_list_remembers_does_not_grow_with_the_journal(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_search, "RECENT", 2)
    monkeypatch.setattr(run_search, "EVERY", 0)
    watch, seen, told = ListWatch(Journal.at(journal)), 0, []
    for number in range(6):
        await react(journal, [answer("x")]).arun(f"question {number}")
        for _ in range(11):
            found, seen = await watch.read(seen)
            told += [each.head.question for each in found]
    assert told == [f"question {number}" for number in range(6)]
    assert len(watch._known) == 2


async def test_all_open_lists_share_one_reading_of_the_journal(journal: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_search, "EVERY", 3600)
    await react(journal, [answer("x")]).arun("first")
    read_of, count = run_search.find_unfinished, 0

    def counted(*about: Any) -> Any:
        nonlocal count
        count += 1
        return read_of(*about)

    monkeypatch.setattr(run_search, "find_unfinished", counted)
    watch = ListWatch(Journal.at(journal))
    for _ in range(2):
        pages = await asyncio.gather(*(watch.read(0) for _ in range(20)))
        assert {tuple(each.head.question for each in found) for found, _ in pages} == {("first",)} and count == 1
    await react(journal, [answer("x")]).arun("second")
    watch._next = 0  # a second has passed
    pages = await asyncio.gather(watch.read(0), *(watch.read(1) for _ in range(20)))
    assert [[each.head.question for each in found] for found, _ in pages] == [["first", "second"], *[["second"]] * 20]
    assert count == 2 and await watch.read(2) == ([], 2)
