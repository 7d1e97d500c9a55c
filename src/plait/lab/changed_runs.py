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
    def sign(self) -> str:
        """Return how the fork came out: "better", "worse" or the "same" if both are judged; "bad" if only the run is,
        and is no success; "half" if only the fork is; else "different" or "alike" by their answers."""
        was, now = self.grades
        if was is not None and now is not None:
            return "same" if was.success == now.success else "better" if now.success else "worse"
        if was is not None and not was.success:
            return "bad"
        if now is not None:
            return "half"
        first, second = ((row.status, (row.outcome or {}).get("answer")) for row in (self.before, self.after))
        return "alike" if first == second else "different"

    def measure(self, name: str) -> tuple[float | None, float | None]:
        """Return what each used, with its child runs: its "tokens", its "cost" in USD, its "seconds" or its "steps"."""
        found = []
        for row in (self.before, self.after):
            spent = spent_in(row.totals)
            found.append({**row.totals, "tokens": spent.usage.tokens, "cost": spent.cost_usd}.get(name))
        return found[0], found[1]


async def judge_pair(before: RunRow, after: RunRow, expected: Mapping[str, Any] | None, store: Store) -> RunPair:
    """Grade a run and its fork: answers against the expected one (`answer`, `grader`), else by the grade of their
    comparison, else by the user's rating. A run without an answer is no success."""
    return RunPair(before, after, (await _grade(before, expected, store), await _grade(after, expected, store)))


async def _grade(row: RunRow, expected: Mapping[str, Any] | None, store: Store) -> Grade | None:
    if expected is not None and row.status == "answered":
        task = SuiteTask(id="1", question=row.head.question, answer=expected["answer"])
        grade = load_grader(expected["grader"] or choose_grader(task.answer) or "exact")
        return await grade(task, read_finished_run(row, store, recorded_loop(row.head)))
    if row.grade is not None:
        return Grade(bool(row.grade["success"]), float(row.grade["score"]), str(row.grade["mark"]))
    if row.rating:
        return Grade(row.rating == "good", float(row.rating == "good"), row.rating)
    return None if row.status == "answered" else Grade(False, 0.0, row.status)


def compare_pairs(pairs: Sequence[RunPair]) -> dict[str, Any]:
    """Return what a change did to runs: shares of success of the pairs that are judged, None without any, and sums
    before and after of all pairs with their ratio and its interval. Runs with the same question are repeats of one
    task."""
    judged = [(each, was, now) for each in pairs for was, now in (each.grades,) if was is not None and now is not None]
    tasks = tuple(SuiteTask(id=str(n), question=each.before.head.question) for n, (each, *_) in enumerate(judged))
    results = list[CellResult]()
    for task, (each, was, now) in zip(tasks, judged, strict=True):
        for side, row, grade in ((BEFORE, each.before, was), (AFTER, each.after, now)):
            same: dict[str, Any] = {"cell": row.id, "run": row.id, "status": row.status, "task": task.id, "repeat": 0}
            # Only successes are compared here.
            same |= {"steps": 0, "calls": 0, "usage": Usage(), "cost_usd": None, "seconds": 0.0}
            results.append(CellResult(variant=side.key, grade=grade, **same))
    found: dict[str, Any] = {"pairs": len(pairs), "judged": len(judged)}
    found["answered"] = sum(each.after.status == "answered" for each in pairs)
    found["sums"] = {name: _sum(pairs, name) for name in ("tokens", "cost", "seconds", "steps")}
    if not judged:
        return {**found, "before": None, "after": None, "better": 0, "worse": 0, "word": ""}
    suite = Suite(word="runs", about="", tasks=tasks)
    (pair,) = Comparison(name="", suite=suite, contenders=(AFTER, BEFORE), repeat=1, results=tuple(results)).pairs
    return {
        **found,
        "before": sum(was.success for _, was, _ in judged) / len(judged),
        "after": sum(now.success for *_, now in judged) / len(judged),
        "better": pair.wins_a,
        "worse": pair.wins_b,
        "word": _say(pair),
    }


def _say(found: Pair) -> str:
    counts = f"{found.wins_b} got worse, {found.wins_a} better"
    match found.word:
        case "better" | "worse":
            return f"The change made it {found.word}: {counts}."
        case "too few to tell":
            return f"{counts}; too few to be sure."
    seen = (
        f" A true difference of about {found.seeable:.0%} would have been seen 4 times of 5." if found.seeable else ""
    )
    return f"{counts}; no difference seen.{seen}"


def _sum(pairs: Sequence[RunPair], name: str) -> dict[str, Any] | None:
    """Return the sums before and after over the pairs of which both are known, and their ratio; None without any."""
    known = [(b, a) for a, b in (pair.measure(name) for pair in pairs) if a is not None and b is not None]
    if not known:
        return None
    after, before = (sum(each) for each in zip(*known, strict=True))
    ratio, interval = statistics.ratio(known) or (None, None)
    return {"before": before, "after": after, "pairs": len(known), "ratio": ratio, "interval": interval}
