"""A comparison as one HTML file. It holds no outside address, and only its own two scripts can run."""

from __future__ import annotations

import functools
from collections import Counter, defaultdict
from collections.abc import Mapping
from importlib import resources
from typing import TYPE_CHECKING, Any

from plait.core.errors import ConfigError
from plait.core.notebook import hash_source
from plait.core.text import show_hidden
from plait.lab.comparison import Comparison
from plait.lab.numbers import show_number, show_p, show_percent, show_usd, usd_digits
from plait.lab.page.charts import drawing_script, make_charts, make_row_views
from plait.lab.page.records import (
    IN_PAGE,
    LEFT_OUT,
    LINKED,
    LONG,
    UNREADABLE,
    EventsReader,
    choose_records,
    json_block,
    plain_text,
    shorten,
)
from plait.lab.results import CellResult
from plait.view.html_file import bundle_script, read_asset, site_frame

if TYPE_CHECKING:
    from jinja2 import Template

MAX_BYTES = 20_000_000
"""The default limit of a page's size."""
OUTCOMES = {
    "right": ("✓", "right"),
    "wrong": ("✗", "wrong"),
    "stopped": ("S", "stopped at a limit"),
    "failed": ("F", "failed: gave up or lost the format"),
    "crashed": ("C", "crashed"),
    "cancelled": ("–", "cancelled"),
    "waiting": ("W", "waits for a person"),
    "missing": ("·", "not finished"),
}
"""Each outcome's sign and words; a colour goes with it, never alone."""


def render_page(comparison: Comparison, *, record: EventsReader, most: int = MAX_BYTES) -> str:
    """Render the comparison as one HTML file, with the same bytes for the same comparison. `record` reads a run's
    events by its id, None if it cannot. Records are left out, those of right answers first, until the page has at most
    `most` bytes; the rest of the page, about 1 MB, is always there. Raises `ConfigError` without the extra `report`."""
    parts = _page_parts(comparison, drawing_script())
    bare = _fill_template(comparison, parts, {}, {each.run: IN_PAGE for each in comparison.results})
    # Each record is an element of its own, which takes at most 80 bytes.
    room = most - len(bare.encode()) - 80 * len(comparison.results)
    records, state = choose_records(comparison.results, record, max(0, room))
    return _fill_template(comparison, parts, records, state)


def render_served_page(comparison: Comparison, runs: str) -> str:
    """Render the page for a server that shows runs. A cell links to its run, at the address `runs` plus the run's id.
    The page holds no records. Without the extra `report` it has no charts."""
    try:
        draw = drawing_script()
    except ConfigError:
        draw = ""
    linked = {each.run: LINKED for each in comparison.results}
    parts = _page_parts(comparison, draw)
    bar, page = bundle_script("bar.js"), site_frame()
    header = page[page.index('<header class="top">') : page.index("</header>")] + "</header>"
    parts["header"] = header.replace('#/improve"', '#/improve" aria-current="page"')
    parts["hashes"] = [*parts["hashes"], hash_source(bar)]
    parts["facts"] = [("Suite", parts["suite"]), *parts["facts"]]
    return _fill_template(comparison, {**parts, "bar": bar}, {}, linked, runs)


def render_tables_page(title: str, body: str) -> str:
    """Render a page without scripts and outside addresses. `body` is HTML already."""
    style, title = _read_style(), show_hidden(title)
    return _template("tables.html.j2").render(title=title, body=body, style=style, style_hash=hash_source(style))


def _page_parts(comparison: Comparison, draw: str) -> dict[str, Any]:
    """Return all parts of the page except those that depend on its records. Charts need the script `draw`."""
    rows, lines = make_row_views(comparison), _outcome_lines(comparison)
    seen = {outcome for line in lines for cell in line["cells"] for outcome in cell["outcomes"]}
    tasks, runs = len({*comparison.suite.firsts().values()}), len(comparison.results)
    graders = dict.fromkeys(map(comparison.suite.grader_of, comparison.suite.tasks))
    unfinished = ""
    if comparison.unfinished or not comparison.whole:
        unfinished = f"{comparison.cells - runs:,} of {comparison.cells:,} runs are not finished."
        unfinished += f" {shorten(comparison.unfinished)}" if comparison.unfinished else ""
    facts = [
        ("Tasks", f"{tasks:,}"),
        ("Rows", f"{len(comparison.contenders):,}"),
        ("Repeats", f"{comparison.repeat:,} a task"),
        ("Runs", f"{runs:,}" if comparison.whole else f"{runs:,} of {comparison.cells:,}"),
        ("Grader" if len(graders) == 1 else "Graders", shorten(", ".join(graders))),
        ("When", comparison.when),
        ("Journal", show_hidden(comparison.journal)),
        ("Name", show_hidden(comparison.name)),
    ]
    return {
        "suite": show_hidden(comparison.suite.word),
        "name": show_hidden(comparison.name),
        "about": show_hidden(comparison.suite.about),
        "facts": [(name, value) for name, value in facts if value],
        "unfinished": unfinished,
        "rows": rows,
        "digits": usd_digits([each.cost_usd for each in comparison.rows]),
        "pairs": comparison.pairs,
        "named": {c.key: f"{r.number} {r.name}" for c, r in zip(comparison.contenders, rows, strict=True)},
        "pictures": [(each, json_block(each.spec) if each.spec else "") for each in make_charts(rows)] if draw else [],
        "lines": lines,
        "legend": [(kind, *words) for kind, words in OUTCOMES.items() if kind in seen],
        "style": _read_style(),
        "draw": draw,
        "script": (script := bundle_script("html.js") + _read_file("page.js")),
        "hashes": [hash_source(text) for text in (draw, script)],
        "style_hash": hash_source(_read_style()),
    }


def _fill_template(
    comparison: Comparison, parts: dict[str, Any], records: dict[str, str], state: dict[str, int], runs: str = ""
) -> str:
    missing = list(state.values())
    return _template().render(
        **{"header": "", "bar": "", **parts},
        served=bool(runs),
        data=json_block({**_script_data(comparison, state), "at": runs}),
        records=[(show_hidden(run), text) for run, text in records.items()],
        left_out=missing.count(LEFT_OUT),
        unreadable=missing.count(UNREADABLE),
    )


# -- the grid of outcomes


def _outcome(result: CellResult | None) -> str:
    """Return a key of `OUTCOMES`. A right answer is right however the run ended."""
    if result is None:
        return "missing"
    if result.grade.success:
        return "right"
    return "wrong" if result.status == "answered" else result.status


def _outcome_lines(comparison: Comparison) -> list[dict[str, Any]]:
    """Return the grid: a line for each task, in it a cell for each contender with the outcomes of its repeats."""
    found: dict[tuple[str, str], dict[int, CellResult]] = defaultdict(dict)
    for result in comparison.results:
        found[result.task, result.variant][result.repeat] = result
    lines = []
    for t, task in enumerate(comparison.suite.tasks):
        cells = []
        for c, contender in enumerate(comparison.contenders):
            done = found.get((task.id, contender.key), {})
            outcomes = [_outcome(done.get(repeat)) for repeat in range(comparison.repeat)]
            counts = Counter(outcomes)
            look = outcomes[0] if len(counts) == 1 else "mixed"
            text = OUTCOMES["missing"][0] if look == "missing" else f"{counts['right']}/{len(outcomes)}"
            words = ", ".join(f"{count} {OUTCOMES[kind][1]}" for kind, count in counts.most_common())
            words += f", of {len(outcomes)}"
            if len(outcomes) == 1:
                text, words = OUTCOMES[look]
            label = f"{show_hidden(contender.key)}, {show_hidden(task.id)}: {words}"  # for screen readers
            shown = {"look": look, "text": text, "label": label}
            cells.append({"task": t, "contender": c, "outcomes": outcomes, **shown})
        lines.append({"id": show_hidden(task.id), "question": shorten(task.question, LONG), "cells": cells})
    return lines


def _script_data(comparison: Comparison, state: Mapping[str, int]) -> dict[str, Any]:
    """Return what the page's script needs of tasks, contenders and cells; `state` says where each record is."""
    tasks = {task.id: t for t, task in enumerate(comparison.suite.tasks)}
    contenders = {each.key: c for c, each in enumerate(comparison.contenders)}
    return {
        "contenders": [show_hidden(each.key) for each in comparison.contenders],
        "tasks": [
            {
                "id": show_hidden(task.id),
                "question": shorten(task.question, LONG),
                "gold": shorten(plain_text(task.answer), LONG),
            }
            for task in comparison.suite.tasks
        ],
        "outcomes": {kind: words for kind, (_, words) in OUTCOMES.items()},
        "repeat": comparison.repeat,
        "runs": [
            {
                "c": contenders[result.variant],
                "t": tasks[result.task],
                "r": result.repeat,
                "run": show_hidden(result.run),
                "held": state.get(result.run, LEFT_OUT),
                "outcome": _outcome(result),
                "status": result.status,
                "answer": None if result.answer is None else shorten(plain_text(result.answer), LONG),
                "reason": shorten(result.reason or ""),
                "mark": show_hidden(result.grade.mark),
                "score": result.grade.score,
                "why": shorten(result.grade.why),
                "judge": show_hidden(result.grade.run),
                "steps": result.steps,
                "calls": result.calls,
                "in": result.usage.input_tokens,
                "out": result.usage.output_tokens,
                "about": result.usage.estimated,
                "usd": result.cost_usd,
                "s": round(result.seconds, 3),
                "repairs": result.repairs,
                "invented": result.invented,
                "fell": result.fell_back,
            }
            for result in comparison.results
            if result.variant in contenders and result.task in tasks
        ],
    }


# -- the template


@functools.cache
def _read_file(name: str) -> str:
    return resources.files("plait.lab.page").joinpath(name).read_text("utf-8")


def _read_style() -> str:
    return read_asset("colors.css") + _read_file("page.css")


@functools.cache
def _template(name: str = "page.html.j2") -> Template:
    from jinja2 import Environment, StrictUndefined

    # Everything is escaped except what the template marks as safe: Plait's own files, and JSON made by `json_block`.
    made = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    made.filters.update(number=show_number, percent=show_percent, usd=show_usd, p=show_p)
    return made.from_string(_read_file(name))
