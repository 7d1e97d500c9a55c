"""A comparison on a Ray cluster gives the table that it gives without one, whoever dies in between."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sqlite3
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

import plait
from cli_support import PLAIT
from conftest import only_in_campaign
from patience import patience
from plait.core.errors import ConfigError, PlaitError
from plait.journal.carry import pack
from plait.journal.store import Journal
from plait.lab import Comparison, acompare, compare
from plait.lab.ray import RayEngine
from plait.lab.ray.cluster import RayCluster

CALLS = 'Thought: I look it up.\nAction: calculator\nAction Input: {"expression": "6 * 7"}'
RIGHT = "Thought: I know.\nFinal Answer: 42"


def tasks(count: int) -> list[dict[str, Any]]:
    return [
        {"id": f"t{number}", "question": f"What is 6 * 7? ({number})", "answer": "42" if number % 3 else "41"}
        for number in range(count)
    ]


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    """One cluster for all tests: an `RayEngine()` finds it and leaves it as it is."""
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory(prefix="t", dir="/tmp") as folder:
        patch.setenv("TMPDIR", folder)  # that of the workers
        made = RayCluster(None, cpus=2)
        yield made
        made.leave()


def told(comparison: Comparison) -> list[dict[str, Any]]:
    """Every result, but for what no two runs have in common: ids and times."""
    rows = []
    for result in comparison.results:
        row = msgspec.to_builtins(result)
        row.pop("run"), row.pop("seconds")
        for phase in row["phases"]:
            phase.pop("seconds", None)
        rows.append(row)
    return rows


def asked(journal: Path, question: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(journal)) as connection:
        return connection.execute(question).fetchall()


def test_the_table_is_the_same_as_without_ray_and_the_runs_can_be_replayed(cluster: RayCluster, tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "loops": "react,json",
        "models": [plait.Scripted([CALLS, RIGHT, RIGHT])],
        "tools": ["calculator"],
        "repeat": 2,
    }
    here = compare(tasks(6), journal=tmp_path / "here.db", **options)
    there = compare(tasks(6), journal=tmp_path / "there.db", engine=RayEngine(), jobs=4, **options)
    assert there.whole and len(there.results) == 24 and told(there) == told(here)
    assert {result.grade.success for result in there.results} == {True, False}
    assert [row.success for row in there.rows] == [row.success for row in here.rows]

    journal = Journal(tmp_path / "there.db")
    rows = asked(tmp_path / "there.db", "SELECT count(*), count(DISTINCT label), min(owner), max(owner) FROM runs")
    assert rows == [(24, 24, "", "")]
    for result in there.results[:12:3]:  # of react
        agent = plait.Agent.from_journal(
            journal.head(result.run), journal=journal.place, model=options["models"][0], models={}
        )
        replayed = agent.replay(result.run)
        assert replayed.whole and replayed.requests == 2
    again = compare(tasks(6), journal=journal.place, engine=RayEngine(), **options)
    assert again.results == there.results and asked(tmp_path / "there.db", "SELECT count(*) FROM runs") == [(24,)]


def test_every_cell_is_in_the_table_once_when_a_worker_is_killed(cluster: RayCluster, tmp_path: Path) -> None:
    journal, killed = tmp_path / "j.db", []

    def tell(progress: plait.lab.Progress) -> None:
        if progress.finished >= 20 and not killed and (found := working()):
            os.kill(found[0], signal.SIGKILL)
            killed.append(found[0])

    model = plait.Scripted([CALLS, RIGHT], delay=0.02)
    found = compare(
        tasks(60), loops="react", models=[model], tools=["calculator"], journal=journal, jobs=6,
        engine=RayEngine(), tell=tell,
    )  # fmt: skip
    assert killed and found.whole, found.unfinished
    assert sorted(result.task for result in found.results) == sorted(task["id"] for task in tasks(60))
    assert asked(journal, "SELECT count(*), count(DISTINCT label) FROM runs") == [(60, 60)]
    assert {row for (row,) in asked(journal, "SELECT DISTINCT status FROM runs")} == {"answered"}
    ids = {run for (run,) in asked(journal, "SELECT id FROM runs")}
    assert ids == {result.run for result in found.results}


def working() -> list[int]:
    """Worker processes of the cluster that are at a cell."""
    listed = subprocess.run(["ps", "-eo", "pid=,ppid=,args="], capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 2) for line in listed.splitlines()]
    children = {row[0] for row in rows if row[1] == str(os.getpid())}
    return [int(row[0]) for row in rows if row[1] in children and row[2].startswith("ray::run_packed_cell")]


@only_in_campaign
def test_a_cell_that_kills_its_worker_every_time_is_left_and_the_others_are_finished(
    cluster: RayCluster, tmp_path: Path
) -> None:
    def deadly(number: int) -> int:
        """Look a number up."""
        if number == 1:
            os._exit(9)
        return number

    call = "Thought: so.\nAction: deadly\nAction Input: {}"

    def first(think: plait.core.Think) -> str:
        return call.replace("{}", json.dumps({"number": 1 if "(1)" in str(think.messages) else 0}))

    model = plait.Scripted([first, RIGHT])
    found = compare(
        tasks(3),
        loops="react",
        models=[model],
        tools=[deadly],
        journal=tmp_path / "j.db",
        engine=RayEngine(),
        jobs=3,
    )
    assert sorted(result.task for result in found.results) == ["t0", "t2"]
    assert "the workers died at react @ scripted:scripted, task t1, 4 times" in found.unfinished


async def test_cancelled_runs_are_on_the_record_and_gone_on_with(cluster: RayCluster, tmp_path: Path) -> None:
    begun, go = tmp_path / "begun", tmp_path / "go"
    begun.mkdir()

    @plait.tool(read_only=True)
    async def slow() -> str:
        """Wait until it may go on."""
        (begun / str(os.getpid())).touch()
        while not go.exists():
            await asyncio.sleep(0.05)
        return "went on"

    journal, model = tmp_path / "j.db", plait.Scripted(["Thought: so.\nAction: slow\nAction Input: {}", RIGHT])
    options: dict[str, Any] = {"loops": "react", "models": [model], "tools": [slow], "journal": journal}
    task = asyncio.create_task(acompare(tasks(2), engine=RayEngine(), jobs=2, **options))
    while len(list(begun.iterdir())) < 2:
        await asyncio.sleep(0.1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    before = asked(journal, "SELECT id, status FROM runs ORDER BY id")
    assert [status for _, status in before] == ["cancelled", "cancelled"]
    go.touch()
    found = await acompare(tasks(2), engine=RayEngine(), jobs=2, **options)
    assert found.whole and [result.calls for result in found.results] == [2, 2]  # the one cut off, and again
    assert asked(journal, "SELECT id, status FROM runs ORDER BY id") == [(run, "answered") for run, _ in before]


def test_what_cannot_travel_is_said_before_anything_is_run(tmp_path: Path) -> None:
    lock = threading.Lock()

    def held(number: int) -> int:
        """Look a number up."""
        with lock:
            return number

    journal = tmp_path / "j.db"
    options: dict[str, Any] = {"loops": "react", "journal": journal, "engine": RayEngine()}
    with pytest.raises(ConfigError, match=r"The tool held can't be sent to a worker: .*lock"):
        compare(tasks(1), models=[plait.Scripted([RIGHT])], tools=[held], **options)
    with pytest.raises(ConfigError, match=r"The model .* can't be sent to a worker"):
        compare(tasks(1), models=[plait.Scripted([RIGHT, lambda _: lock.name])], **options)
    keyed = plait.models.chat.ChatModel(spec="mine:m", name="m", endpoint="http://127.0.0.1:9/v1", key="sk-0123456789")
    with pytest.raises(ConfigError, match="keys are not sent to workers"):
        compare(tasks(1), models=[keyed], **options)
    assert asked(journal, "SELECT count(*) FROM runs") == [(0,)]


def test_an_address_that_is_no_cluster_is_an_error_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plait.lab.ray.cluster.PATIENCE", 0.5)
    with closing(socket.create_server(("127.0.0.1", 0))) as silent, closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        addresses = {
            "mine": "is not the address of a Ray cluster",
            "ray://127.0.0.1:10001": "is not the address of a Ray cluster",
            f"127.0.0.1:{free.getsockname()[1]}": "can't be reached: Connection refused",
            f"127.0.0.1:{silent.getsockname()[1]}": "nothing answers there",
        }
        for address, said in addresses.items():
            began = time.monotonic()
            with pytest.raises(PlaitError, match=said):
                compare(
                    tasks(1), loops="react", models=[plait.Scripted([RIGHT])], journal=tmp_path / "j.db",
                    engine=RayEngine(address),
                )  # fmt: skip
            assert time.monotonic() - began < patience(30)


def test_without_the_package_the_extra_is_named(tmp_path: Path) -> None:
    (tmp_path / "ray.py").write_text("raise ModuleNotFoundError('no', name='ray')")
    (tmp_path / "r.json").write_text(json.dumps([RIGHT]))
    (tmp_path / "t.jsonl").write_text(json.dumps(tasks(1)[0]))
    done = subprocess.run(
        [PLAIT, "compare", "t.jsonl", "--loops", "react", "--models", "scripted:r.json", "--engine", "ray"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 2 and "[ray]" in done.stderr and "Traceback" not in done.stderr


async def test_a_run_is_adopted_once_with_its_exact_rows(tmp_path: Path) -> None:
    there, here = Journal(tmp_path / "there.db"), Journal(tmp_path / "here.db")
    agent = plait.Agent("react", model=plait.Scripted([CALLS, RIGHT]), tools=["calculator"], journal=there.place)
    run = await agent.arun("What is 6 * 7?", label="a cell")
    carried = await pack(there.store, run.id)
    assert await here.store.add([carried]) and await here.store.add([carried, carried])
    assert here.rows(run.id) == there.rows(run.id) and len(here.runs()) == 1
    assert here.run(run.id) == there.run(run.id) and here.head(run.id).label == "a cell"
    other = msgspec.structs.replace(carried, started=1.0)
    assert not await here.store.add([other]) and here.run(run.id) == there.run(run.id)
    there.close(), here.close()


@only_in_campaign
@pytest.mark.timeout(300)
def test_the_command_starts_a_cluster_of_its_own_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text(json.dumps({"replies": [CALLS, RIGHT]}))
    (tmp_path / "t.jsonl").write_text("\n".join(json.dumps(task) for task in tasks(6)))
    with tempfile.TemporaryDirectory(prefix="t", dir="/tmp") as temp:  # the paths of Ray's sockets must be short
        command = [PLAIT, "compare", "t.jsonl", "--loops", "react", "--models", "scripted:r.json"]
        done = subprocess.run(
            [*command, "--tools", "calculator", "--engine", "ray", "--jobs", "2", "--json", "--quiet"],
            cwd=tmp_path,
            env={**os.environ, "TMPDIR": temp, "HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=250,
        )
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["rows"][0]["n"] == 6 and done.stderr == ""
        assert not list(Path(temp).iterdir()) and not (tmp_path / ".ray").exists()
