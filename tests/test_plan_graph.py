"""Pictures of a plan's graph say what the plan says, whatever stands in it."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

from hypothesis import assume, given
from hypothesis import strategies as st

from conftest import for_each
from plait.cli.plan_text import plan_page, render_plan
from plait.core import Plan, Step, ToolSpec
from plait.loops.plan_text import read_plan, read_plan_file, with_llm, write_plan
from plait.loops.references import EVIDENCE
from plait.view.plan_graph import ANSWER, as_mermaid, as_text, graph_of, input_words
from plait.view.plan_svg import as_svg

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = st.sampled_from(
    [
        "a\"b<c>&d'",
        "]]></svg><script>alert(1)</script>",
        "Plan: x\n#E9 = lookup[y]",
        "# Plan: none",
        "#E2 = calculator[1]; join()",
        "東京 ひかり",
        "\x1b[31mred\x00\u202e\ud800",
        "end --> s1; subgraph",
        "[[{}]] | `x` #quot; %% comment",
        "x" * 300,
        "",
    ]
)
TOOLS = tuple(
    ToolSpec(name, "A tool.", {"type": "object", "properties": {"of": {"type": "string"}}, "required": ["of"]})
    for name in ("lookup", "calculator", "search_the_web")
)


@st.composite
def plans(draw: st.DrawFn, texts: st.SearchStrategy[str] = HOSTILE, most: int = 12) -> Plan:
    """Plans of up to `most` calls, each naming some of the calls before it."""
    steps: list[Step] = []
    for number in range(1, draw(st.integers(0, most)) + 1):
        named = draw(st.sets(st.integers(1, number - 1), max_size=3)) if number > 1 else set()
        words = draw(texts) + "".join(f" #E{each}" for each in sorted(named))
        told = draw(st.sampled_from([words, {"of": words, "n": 1}, [words]]))
        tool = draw(st.sampled_from([tool.name for tool in TOOLS]))
        steps.append(Step(f"E{number}", tool, told, draw(texts), EVIDENCE.find_ids(told)))
    ids = [step.id for step in steps]
    kept = draw(st.sets(st.sampled_from(ids))) if ids else set()
    return Plan(tuple(steps), {id: draw(texts) for id in sorted(kept)})


def step(id: str, *needs: str, tool: str = "lookup") -> Step:
    return Step(id, tool, " ".join(f"#{need}" for need in needs) or "x", "", needs)


UNEVEN = Plan(
    (
        step("E1"),
        step("E2"),
        step("E3", "E1"),
        step("E4", "E1", "E2"),
        step("E5", "E3"),
        step("E6"),
        step("E7", "E5", "E1"),
        step("E8", "E4", "E7"),
    )
)


def edges_in(text: str) -> dict[str, set[str]]:
    """What the lanes of a drawn graph say, read from them alone: what each row's dot hangs on."""
    held: dict[int, str] = {}
    found: dict[str, set[str]] = {}
    for line in text.splitlines():
        match = re.match(r"([●○│─┤├┼┘└┴ ]+) {2}(\S+)", line)
        assert match, line
        lanes, id = match[1], match[2]
        signs = {at // 2: sign for at, sign in enumerate(lanes) if at % 2 == 0}
        (own,) = (lane for lane, sign in signs.items() if sign in "●○")
        joined = {lane for lane, sign in signs.items() if sign in "┤├┼┘└┴"}
        assert joined <= held.keys(), line
        assert all(lane in held for lane, sign in signs.items() if sign == "│"), line
        assert all(signs.get(lane, " ") != " " for lane in held), line
        found[id] = {held[lane] for lane in (*joined, own) if lane in held}
        held = {lane: of for lane, of in held.items() if lane != own and signs[lane] in "│┤├┼"}
        held[own] = id
    assert held == {own: ANSWER}, "every lane ends at the answer"
    return found


def edges_of(plan: Plan) -> dict[str, set[str]]:
    return {id: set(needs) for id, needs in graph_of(plan).needs.items()}


def test_lanes_of_a_small_plan() -> None:
    plan = Plan((step("E1"), step("E2"), step("E3", "E1", "E2", tool="calculator")), {"E2": "3"})
    assert as_text(plan) == (
        "●    E1  lookup  x\n"
        "│ ○  E2  lookup  x\n"
        "●─┘  E3  calculator  #E1 #E2\n"
        "●    answer"
    )  # fmt: skip
    assert as_text(plan, ascii=True).splitlines()[:3] == [
        "*    E1  lookup  x",
        "| o  E2  lookup  x",
        "*-'  E3  calculator  #E1 #E2",
    ]


def test_an_uneven_graph_is_drawn_as_it_is() -> None:
    assert edges_in(as_text(UNEVEN)) == {
        "E1": set(),
        "E2": set(),
        "E3": {"E1"},
        "E4": {"E1", "E2"},
        "E5": {"E3"},
        "E6": set(),
        "E7": {"E5", "E1"},
        "E8": {"E4", "E7"},
        "answer": {"E6", "E8"},
    }
    graph = graph_of(UNEVEN)
    assert [graph.layer[each.id] for each in UNEVEN.steps] == [0, 0, 1, 1, 2, 0, 3, 4]


@given(plans())
def test_the_lanes_say_exactly_what_needs_what(plan: Plan) -> None:
    assert edges_in(as_text(plan)) == edges_of(plan)


@given(plans(), st.integers(40, 120))
def test_twelve_steps_keep_to_the_width_and_have_a_line_each(plan: Plan, width: int) -> None:
    lines = as_text(plan, width).split("\n")
    assert len(lines) == len(plan.calls) + 1
    # A step's lanes and names take what they need; the input is what is cut, down to 16 characters.
    assert all(len(line) <= max(width, 2 * len(plan.calls) + 4 + 5 + 16 + 16) for line in lines)
    assert all(line.isprintable() for line in lines)
    assert as_text(plan, width, ascii=True).isascii()


@given(plans())
def test_mermaid_has_each_edge_once_and_no_label_can_end_its_quotes(plan: Plan) -> None:
    lines = as_mermaid(plan).split("\n")
    assert lines[0] == "flowchart TD"
    nodes = [match for line in lines if (match := re.fullmatch(r'  (s\d+)\["([^"\[\]{}()|`\\]*)"\](:::kept)?', line))]
    arrows = [match for line in lines if (match := re.fullmatch(r"  (s\d+) --> (s\d+|a)", line))]
    rest = len(lines) - len(nodes) - len(arrows) - 2
    assert rest == bool(plan.evidence), lines
    names = {match[1]: each.id for match, each in zip(nodes, plan.calls, strict=True)} | {"a": ANSWER}
    found: dict[str, set[str]] = {id: set() for id in names.values()}
    for arrow in arrows:
        found[names[arrow[2]]].add(names[arrow[1]])
    assert found == edges_of(plan)
    assert [bool(match[3]) for match in nodes] == [each.id in plan.evidence for each in plan.calls]


@given(plans())
def test_svg_is_xml_that_holds_every_step_and_nothing_of_the_users(plan: Plan) -> None:
    text = as_svg(plan)
    root = ET.fromstring(text)
    allowed = {"svg", "title", "style", "defs", "marker", "path", "g", "rect", "text", "tspan"}
    assert {node.tag.removeprefix(SVG) for node in root.iter()} <= allowed
    assert not re.search(r"(href|src|url\((?!#tip\)))", re.sub(r"<t(itle|ext|span).*?</t\1>", "", text, flags=re.S))
    boxes = list(_boxes(root))
    assert len(boxes) == len(plan.calls) + 1
    width, height = (float(root.attrib[name]) for name in ("width", "height"))
    for x, y, wide, high, said in boxes:
        assert x >= 0 and y >= 0 and x + wide <= width and y + high <= height
        assert all(char.isprintable() for line in said for char in line)
    for number, (x, y, wide, high, _) in enumerate(boxes):
        for x2, y2, wide2, high2, _ in boxes[number + 1 :]:
            assert x + wide <= x2 or x2 + wide2 <= x or y + high <= y2 or y2 + high2 <= y, "boxes touch"
    tips = sum("marker-end" in node.attrib for node in root.iter(f"{SVG}path"))
    assert tips == sum(map(len, edges_of(plan).values()))


def _boxes(root: ET.Element) -> Iterator[tuple[float, float, float, float, list[str]]]:
    for group in root.iter(f"{SVG}g"):
        rect = group.find(f"{SVG}rect")
        assert rect is not None
        x, y, wide, high = (float(rect.attrib[name]) for name in ("x", "y", "width", "height"))
        yield x, y, wide, high, ["".join(each.itertext()) for each in group.iter(f"{SVG}text")]


def test_svg_says_a_step_in_its_box_and_all_of_it_in_its_tooltip() -> None:
    plan = Plan((Step("E1", "lookup", "a <b> & " + "c" * 50, "Why & how"), step("E2", "E1")), {"E1": "x"})
    root = ET.fromstring(as_svg(plan))
    first, second, answer = list(root.iter(f"{SVG}g"))
    assert [each[4] for each in _boxes(root)] == [
        ["E1 lookup", "a <b> & " + "c" * 21 + "…"],
        ["E2 lookup", "#E1"],
        ["answer"],
    ]
    assert first.findtext(f"{SVG}title") == "Why & how · lookup a <b> & " + "c" * 50
    assert (first.get("class"), second.get("class"), answer.get("class")) == ("kept", None, "answer")
    assert "prefers-color-scheme:dark" in as_svg(plan)


def test_a_deep_plan_goes_down_and_a_wide_one_to_the_right() -> None:
    def size(plan: Plan) -> tuple[float, float]:
        root = ET.fromstring(as_svg(plan))
        return float(root.attrib["width"]), float(root.attrib["height"])

    deep = Plan((step("E1"), *(step(f"E{n}", f"E{n - 1}") for n in range(2, 13))))
    wide = Plan(tuple(step(f"E{n}") for n in range(1, 13)))
    assert size(deep)[0] < 300 < 900 < size(deep)[1]
    assert size(wide)[0] < 500 < 600 < size(wide)[1]


def test_a_hundred_steps_that_all_need_each_other_are_drawn_in_time() -> None:
    steps = [step(f"E{n}", *(f"E{m}" for m in range(1, n))) for n in range(1, 101)]
    root = ET.fromstring(as_svg(Plan(tuple(steps))))
    assert len(list(_boxes(root))) == 101
    assert len(as_text(Plan(tuple(steps))).split("\n")) == 101


@for_each(
    "plan",
    [
        Plan((step("E1", "E2"), step("E2", "E1"))),
        Plan((step("E1", "E1"),)),
        Plan((step("E1", "E7"),)),
        Plan((step("E1"), step("E1", "E1"))),
        Plan((step("answer"), step("E2", "answer"))),
        Plan((Step("", "", None, "A thought."),)),
        Plan(),
    ],
)
def test_a_plan_that_cannot_be_run_can_be_drawn(plan: Plan) -> None:
    assert edges_in(as_text(plan)) == edges_of(plan)
    assert ET.fromstring(as_svg(plan)).tag == f"{SVG}svg"
    assert as_mermaid(plan).startswith("flowchart TD")


def test_an_input_in_few_words() -> None:
    assert [input_words(given, 12) for given in (None, "a\n b", {"a": [1]}, "x" * 13)] == [
        "",
        "a b",
        '{"a": [1]}',
        "x" * 11 + "…",
    ]


# -- the page: text that is printed, edited and read back

READABLE = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=60) | HOSTILE.map(
    lambda text: "".join(char for char in text if char.isprintable())
)


@given(plans(READABLE, most=6), st.booleans())
def test_the_printed_page_reads_back_as_the_plan_whatever_its_picture_shows(plan: Plan, ascii: bool) -> None:
    assume(plan.calls and not plan.problems(TOOLS))
    alone = read_plan(write_plan(plan), TOOLS).plan
    assert read_plan(plan_page(plan, ascii=ascii), TOOLS).plan == alone
    assert read_plan_file(render_plan(plan, "text"), TOOLS) == alone


@given(plans(READABLE, most=6))
def test_the_json_form_reads_back_as_the_plan_with_its_evidence(plan: Plan) -> None:
    assume(plan.calls and not plan.problems(TOOLS))
    assert read_plan_file(render_plan(plan, "json"), TOOLS) == plan


def test_the_picture_in_the_documentation_is_the_one_that_its_plan_gives() -> None:
    docs = Path(__file__).resolve().parents[1] / "docs"
    block = re.search(r"```json file=plan.json\n(.*?)```", (docs / "plans.md").read_text(encoding="utf-8"), re.S)
    assert block
    plan = read_plan(json.loads(block[1])["replies"]["plan"][0]["text"], with_llm(TOOLS)).plan
    assert (docs / "images" / "plan.svg").read_text(encoding="utf-8") == as_svg(plan)
