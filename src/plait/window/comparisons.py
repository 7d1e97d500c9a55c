"""Comparisons on record, as the pages show them: the table, the pictures' specifications, and the run of each cell."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict, is_dataclass
from typing import Any

import msgspec

from plait.core.errors import UsageError
from plait.journal.results import Results
from plait.journal.store import Journal

ANSWER = 200
"""Characters of an answer that a cell tells."""


def listed_comparisons(journal: Journal) -> list[dict[str, Any]]:
    """The comparisons, the newest first."""
    results = Results(journal)
    return [
        {
            "name": each.name,
            "suite": each.head["suite"]["word"],
            "started": each.started,
            "finished": len(results.results(each.head["cells"])),
            "cells": len(each.head["cells"]),
            "loops": list(dict.fromkeys(row["strategy"] for row in each.head["contenders"])),
        }
        for each in results.comparisons()
    ]


def told_comparison(journal: Journal, name: str) -> dict[str, Any]:
    """One comparison, by its name. Raises `UsageError`."""
    from plait.lab.comparing import kept
    from plait.lab.page import grid
    from plait.lab.page.standings import standings
    from plait.lab.page.texts import plain

    found = kept(name, journal.path)
    rows = standings(found)
    there: dict[tuple[str, str], dict[int, Any]] = defaultdict(dict)
    for result in found.results:
        there[result.task, result.variant][result.repeat] = result

    def cell(result: Any) -> dict[str, Any]:
        if result is None:
            return {"outcome": "missing", "run": "", "answer": ""}
        said = "" if result.answer is None else plain(result.answer)[:ANSWER]
        return {"outcome": grid.outcome(result), "run": result.run, "answer": said}

    lines = [
        {
            "id": task.id,
            "question": task.question[:ANSWER],
            "cells": [
                [cell(there.get((task.id, each.key), {}).get(repeat)) for repeat in range(found.repeat)]
                for each in found.contenders
            ],
        }
        for task in found.suite.tasks
    ]
    pictures, drawing = _pictures(rows)
    return {
        "name": found.name,
        "suite": found.suite.word,
        "tasks": len(found.suite.tasks),
        "repeat": found.repeat,
        "finished": len(found.results),
        "cells": found.cells,
        "unfinished": found.unfinished,
        "rows": [{"number": each.number, "key": each.key, "name": each.name, "row": _plain(each.row)} for each in rows],
        "pictures": pictures,
        "drawing": drawing,
        "lines": lines,
        "outcomes": grid.OUTCOMES,
        "legend": grid.legend(grid.lines(found)),
    }


def _pictures(rows: Any) -> tuple[list[dict[str, Any]], bool]:
    """The pictures' specifications, none where the extra `report` is not installed."""
    from plait.lab.page import charts

    try:
        charts.ready()
    except UsageError:
        return [], False
    return [msgspec.to_builtins(each) for each in charts.pictures(rows)], True


def _plain(row: Any) -> dict[str, Any]:
    """A row of the table with what the page shows of it."""
    names = ("n", "success", "interval", "steps", "calls", "input_tokens", "output_tokens", "seconds", "cost_usd")
    given = asdict(row) if is_dataclass(row) and not isinstance(row, type) else row
    return {name: given[name] if isinstance(given, dict) else getattr(given, name) for name in names}
