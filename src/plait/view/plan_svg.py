"""A plan's graph as one self-contained SVG: readable in light and dark, all text escaped.

A step is in the layer of its longest chain of needs (Sugiyama's layered drawing). A result that a later layer needs
runs through the layers between as one thin lane. Sweeps order each layer; isotonic regression then places each box near
its neighbours. Deep plans go down, wide ones to the right.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from html import escape
from itertools import pairwise

from msgspec import Struct

from plait.core import Plan
from plait.view.plan_graph import ANSWER, Graph, graph_of, input_words, seen

CHAR = 7.3
"""Pixels of one character of the monospaced text, at 12 pixels."""
MOST = 30
"""Characters of a line in a box."""
MARGIN, LANE, APART, BETWEEN = 12.0, 10.0, 22.0, 46.0
SWEEPS, SETTLE = 8, 13
STRAIGHT = 8.0
"""The weight of a lane's place relative to a box's: boxes make room for lanes."""

STYLE = """\
text{font:12px ui-monospace,Menlo,Consolas,monospace;fill:#1c2330}
.id{font-weight:bold}.in{fill:#4a5568}
rect{fill:#f3f6fb;stroke:#5b7bb2;stroke-width:1.3}
.answer rect{fill:#e9f5ec;stroke:#4d9062}
.kept rect{stroke-dasharray:5 4}
path{fill:none;stroke:#8592a6;stroke-width:1.4}
marker path{fill:#8592a6;stroke:none}
@media(prefers-color-scheme:dark){text{fill:#e8ecf3}.in{fill:#aab6c8}rect{fill:#202838;stroke:#7f9fd6}
.answer rect{fill:#1d3226;stroke:#6fb886}}"""
TIP = """\
<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">\
<path d="M0,0.5L8,4L0,7.5z"/></marker></defs>"""

Key = tuple[str, int]
"""A box: its id and its layer. For a lane in a layer between: the id of the step whose result it carries, and the
layer."""


class StepBox(Struct, frozen=True):
    """The look of a step or of the answer. `hint` is its tooltip."""

    lines: tuple[str, ...]
    wide: float
    high: float
    hint: str = ""
    kind: str = ""


def as_svg(plan: Plan) -> str:
    """Draw a plan's graph as SVG. Steps with evidence have a dashed border; a box's tooltip shows the whole step."""
    graph = graph_of(plan)
    picture = _Picture(graph, _boxes(graph, plan))
    said = []
    for step in graph.steps:
        needs = ", ".join(map(seen, graph.needs[step.id]))
        said.append(f"{seen(step.id)} {seen(step.tool)}" + (f" after {needs}" if needs else ""))
    words = f"A plan of {len(said)} steps: {'; '.join(said)}"
    width, height = map(_n, picture.size)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
        f' role="img">\n<title>{_text(words)}</title>\n<style>\n{STYLE}\n</style>\n{TIP}\n'
        + "\n".join(picture.lines())
        + "\n</svg>\n"
    )


class _Picture:
    """The position of every part. `depth` is the position across the layers, `places` are the positions along each."""

    def __init__(self, graph: Graph, boxes: Mapping[str, StepBox]) -> None:
        self.graph, self.boxes = graph, boxes
        found: dict[tuple[Key, Key], None] = {}
        for id, needs in graph.needs.items():
            end = graph.layer[id]
            for need in needs:
                keys = [(need, layer) for layer in range(graph.layer[need], end)] + [(id, end)]
                found.update(dict.fromkeys(pairwise(keys)))
        self.segments = list(found)
        layers = _layers(graph, self.segments)
        self.down = len(layers) >= max(sum(self._is_box(key) for key in layer) for layer in layers)
        sizes = {key: self._extent(key, wide=self.down) for layer in layers for key in layer}
        self.depths = [max(self._extent(key, wide=not self.down) for key in layer) for layer in layers]
        self.starts = [MARGIN + sum(self.depths[:number]) + BETWEEN * number for number in range(len(layers))]
        places = _places(layers, self.segments, sizes, set(graph.layer.items()))
        first = min(places[key] - sizes[key] / 2 for key in places) - MARGIN
        self.places = {key: place - first for key, place in places.items()}
        across = max(self.places[key] + sizes[key] / 2 for key in places) + MARGIN
        long = self.starts[-1] + self.depths[-1] + MARGIN
        self.size = (across, long) if self.down else (long, across)

    def lines(self) -> Iterator[str]:
        """Yield the picture's parts, lines first."""
        for source, target in self.segments:
            way = [self._end(source, out=True), self._end(target, out=False)]
            if not self._is_box(target):
                way.append(self._end(target, out=True))
            tip = ' marker-end="url(#tip)"' if self._is_box(target) else ""
            spots = [way[0]]
            for here, there in pairwise(way):
                middle = (here[0] + there[0]) / 2
                spots += [(middle, here[1]), (middle, there[1]), there]
            said = [f"{_n(place)},{_n(depth)}" if self.down else f"{_n(depth)},{_n(place)}" for depth, place in spots]
            yield f'<path d="M{said[0]}C{" ".join(said[1:])}"{tip}/>'
        for id, box in self.boxes.items():
            layer = self.graph.layer[id]
            centre = (self.places[id, layer], self.starts[layer] + self.depths[layer] / 2)
            yield _drawn(box, *(centre if self.down else centre[::-1]))

    def _end(self, key: Key, *, out: bool) -> tuple[float, float]:
        """Return where lines leave (`out`) or reach a box or a lane: depth, then place."""
        start, room = self.starts[key[1]], self.depths[key[1]]
        if self._is_box(key):
            own = self._extent(key, wide=not self.down)
            start, room = start + (room - own) / 2, own
        return (start + room if out else start), self.places[key]

    def _extent(self, key: Key, *, wide: bool) -> float:
        if not self._is_box(key):
            return LANE
        return self.boxes[key[0]].wide if wide else self.boxes[key[0]].high

    def _is_box(self, key: Key) -> bool:
        return self.graph.layer[key[0]] == key[1]


# -- what stands where


def _layers(graph: Graph, segments: Iterable[tuple[Key, Key]]) -> list[list[Key]]:
    """Return the contents of each layer, ordered so that few lines cross."""
    layers: list[list[Key]] = [[] for _ in range(graph.layer[ANSWER] + 1)]
    for key in dict.fromkeys([*((id, graph.layer[id]) for id in graph.needs), *(end for _, end in segments)]):
        layers[key[1]].append(key)
    before, after = _neighbours(segments)
    for _ in range(SWEEPS):
        for towards, walk in ((before, layers), (after, layers[::-1])):
            place = {key: number for layer in layers for number, key in enumerate(layer)}
            for layer in walk:
                layer.sort(key=lambda key: _mean([place[near] for near in towards.get(key, ())], place[key]))
                place.update((key, number) for number, key in enumerate(layer))
    return layers


def _places(
    layers: Sequence[Sequence[Key]],
    segments: Sequence[tuple[Key, Key]],
    sizes: Mapping[Key, float],
    boxes: Collection[Key],
) -> dict[Key, float]:
    """Return the middle of each part along its layer: near its neighbours, in order, without touching."""
    before, after = _neighbours(segments)
    places = {key: 0.0 for layer in layers for key in layer}
    for number in range(SETTLE):
        # Go down and up in turn, each time towards the layer placed last, so that lanes stay straight.
        near, walk = (before, layers) if number % 2 == 0 else (after, layers[::-1])
        for layer in walk:
            wanted = [_mean([places[other] for other in near.get(key, ())], places[key]) for key in layer]
            weights = [STRAIGHT if key not in boxes else 1 for key in layer]
            offsets = [0.0]
            for one, two in pairwise(layer):
                offsets.append(offsets[-1] + (sizes[one] + sizes[two]) / 2 + APART)
            places.update(zip(layer, _in_order(wanted, weights, offsets), strict=True))
    return places


def _in_order(wanted: Sequence[float], weights: Sequence[float], offsets: Sequence[float]) -> list[float]:
    """Return the places nearest to `wanted` (least squares) that keep at least the distances of `offsets`."""
    pools: list[tuple[float, float, int]] = []
    for want, weight, offset in zip(wanted, weights, offsets, strict=True):
        total, mass, count = (want - offset) * weight, weight, 1
        while pools and pools[-1][0] * mass >= total * pools[-1][1]:
            more, heavy, many = pools.pop()
            total, mass, count = total + more, mass + heavy, count + many
        pools.append((total, mass, count))
    flat = [total / mass for total, mass, count in pools for _ in range(count)]
    return [base + offset for base, offset in zip(flat, offsets, strict=True)]


def _neighbours(segments: Iterable[tuple[Key, Key]]) -> tuple[dict[Key, list[Key]], dict[Key, list[Key]]]:
    before: dict[Key, list[Key]] = {}
    after: dict[Key, list[Key]] = {}
    for source, target in segments:
        before.setdefault(target, []).append(source)
        after.setdefault(source, []).append(target)
    return before, after


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


# -- how it looks


def _boxes(graph: Graph, plan: Plan) -> dict[str, StepBox]:
    """Return a box for each step and one for the answer. Boxes of steps have the same width, so that they line up."""
    lines = {
        step.id: (f"{seen(step.id)} {seen(step.tool)}"[:MOST], input_words(step.input, MOST)) for step in graph.steps
    }
    wide = max(map(_width, lines.values()), default=0.0)
    boxes = {}
    for step in graph.steps:
        hint = " · ".join(filter(None, (seen(step.why), f"{seen(step.tool)} {input_words(step.input, 2000)}")))
        kind = "kept" if step.id in plan.evidence else ""
        boxes[step.id] = StepBox(lines[step.id], wide, 46 if lines[step.id][1] else 30, hint, kind)
    boxes[ANSWER] = StepBox((ANSWER,), _width((ANSWER,)) + 16, 30, kind="answer")
    return boxes


def _width(lines: Iterable[str]) -> float:
    return max(sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in line) for line in lines) * CHAR + 22


def _drawn(box: StepBox, x: float, y: float) -> str:
    left, top = x - box.wide / 2, y - box.high / 2
    round_ = box.high / 2 if box.kind == "answer" else 7
    said = [line for line in box.lines if line]
    rows = [y + 4] if len(said) == 1 else [y - 4, y + 13]
    texts = []
    for number, (line, row) in enumerate(zip(said, rows, strict=True)):
        place = f'x="{_n(x)}" text-anchor="middle"' if box.kind == "answer" else f'x="{_n(left + 11)}"'
        name, _, rest = line.partition(" ") if number == 0 else ("", "", line)
        inside = f'<tspan class="id">{_text(name)}</tspan> {_text(rest)}' if name and rest else _text(line)
        cls = ' class="in"' if number else ""
        texts.append(f'<text {place} y="{_n(row)}"{cls}>{inside}</text>')
    hint = f"<title>{_text(box.hint)}</title>" if box.hint else ""
    kind = f' class="{box.kind}"' if box.kind else ""
    rect = f'<rect x="{_n(left)}" y="{_n(top)}" width="{_n(box.wide)}" height="{_n(box.high)}" rx="{_n(round_)}"/>'
    return f"<g{kind}>{hint}{rect}{''.join(texts)}</g>"


def _text(text: str) -> str:
    return escape(seen(text))


def _n(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")
