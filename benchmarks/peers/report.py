"""The table of what `run.py` wrote: python report.py OUT; with --cells each task's line as comma-separated values.

Every answer is graded here, by `has`, the grader of `basics`, so that grading again needs no model. Right is an answer
that the agent gave by itself; what it said when stopped at the step limit has a column.
"""

from __future__ import annotations

import argparse
import csv
import json
import statistics
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from plait.lab import SuiteTask, load_suite
from plait.lab.graders.scores import score_has
from plait.lab.statistics import wilson_interval

HEAD = """\
| agent | right | 95 % | of 1 / 2 / 3 / 4 steps | right when stopped | stopped | crashed | native calls | model calls \
| tokens in | of these cached | tokens out | wall s, median | model CPU s, mean | own CPU s, mean |
|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|"""
CELLS = ("task", "status", "calls", "native_calls", "tokens_in", "cached", "tokens_out", "seconds", "model_cpu")


def right(line: dict[str, Any], task: SuiteTask) -> bool:
    """Does the right answer stand in what came?"""
    return line["answer"] is not None and score_has(task, line["answer"]).success


def called(line: dict[str, Any]) -> str:
    """The agent, and what was not as usual: the model file's own template, a temperature above 0."""
    unusual = ["own template"] * (line["template"] == "own")
    unusual += [f"temperature {warmth:g}"] if (warmth := line.get("temperature")) else []
    return line["agent"] + (f" ({', '.join(unusual)})" if unusual else "")


def row(lines: list[dict[str, Any]], tasks: dict[str, SuiteTask]) -> str:
    """One agent's row; tokens and calls are means a task."""
    count = len(lines)
    said_right = [line for line in lines if right(line, tasks[line["task"]])]
    good = [line for line in said_right if line["status"] == "answered"]
    low, high = wilson_interval(len(good), count)
    by_steps = [Counter(each["about"]["steps"] for each in part) for part in (good, lines)]
    statuses = Counter(line["status"] for line in lines)

    def mean(name: str) -> float:
        return statistics.fmean(line.get(name) or 0 for line in lines)

    cells = [
        called(lines[0]),
        f"{len(good)} of {count}",
        f"{100 * low:.0f} to {100 * high:.0f}",
        " / ".join(f"{by_steps[0][k]} of {by_steps[1][k]}" for k in (1, 2, 3, 4)),
        str(sum(line["status"] == "stopped" for line in said_right)),
        str(statuses["stopped"]),
        str(statuses["crashed"]),
        f"{mean('native_calls'):.1f}",
        f"{mean('calls'):.1f}",
        f"{mean('tokens_in'):,.0f}",
        f"{mean('cached'):,.0f}",
        f"{mean('tokens_out'):,.0f}",
        f"{statistics.median(line['seconds'] for line in lines):.0f}",
        f"{mean('model_cpu'):.0f}",
        f"{mean('own_cpu'):.2f}",
    ]
    return f"| {' | '.join(cells)} |"


def print_cells(tables: list[list[dict[str, Any]]], tasks: dict[str, SuiteTask]) -> None:
    """A line for each task of each agent."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(["agent", *CELLS, "right"])
    for line in (line for lines in tables for line in lines):
        writer.writerow([called(line), *(line[name] for name in CELLS), int(right(line, tasks[line["task"]]))])


def print_table(word: str, tables: list[list[dict[str, Any]]], tasks: dict[str, SuiteTask], wrong: bool) -> None:
    """A row for each agent, and below them versions, what is missing and what crashed."""
    most = max(map(len, tables))
    print(f"{word}, {most} tasks; calls, tokens and CPU are means a task.\n\n{HEAD}")
    for lines in tables:
        print(row(lines, tasks))
    print()
    for lines in tables:
        name = called(lines[0])
        versions: dict[str, str] = next((line["versions"] for line in lines if line["versions"]), {})
        print(f"{name}: {', '.join(f'{package} {number}' for package, number in versions.items())}.", end=" ")
        print(f"Only {len(lines)} of {most} tasks so far." if len(lines) < most else "")
        for error, count in Counter(line["error"][:160] for line in lines if line["status"] == "crashed").items():
            print(f"  crashed {count} times: {error}")
        for line in lines:
            if wrong and not (line["status"] == "answered" and right(line, tasks[line["task"]])):
                print(f"  {line['task']} {line['question']} -> {line['status']} {line['answer']!r} ({line['gold']})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--suite", default="basics:report")
    parser.add_argument("--wrong", action="store_true", help="show what was answered wrong, too")
    parser.add_argument("--cells", action="store_true", help="print each task's line instead of the table")
    options = parser.parse_args()
    files = [file for file in sorted(options.out.glob("*.jsonl")) if file.name != "calls.jsonl"]
    all_lines = [[json.loads(line) for line in file.read_text().splitlines()] for file in files]
    tables = [part for lines in all_lines if (part := [line for line in lines if line["suite"] == options.suite])]
    if not tables:
        raise SystemExit(f"{options.out} has no results of {options.suite}; run.py writes them.")
    tasks = {task.id: task for task in load_suite(options.suite).tasks}
    if options.cells:
        print_cells(tables, tasks)
    else:
        print_table(options.suite, tables, tasks, options.wrong)


if __name__ == "__main__":
    main()
