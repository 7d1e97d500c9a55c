"""A journal from elsewhere may nest child runs deeper than Python recurses, or name a run as its own child."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from journal_rows import ask, begin, start_child
from plait.cli.costs import tree_cost_row
from plait.cli.show import show_tree
from plait.core import Call
from plait.core.errors import ConfigError
from plait.journal.open_questions import find_open_questions, read_questions
from plait.journal.records import ParentCall, RunHead
from plait.journal.sqlite.store import SqliteStore
from plait.journal.store import Journal, list_descendants, read_timeline, wait_for
from plait.runtime.calls_in_doubt import read_calls_in_doubt
from plait.runtime.guard import Entry, Guard, StartChild
from plait.runtime.recorded_work import recall_work
from plait.runtime.spent import read_spent

DEPTH = 1_000
"""Python's limit of calls."""


class Recaller(Guard):
    points = frozenset({StartChild})

    def __init__(self) -> None:
        self.recalled: list[str] = []

    def for_child(self, start: StartChild | None) -> Guard:
        return self

    def recall(self, entry: Entry, result: Any) -> None:
        self.recalled.append(entry.effect.run)


async def add(store: SqliteStore, run: str, child: str, caller: ParentCall | None, parent: str = "") -> None:
    """Add a run that was killed: it had begun a call and a child run, and asked the user."""
    records = begin("1.0", Call("pay", run)), start_child("1.0:c5f.0", child), ask("1.1?approvals@5f", "May I?")
    head = RunHead(run, "q", {"name": "react", "options": {}}, {}, caller=caller, parent=parent)
    await store.begin(head, "gone", [(each, None) for each in records])


@pytest.fixture(scope="module")
def nested(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A journal of a run with a child run that has one, and so on."""

    async def nest() -> None:
        store = SqliteStore(path)
        for n in range(DEPTH):
            await add(store, f"r{n}-", f"r{n + 1}-", ParentCall(f"r{n - 1}-", "1.0:c5f.0") if n else None)
        await store.close()

    path = tmp_path_factory.mktemp("nested") / "runs.db"
    asyncio.run(nest())
    return path


async def recall(store: SqliteStore) -> list[str]:
    guard, past = Recaller(), SimpleNamespace(rows=await store.read_rows("r0-"))
    spec = SimpleNamespace(past=past, tools={})
    engine: Any = SimpleNamespace(chain=SimpleNamespace(guards=[guard]), run_spec=spec, run_id="r0-", store=store)
    await recall_work(engine)
    return guard.recalled


async def calls(store: SqliteStore) -> list[Call]:
    head = (await store.find_run("r0-")).head
    return [each.call for each in (await read_calls_in_doubt(store, head, await read_timeline(store, "r0-")))[::2]]


async def spent(store: SqliteStore) -> range:
    return range((await read_spent(store, await store.find_run("r0-"))).tool_calls)


READERS: dict[str, Callable[[SqliteStore], Any]] = {
    "open questions": lambda store: find_open_questions(store, "r0-"),
    "questions": lambda store: read_questions(store, "r0-"),
    "calls in doubt": calls,
    "recalled child runs": recall,
    "tool calls": spent,
}


@pytest.mark.parametrize("what", READERS)
async def test_all_work_of_deeply_nested_runs_is_found(what: str, nested: Path) -> None:
    found = await READERS[what](store := SqliteStore(nested))
    assert len(found) == DEPTH
    await store.close()


async def test_deeply_nested_runs_are_deleted_together(nested: Path, journal: Path) -> None:
    shutil.copy(nested, journal)
    store = SqliteStore(journal)
    await store.delete(["r0-"])
    assert (await store.info()).runs == 0
    await store.close()


def test_deeply_nested_runs_are_listed(nested: Path, capsys: pytest.CaptureFixture[str]) -> None:
    journal = Journal(nested)
    assert len(wait_for(list_descendants(journal.store, "r0-"))) == DEPTH - 1
    assert tree_cost_row(journal.run("r0-"), journal).runs == ("r0-",)
    show_tree(journal.run("r0-"), journal, as_object=False)
    with pytest.raises(ConfigError, match="More than 100 runs are nested"):
        show_tree(journal.run("r0-"), journal, as_object=True)
    assert len(capsys.readouterr().out.splitlines()) == DEPTH + 1
    journal.close()


@pytest.mark.parametrize("what", ["open questions", "questions", "recalled child runs"])
async def test_a_run_that_names_itself_as_its_child_run_is_read_once(what: str) -> None:
    await add(store := SqliteStore(":memory:"), "r0-", "r0-", None)
    assert len(await READERS[what](store)) == 1
    await store.close()


async def test_a_child_run_that_is_a_fork_of_its_caller_is_read_once() -> None:
    await add(store := SqliteStore(":memory:"), "r0-", "r1-", None)
    await add(store, "r1-", "r2-", ParentCall("r0-", "1.0:c5f.0"), parent="r0-")
    assert {call.input for call in await calls(store)} == {"r0-", "r1-"}
    await store.close()
