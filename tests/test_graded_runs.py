"""A run that a comparison graded as wrong does not look right: on the command line, in exports, in the API."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from cli_support import PLAIT
from fork_server import run_forked
from lazily import skip_without
from plait import Scripted
from plait.journal.results import Results
from plait.journal.run_query import RunQuery
from plait.journal.store import Journal
from plait.lab import acompare
from window_support import answer, react

skip_without("server", "starlette", "uvicorn", "prometheus_client")

from plait.view.live import follow_list, follow_run  # noqa: E402
from plait.view.run_search import ListWatch  # noqa: E402


async def compare(journal: Path) -> None:
    tasks = [{"question": "How many live in Lyon?", "answer": 522250}, {"question": "And in Nice?", "answer": 348085}]
    await acompare(tasks, loops="react", models=[Scripted([answer("522250")] * 2)], journal=journal)


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("graded") / "j.db"
    asyncio.run(compare(path))
    react(path, [answer("a single run")]).run("Who?")
    return path


def plait(journal: Path, *words: str) -> str:
    done = run_forked([PLAIT, *words, "--journal", str(journal)], timeout=60)
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


def of(question: str, lines: str) -> str:
    return next(line for line in lines.splitlines() if question in line)


def test_the_list_of_runs_names_the_grade(journal: Path) -> None:
    listed = plait(journal, "runs")
    assert "answered, graded wrong" in of("And in Nice?", listed)
    assert "answered, graded right" in of("How many", listed)
    assert "answered" in of("Who?", listed) and "graded" not in of("Who?", listed)
    grades = {each["question"]: each["grade"] for each in json.loads(plait(journal, "runs", "--json"))}
    assert grades["And in Nice?"]["success"] is False and grades["How many live in Lyon?"]["success"] is True
    assert grades["Who?"] is None


@pytest.mark.parametrize("words", [("show",), ("show", "--tree"), ("show", "--json"), ("export",)])
def test_a_single_run_names_its_grade(journal: Path, words: tuple[str, ...]) -> None:
    wrong = next(row for row in Journal.at(journal).runs() if row.head.question == "And in Nice?")
    shown = plait(journal, words[0], wrong.head.run, *words[1:])
    if words[-1] in ("--json", "export"):
        first = json.loads(shown if words[0] == "show" else shown.splitlines()[0])
        assert first["grade"]["mark"] == "wrong" and first["grade"]["why"]
    else:
        assert "answered, graded wrong" in shown
        assert ("348085" in shown) == (words == ("show",)), "the right answer is in the reason"


def test_a_deleted_result_is_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    asyncio.run(compare(path))
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM kept WHERE kind = 'result'")
    connection.close()
    assert [row.grade for row in Journal.at(path).runs()] == [None, None]


async def test_a_page_that_follows_a_run_is_told_of_its_grade(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    task = asyncio.ensure_future(compare(path))
    while not Journal.at(path).find(RunQuery()):
        await asyncio.sleep(0.001)
    stream = follow_run(Journal.at(path), Journal.at(path).runs()[-1].head.run, None)
    last: Any = None
    async with asyncio.timeout(30):
        async for each in stream:
            if b'"run"' in each:
                last = json.loads(each.decode().split("data: ")[1])
    assert last["run"]["grade"]["mark"] == "right" and last["run"]["status"] == "answered"
    await task


async def test_a_grade_that_comes_late_changes_the_list(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    await compare(path)
    store = Journal.at(path)
    cells = {row.head.label: row.head.run for row in store.runs()}
    results = Results(store.store)
    data = await results.read(cells)

    def forget() -> None:
        with sqlite3.connect(path) as connection:
            connection.execute("DELETE FROM kept WHERE kind = 'result'")
        connection.close()

    forget()
    stream = follow_list(ListWatch(store))
    for _ in range(2):
        first = await anext(stream)
    assert {run["grade"] for run in json.loads(first.decode().split("data: ")[1])["runs"]} == {None}
    for cell, run in cells.items():
        await results.keep(cell, run, data[cell])
    async with asyncio.timeout(30):
        async for each in stream:
            if b'"runs"' in each:
                marks = {run["grade"]["mark"] for run in json.loads(each.decode().split("data: ")[1])["runs"]}
                break
    assert marks == {"right", "wrong"}
    await stream.aclose()  # type: ignore[attr-defined]
