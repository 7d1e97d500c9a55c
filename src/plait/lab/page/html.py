"""The page put together: one file, no address outside it, and nothing in it but its own two scripts can run."""

from __future__ import annotations

import base64
import functools
import hashlib
from importlib import resources
from typing import TYPE_CHECKING, Any

from plait.core.errors import UsageError
from plait.lab.comparison import Comparison
from plait.lab.page import charts, grid
from plait.lab.page.records import HELD, LEFT_OUT, LINKED, UNREADABLE, Reader, held
from plait.lab.page.standings import standings
from plait.lab.page.texts import block, brief, visible
from plait.lab.table import pairs

if TYPE_CHECKING:
    from jinja2 import Template

MOST = 20_000_000
"""Bytes of a page, unless said otherwise."""


def page(comparison: Comparison, *, record: Reader, most: int = MOST) -> str:
    """The comparison as one HTML file, the same bytes for the same comparison.

    `record` gives a run's events by its id, None where they can't be read. Records are left out, those of right
    answers first, until the page has at most `most` bytes (the rest of it is about 1 MB and is never left
    out). Raises `UsageError` without the extra `report`.
    """
    parts = _parts(comparison, charts.script())
    bare = _filled(comparison, parts, {}, {each.run: HELD for each in comparison.results})
    # each record stands in an element of its own, of at most 80 bytes
    room = most - len(bare.encode()) - 80 * len(comparison.results)
    records, state = held(comparison.results, record, max(0, room))
    return _filled(comparison, parts, records, state)


def served_page(comparison: Comparison, runs: str) -> str:
    """The same page for a server that shows runs. A cell links to its run, at the address `runs` with the id behind it.

    The page holds no records. Without the extra `report` it has no pictures.
    """
    try:
        draw = charts.script()
    except UsageError:
        draw = ""
    return _filled(comparison, _parts(comparison, draw), {}, {each.run: LINKED for each in comparison.results}, runs)


def _parts(comparison: Comparison, draw: str) -> dict[str, Any]:
    """All of the page but what depends on its records. Pictures need `draw`, the script that draws them."""
    rows, lines = standings(comparison), grid.lines(comparison)
    return {
        "suite": visible(comparison.suite.word),
        "about": visible(comparison.suite.about),
        "facts": _facts(comparison),
        "unfinished": _unfinished(comparison),
        "rows": rows,
        "pairs": pairs(comparison),
        "named": {c.key: f"{r.number} {r.name}" for c, r in zip(comparison.contenders, rows, strict=True)},
        "pictures": [(each, block(each.spec) if each.spec else "") for each in charts.pictures(rows)] if draw else [],
        "lines": lines,
        "outcomes": grid.OUTCOMES,
        "legend": grid.legend(lines),
        "style": _file("page.css"),
        "draw": draw,
        "script": _file("page.js"),
        "hashes": [_hash(text) for text in (draw, _file("page.js"))],
        "style_hash": _hash(_file("page.css")),
    }


def _filled(
    comparison: Comparison, parts: dict[str, Any], records: dict[str, str], state: dict[str, int], runs: str = ""
) -> str:
    missing = list(state.values())
    return _template().render(
        **parts,
        served=bool(runs),
        data=block({**grid.data(comparison, state), "at": runs}),
        records=[(visible(run), text) for run, text in records.items()],
        left_out=missing.count(LEFT_OUT),
        unreadable=missing.count(UNREADABLE),
    )


def _facts(comparison: Comparison) -> list[tuple[str, str]]:
    tasks, runs = len(comparison.suite.tasks), len(comparison.results)
    graders = dict.fromkeys(map(comparison.suite.grader_of, comparison.suite.tasks))
    facts = [
        ("Tasks", f"{tasks:,}"),
        ("Rows", f"{len(comparison.contenders):,}"),
        ("Repeats", f"{comparison.repeat:,} a task"),
        ("Runs", f"{runs:,}" if comparison.whole else f"{runs:,} of {comparison.cells:,}"),
        ("Grader" if len(graders) == 1 else "Graders", brief(", ".join(graders))),
        ("When", comparison.when),
        ("Journal", visible(comparison.journal)),
        ("Name", visible(comparison.name)),
    ]
    return [(name, value) for name, value in facts if value]


def _unfinished(comparison: Comparison) -> str:
    if comparison.whole and not comparison.unfinished:
        return ""
    missing = comparison.cells - len(comparison.results)
    why = f" {brief(comparison.unfinished)}" if comparison.unfinished else ""
    return f"{missing:,} of {comparison.cells:,} runs are not finished.{why}"


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@functools.cache
def _file(name: str) -> str:
    return resources.files("plait.lab.page").joinpath(name).read_text("utf-8")


@functools.cache
def _template() -> Template:
    from jinja2 import Environment, StrictUndefined

    # Everything is escaped but what is marked safe in the template: our own files, and JSON made by `block`.
    made = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    made.filters.update(number=_number, share=_share, usd=_usd)
    return made.from_string(_file("page.html.j2"))


def _number(value: float | None, digits: int = 0) -> str:
    return "" if value is None else f"{value:,.{digits}f}"


def _share(value: float | None) -> str:
    return "" if value is None else f"{value * 100:.1f} %".replace(".0 %", " %")


def _usd(value: float | None) -> str:
    if value is None:
        return "unknown"
    return "0" if value == 0 else f"{value:.6f}".rstrip("0") if value < 0.01 else f"{value:.4f}"
