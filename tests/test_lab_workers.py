"""Several processes share a comparison through its journal: no cell runs twice, whoever dies in between."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import plait
from conftest import only_in_campaign
from fork_server import start_forked
from patience import patience
from plait.core import Reply, Usage
from plait.core.errors import JournalError, PlaitError
from plait.journal.owner import new_run_id
from plait.journal.records import RunHead, RunRow
from plait.journal.results import Results
from plait.journal.run_query import ALL
from plait.journal.store import Journal, wait_for
from plait.lab import Progress, acompare, compare
from plait.lab.cells import CellTaken, read_result
from plait.lab.workers import CellWorkers
from plait.models.prices import Rate
from postgres_server import shared_server

CALL = 'Thought: I pay.\nAction: pay\nAction Input: {"n": 1}'
RIGHT = "Thought: I know.\nFinal Answer: 42"
DEAD = "elsewhere-not:"  # an owner without a process number
ELSEWHERE = "another-host:1:1:another-boot:1"

TOOLS = '''
import os, time
from pathlib import Path
import plait

def write(word: str) -> None:
    line = os.open("ledger", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(line, f"{word}\\n".encode())
    os.close(line)

@plait.tool
def pay(ctx: plait.Context, n: int) -> str:
    """Pay.ABOUT"""
    write(f"begun {ctx.run_id} {os.getpid()}")
    time.sleep(float(os.environ.get("PAY_SECONDS", "0")))
    write(f"paid {ctx.run_id} {os.getpid()}")
    return "paidABOUT"
'''


@pytest.fixture(params=["file", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "j.db") if request.param == "file" else shared_server().new_journal()


def prepare(folder: Path, count: int, about: str = "") -> None:
    tasks = [json.dumps({"id": str(n), "question": f"What is {n}?", "answer": 42}) for n in range(count)]
    (folder / "tasks.jsonl").write_text("\n".join(tasks))
    (folder / "script.json").write_text(json.dumps({"replies": [CALL, RIGHT, RIGHT], "delay": 0.01}))
    (folder / "mine.py").write_text(TOOLS.replace("ABOUT", about))


class Command:
    """`plait compare` in a process of its own."""

    def __init__(self, folder: Path, place: str, *words: str, pay: float = 0.0) -> None:
        command = ["-m", "plait", "compare", "tasks.jsonl", "--loops", "react", "--tools", "mine:pay"]
        command += ["--models", "scripted:script.json", "--journal", place, "--json", "--name", "mine", *words]
        environment = {**os.environ, "PAY_SECONDS": str(pay), "PLAIT_LEASE_SECONDS": "2"}
        self._out, self._said = folder / "out", folder / "said"
        with Path(os.devnull).open() as nothing, self._out.open("w") as out, self._said.open("w") as said:
            streams = {"stdin": nothing.fileno(), "stdout": out.fileno(), "stderr": said.fileno()}
            self.process = start_forked(command, cwd=folder, env=environment, **streams)

    def end(self) -> tuple[int, list[dict[str, Any]], str]:
        """Wait for its end. Return its code, its rows and what it said."""
        code, out = self.process.wait(timeout=patience(60)), self._out.read_text()
        return code, json.loads(out)["rows"] if out else [], self._said.read_text()

    def workers(self) -> list[int]:
        return list(children_of(self.process.pid))


def is_alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except OSError:
        return False


def children_of(parent: int) -> Iterator[int]:
    for each in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = each.read_text().rpartition(") ")[2].split()
        except OSError:
            continue
        if words[1] == str(parent) and words[0] != "Z":
            yield int(each.parent.name)


def ledger(folder: Path, word: str) -> list[tuple[str, int]]:
    """The runs and processes of its lines that begin with a word."""
    try:
        lines = [line.split() for line in (folder / "ledger").read_text().splitlines()]
    except FileNotFoundError:
        return []
    return [(run, int(pid)) for kind, run, pid in lines if kind == word]


def wait_until(holds: Callable[[], Any]) -> Any:
    end = time.monotonic() + patience(30)
    while not (found := holds()):
        assert time.monotonic() < end, "it did not come true in time"
        time.sleep(0.02)
    return found


def runs_of(place: str) -> list[RunRow]:
    return wait_for(Journal.at(place).store.list_runs(ALL))


# -- `--workers`


@pytest.mark.parametrize("place", ["file", pytest.param("postgres", marks=only_in_campaign)], indirect=True)
def test_workers_share_the_cells_and_one_that_is_killed_in_an_effect_repeats_nothing(
    place: str, tmp_path: Path
) -> None:
    prepare(tmp_path, 12)
    command = Command(tmp_path, place, "--workers", "2", pay=0.1)
    wait_until(lambda: len({pid for _, pid in ledger(tmp_path, "paid")}) == 2)
    count = len(ledger(tmp_path, "begun"))
    wait_until(lambda: len(ledger(tmp_path, "begun")) > count)
    killed = ledger(tmp_path, "begun")[-1][1]
    os.kill(killed, signal.SIGKILL)
    code, rows, said = command.end()
    assert code == 0 and rows[0]["n"] == 12, said
    assert "A worker was killed" in said and "12 of 12" in said and "Traceback" not in said
    runs = runs_of(place)
    assert len({row.head.label for row in runs}) == len(runs) == 12 and {row.status for row in runs} == {"answered"}
    begun = Counter(run for run, _ in ledger(tmp_path, "begun"))
    assert len(begun) == 12 and max(begun.values()) == 1
    for run in begun.keys() - {run for run, _ in ledger(tmp_path, "paid")}:  # those that the kill cut off
        (call,) = Journal.at(place).timeline(run).tool_calls
        assert call.observation is not None and call.observation.trouble == "in_doubt"
    again = Command(tmp_path, place, "--workers", "2")
    assert again.end()[:2] == (0, rows) and len(runs_of(place)) == 12


def test_a_worker_that_was_frozen_finds_its_cell_taken_and_goes_on(tmp_path: Path) -> None:
    place = shared_server().new_journal()
    prepare(tmp_path, 30)
    command = Command(tmp_path, place, "--workers", "2", pay=0.1)
    wait_until(lambda: len({pid for _, pid in ledger(tmp_path, "paid")}) == 2)
    run, frozen = ledger(tmp_path, "begun")[-1]
    os.kill(frozen, signal.SIGSTOP)
    wait_until(lambda: Journal.at(place).run(run).status == "answered")  # by the other, when the lease has ended
    os.kill(frozen, signal.SIGCONT)
    code, rows, said = command.end()
    assert code == 0 and rows[0]["n"] == 30 and "Error" not in said, said
    begun = Counter(run for run, _ in ledger(tmp_path, "begun"))
    assert len(begun) == 30 and max(begun.values()) == 1 and len(runs_of(place)) == 30


def test_ctrl_c_and_the_end_of_the_command_end_its_workers_and_cells_are_continued(tmp_path: Path) -> None:
    place = str(tmp_path / "j.db")
    prepare(tmp_path, 12)
    for number, count, expected in ((signal.SIGINT, 2, (130, 1)), (signal.SIGKILL, 1, (-signal.SIGKILL, 0))):
        command = Command(tmp_path, place, "--workers", str(count), pay=0.5)
        before = len(ledger(tmp_path, "begun"))
        wait_until(lambda count=before + count: len(ledger(tmp_path, "begun")) >= count)
        workers = command.workers()
        assert len(workers) == count
        os.kill(command.process.pid, number)
        code, rows, said = command.end()
        assert rows == [] and (code, said.count("Cancelled. The same command")) == expected
        wait_until(lambda workers=workers: not any(map(is_alive, workers)))
    assert len(ledger(tmp_path, "begun")) < 12
    code, rows, said = Command(tmp_path, place).end()
    assert code == 0 and rows[0]["n"] == 12 and len(runs_of(place)) == 12
    assert max(Counter(run for run, _ in ledger(tmp_path, "begun")).values()) == 1


def test_a_process_with_another_version_of_a_tool_has_cells_of_its_own(tmp_path: Path) -> None:
    place, old, new = shared_server().new_journal(), tmp_path / "old", tmp_path / "new"
    for folder, about in ((old, ""), (new, " More.")):
        folder.mkdir()
        prepare(folder, 4, about)
    commands = [Command(folder, place, pay=0.05) for folder in (old, new)]
    assert [command.end()[0] for command in commands] == [0, 0]
    assert len(runs_of(place)) == 8 and len(ledger(old, "paid")) == len(ledger(new, "paid")) == 4
    for folder, said in ((old, "paid"), (new, "paid More.")):
        for run, _ in ledger(folder, "paid"):
            (call,) = Journal.at(place).timeline(run).tool_calls
            assert call.observation is not None and call.observation.text == said


def test_again_runs_each_cell_once_more_whatever_the_number_of_workers(tmp_path: Path) -> None:
    place = str(tmp_path / "j.db")
    prepare(tmp_path, 4)
    assert Command(tmp_path, place).end()[0] == 0
    command = Command(tmp_path, place, "--workers", "1", "--again", pay=0.3)
    wait_until(lambda: len(ledger(tmp_path, "paid")) == 6)
    os.kill(command.workers()[0], signal.SIGKILL)
    code, rows, said = command.end()
    assert code == 0 and rows[0]["n"] == 4, said
    assert len(runs_of(place)) == 8 and len(ledger(tmp_path, "begun")) == 8


async def test_workers_that_are_killed_every_time_or_fail_are_given_up(tmp_path: Path) -> None:
    options: dict[str, Any] = {"loops": "react", "models": [plait.Scripted([RIGHT])], "journal": tmp_path / "j.db"}
    die = f"echo >> {tmp_path}/started; kill -9 $$"
    killed = await acompare(tasks(2), **options, workers=CellWorkers(["sh", "-c", die], 2))
    assert len((tmp_path / "started").read_text()) >= 9
    assert killed.results == () and killed.unfinished in ("9 workers were killed", "10 workers were killed")
    stopped = await acompare(tasks(2), **options, workers=CellWorkers(["sh", "-c", "echo the budget; exit 4"], 2))
    assert stopped.unfinished == "the budget"
    with pytest.raises(PlaitError, match="A worker ended with an error"):
        await acompare(tasks(2), **options, workers=CellWorkers(["sh", "-c", "exit 2"], 2))
    with pytest.raises(plait.ConfigError, match="0 workers"):
        CellWorkers([], 0)
    assert (await acompare(tasks(2), **options)).whole


# -- programs beside each other


def tasks(count: int) -> list[dict[str, Any]]:
    return [{"id": str(n), "question": f"What is {n}?", "answer": 42} for n in range(count)]


def priced() -> plait.Scripted:
    rate = Rate("tokens", input=1000.0, output=1000.0)  # 1 USD a run
    return plait.Scripted([Reply(RIGHT, usage=Usage(900, 100))], rate=rate, delay=0.05)


def start_beside(count: int, work: Callable[[], int]) -> list[int]:
    """Do the same in forked processes at once. Return their exit codes."""
    forked = []
    for _ in range(count):
        if (pid := os.fork()) == 0:
            code = 99
            try:
                code = work()
            finally:
                os._exit(code)
        forked.append(pid)
    return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in forked]


def test_a_budget_holds_over_processes(place: str, tmp_path: Path) -> None:
    prepare(tmp_path, 20)
    (tmp_path / "budget.py").write_text(f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_lab_workers import compare, priced, tasks
found = compare(tasks(40), loops="react", models=[priced()], journal={place!r}, budget=18.0, jobs=6)
assert "the budget of 18 USD is reached" in found.unfinished, found.unfinished
""")
    processes = [
        start_forked(["budget.py"], cwd=tmp_path, env=os.environ, stdin=0, stdout=1, stderr=2) for _ in range(2)
    ]
    assert [each.wait(patience(60)) for each in processes] == [0, 0]
    runs = runs_of(place)
    assert 18 <= len(runs) <= 20, len(runs)  # both may begin one at the same moment
    assert len({row.head.label for row in runs}) == len(runs)


# -- what a process left behind


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plait.lab.schedule.LOOK_EVERY", 0.05)
    monkeypatch.setattr("plait.lab.schedule.LEFT_AFTER", 0.5)


@pytest.mark.parametrize(("owner", "seconds"), [(DEAD, 0.0), (ELSEWHERE, 0.5)])
async def test_a_cell_whose_process_died_before_its_run_began_is_begun_with_that_id(
    place: str, fast: None, owner: str, seconds: float
) -> None:
    results = Results(Journal.at(place).store)
    options: dict[str, Any] = {"loops": "react", "models": [plait.Scripted([RIGHT])]}
    first = await acompare(tasks(2), **options, journal=place)
    await results.forget([each.cell for each in first.results])
    run, began = new_run_id(), time.monotonic()
    await results.assign(first.results[0].cell, run, owner)
    again = await acompare(tasks(2), **options, journal=place)
    assert again.results[0].run == run and again.whole and len(await results.store.list_runs()) == 4
    assert time.monotonic() - began >= seconds
    assert (await results.assign(first.results[0].cell, "other", "me")).run == run


@pytest.mark.parametrize(("owner", "seconds"), [(DEAD, 0.0), (ELSEWHERE, 0.5)])
async def test_a_run_that_another_process_may_be_grading_is_left_to_it_for_a_while(
    place: str, fast: None, owner: str, seconds: float
) -> None:
    results, model = Results(Journal.at(place).store), plait.Scripted([RIGHT])
    options: dict[str, Any] = {"loops": "react", "models": [model], "journal": place}
    first = await acompare(tasks(1), **options)
    (done,) = first.results
    await results.store.forget("result", [done.cell])
    await results.store.forget("cell", [done.cell])
    await results.assign(done.cell, done.run, owner)
    began = time.monotonic()
    assert (await acompare(tasks(1), **options)).results == first.results and model.sent == 1
    assert time.monotonic() - began >= seconds


async def test_what_another_process_finishes_meanwhile_is_shown_and_not_run(
    place: str, fast: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plait.lab.schedule.LEFT_AFTER", 600.0)
    results, model = Results(Journal.at(place).store), plait.Scripted([RIGHT])
    options: dict[str, Any] = {"loops": "react", "models": [model], "journal": place}
    first = await acompare(tasks(2), **options)
    kept = await results.read([each.cell for each in first.results])
    await results.store.forget("result", [each.cell for each in first.results])
    told: list[Progress] = []

    async def finish() -> None:
        await asyncio.sleep(0.2)
        for each in first.results:
            await results.keep(each.cell, each.run, kept[each.cell])

    for each in first.results:
        await results.store.forget("cell", [each.cell])
        await results.assign(each.cell, each.run, ELSEWHERE)
    finishing = asyncio.create_task(finish())
    again = await asyncio.wait_for(acompare(tasks(2), **options, tell=told.append), patience(20))
    assert again.results == first.results and model.sent == 2
    assert [each.result for each in told] == [None, *first.results] and told[-1].finished == 2
    await finishing


def test_cells_that_were_cut_off_come_last(tmp_path: Path) -> None:
    """So a cell that ends its process holds nothing up."""
    place = str(tmp_path / "j.db")
    sent: list[str] = []

    def work() -> int:
        def die(think: Any) -> str:
            sent.append(str(think.messages))
            if "What is 1?" in sent[-1]:
                (tmp_path / "before").write_text(str(len(sent)))
                os._exit(7)
            return RIGHT

        compare(tasks(4), loops="react", models=[plait.Scripted(die)], journal=place)
        return 0

    assert start_beside(1, work) == [7] and (tmp_path / "before").read_text() == "2"
    assert start_beside(1, work) == [7] and (tmp_path / "before").read_text() == "3"
    assert Counter(row.status for row in runs_of(place)) == {"answered": 3, "interrupted": 1}


async def test_a_damaged_run_is_said_and_not_taken_for_one_of_another_process(tmp_path: Path) -> None:
    place = tmp_path / "j.db"
    options: dict[str, Any] = {"loops": "react", "models": [plait.Scripted([RIGHT])], "journal": place}
    first = await acompare(tasks(1), **options)
    await Results(Journal.at(place).store).store.forget("result", [first.results[0].cell])
    await Journal.at(place).store.close()
    with sqlite3.connect(place) as connection:
        connection.execute("UPDATE runs SET status = 'cancelled'")
    connection.close()
    with pytest.raises(JournalError, match="damaged"):
        await asyncio.wait_for(acompare(tasks(1), **options), patience(20))


async def test_a_run_of_a_process_that_nobody_can_ask_is_not_waited_for_in_a_file(tmp_path: Path, fast: None) -> None:
    place, model = tmp_path / "j.db", plait.Scripted([RIGHT])
    options: dict[str, Any] = {"loops": "react", "models": [model], "journal": place}
    first = await acompare(tasks(2), **options)
    await Results(Journal.at(place).store).store.forget("result", [first.results[0].cell])
    await Journal.at(place).store.close()
    with sqlite3.connect(place) as connection:
        change = "UPDATE runs SET status = 'running', owner = ?, outcome = NULL WHERE id = ?"
        connection.execute(change, (ELSEWHERE, first.results[0].run))
    connection.close()
    again = await acompare(tasks(2), **options)
    assert len(again.results) == 1 and "is still going on in another process" in again.unfinished


async def test_a_cell_that_was_finished_elsewhere_while_it_was_tried_here_is_over(
    tmp_path: Path, fast: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {"loops": "react", "models": [plait.Scripted([RIGHT])], "journal": tmp_path / "j.db"}
    first = await acompare(tasks(4), **options)
    store = Journal.at(tmp_path / "j.db").store
    kept = await Results(store).read([each.cell for each in first.results])
    for kind in ("result", "cell"):
        await store.forget(kind, kept)
    tried: list[str] = []

    async def lose_the_first(cell: Any, *_: Any) -> Any:
        tried.append(cell.digest)
        if len(tried) == 1:
            await Results(store).keep(cell.digest, "", kept[cell.digest])
            await asyncio.sleep(0.6)  # until it is seen
            raise CellTaken("another")
        await asyncio.sleep(0.1)
        return read_result(kept[cell.digest])

    monkeypatch.setattr("plait.lab.schedule.run_cell", lose_the_first)
    again = await asyncio.wait_for(acompare(tasks(4), **options, jobs=2), patience(10))
    assert again.results == first.results and len(tried) == 4


async def test_of_two_that_begin_the_same_run_one_does(
    tmp_path: Path, fast: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, model = tmp_path / "j.db", plait.Scripted([RIGHT])
    assign = Results.assign

    async def be_late(results: Results, cell: str, run: str, owner: str) -> Any:
        found = await assign(results, cell, run, owner)
        await results.store.begin(RunHead(run, "What is 0?", {"name": "react"}, {}, label=cell), ELSEWHERE)
        return found

    monkeypatch.setattr(Results, "assign", be_late)
    done = await acompare(tasks(1), loops="react", models=[model], journal=place)
    assert done.results == () and "is still going on in another process" in done.unfinished and model.sent == 0
