"""What a change made better and worse: runs and their forks, judged pair by pair as `plait compare` judges rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from plait.core import Usage
from plait.journal.records import RunRow
from plait.lab import statistics
from plait.lab.comparison import Comparison, Contender
from plait.lab.graders import load_grader
from plait.lab.results import CellResult
from plait.lab.tasks import Grade, Suite, SuiteTask
from plait.runtime.run import Run

BEFORE, AFTER = Contender("before", "before", "", {}), Contender("after", "after", "", {})
OVER = ("answered", "failed", "stopped", "crashed", "cancelled")


async def grade_row(row: RunRow, run: Run | None, expected: Mapping[str, Any] | None) -> Grade | None:
    """Return the grade of a run: against the expected answer (`answer`, `grader`), else that of its comparison, else
    the user's rating; None if nobody judged it."""
    if expected is not None and run is not None:
        task = SuiteTask(id="1", question=row.head.question, answer=expected["answer"])
        usual = "number" if isinstance(task.answer, int | float) and not isinstance(task.answer, bool) else "exact"
        return await load_grader(expected.get("grader") or usual)(task, run)
    if row.grade is not None:
        return Grade(bool(row.grade["success"]), float(row.grade["score"]), str(row.grade["mark"]))
    return Grade(row.rating == "good", float(row.rating == "good"), row.rating) if row.rating else None


def compare_pairs(pairs: Iterable[tuple[RunRow, RunRow, Grade | None, Grade | None]]) -> dict[str, Any]:
    """Return what a change did to runs that have ended, each with its fork and their grades.

    `success`: by grades if both runs have one, else by the outcome (answered or not). The other figures are sums before
    and after, with the ratio and its interval.
    """
    found = list(pairs)
    ids: dict[str, str] = {}
    repeats: dict[str, int] = {}
    results, by_grade = list[CellResult](), 0
    for before, after, first, second in found:
        task = ids.setdefault(before.head.question, str(len(ids) + 1))
        repeat = repeats[task] = repeats.get(task, -1) + 1
        graded = first is not None and second is not None
        by_grade += graded
        for contender, row, grade in ((AFTER, after, second), (BEFORE, before, first)):
            right = grade.success if graded and grade is not None else row.status == "answered"
            results.append(_make_result(row, contender.key, task, repeat, Grade(right, float(right), "")))
    tasks = tuple(SuiteTask(id=id, question=question) for question, id in ids.items())
    suite = Suite(word="runs", about="", tasks=tasks)
    most = max(repeats.values(), default=0) + 1
    table = Comparison(name="", suite=suite, contenders=(AFTER, BEFORE), repeat=most, results=tuple(results))
    (pair,) = table.pairs
    rows = table.rows
    return {
        "pairs": len(found),
        "graded": by_grade,
        "questions": pair.tasks,
        "before": rows[1].success,
        "after": rows[0].success,
        "better": pair.wins_a,
        "worse": pair.wins_b,
        "p": pair.p,
        "word": _say(pair.word, pair.wins_a, pair.wins_b, pair.seeable),
        "sums": {name: _sum(found, name) for name in ("tokens", "cost", "seconds", "steps")},
    }


def measure(row: RunRow, name: str) -> float | None:
    """Return what a run used, with its child runs: its "tokens", its "cost" in USD, its "seconds" or its "steps"."""
    spent = row.totals.get("tree") or row.totals
    if name == "tokens":
        return (spent.get("input_tokens") or 0) + (spent.get("output_tokens") or 0)
    value = spent.get("cost_usd") if name == "cost" else row.totals.get(name)
    return None if value is None else float(value)


def _say(word: str, better: int, worse: int, seeable: float | None) -> str:
    match word:
        case "better" | "worse":
            return f"The change made it {word}: {better} questions better, {worse} worse."
        case "too few to tell":
            return "Too few to tell: fewer than 6 questions came out otherwise, which can always be chance."
        case "no common tasks":
            return "No run and its fork have ended yet."
    points = f" A true difference of about {seeable:.0%} would have been seen 4 times of 5." if seeable else ""
    return f"No difference seen: {better} questions better, {worse} worse.{points}"


def _sum(pairs: Sequence[tuple[RunRow, RunRow, Any, Any]], name: str) -> dict[str, Any] | None:
    """Return the sums before and after over the pairs of which both are known, and their ratio; None without any."""
    known = [(measure(after, name), measure(before, name)) for before, after, *_ in pairs]
    both = [(a, b) for a, b in known if a is not None and b is not None]
    if not both:
        return None
    found = statistics.ratio(both)
    sums = {"before": sum(b for _, b in both), "after": sum(a for a, _ in both), "pairs": len(both)}
    return {**sums, "ratio": found and found[0], "interval": found and found[1]}


def _make_result(row: RunRow, variant: str, task: str, repeat: int, grade: Grade) -> CellResult:
    spent = row.totals.get("tree") or row.totals
    usage = Usage(spent.get("input_tokens") or 0, spent.get("output_tokens") or 0)
    status: Any = row.status if row.status in OVER else "crashed"
    more: dict[str, Any] = {"steps": row.totals.get("steps") or 0, "calls": row.totals.get("calls") or 0}
    more |= {"cost_usd": measure(row, "cost"), "seconds": measure(row, "seconds") or 0.0, "usage": usage}
    ids: dict[str, Any] = {"cell": row.head.run, "variant": variant, "task": task, "repeat": repeat}
    return CellResult(**ids, run=row.head.run, status=status, grade=grade, **more)
