"""Claims about what a model is told of a tool's input: the shape in JSON, all faults, the whole description."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Annotated

import msgspec
import pydantic
import pytest

import plait
from patience import cpu_seconds
from plait.core.call_check import find_faults, find_input_problem, repair_value
from plait.core.errors import BadInput
from plait.core.json_schema import LONGEST, shape_of, words_of
from plait.tools import Tool, tool
from plait.tools.docstrings import LONGEST as DESCRIPTION
from plait.tools.docstrings import read_docstring


class Unit(enum.Enum):
    PIECE = "piece"
    KILOGRAM = "kg"


class Item(pydantic.BaseModel):
    name: str
    amount: int = pydantic.Field(1, ge=1)
    unit: Unit = Unit.PIECE


@dataclass
class Place:
    city: str
    zip: int


class Point(msgspec.Struct):
    x: float
    y: float


class Line(msgspec.Struct):
    begin: Point
    end: Point


@tool
def order(items: list[Item], to: Place, urgent: bool = False) -> None: ...


@tool
def draw(lines: list[Line]) -> None: ...


@tool
def plain(ids: list[int], prices: dict[str, float], name: str) -> None: ...


@tool
def either(what: Item | Place | None = None, note: Annotated[str, pydantic.Field(max_length=5)] = "") -> None: ...


def refusal(made: Tool, given: object) -> str:
    with pytest.raises(BadInput) as caught:
        made.bind(given)  # type: ignore[arg-type]
    return str(caught.value)


def test_an_argument_error_shows_the_json_shape_and_no_python_type() -> None:
    said = refusal(order, {})
    assert said.endswith(
        'It takes {"items": [{"name": string, "amount": integer (optional), "unit": "piece" | "kg" (optional)}, ...], '
        '"to": {"city": string, "zip": integer}, "urgent": boolean (optional)}.'
    )
    for name in ("Item", "Place", "Unit", "__main__", "list[", "test_"):
        assert name not in said
    assert refusal(draw, {}).endswith(
        'It takes {"lines": [{"begin": {"x": number, "y": number}, "end": {"x": number, "y": number}}, ...]}.'
    )


@pytest.mark.parametrize(
    ("made", "given", "faults"),
    [
        (
            order,
            {
                "items": [{"amount": "many"}, {"name": "tea", "amount": 0, "unit": "box"}, 5],
                "to": {"zip": "x"},
                "at": 1,
            },
            [
                "there is no parameter 'at'",
                "items[0].name is missing",
                "items[0].amount must be a whole number, not 'many'",
                "items[1].amount must be at least 1, not 0",
                "items[1].unit must be one of 'piece', 'kg', not 'box'",
                "items[2] must be an object, not the number 5",
                "to.city is missing",
                "to.zip must be",
            ],
        ),
        (
            order,
            {"items": "tea", "urgent": "soon"},
            ["items must be a list", "urgent must be true", "to is missing"],
        ),
        (
            draw,
            {"lines": [{"begin": {"x": "a", "y": 1}, "end": {}}, {"begin": {"x": 1, "y": 2}, "end": {"x": 1}}]},
            [
                "lines[0].begin.x must be a number",
                "lines[0].end.x is missing",
                "lines[0].end.y is m",
                "lines[1].end.y is missing",
            ],
        ),
        (
            plain,
            [["x", 2, "y"], {"tea": "dear"}],
            ["ids[0] must be a whole number", "ids[2] must", "prices.tea must be a number", "name is missing"],
        ),
        (
            either,
            {"what": {"name": 5.5, "city": []}, "note": "too long"},
            ["what.zip is missing", "at most 5 ch"],
        ),
    ],
)
def test_an_argument_error_names_all_faults_and_their_places(made: Tool, given: object, faults: list[str]) -> None:
    said = refusal(made, given)
    assert [fault for fault in faults if fault not in said] == []
    assert "\n" not in said


def test_an_input_with_hundreds_of_faults_gives_a_short_error() -> None:
    said = refusal(order, {"items": [{}] * 500, "to": {"city": "Lyon", "zip": 1}})
    assert "items[7].name is missing; and 492 more faults." in said and len(said) < 1_000


def test_a_planned_call_is_refused_with_all_its_faults() -> None:
    said = find_input_problem(plain.spec, {"ids": 5, "prices": 6}, lambda _: False)
    assert said == (
        "name is missing; ids must be a list with a whole number each, not the number 5; "
        "prices must be an object with a number each, not the number 6"
    )


def test_the_shape_of_a_schema_that_holds_itself_or_is_very_large_is_short() -> None:
    tree = {"$ref": "#/$defs/tree", "$defs": {"tree": {"type": "object", "properties": {}}}}
    tree["$defs"]["tree"]["properties"] = {"left": {"$ref": "#/$defs/tree"}, "right": {"$ref": "#/$defs/tree"}}  # type: ignore[index]
    assert shape_of(tree).startswith('{"left": ') and len(shape_of(tree)) <= LONGEST
    wide = {"type": "object", "properties": {f"field_{i}": {"type": "string"} for i in range(1_000)}}
    assert len(shape_of({"type": "array", "items": wide})) <= LONGEST
    assert shape_of({"enum": list(range(100))}).endswith("| 11 | ...")


def test_a_description_has_all_paragraphs_before_the_sections() -> None:
    read = read_docstring("""Books a room

    Prices are in EUR.
    Rooms are free until noon.

    Args:
        room: Its number.

    Example:
        book("12")
    """)
    assert read.summary == "Books a room. Prices are in EUR. Rooms are free until noon."
    fields = read_docstring("Books.\n\nIn EUR.\n\n:param room: Its number.\n:returns: yes")
    assert (fields.summary, fields.returns) == ("Books. In EUR.", "yes")


def test_a_very_long_description_is_cut_at_the_end_of_a_sentence() -> None:
    read = read_docstring("Books a room.\n\n" + "This is one sentence. " * 500)
    assert len(read.summary) <= DESCRIPTION and read.summary.endswith("This is one sentence.")
    assert read_docstring("word " * 1_000).summary.endswith(" ...")


def test_values_inside_users_own_types_are_read_as_leniently_as_plain_ones() -> None:
    given = {"items": [{"name": 5, "amount": "1,200", "unit": "KG"}], "to": '{"city": "Lyon", "zip": "69,000"}'}
    _, named = order.bind(given)
    assert named["items"] == [Item(name="5", amount=1200, unit=Unit.KILOGRAM)] and named["to"] == Place("Lyon", 69000)
    assert draw.bind([{"begin": {"x": "1", "y": 2}, "end": {"x": 0, "y": "1,000"}}]) == (
        (),
        {"lines": [Line(Point(1.0, 2.0), Point(0.0, 1000.0))]},
    )


def test_a_schema_whose_references_multiply_is_described_and_checked_in_a_moment() -> None:
    several = [{"type": "array", "items": {"$ref": "#/properties/a"}, "title": str(i)} for i in range(25)]
    schema = {"properties": {"a": {"anyOf": several}}}
    many = {f"d{i}": {"anyOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 20} for i in range(40)}
    deep = {"properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": {**many, "d40": {"type": "integer"}}}

    def describe_and_check() -> None:
        for root in (schema, deep):
            part = root["properties"]["a"]
            assert len(shape_of(root)) <= LONGEST
            assert len(words_of(part, root)) <= LONGEST
            list(find_faults(repair_value([[["1"]]] * 1000, part, root), part, root))

    assert cpu_seconds(describe_and_check, 2.0) < 2.0


def test_a_misspelled_name_is_suggested_at_each_depth() -> None:
    said = refusal(order, {"item": [], "to": {"citty": "Lyon", "zip": 1}, "urgnt": True})
    assert "there is no parameter 'item' (did you mean 'items'?), 'urgnt' (did you mean 'urgent'?)" in said
    assert "items is missing" in said
    assert "to.city is missing ('citty' is there instead)" in said


def test_code_gets_all_faults_of_a_call_as_a_type_error() -> None:
    code = (
        "try:\n    order(items=[{'nam': 'tea', 'amount': 0}], to={'city': 'Lyon', 'zip': 'x'}, urgnt=True)\n"
        "except TypeError as error:\n    print(error)"
    )
    replies = [f"Thought: x\n```python\n{code}\n```", 'Thought: y\n```python\nstop("done")\n```']
    run = plait.Agent(plait.CodeAct(), model=plait.Scripted(replies), tools=[order], journal=False).run("q")
    (_, observation), *_ = run.timeline.results
    for fault in (
        "there is no parameter 'urgnt' (did you mean 'urgent'?)",
        "items[0].name is missing ('nam' is there instead)",
        "items[0].amount must be at least 1, not 0",
        "to.zip must be a whole number, not 'x'",
    ):
        assert fault in observation.text
