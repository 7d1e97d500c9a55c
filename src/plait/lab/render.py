"""A comparison as a terminal shows it, in Markdown, as comma-separated values, and as JSON."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from plait.lab import grid, parts, words
from plait.lab.comparison import Comparison
from plait.lab.grid import Column, line
from plait.lab.table import Row, pairs, rows
from plait.lab.views import about_columns, cell_columns, pair_columns, phase_columns


def terminal(
    comparison: Comparison,
    *,
    width: int | None = None,
    phases: bool = False,
    all_pairs: bool = False,
    by: str = "",
    cells: bool = False,
) -> str:
    """The table and what is to be said of it, as text without a newline at its end.

    `width` is the terminal's, None for a pipe: columns are left out until it fits, never those of success, tokens,
    seconds and USD, and said below. `phases` shows what each phase took, `all_pairs` every two rows, `by` (a field of
    `Task.about`) success in each part of the tasks, `cells` a line for each finished cell.
    """

    def drawn(columns: Sequence[Column]) -> str:
        table, left_out = grid.text(columns, width)
        return table + (f"\n(no room for: {', '.join(left_out)})" if left_out else "")

    def written(said: str) -> str:
        return grid.wrapped(said, width)

    return _whole(comparison, drawn, written, phases, all_pairs, by, cells)


def markdown(
    comparison: Comparison, *, phases: bool = False, all_pairs: bool = False, by: str = "", cells: bool = False
) -> str:
    """The same in Markdown, every column."""

    def written(said: str) -> str:
        depth = len(said) - len(said.lstrip())
        return f"{said[:depth]}- {grid.escaped(said[depth:])}"

    return _whole(comparison, grid.markdown, written, phases, all_pairs, by, cells)


def _whole(
    comparison: Comparison,
    drawn: Callable[[Sequence[Column]], str],
    written: Callable[[str], str],
    phases: bool,
    all_pairs: bool,
    by: str,
    cells: bool,
) -> str:
    told, compared = rows(comparison), pairs(comparison)
    blocks = [_title(comparison, told), drawn(columns(told))] if told else [_title(comparison, told)]
    if by and not any(by in task.about for task in comparison.suite.tasks):
        blocks.append(_no_field(comparison, by))
    elif by:
        blocks += [f"Success by {line(by)}:", drawn(about_columns(told, parts.by_about(comparison, by)))]
    if phases:
        blocks += ["By phase, a run's mean:", drawn(phase_columns(told, parts.by_phase(comparison)))]
    if all_pairs and compared:
        blocks += ["Each two rows on the same tasks:", drawn(pair_columns(told, compared))]
    if cells and comparison.results:
        blocks += ["Each finished cell:", drawn(cell_columns(told, comparison.results))]
    blocks.append("\n".join(map(written, words.notes(comparison, told, compared))))
    return "\n\n".join(block for block in blocks if block)


def columns(told: Sequence[Row]) -> list[Column]:
    """The table's columns: who, how well, what it took."""
    who = len({row.who for row in told}) > 1
    digits = words.usd_digits([row.cost_usd for row in told])
    tokens = [words.adding((row.input_tokens, row.output_tokens)) for row in told]
    about = ["~" if row.estimated else "" for row in told]

    def column(head: str, cell: Callable[[Row], str], leave: int = grid.NEVER, left: bool = False) -> Column:
        return Column(head, tuple(cell(row) for row in told), leave, left)

    def spent(head: str, at: int, leave: int = grid.NEVER) -> Column:
        return Column(head, tuple(sign + each[at] for sign, each in zip(about, tokens, strict=True)), leave)

    found = [column("loop", lambda row: line(row.strategy), left=True)]
    found += [column("models", lambda row: line(row.who), left=True)] if who else []
    found += [
        column("success", words.success),
        column("runs", lambda row: words.number(row.n), 5),
    ]
    if any(row.score is not None and row.success is not None and abs(row.score - row.success) > 1e-9 for row in told):
        found.append(column("score", lambda row: words.number(row.score, 3), 6))
    for name in dict.fromkeys(name for row in told for name in row.measures):
        measured = tuple(words.number(row.measures.get(name), 3) for row in told)
        found.append(Column(line(name), measured, 7))
    found += []
    if any(row.fell_back or row.calls_as_text for row in told):
        found.append(column("changed", words.changed))
    found += [
        column("steps", lambda row: words.number(row.steps, 1), 8),
        column("calls", lambda row: words.number(row.calls, 1), 9),
        spent("in", 0, 10),
        column("cached", lambda row: words.number(row.cached_tokens), 14),
        spent("out", 1, 11),
        spent("tokens", 2),
        column("seconds", lambda row: words.number(row.seconds, 2)),
        column("p90", lambda row: words.number(row.seconds_p90, 2), 12),
        column("USD", lambda row: "-" if not row.n else words.usd(row.cost_usd, digits)),
        column("repairs", lambda row: words.number(row.repairs, 2), 13),
        column("repaired", lambda row: words.percent(row.repaired), 16),
        column("invented", lambda row: words.number(row.invented, 2), 15),
    ]
    return found


def values(comparison: Comparison) -> str:
    """The rows as comma-separated values with every digit; an unknown price and what there is not are empty."""
    told = rows(comparison)
    statuses = list(dict.fromkeys(status for row in told for status in row.statuses))
    measures = list(dict.fromkeys(name for row in told for name in row.measures))
    flat = []
    for row in told:
        cells = row.json()
        low, high = cells.pop("interval") or (None, None)
        counts, means = cells.pop("statuses"), cells.pop("measures")
        cells["models"] = " ".join(f"{phase}={spec}" for phase, spec in cells["models"].items())
        cells |= {"interval_low": low, "interval_high": high}
        cells |= {f"status_{status}": counts.get(status, 0) for status in statuses}
        cells |= {f"measure_{name}": means.get(name) for name in measures}
        flat.append(cells)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    heads = list(flat[0]) if flat else ["strategy", "models", "success", "n"]
    writer.writerow([line(head) for head in heads])
    for cells in flat:
        writer.writerow([line(cell) if isinstance(cell, str) else cell for cell in cells.values()])
    return out.getvalue()


def as_object(comparison: Comparison, *, cells: bool = False) -> dict[str, Any]:
    """The comparison as `--json` prints it: `rows`, `pairs`, and with `cells` each finished cell."""
    told: dict[str, Any] = {
        "name": comparison.name,
        "suite": comparison.suite.word,
        "tasks": len(comparison.suite.tasks),
        "repeat": comparison.repeat,
        "cells_in_all": comparison.cells,
        "cells_finished": len(comparison.results),
        "unfinished": comparison.unfinished,
        "not_measured": msgspec.to_builtins(comparison.not_measured),
        "when": comparison.when,
        "journal": comparison.journal,
        "rows": [row.json() for row in rows(comparison)],
        "pairs": [pair.json() for pair in pairs(comparison)],
        "phases": [each.json() for each in parts.by_phase(comparison)],
    }
    if cells:
        told["cells"] = [msgspec.to_builtins(result) for result in comparison.results]
    return told


def _no_field(comparison: Comparison, by: str) -> str:
    fields = sorted({field for task in comparison.suite.tasks for field in task.about})
    has = f"They have: {', '.join(map(line, fields))}." if fields else "A task's fields stand in its `about`."
    return f"No task has a field {line(by)!r}. {has}"


def _title(comparison: Comparison, told: Sequence[Row]) -> str:
    tasks = len(comparison.suite.tasks)
    said = f"{line(comparison.suite.word)}: {tasks:,} {'task' if tasks == 1 else 'tasks'}"
    said += f", each run {comparison.repeat:,} times" if comparison.repeat > 1 else ""
    models = list(dict.fromkeys(row.who for row in told))
    return said + (f", {line(models[0])}" if len(models) == 1 and models[0] else "")
