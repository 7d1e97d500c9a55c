"""One test walks through everything: an act of a payment that needs approval and a child run that asks a question;
suspended; both answered in other processes, in both orders, killed in between; replayed without hooks."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

import core_walk
from conftest import some_of
from core_runs import WORLD, Disk, Killed, Tried, did, pay
from fork_server import run_forked
from plait.journal.entries import Question
from plait.journal.open_questions import find_open_questions
from plait.journal.store import Journal, wait_for

SCRIPT = Path(core_walk.__file__)
ANSWERS = {"approvals": "yes", "": "Ann B."}
"""The answers, by the guard that asks; "" is the child's loop."""
ENDS = (["paid 100", "Ann B."], ["in_doubt", "Ann B."])
ORDERS = [("approvals", ""), ("", "approvals")]


def choose(questions: list[Question], order: tuple[str, str]) -> Question:
    """Return the question that is answered next."""
    return min(questions, key=lambda each: order.index(each.guard))


@pytest.mark.parametrize("order", ORDERS)
def test_the_walk_killed_at_each_point_of_each_of_its_processes(order: tuple[str, str]) -> None:
    doubts = 0
    for point in itertools.count(1):
        WORLD.clear()
        run, left = Tried(lambda: core_walk.make_agent(pay), disk=Disk()), point
        ended: Any = None
        while ended is None or ended.status == "waiting":
            questions = run.questions if ended is not None else []
            asked = choose(questions, order) if questions else None
            try:
                answer = ANSWERS[asked.guard] if asked is not None else None
                ended = run.go(answer, questions.index(asked) if asked is not None else 0, dies_at=left or None)
                left = left and left - run.process.points
            except Killed:
                left, ended = 0, ended if run.questions else None
        assert ended.answer in ENDS and did() in ([], ["100 to Ann"])
        assert did() or ended.answer[0] == "in_doubt"
        doubts += ended.answer[0] == "in_doubt"
        again = run.replay(agent=core_walk.make_agent(pay, has_hooks=False))
        assert again.whole and again.outcome == ended.outcome
        if left:
            break
    assert point > 30 and 2 <= doubts <= 8, "only between the intent of the payment and its result it is in doubt"


def walk_in_processes(folder: Path, order: tuple[str, str], point: int) -> tuple[Any, bool]:
    """Take the walk through processes, one of which dies at that point of all. Returns the run's row and whether one
    has died."""
    left, journal = point, Journal(folder / "runs.db")
    for _ in range(9):
        words: list[str] = []
        if Path(journal.place).exists() and (rows := journal.runs(1)):
            questions = []
            if rows[0].status == "waiting":
                questions = wait_for(find_open_questions(journal.store, rows[0].head.run))
            if questions:
                asked = choose(questions, order)
                words = [ANSWERS[asked.guard], asked.question]
        done = run_forked([SCRIPT, folder, str(left), *words], cwd=SCRIPT.parent)
        if done.returncode == -9:
            left = 0
            continue
        assert done.returncode == 0, done.stdout + done.stderr
        run, status, passed = json.loads(done.stdout.splitlines()[-1])
        if left:
            left -= passed
            assert left > 0
        if status != "waiting":
            return journal.run(run), not left
    raise AssertionError("the run does not end")


POINTS = range(1, 70)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("point", some_of(POINTS, 11))
def test_the_walk_in_processes_that_die(order: tuple[str, str], point: int, tmp_path: Path) -> None:
    row, has_died = walk_in_processes(tmp_path, order, point)
    payments = tmp_path / "payments"
    paid = payments.read_text().splitlines() if payments.exists() else []
    assert row.outcome is not None and row.outcome["answer"] in ENDS
    assert paid == ["100 to Ann"] or (paid == [] and row.outcome["answer"][0] == "in_doubt" and has_died)
    agent = core_walk.make_agent(core_walk.paying_into(payments), has_hooks=False, journal=tmp_path / "runs.db")
    again = agent.replay(row.head.run)
    assert again.whole and again.outcome is not None and again.outcome.answer == row.outcome["answer"]
    assert (payments.read_text().splitlines() if payments.exists() else []) == paid
