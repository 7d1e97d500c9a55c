"""What a change made better and worse: runs and their forks, judged pair by pair as `plait compare` judges rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from plait.core import Usage
from plait.journal.records import RunRow
from plait.journal.store import Store
from plait.lab import statistics
from plait.lab.comparison import Comparison, Contender, Pair
from plait.lab.graders import load_grader
from plait.lab.results import CellResult
from plait.lab.suites import choose_grader
from plait.lab.tasks import Grade, Suite, SuiteTask
from plait.runtime.recorded_events import recorded_loop
from plait.runtime.runs import read_finished_run
from plait.runtime.spent import spent_in

BEFORE, AFTER = Contender("before", "before", "", {}), Contender("after", "after", "", {})


class RunPair(Struct, frozen=True):
    """A run that has ended and its fork, which has ended too, with their grades; None for a run that nobody judged."""

    before: RunRow
    after: RunRow
    grades: tuple[Grade | None, Grade | None]

    @property
    def successes(self) -> tuple[bool, bool]:
        """Whether each is a success: by the grades if both have one, else by the outcome (answered or not)."""
        first, second = self.grades
        if first is None or second is None:
            return self.before.status == "answered", self.after.status == "answered"
        return first.success, second.success

    @property
    def sign(self) -> str:
        """Return whether the fork came out "better", "worse" or the "same"."""
        was, now = self.successes
        return "same" if was == now else "better" if now else "worse"

    def measure(self, name: str) -> tuple[float | None, float | None]:
        """Return what each used, with its child runs: its "tokens", its "cost" in USD, its "seconds" or its "steps"."""
        found = []
        for row in (self.before, self.after):
            spent = spent_in(row.totals)
            found.append({**row.totals, "tokens": spent.usage.tokens, "cost": spent.cost_usd}.get(name))
        return found[0], found[1]


async def judge_pair(before: RunRow, after: RunRow, expected: Mapping[str, Any] | None, store: Store) -> RunPair:
    """Grade a run and its fork: answers against the expected one (`answer`, `grader`), else by the grade of their
    comparison, else by the user's rating."""
    return RunPair(before, after, (await _grade(before, expected, store), await _grade(after, expected, store)))


async def _grade(row: RunRow, expected: Mapping[str, Any] | None, store: Store) -> Grade | None:
    if expected is not None and row.status == "answered":
        task = SuiteTask(id="1", question=row.head.question, answer=expected["answer"])
        grade = load_grader(expected["grader"] or choose_grader(task.answer) or "exact")
        return await grade(task, read_finished_run(row, store, recorded_loop(row.head)))
    if row.grade is not None:
        return Grade(bool(row.grade["success"]), float(row.grade["score"]), str(row.grade["mark"]))
    return Grade(row.rating == "good", float(row.rating == "good"), row.rating) if row.rating else None


def compare_pairs(pairs: Sequence[RunPair]) -> dict[str, Any]:
    """Return what a change did to runs: shares of success, and sums before and after with their ratio and its interval.
    Runs with the same question are repeats of one task."""
    tasks = tuple(SuiteTask(id=str(n), question=pair.before.head.question) for n, pair in enumerate(pairs))
    results = list[CellResult]()
    for task, pair in zip(tasks, pairs, strict=True):
        for side, row, success in zip((BEFORE, AFTER), (pair.before, pair.after), pair.successes, strict=True):
            same: dict[str, Any] = {"cell": row.id, "run": row.id, "status": row.status, "task": task.id, "repeat": 0}
            # Only successes are compared here.
            same |= {"steps": 0, "calls": 0, "usage": Usage(), "cost_usd": None, "seconds": 0.0}
            results.append(CellResult(variant=side.key, grade=Grade(success, float(success), ""), **same))
    suite = Suite(word="runs", about="", tasks=tasks)
    table = Comparison(name="", suite=suite, contenders=(AFTER, BEFORE), repeat=1, results=tuple(results))
    (found,) = table.pairs
    before, after = (sum(each) / len(pairs) for each in zip(*(pair.successes for pair in pairs), strict=True))
    return {
        "pairs": len(pairs),
        "graded": sum(None not in pair.grades for pair in pairs),
        "questions": found.tasks,
        "before": before,
        "after": after,
        "better": found.wins_a,
        "worse": found.wins_b,
        "p": found.p,
        "word": _say(found),
        "sums": {name: _sum(pairs, name) for name in ("tokens", "cost", "seconds", "steps")},
    }


def _say(found: Pair) -> str:
    counts = f"{found.wins_a} questions better, {found.wins_b} worse."
    match found.word:
        case "better" | "worse":
            return f"The change made it {found.word}: {counts}"
        case "too few to tell":
            return "Too few to tell: fewer than 6 questions came out otherwise, which can always be chance."
    seen = (
        f" A true difference of about {found.seeable:.0%} would have been seen 4 times of 5." if found.seeable else ""
    )
    return f"No difference seen: {counts}{seen}"


def _sum(pairs: Sequence[RunPair], name: str) -> dict[str, Any] | None:
    """Return the sums before and after over the pairs of which both are known, and their ratio; None without any."""
    known = [(b, a) for a, b in (pair.measure(name) for pair in pairs) if a is not None and b is not None]
    if not known:
        return None
    after, before = (sum(each) for each in zip(*known, strict=True))
    ratio, interval = statistics.ratio(known) or (None, None)
    return {"before": before, "after": after, "pairs": len(known), "ratio": ratio, "interval": interval}
