"""A plan's graph as text and as Mermaid. `plan_svg` draws it as a picture.

Each form shows the steps that call something, their needs, and the answer, which depends on the steps that no other
step needs. A step that has evidence is drawn open. A need that no earlier step provides is left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from msgspec import Struct

from plait.core import JSON, Plan, Step
from plait.core.text import one_line

ANSWER = "answer"
_PLAIN = str.maketrans("●○│─┤├┼┘└┴", "*o|-+++''+")
_NO_XML = re.compile(r"[\ufffe\uffff\ud800-\udfff]")
"""Characters that XML cannot hold, besides those that nobody sees."""


class Graph(Struct, frozen=True):
    """A plan as a graph. `steps` are in order. `needs` maps a step's id to the ids of earlier steps whose results it
    uses, and `ANSWER` to those that no step needs. `layer` is the length of the chain before a step: 0 starts at once.
    """

    steps: tuple[Step, ...]
    needs: Mapping[str, tuple[str, ...]]
    layer: Mapping[str, int]


def graph_of(plan: Plan) -> Graph:
    """Return the graph of a plan's calls. Of two steps with the same id, the first counts."""
    needs: dict[str, tuple[str, ...]] = {}
    layer: dict[str, int] = {}
    steps: list[Step] = []
    needed: set[str] = set()
    for step in plan.calls:
        if step.id in needs or step.id == ANSWER:
            continue
        steps.append(step)
        needs[step.id] = tuple(need for need in dict.fromkeys(step.needs) if need in layer)
        layer[step.id] = max((layer[need] + 1 for need in needs[step.id]), default=0)
        needed.update(needs[step.id])
    needs[ANSWER] = tuple(step.id for step in steps if step.id not in needed)
    layer[ANSWER] = max(layer.values(), default=-1) + 1
    return Graph(tuple(steps), needs, layer)


def as_text(plan: Plan, width: int = 100, *, ascii: bool = False) -> str:
    """Draw the graph in lanes, one line per step. A dot is a step; the lines that reach it from above are its needs.

        ●      E1  lookup  Lyon
        │ ●    E2  lookup  Nice
        ●─┘    E3  calculator  #E1 - #E2
        ●      answer

    Inputs are cut so that a line has at most `width` characters where possible. `ascii` draws with ASCII only. No line
    of the picture can be read as a step of a plan.
    """
    graph = graph_of(plan)
    drawn = _lanes(graph)
    lane_width = max(len(lanes) for lanes in drawn)
    ids = max((len(step.id) for step in graph.steps), default=0)
    lines = []
    for step, lanes in zip(graph.steps, drawn, strict=False):
        dot = lanes.replace("●", "○") if step.id in plan.evidence else lanes
        head = f"{dot.ljust(lane_width)}  {step.id.ljust(ids)}  {seen(step.tool)}  "
        said = input_words(step.input, max(16, width - len(head)))
        lines.append((head + said).rstrip())
    lines.append(f"{drawn[-1].ljust(lane_width)}  {ANSWER}")
    if ascii:
        rests = (line[lane_width:].replace("…", "...").encode("ascii", "backslashreplace").decode() for line in lines)
        lines = [line[:lane_width].translate(_PLAIN) + rest for line, rest in zip(lines, rests, strict=True)]
    return "\n".join(lines)


def as_mermaid(plan: Plan) -> str:
    """Return the graph as a Mermaid flowchart, from top to bottom. Labels are escaped."""
    graph = graph_of(plan)
    names = {step.id: f"s{number}" for number, step in enumerate(graph.steps, 1)}
    lines = ["flowchart TD"]
    for step in graph.steps:
        label = f"{_entities(step.id)} {_entities(seen(step.tool))}<br/>{_entities(input_words(step.input, 60))}"
        kept = ":::kept" if step.id in plan.evidence else ""
        lines.append(f'  {names[step.id]}["{label.removesuffix("<br/>")}"]{kept}')
    lines.append(f"  a([{ANSWER}])")
    lines += [f"  {names[need]} --> {names[step.id]}" for step in graph.steps for need in graph.needs[step.id]]
    lines += [f"  {names[need]} --> a" for need in graph.needs[ANSWER]]
    if any(step.id in plan.evidence for step in graph.steps):
        lines.append("  classDef kept stroke-dasharray: 5 4")
    return "\n".join(lines)


def input_words(given: JSON, width: int) -> str:
    """Return a step's input on one line of at most `width` characters: text unchanged, "" for none, others as JSON."""
    if given is None:
        return ""
    text = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False, default=str)
    flat = seen(text)
    return flat if len(flat) <= width else flat[: max(1, width - 1)].rstrip() + "…"


def seen(text: str) -> str:
    """Return a text on one line, without characters that cannot be drawn."""
    return one_line(_NO_XML.sub(" ", text))


def _lanes(graph: Graph) -> list[str]:
    """Return the lanes left of each step and of the answer. A result's lane goes down from its step to its last use. A
    step takes the lane of the leftmost need that ends with it, else the first free lane. So whatever is directly below
    a step in its lane depends on it."""
    rows = [*(step.id for step in graph.steps), ANSWER]
    last = {need: row for row, id in enumerate(rows) for need in graph.needs[id]}
    lanes: list[str | None] = []
    drawn = []
    for row, id in enumerate(rows):
        needs = set(graph.needs[id])
        ending = {need for need in needs if last[need] == row}
        own = next((i for i, held in enumerate(lanes) if held in ending), None)
        if own is None:
            own = next((i for i, held in enumerate(lanes) if held is None), len(lanes))
        if own == len(lanes):
            lanes.append(None)
        joined = [i for i, held in enumerate(lanes) if held in needs]
        first, final = min([own, *joined]), max([own, *joined])
        signs = []
        for i, held in enumerate(lanes):
            if i == own:
                sign = "●"
            elif held in needs:
                side = 0 if i == first else 1 if i == final else 2
                sign = "└┘┴"[side] if held in ending else "├┤┼"[side]
            else:
                # A lane that the line to a step only passes under stays unbroken.
                sign = "│" if held is not None else "─" if first < i < final else " "
            signs.append(sign + ("─" if first <= i < final else " "))
        drawn.append("".join(signs).rstrip())
        lanes = [None if held in ending else held for held in lanes]
        if id != ANSWER:
            lanes[own] = id
    return drawn


def _entities(text: str) -> str:
    """Escape a text for a Mermaid label, where `#name;` is a character."""
    return re.sub(r"[^\w ,.'?!:+=/%-]", lambda match: f"#{ord(match[0])};", text)
