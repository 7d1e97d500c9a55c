"""The page's charts as Vega-Lite, written with Altair. Colours are the names of the page's CSS variables.

The page's script sets widths, because it knows the available room and redraws when that changes.
"""

from __future__ import annotations

import functools
import importlib
import math
from collections.abc import Mapping, Sequence
from importlib import resources
from itertools import product
from statistics import fmean
from typing import Any, TypeAlias

from msgspec import Struct

from plait.core.errors import ConfigError
from plait.installation import install_hint
from plait.lab.comparison import Comparison, TableRow, short_names
from plait.lab.page.records import shorten
from plait.lab.results import CellResult

HEIGHT, STRIP = 320, 40
"""Pixels of a scatter chart, and of a strip of bars."""
_LOG = 20
"""The ratio of the largest to the smallest value from which the axis is logarithmic."""
_NAME, _KEY = 26, 240
"""Characters of a name in a chart, and in the page."""

# Sizes of labels, in shares of a chart's width and height.
_CIRCLE = (0.045, 0.06)
_NEAR = (0.03, 0.04)
"""Below this distance, one circle hides the number in another."""
_LETTER, _LINE = 0.016, 0.045
"""The width of a letter, and the height of a line."""
_ASIDE, _ABOVE = 0.027, 0.041
"""The distance of a label from the middle of its circle."""
LABEL_PLACES = {"ru": (1, 1), "lu": (-1, 1), "rd": (1, -1), "ld": (-1, -1)}
"""The places of a label at its circle: right or left, up or down."""


class StepTokens(Struct, frozen=True):
    """Mean tokens in and out of one step (counted from 1), over the `runs` that reached it."""

    step: int
    input: float
    output: float
    runs: int


class RowView(Struct, frozen=True):
    """One row: `number` counts from 1, `key` is its full name and `name` is short and unique."""

    number: int
    key: str
    name: str
    row: TableRow
    by_step: tuple[StepTokens, ...]


Point: TypeAlias = tuple[RowView, float, float]
"""A row, its price, its success."""
Spot: TypeAlias = tuple[float, float]
Box: TypeAlias = tuple[float, float, float, float]
"""Left, right, bottom, top; in shares of the chart's width and height."""


class Chart(Struct, frozen=True):
    """One chart: `id` in the page, heading, caption, the specification (None: nothing to draw)."""

    id: str
    title: str
    caption: str
    spec: dict[str, Any] | None


def make_row_views(comparison: Comparison) -> tuple[RowView, ...]:
    """Return a view for each contender in the order of the table, finished runs or not."""
    names = short_names(comparison.contenders)
    found = zip(comparison.contenders, comparison.rows, strict=True)
    return tuple(
        RowView(
            number, shorten(each.key, _KEY), shorten(names[each.key], _KEY), row, _tokens_by_step(comparison.of(each))
        )
        for number, (each, row) in enumerate(found, 1)
    )


def make_charts(rows: Sequence[RowView]) -> tuple[Chart, ...]:
    """Return the charts: success against price and against time, tokens in and out by step."""
    title, axis, prices = "Success against cost", "USD a run", [(each, each.row.cost_usd) for each in rows]
    lacking = [str(each.number) for each in rows if each.row.n and each.row.cost_usd is None]
    about = "The mean cost of a run."
    about += f" Not drawn, for a price is not known: {', '.join(lacking)}." if lacking else ""
    if not any(each.row.cost_usd for each in rows):
        title, axis, prices = "Success against tokens", "tokens a run", [(each, each.row.tokens) for each in rows]
        about = "The mean tokens of a run, in and out: no run has a known cost above 0 USD, so tokens stand for it."
    found = [(each, each.row.seconds) for each in rows]
    said = "The median seconds of a run, by the clock."
    return (
        _scatter_chart("price", title, axis, prices, about, "cheap"),
        _scatter_chart("time", "Success against time", "seconds a run (median)", found, said, "fast"),
        _step_chart("tokens-in", "Tokens in, by step", rows, "input", "var(--mark)"),
        _step_chart("tokens-out", "Tokens out, by step", rows, "output", "var(--mark-second)"),
    )


def check_report_extra() -> None:
    """Raise `ConfigError` if the extra `report` is missing. Call it before hours of runs, not after."""
    try:
        import altair  # noqa: F401
        import vl_convert  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            "The page's pictures need Altair and vl-convert, which are not installed.", hint=install_hint("report")
        ) from error


@functools.cache
def drawing_script() -> str:
    """Return the JavaScript that draws: Vega and `picture.js`. Raises `ConfigError` without `plait[report]`."""
    check_report_extra()
    import vl_convert

    library = str(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;"))
    return f"{library}\n{resources.files('plait.lab.page').joinpath('picture.js').read_text(encoding='utf-8')}"


def _scatter_chart(
    id: str, title: str, axis: str, found: Sequence[tuple[RowView, float | None]], said: str, word: str
) -> Chart:
    """Draw success against a price: each row is its number in a circle, with its interval and the frontier."""
    points = [(each, at, each.row.success) for each, at in found if at is not None and each.row.success is not None]
    if not points:
        return Chart(id, title, "Nothing to draw: no run is finished.", None)
    alt: Any = importlib.import_module("altair")
    best = find_frontier([(at, success) for _, at, success in points])
    low, high = min(at for _, at, _ in points), max(at for _, at, _ in points)
    log = low > 0 and high / low >= _LOG
    domain = (low / 1.5, high * 1.5) if log else (0.0, high * 1.08 or 1.0)
    first, last = map(math.log, domain) if log else domain
    across = [((math.log(at) if log else at) - first) / (last - first) for _, at, _ in points]
    values = _values(points, best, across, axis)

    x = alt.X("x:Q", title=axis, scale=alt.Scale(type="log" if log else "linear", domain=list(domain), nice=False))
    x = x.axis(tickCount=5, grid=False, format="~s" if high >= 1 else "~g", labelOverlap=True)
    y = alt.Y("y:Q", title="success", scale=alt.Scale(domain=[-0.02, 1.02], nice=False))
    y = y.axis(format=".0%", values=[0, 0.25, 0.5, 0.75, 1])
    last_on_top = sorted(values, key=lambda each: (each["number"] != "", each["best"]))
    every = alt.Chart(alt.Data(values=last_on_top)).encode(x=x, tooltip="tip:N")
    line = alt.Chart(alt.Data(values=[values[i] for i in best])).encode(x=x, y=y, order="x:Q")
    hue = alt.condition("datum.best", alt.value("var(--mark)"), alt.value("var(--mark-quiet)"))
    layers = [
        line.mark_line(interpolate="step-after", strokeDash=[5, 4], color="var(--mark)", strokeWidth=1.5),
        every.mark_rule(strokeWidth=1.5).encode(y=alt.Y("low:Q"), y2="high:Q", color=hue),
        every.mark_circle(size=330, opacity=1).encode(y=y, color=hue),
        every.mark_text(color="var(--on-mark)", fontSize=11, fontWeight="bold").encode(y=y, text="number:N"),
    ]
    for place, (side, up) in LABEL_PLACES.items():
        label = every.encode(y=y, text="label:N").transform_filter(f"datum.place === '{place}'")
        look = {"align": "left" if side > 0 else "right", "dx": 12 * side, "dy": -13 * up, "fontSize": 12}
        ground = {"color": "var(--raised)", "stroke": "var(--raised)", "strokeWidth": 4, "strokeJoin": "round"}
        if any(value["place"] == place for value in values):
            layers += [label.mark_text(**look, **ground), label.mark_text(**look, color="var(--ink)")]
    spec = alt.layer(*layers).properties(height=HEIGHT, description=f"{title}. The table has the same numbers.")
    caption = f"{said} Lines are 95 % intervals; the dashed line is the frontier: nothing as {word} does better."
    return Chart(id, title, caption, _to_spec(spec))


def _values(points: Sequence[Point], best: Sequence[int], across: Sequence[float], axis: str) -> list[dict[str, Any]]:
    """Return the points as data. Points that hide others are marked; labels appear only where there is room."""
    spots = [(x, success) for x, (_, _, success) in zip(across, points, strict=True)]
    hidden = find_hidden(spots, best)
    under = {i: ", ".join(str(points[k][0].number) for k in hidden if hidden[k] == i) for i in range(len(points))}
    words: dict[int, list[str]] = {}
    for i in (*best, *(i for i in range(len(points)) if under[i] and i not in best)):
        name = [_cut_name(points[i][0].name)] if i in best else []
        both = [f"{name[0]} (here too: {under[i]})"] if name and under[i] else []
        words[i] = [*both, *name, *([f"+ {under[i]}"] if under[i] else [])]
    places = place_labels(words, spots)
    values = []
    for i, (each, at, success) in enumerate(points):
        low, high = each.row.interval or (0.0, 1.0)
        place, label = places.get(i, ("ru", ""))
        also = "".join(f"\nunder it: {points[k][0].number} {points[k][0].key}" for k in hidden if hidden[k] == i)
        price = f"{at:,.0f}" if at >= 100 else f"{at:.3g}"
        values.append(
            {
                "number": "" if i in hidden else str(each.number),
                "label": label,
                "place": place,
                "x": at,
                "y": success,
                "low": low,
                "high": high,
                "best": i in best,
                "tip": f"{each.number} {each.key}\n{success:.1%} right ({low:.0%} to {high:.0%}), {each.row.n} runs\n"
                f"{price} {axis}{also}",
            }
        )
    return values


def _step_chart(id: str, title: str, rows: Sequence[RowView], field: str, colour: str) -> Chart:
    """Draw tokens by step: a strip for each row, all with one scale."""
    drawn = [each for each in rows if each.by_step]
    if not drawn:
        return Chart(id, title, "Nothing to draw: no finished run asked a model.", None)
    alt: Any = importlib.import_module("altair")
    named = {each.number: f"{each.number}  {_cut_name(each.name, 44)}" for each in drawn}
    values = [
        {
            "row": named[each.number],
            "step": step.step,
            "tokens": round(getattr(step, field), 2),
            "share": step.runs / each.row.n,
            "tip": f"{each.number} {each.key}\nstep {step.step}: {getattr(step, field):,.0f} "
            f"{title.split(',')[0].lower()}, the mean of {step.runs} of {each.row.n} runs",
        }
        for each in drawn
        for step in each.by_step
    ]
    last = max(len(each.by_step) for each in drawn)
    x = alt.X("step:O", title="step", scale=alt.Scale(domain=list(range(1, last + 1))))
    bars = alt.Chart(alt.Data(values=values)).mark_bar(color=colour)
    bars = bars.encode(
        x=x.axis(labelAngle=0, labelOverlap=True),
        y=alt.Y("tokens:Q", title=None).axis(tickCount=2, format="~s", grid=False),
        opacity=alt.Opacity("share:Q", legend=None, scale=alt.Scale(domain=[0, 1], range=[0.35, 1])),
        tooltip="tip:N",
    )
    header = alt.Header(title=None, labelOrient="top", labelAnchor="start", labelPadding=4)
    row = alt.Row("row:N", sort=list(named.values()), header=header)
    strips = bars.properties(height=STRIP).facet(row=row, spacing=8)
    strips = strips.properties(description=f"{title}, a strip for each row of the table.")
    return Chart(id, title, "The mean over the runs that came to the step; paler where fewer did.", _to_spec(strips))


def _to_spec(chart: Any) -> dict[str, Any]:
    """Return the specification without its schema (an address) and the sizes of a fixed page."""
    spec: dict[str, Any] = chart.to_dict()
    del spec["$schema"], spec["config"]
    return spec


def _cut_name(name: str, max_chars: int = _NAME) -> str:
    return name if len(name) <= max_chars else f"{name[: max_chars - 1]}…"


def find_frontier(points: Sequence[tuple[float, float]]) -> list[int]:
    """Return the indices of (price, success) that no cheaper point beats, by rising price."""
    best, found = -1.0, []
    for i in sorted(range(len(points)), key=lambda i: (points[i][0], -points[i][1], i)):
        if points[i][1] > best:
            best = points[i][1]
            found.append(i)
    return found


def _tokens_by_step(results: Sequence[CellResult]) -> tuple[StepTokens, ...]:
    found = []
    for step in range(max((len(result.by_step) for result in results), default=0)):
        there = [result.by_step[step] for result in results if len(result.by_step) > step]
        found.append(StepTokens(step + 1, fmean(used for used, _ in there), fmean(out for _, out in there), len(there)))
    return tuple(found)


def find_hidden(spots: Sequence[Spot], best: Sequence[int]) -> dict[int, int]:
    """Map each hidden point to the point above it; points of the frontier come first and are never hidden."""
    leads = list(best)
    under: dict[int, int] = {}
    for i, (x, y) in enumerate(spots):
        if i in best:
            continue
        near = (k for k in leads if abs(spots[k][0] - x) < _NEAR[0] and abs(spots[k][1] - y) < _NEAR[1])
        lead = next(near, None)
        if lead is None:
            leads.append(i)
        else:
            under[i] = lead
    return under


def place_labels(labels: Mapping[int, Sequence[str]], spots: Sequence[Spot]) -> dict[int, tuple[str, str]]:
    """Return a place and the words for each label that has room beside circles and other labels. `labels` are in order
    of importance. Each label uses its first words with room."""
    taken: list[Box] = [
        (x - _CIRCLE[0] / 2, x + _CIRCLE[0] / 2, y - _CIRCLE[1] / 2, y + _CIRCLE[1] / 2) for x, y in spots
    ]
    found: dict[int, tuple[str, str]] = {}
    for i, choice in labels.items():
        for words, (place, (side, up)) in product(choice, LABEL_PLACES.items()):
            x, y = spots[i]
            left, right = sorted((x + side * _ASIDE, x + side * (_ASIDE + _LETTER * len(words))))
            low = y + up * _ABOVE - _LINE / 2
            high = low + _LINE
            if (
                left >= 0
                and right <= 1
                and not any(left < b and a < right and low < d and c < high for a, b, c, d in taken)
            ):
                found[i] = place, words
                taken.append((left, right, low, high))
                break
    return found
