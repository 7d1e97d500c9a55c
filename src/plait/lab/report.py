"""A comparison as text for a terminal, in Markdown, as comma-separated values, and as a JSON object."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from typing import Any

import msgspec

from plait.core.text import format_count, one_line
from plait.lab.cells import LASTING, OUTAGES
from plait.lab.comparison import Comparison, FieldShare, NotMeasured, Pair, RowPhases, TableRow, short_names
from plait.lab.grid import (
    ELLIPSIS,
    NEVER,
    ReportTable,
    TableColumn,
    escape_markdown,
    join_csv,
    make_column,
    wrap_sentence,
)
from plait.lab.numbers import show_number, show_p, show_percent, show_usd, usd_digits
from plait.lab.results import CellResult
from plait.models.fallback import SEPARATOR
from plait.models.prices import total
from plait.runtime.costs import CODE, TOOLS, in_all, in_units, round_spending

UNKNOWN_PRICE = "?: a price is unknown. Add it to [prices] in plait.toml, and repeat the runs with --again."
CHANGED = (
    "changed: runs that continued as another loop, or wrote tool calls as text because the endpoint takes no tools."
)
MOST_PAIRS, MOST_IN_LINE = 12, 3
"""Number of pairs named one by one: of those that differ, a line each, and of others in a line. The rest is counted."""
WHY = 100
"""Maximum number of characters of a run's error."""
HUNDREDTHS, MILLISECOND = 100, 1_000
"""The display units of counts, and of seconds in microseconds."""


def render_text(
    comparison: Comparison,
    *,
    width: int | None = None,
    phases: bool = False,
    all_pairs: bool = False,
    by: str = "",
    cells: bool = False,
) -> str:
    """Render the table and its notes as text without a final newline.

    `width` is the terminal's, None for a pipe: columns are dropped until the table fits, except success, tokens,
    seconds and USD. `phases` adds what each phase took, `all_pairs` every two rows, `by` (a field of the tasks'
    `about`) success in each part of the tasks, `cells` a line for each finished cell.
    """
    tables, notes = _make_tables(comparison, phases, all_pairs, by, cells)
    return _join([table.text(width) for table in tables], [wrap_sentence(note, width) for note in notes])


def render_markdown(
    comparison: Comparison, *, phases: bool = False, all_pairs: bool = False, by: str = "", cells: bool = False
) -> str:
    """Render the same in Markdown, with every column."""
    tables, notes = _make_tables(comparison, phases, all_pairs, by, cells)
    indents = [note[: len(note) - len(note.lstrip())] for note in notes]
    items = [f"{indent}- {escape_markdown(note.lstrip())}" for indent, note in zip(indents, notes, strict=True)]
    return _join([table.markdown() for table in tables], items)


def render_csv(comparison: Comparison) -> str:
    """Render the rows as comma-separated values with every digit; unknown and missing values are empty."""
    rows = comparison.rows
    statuses = list(dict.fromkeys(status for row in rows for status in row.statuses))
    measures = list(dict.fromkeys(name for row in rows for name in row.measures))
    flat = []
    for row in rows:
        cells = msgspec.to_builtins(row)
        low, high = cells.pop("interval") or (None, None)
        counts, means = cells.pop("statuses"), cells.pop("measures")
        cells["models"] = " ".join(f"{phase}={spec}" for phase, spec in cells["models"].items())
        cells |= {"interval_low": low, "interval_high": high}
        cells |= {f"status_{status}": counts.get(status, 0) for status in statuses}
        cells |= {f"measure_{name}": means.get(name) for name in measures}
        flat.append(cells)
    heads = list(flat[0]) if flat else ["loop", "models", "success", "n"]
    table = [heads, *(cells.values() for cells in flat)]
    return join_csv([one_line(cell) if isinstance(cell, str) else cell for cell in row] for row in table)


def as_object(comparison: Comparison, *, cells: bool = False) -> dict[str, Any]:
    """Return the comparison as `--json` prints it: `rows`, `pairs`, `phases`, and with `cells` each finished cell."""
    made: dict[str, Any] = {
        "name": comparison.name,
        "suite": comparison.suite.word,
        "tasks": len({*comparison.suite.firsts().values()}),
        "repeat": comparison.repeat,
        "cells_in_all": comparison.cells,
        "cells_finished": len(comparison.results),
        "unfinished": comparison.unfinished,
        "not_measured": msgspec.to_builtins(comparison.not_measured),
        "when": comparison.when,
        "journal": comparison.journal,
        "rows": msgspec.to_builtins(comparison.rows),
        "pairs": msgspec.to_builtins(comparison.pairs),
        "phases": [
            {"key": each.key, "n": each.n, "phases": [part.json() for part in each.spent]}
            for each in comparison.by_phase()
        ],
    }
    if cells:
        made["cells"] = msgspec.to_builtins(comparison.results)
    return made


def _make_tables(
    comparison: Comparison, phases: bool, all_pairs: bool, by: str, cells: bool
) -> tuple[list[ReportTable], list[str]]:
    rows, pairs = comparison.rows, comparison.pairs
    title = f"{one_line(comparison.suite.word)}: {format_count(len({*comparison.suite.firsts().values()}), 'task')}"
    title += f", each run {comparison.repeat:,} times" if comparison.repeat > 1 else ""
    models = list(dict.fromkeys(row.who for row in rows))
    title += f", {one_line(models[0])}" if len(models) == 1 and models[0] else ""
    tables = [_table(title, table_columns(rows) if rows else [])]
    if by and not any(by in task.about for task in comparison.suite.tasks):
        fields = sorted({field for task in comparison.suite.tasks for field in task.about})
        has = f"They have: {', '.join(map(one_line, fields))}." if fields else "A task's fields stand in its `about`."
        tables.append(_table(f"No task has a field {one_line(by)!r}. {has}", []))
    elif by:
        tables.append(_table(f"Success by {one_line(by)}:", _field_columns(rows, comparison.by_field(by))))
    if phases:
        tables.append(_table("By phase, a run's mean:", _phase_columns(rows, comparison.by_phase())))
    if all_pairs and pairs:
        tables.append(_table("Each two rows on the same tasks:", _pair_columns(rows, pairs)))
    if cells and comparison.results:
        tables.append(_table("Each finished cell:", _cell_columns(rows, comparison.results)))
    return tables, _notes(comparison, rows, pairs)


def _table(title: str, columns: Sequence[TableColumn]) -> ReportTable:
    return ReportTable((), tuple(columns), title=title)


def _join(blocks: Sequence[str], notes: Sequence[str]) -> str:
    return "\n\n".join(block for block in (*blocks, "\n".join(notes)) if block)


# -- columns


def table_columns(rows: Sequence[TableRow]) -> list[TableColumn]:
    digits = usd_digits([row.cost_usd for row in rows])
    tokens = [_add_up((row.input_tokens, row.output_tokens)) for row in rows]
    estimated = ["~" if row.estimated else "" for row in rows]
    column = partial(make_column, rows)

    def token_column(head: str, at: int, leave: int = NEVER) -> TableColumn:
        return TableColumn(head, tuple(sign + each[at] for sign, each in zip(estimated, tokens, strict=True)), leave)

    def show_success(row: TableRow) -> str:
        return "not measured" if not row.n and row.not_measured else show_percent(row.success, row.interval)

    def show_changed(row: TableRow) -> str:
        parts = ((row.fell_back, "other loop"), (row.calls_as_text, "calls as text"))
        return ", ".join(f"{count:,} {what}" for count, what in parts if count) or "-"

    found = [column("loop", lambda row: one_line(row.loop), left=True)]
    if len({row.who for row in rows}) > 1:
        found.append(column("models", lambda row: one_line(row.who), left=True))
    found += [column("success", show_success), column("runs", lambda row: show_number(row.n), 5)]
    if any(row.score is not None and row.success is not None and abs(row.score - row.success) > 1e-9 for row in rows):
        found.append(column("score", lambda row: show_number(row.score, 3), 6))
    for name in dict.fromkeys(name for row in rows for name in row.measures):
        measured = tuple(show_number(row.measures.get(name), 3) for row in rows)
        found.append(TableColumn(one_line(name), measured, 7))
    if any(row.fell_back or row.calls_as_text for row in rows):
        found.append(column("changed", show_changed))
    return [
        *found,
        column("steps", lambda row: show_number(row.steps, 1), 8),
        column("calls", lambda row: show_number(row.calls, 1), 9),
        token_column("in", 0, 10),
        column("cached", lambda row: show_number(row.cached_tokens), 14),
        token_column("out", 1, 11),
        token_column("tokens", 2),
        column("seconds", lambda row: show_number(row.seconds, 2)),
        column("p90", lambda row: show_number(row.seconds_p90, 2), 12),
        column("USD", lambda row: "-" if not row.n else show_usd(row.cost_usd, digits)),
        column("repairs", lambda row: show_number(row.repairs, 2), 13),
        column("repaired", lambda row: show_percent(row.repaired), 16),
        column("invented", lambda row: show_number(row.invented, 2), 15),
    ]


def _phase_columns(rows: Sequence[TableRow], by_phase: Sequence[RowPhases]) -> list[TableColumn]:
    """Return each row's phases, then "in all": means of a run, which add up as shown."""
    name = _short_names(rows)
    costs = [float(Fraction(part.nanos or 0, each.n * 10**9)) for each in by_phase for part in each.spent if each.n]
    digits = usd_digits(costs)
    heads = ("loop", "phase", "model", "calls", "retries", "in", "cached", "out", "seconds", "USD")
    lines = [line for each in by_phase if each.n for line in _phase_lines(name(each.key), each, digits)]
    leave = {"retries": 4, "cached": 3, "calls": 2, "model": 1}
    cells = list(zip(*lines, strict=True)) or [()] * len(heads)
    return [TableColumn(head, cells[at], leave.get(head, 0), at < 3) for at, head in enumerate(heads)]


def _phase_lines(name: str, each: RowPhases, digits: int) -> list[tuple[str, ...]]:
    models = [part for part in each.spent if not part.is_work]

    def show(parts: Sequence[int | None], unit: int, places: int, scale: int = 1) -> list[str]:
        some, total = round_spending(
            [None if part is None else Fraction(part * scale, each.n) for part in parts], unit, places
        )
        return [*some, total] if places else [f"{int(each):,}" for each in (*some, total)]

    numbers = [
        show([part.calls for part in models], 1, 2, HUNDREDTHS),
        show([part.retries for part in models], 1, 2, HUNDREDTHS),
        show([part.usage.input_tokens for part in models], 1, 0),
        show([part.usage.cached_tokens for part in models], 1, 0),
        show([part.usage.output_tokens for part in models], 1, 0),
    ]
    seconds = show([part.micros for part in each.spent], MILLISECOND, 3)
    usd = show([part.nanos for part in each.spent], 10 ** (9 - digits), digits)
    asked = iter(zip(*numbers, strict=True))
    lines: list[tuple[str, ...]] = []
    for part, took, cost in zip((*each.spent, in_all(each.spent)), seconds, usd, strict=True):
        if part.is_work:
            what = {TOOLS: "(tool calls)", CODE: "(pieces of code)"}[part.phase]
            made = show([part.calls], 1, 2, HUNDREDTHS)[0]
            lines.append((name, part.phase, f"{made} {what}", "", "", "", "", "", took, ""))
            continue
        calls, retries, *tokens = next(asked)
        marked = ["~" * part.usage.estimated + count for count in tokens]
        lines.append((name, one_line(part.phase), one_line(part.model), calls, retries, *marked, took, cost))
    return lines


def _field_columns(rows: Sequence[TableRow], shares: Sequence[FieldShare]) -> list[TableColumn]:
    """Return a line for each row and a column for each value, with success in it."""
    name = _short_names(rows)
    keys = list(dict.fromkeys(each.key for each in shares))
    count = len(shares) // len(keys) if keys else 0
    found = [TableColumn("loop", tuple(map(name, keys)), left=True)]
    for at in range(count):
        same = shares[at::count]
        value, tasks = same[0].value, max(each.tasks for each in same)
        head = f"{'-' if value is None else one_line(str(value))} ({format_count(tasks, 'task')})"
        found.append(TableColumn(head, tuple(show_percent(each.success, each.interval) for each in same)))
    return found


def _cell_columns(rows: Sequence[TableRow], results: Sequence[CellResult]) -> list[TableColumn]:
    """Return a line for each finished cell: its grade, what it took, its run, and what was wrong."""
    name = _short_names(rows)

    def why(each: CellResult) -> str:
        text = one_line(each.grade.why or (each.reason or "" if each.status != "answered" else ""))
        return text if len(text) <= WHY else text[: WHY - 1] + ELLIPSIS

    column = partial(make_column, results)

    return [
        column("loop", lambda each: name(each.variant), left=True),
        column("task", lambda each: one_line(each.task), left=True),
        *([column("time", lambda each: str(each.repeat + 1))] if any(each.repeat for each in results) else []),
        column("grade", lambda each: one_line(each.grade.mark), left=True),
        column("steps", lambda each: show_number(each.steps), 3),
        column("tokens", lambda each: show_number(each.usage.tokens), 4),
        column("seconds", lambda each: show_number(each.seconds, 2), 2),
        column("run", lambda each: each.run, left=True),
        column("why", why, 1, left=True),
    ]


def _pair_columns(rows: Sequence[TableRow], pairs: Sequence[Pair]) -> list[TableColumn]:
    """Return each two rows: tasks, wins, p, what it says of the first, and the ratio of tokens."""
    name = _short_names(rows)

    def ratio(pair: Pair) -> str:
        between = pair.tokens_interval
        interval = f" ({between[0]:.2f}-{between[1]:.2f})" if between else ""
        return "-" if pair.tokens_ratio is None else f"{pair.tokens_ratio:.2f}{interval}"

    column = partial(make_column, pairs)

    return [
        column("row", lambda pair: name(pair.a), left=True),
        column("is", lambda pair: pair.word, left=True),
        column("against", lambda pair: name(pair.b), left=True),
        column("tasks", lambda pair: show_number(pair.tasks), 3),
        column("wins", lambda pair: f"{pair.wins_a:,} to {pair.wins_b:,}"),
        column("both right", lambda pair: show_number(pair.both_right), 5),
        column("both wrong", lambda pair: show_number(pair.both_wrong), 5),
        column("p", lambda pair: show_p(pair.p), 4),
        column("p (Holm)", lambda pair: show_p(pair.p_holm)),
        column("token ratio", ratio, 2),
    ]


def _add_up(parts: Sequence[float | None]) -> list[str]:
    """Return parts and their sum in whole numbers that add up as shown."""
    known = [Fraction(part) for part in parts if part is not None]
    if len(known) < len(parts):
        return ["-"] * (len(parts) + 1)
    cut, total = in_units(known, 1)
    return [f"{each:,}" for each in (*cut, total)]


def _short_names(rows: Sequence[TableRow]) -> Callable[[str], str]:
    return {key: one_line(name) for key, name in short_names(rows).items()}.__getitem__


# -- notes below the table


def _notes(comparison: Comparison, rows: Sequence[TableRow], pairs: Sequence[Pair]) -> list[str]:
    """Return the sentences below the table, the most important first."""
    name = _short_names(rows)
    unmeasured: dict[tuple[str, str], list[NotMeasured]] = {}
    for each in comparison.not_measured:
        unmeasured.setdefault((each.variant, each.reason), []).append(each)
    every = format_count(len(comparison.suite.tasks) * comparison.repeat, "run")
    notes = [
        f"Not measured: {one_line(variant)}: {len(cells):,} of {every} "
        f"{'not answered' if cells[0].error in OUTAGES - LASTING else 'rejected'}: "
        f"{one_line(reason).rstrip('.')}. See run {cells[0].run}."
        for (variant, reason), cells in unmeasured.items()
    ]
    missing = comparison.cells - len(comparison.results)
    if missing > 0 or comparison.unfinished:
        count = f"{missing:,} of {format_count(comparison.cells, 'cell')}"
        why = one_line(comparison.unfinished).rstrip(".")
        notes.append(f"Not finished: {count}{f': {why}' if why and count not in why else ''}.")
    if len({row.n for row in rows}) > 1:
        notes.append("The rows don't have the same runs; two rows are compared on the tasks both finished.")
    if any(row.n for row in rows):
        how = "Success: the share of runs that did the task, with a 95 % interval (Wilson's)"
        is_repeated = any(row.n > row.tasks for row in rows)
        how += "; runs of one task resemble each other and count as fewer" if is_repeated else ""
        notes.append(f"{how}. Seconds: the median (p90: 9 of 10 runs took less). All else: the mean of a run.")
        notes += _pair_notes(pairs, name)
        parts = []
        for row in rows:
            others = [f"{count:,} {status}" for status, count in row.statuses.items() if status != "answered"]
            parts += [f"{name(row.key)} ({', '.join(others)})"] if others else []
        notes += [f"Ended otherwise than answered: {'; '.join(parts)}."] if parts else []
        notes += [CHANGED] if any(row.fell_back or row.calls_as_text for row in rows) else []
        for contender, phases in zip(comparison.contenders, comparison.by_phase(), strict=True):
            if phases.n and any(SEPARATOR in spec for spec in contender.models.values()):
                calls: Counter[str] = Counter()
                for part in phases.spent:
                    if not part.is_work:
                        calls[part.model] += part.calls
                parts = [f"{one_line(model)} {format_count(count, 'call')}" for model, count in calls.items()]
                notes.append(f"Answered by {name(phases.key)}: {', '.join(parts)}.")
        made = [each for each in comparison.results if each.cell]  # a recorded run has no cell: it was paid before
        whole = total(each.cost_usd for each in made)
        grading = total(each.grade.cost_usd for each in comparison.results)
        runs = format_count(len(made), "run" if len(made) == len(comparison.results) else "new run")
        used = f"{sum(each.usage.tokens for each in made):,} tokens, {show_usd(whole, usd_digits([whole]))} USD"
        graded = "" if grading == 0 else f", and grading {show_usd(grading, usd_digits([grading]))} USD"
        notes.append(f"In all {runs}, {used}{graded}.")
    if any(row.n and row.cost_usd is None for row in rows):
        notes.append(UNKNOWN_PRICE)
    if any(row.estimated for row in rows):
        notes.append("~: tokens estimated from the length of the text.")
    return notes


def _pair_notes(pairs: Sequence[Pair], name: Callable[[str], str]) -> list[str]:
    """Return which rows differ, and which do not differ measurably."""
    notes = []
    by_word: dict[str, list[Pair]] = {}
    for pair in pairs:
        by_word.setdefault("differ" if pair.word in ("better", "worse") else pair.word, []).append(pair)
    if differ := by_word.get("differ"):
        notes.append("Differ (sign-flip test on the same tasks, p adjusted by Holm for all pairs):")
        for pair in differ[:MOST_PAIRS]:
            sides = ((pair.a, pair.wins_a), (pair.b, pair.wins_b))
            (winner, won), (loser, lost) = sides if pair.word == "better" else reversed(sides)
            of = f"of {format_count(pair.tasks, 'task')} {won} to {lost}, p {show_p(pair.p_holm)}"
            notes.append(f"  {name(winner)} is better than {name(loser)}: {of}")
        if len(differ) > MOST_PAIRS:
            notes.append(f"  and {format_count(len(differ) - MOST_PAIRS, 'more pair')}")
    if alike := by_word.get("no difference seen"):
        sizes = [round(pair.seeable * 100) for pair in alike if pair.seeable is not None]
        note = f"No difference seen: {_name_pairs(alike, name, tested=True)}."
        if sizes:
            points = f"{min(sizes)}" if min(sizes) == max(sizes) else f"{min(sizes)} to {max(sizes)}"
            note += f" Tested alone, a true difference of about {points} points would have been seen 4 times of 5."
        notes.append(note)
    if few := by_word.get("too few to tell"):
        which = "any two rows" if len(few) == len(pairs) > 1 else _name_pairs(few, name)
        notes.append(f"Too few to tell: {which}. Fewer than 6 tasks differ: that can always be chance.")
    if none := by_word.get("no common tasks"):
        notes.append(f"No task that both finished: {_name_pairs(none, name)}.")
    return notes


def _name_pairs(pairs: Sequence[Pair], name: Callable[[str], str], *, tested: bool = False) -> str:
    words = [
        f"{name(pair.a)} and {name(pair.b)}" + f" ({pair.wins_a} to {pair.wins_b}, p {show_p(pair.p_holm)})" * tested
        for pair in pairs[:MOST_IN_LINE]
    ]
    words += [f"{len(pairs) - MOST_IN_LINE:,} more"] if len(pairs) > MOST_IN_LINE else []
    return "; ".join(words)
