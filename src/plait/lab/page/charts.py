"""The page's pictures as Vega-Lite, written with Altair. Colours are the names of the page's CSS variables.

Widths are left to the page's script: it knows how much room there is, and draws again when that changes.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from importlib import resources
from typing import Any, TypeAlias

from msgspec import Struct

from plait.core.errors import UsageError
from plait.lab.page import labels
from plait.lab.page.standings import Standing, frontier

HEIGHT, STRIP = 320, 40
"""Pixels of a scatter picture, and of a strip of bars."""
_LOG = 20
"""From this ratio of the largest to the smallest the axis is logarithmic."""
_NAME = 26
"""Characters of a name that is written into a picture."""

Point: TypeAlias = tuple[Standing, float, float]
"""A row, its price, its success."""


class Picture(Struct, frozen=True):
    """One picture: `id` in the page, heading, what it says in words, the specification (None: nothing to draw)."""

    id: str
    title: str
    caption: str
    spec: dict[str, Any] | None


def pictures(rows: Sequence[Standing]) -> tuple[Picture, ...]:
    """Success against price and against time, tokens in and out by step."""
    return (
        _price(rows),
        _time(rows),
        _strips("tokens-in", "Tokens in, by step", rows, "input", "var(--mark)"),
        _strips("tokens-out", "Tokens out, by step", rows, "output", "var(--mark-second)"),
    )


def ready() -> None:
    """Raises `UsageError` without the extra `report`: to be asked before hours of runs, not after."""
    try:
        import altair  # noqa: F401
        import vl_convert  # noqa: F401
    except ImportError as error:
        raise _missing() from error


@functools.cache
def script() -> str:
    """The JavaScript that draws: Vega with all it needs, `picture.js`. Raises `UsageError` without `plait[report]`."""
    ready()
    import vl_convert

    library = str(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;"))
    return f"{library}\n{resources.files('plait.lab.page').joinpath('picture.js').read_text(encoding='utf-8')}"


def _altair() -> Any:
    ready()
    import altair

    return altair


def _missing() -> UsageError:
    return UsageError(
        "The page's pictures need Altair and vl-convert, which are not installed.",
        hint="pip install 'plait[report]'",
    )


def _price(rows: Sequence[Standing]) -> Picture:
    if any(each.row.cost_usd for each in rows):
        lacking = [str(each.number) for each in rows if each.row.n and each.row.cost_usd is None]
        said = f" Not drawn, for a price is not known: {', '.join(lacking)}." if lacking else ""
        found = [(each, each.row.cost_usd) for each in rows]
        return _scatter("price", "Success against cost", "USD a run", found, f"The mean cost of a run.{said}", "cheap")
    said = "The mean tokens of a run, in and out: no run has a known cost above 0 USD, so tokens stand for it."
    found = [(each, each.row.tokens) for each in rows]
    return _scatter("price", "Success against tokens", "tokens a run", found, said, "cheap")


def _time(rows: Sequence[Standing]) -> Picture:
    found = [(each, each.row.seconds) for each in rows]
    said = "The median seconds of a run, by the clock."
    return _scatter("time", "Success against time", "seconds a run (median)", found, said, "fast")


def _scatter(
    id: str, title: str, axis: str, found: Sequence[tuple[Standing, float | None]], said: str, word: str
) -> Picture:
    """Success against a price, each row its number in a circle, with its interval and the frontier."""
    points = [(each, at, each.row.success) for each, at in found if at is not None and each.row.success is not None]
    if not points:
        return Picture(id, title, "Nothing to draw: no run is finished.", None)
    alt = _altair()
    best = frontier([(at, success) for _, at, success in points])
    low, high = min(at for _, at, _ in points), max(at for _, at, _ in points)
    log = low > 0 and high / low >= _LOG
    domain = (low / 1.5, high * 1.5) if log else (0.0, high * 1.08 or 1.0)
    values = _values(points, best, [_along(at, domain, log) for _, at, _ in points], axis)

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
    for place, (side, up) in labels.PLACES.items():
        label = every.encode(y=y, text="label:N").transform_filter(f"datum.place === '{place}'")
        look = {"align": "left" if side > 0 else "right", "dx": 12 * side, "dy": -13 * up, "fontSize": 12}
        ground = {"color": "var(--raised)", "stroke": "var(--raised)", "strokeWidth": 4, "strokeJoin": "round"}
        if any(value["place"] == place for value in values):
            layers += [label.mark_text(**look, **ground), label.mark_text(**look, color="var(--ink)")]
    spec = alt.layer(*layers).properties(height=HEIGHT, description=f"{title}. The table has the same numbers.")
    caption = f"{said} Lines are 95 % intervals; the dashed line is the frontier: nothing as {word} does better."
    return Picture(id, title, caption, _done(spec))


def _values(points: Sequence[Point], best: Sequence[int], across: Sequence[float], axis: str) -> list[dict[str, Any]]:
    """The points as data. Those that hide others say so; labels stand where there is room, or not at all."""
    spots = [(x, success) for x, (_, _, success) in zip(across, points, strict=True)]
    hidden = labels.hidden(spots, best)
    under = {i: ", ".join(str(points[k][0].number) for k in hidden if hidden[k] == i) for i in range(len(points))}
    words: dict[int, list[str]] = {}
    for i in (*best, *(i for i in range(len(points)) if under[i] and i not in best)):
        name = [_short(points[i][0].name)] if i in best else []
        both = [f"{name[0]} (here too: {under[i]})"] if name and under[i] else []
        words[i] = [*both, *name, *([f"+ {under[i]}"] if under[i] else [])]
    places = labels.placed(words, spots)
    values = []
    for i, (each, at, success) in enumerate(points):
        low, high = each.row.interval or (0.0, 1.0)
        place, label = places.get(i, ("ru", ""))
        also = "".join(f"\nunder it: {points[k][0].number} {points[k][0].key}" for k in hidden if hidden[k] == i)
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
                f"{_told(at)} {axis}{also}",
            }
        )
    return values


def _along(at: float, domain: tuple[float, float], log: bool) -> float:
    """Where on the axis a price stands, from 0 to 1."""
    first, last = (math.log(each) for each in domain) if log else domain
    return ((math.log(at) if log else at) - first) / (last - first)


def _strips(id: str, title: str, rows: Sequence[Standing], field: str, colour: str) -> Picture:
    """Tokens by step, a strip for each row, all with one scale."""
    drawn = [each for each in rows if each.by_step]
    if not drawn:
        return Picture(id, title, "Nothing to draw: no finished run asked a model.", None)
    alt = _altair()
    named = {each.number: f"{each.number}  {_short(each.name, 44)}" for each in drawn}
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
    return Picture(id, title, "The mean over the runs that came to the step; paler where fewer did.", _done(strips))


def _done(chart: Any) -> dict[str, Any]:
    """The specification without what is an address (its schema) and without the sizes of a fixed page."""
    spec: dict[str, Any] = chart.to_dict()
    del spec["$schema"], spec["config"]
    return spec


def _short(name: str, most: int = _NAME) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"


def _told(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
