"""Answers of a type: words are no object, and validators that are written for whole values meet half ones."""

from __future__ import annotations

import json
import sys
import typing
from dataclasses import dataclass, field
from datetime import date
from typing import Annotated, Any, Generic, Literal, NotRequired, Required, TypeVar

import pytest
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, computed_field, field_validator, model_validator
from typing_extensions import TypedDict

import plait
from conftest import for_each
from plait.core.events import Ended, PartialOutput
from typed_support import LOOPS, QUESTION, agent, script

T = TypeVar("T")
REFUSAL = "I am sorry, I have no such city."


class City(BaseModel):
    name: str


class Noted(BaseModel):
    name: str
    note: str | None = None


class Anything(BaseModel):
    data: Any


class Wrapper(BaseModel):
    city: City


class Names(BaseModel):
    names: list[str]


class People(BaseModel):
    people: int


@dataclass
class Place:
    name: str


class PlaceDict(TypedDict):
    name: str


OBJECTS: dict[str, tuple[Any, str]] = {
    "model": (City, '{"name": "Lyon"}'),
    "optional field": (Noted, '{"name": "Lyon"}'),
    "any field": (Anything, '{"data": "Lyon"}'),
    "wrapper": (Wrapper, '{"city": {"name": "Lyon"}}'),
    "list field": (Names, '{"names": ["Lyon"]}'),
    "dataclass": (Place, '{"name": "Lyon"}'),
    "TypedDict": (PlaceDict, '{"name": "Lyon"}'),
    "list of objects": (list[City], '[{"name": "Lyon"}]'),
    "union": (City | People, '{"name": "Lyon"}'),
    "nullable": (City | None, '{"name": "Lyon"}'),
    "schema": ({"type": "object", "properties": {"name": {"type": "string"}}}, '{"name": "Lyon"}'),
}


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("case", ["model", "dataclass"])
def test_no_loop_takes_a_refusal_in_words_for_an_object(case: str, loop: str) -> None:
    output, good = OBJECTS[case]
    words = json.dumps(REFUSAL) if loop in ("json", "codeact") else REFUSAL
    run = agent(loop, output, words, good, good).run(QUESTION)
    assert (run.status, run.answer) == ("answered", json.loads(good)), run.reason


@for_each("words", [REFUSAL, f'"{REFUSAL}"', "Lyon", "42", f"```\n{REFUSAL}\n```", "name: Lyon", "null"])
@for_each("case", OBJECTS)
def test_words_are_no_object_of_any_type(case: str, words: str) -> None:
    output, good = OBJECTS[case]
    if (case, words) in (("nullable", "null"), ("any field", "42")):
        return  # these are values of the type
    run = agent("tool_calling", output, words, good, good).run(QUESTION)
    assert run.answer == json.loads(good) and len(run.timeline.model_calls) == 2, run.reason


@pytest.mark.parametrize(
    ("output", "answer", "value"),
    [(People, "5", People(people=5)), (Names, '["Lyon"]', Names(names=["Lyon"])), (str | City, REFUSAL, REFUSAL)],
)
def test_other_lone_values_and_types_with_text_stay(output: Any, answer: str, value: Any) -> None:
    assert agent("tool_calling", output, answer).run(QUESTION).output == value


@pytest.mark.parametrize("loop", ["react", "json", "tool_calling"])
def test_an_example_is_no_answer(loop: str) -> None:
    words = 'Such as {"name": "X"}.\nMy answer: {"name": "Lyon"}'
    words = json.dumps(words) if loop == "json" else words
    run = agent(loop, City, words, '{"name": "Lyon"}', '{"name": "Lyon"}').run(QUESTION)
    assert (run.status, run.answer) == ("answered", {"name": "Lyon"}), run.reason


@for_each(
    ("output", "text", "value"),
    [
        (City, '{"name": "A"}\n{"name": "B"}', None),
        (City, '```json\n{"name": "A"}\n```\nor\n```json\n{"name": "B"}\n```', None),
        (list[int], "As [1] says: [1, 2]", None),
        (Names, '["A"] or ["B"]', None),
        (City, '{"name": "A"}, so: {"name": "A"}', {"name": "A"}),
        (City, '{"town": "B"} is wrong, {"name": "A"} is right', {"name": "A"}),
        (People, '{"people": 3} or rather {"people": "3"}', {"people": 3}),
    ],
)
def test_of_several_values_only_one_may_fit(output: Any, text: str, value: Any) -> None:
    made = plait.OutputType(output)
    assert (made.read(text), made.fits(text)) == ((text, False) if value is None else (value, True))


# -- validators


class Keyed(BaseModel):
    title: str
    status: str

    @model_validator(mode="before")
    @classmethod
    def check(cls, data: dict[str, Any]) -> dict[str, Any]:
        return {"title": data["title"], "status": data["status"].lower()}


class Emptied(BaseModel):
    title: str
    size: int

    @model_validator(mode="before")
    @classmethod
    def check(cls, data: dict[str, Any]) -> dict[str, Any]:
        taken = dict(data)
        data.clear()
        return {"title": taken["title"], "size": taken["size"]}


class Mean(BaseModel):
    parts: list[int]

    @model_validator(mode="after")
    def check(self) -> Mean:
        assert sum(self.parts) / len(self.parts) > 1
        return self


class Dated(BaseModel):
    when: Annotated[date, BeforeValidator(lambda text: date(*[int(text.split(".")[i]) for i in (2, 1, 0)]))]


class Named(BaseModel):
    name: str

    @field_validator("name")
    @classmethod
    def check(cls, value: str) -> str:
        if len(value.split(" ")) < 2:
            raise SystemExit("no second name")
        return value


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    title: str = Field(min_length=5, pattern="^[A-Z]")
    kind: Literal["a", "b"]


class Computed(BaseModel):
    parts: list[int]

    @computed_field  # type: ignore[prop-decorator]
    @property
    def mean(self) -> float:
        return sum(self.parts) / len(self.parts)


class Unequal(BaseModel):
    parts: list[int]

    def __eq__(self, other: object) -> bool:
        return self.parts[2] == other.parts[2]  # type: ignore[attr-defined]


@dataclass
class Posted:
    first: str
    rest: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.last = self.rest[1]


VALIDATED: dict[str, tuple[Any, str]] = {
    "before": (Keyed, '{"title": "Alpha", "status": "ok"}'),
    "before, in place": (Emptied, '{"title": "Alpha", "size": 3}'),
    "after": (Mean, '{"parts": [1, 2, 3]}'),
    "before a field": (Dated, '{"when": "05.03.2026"}'),
    "field": (Named, '{"name": "Ana Lund"}'),
    "strict": (Strict, '{"title": "Alpha beta", "kind": "a"}'),
    "computed": (Computed, '{"parts": [1, 2, 3]}'),
    "comparison": (Unequal, '{"parts": [1, 2, 3]}'),
    "post_init": (Posted, '{"first": "a", "rest": ["b", "c"]}'),
    "list": (list[Keyed], '[{"title": "Alpha", "status": "ok"}, {"title": "Beta", "status": "ok"}]'),
    "union": (Mean | Dated, '{"parts": [1, 2, 3]}'),
}


@for_each("loop", ["react", "tool_calling", "json"])
@for_each("case", VALIDATED)
async def test_a_stream_ends_as_the_run_does_whatever_validators_do_with_half_values(case: str, loop: str) -> None:
    output, text = VALIDATED[case]
    made = plait.Agent(loop, model=plait.Scripted(script(loop, text), chunk=3), output=output, journal=False)
    events = [each async for each in made.stream(QUESTION)]
    (ended,) = (each.run for each in events if isinstance(each, Ended))
    run = await made.arun(QUESTION)
    assert (ended.status, ended.answer, run.answer) == ("answered", run.answer, json.loads(text)), ended.reason
    assert run.output is not None and any(isinstance(each, PartialOutput) for each in events)


@pytest.mark.parametrize(
    ("case", "bad"), [("before", '{"title": "Alpha"}'), ("field", '{"name": "Ana"}'), ("after", '{"parts": []}')]
)
def test_a_validator_that_breaks_on_a_whole_answer_is_an_objection(case: str, bad: str) -> None:
    output, good = VALIDATED[case]
    run = agent("tool_calling", output, bad, good).run(QUESTION)
    assert run.status == "answered" and len(run.timeline.model_calls) == 2, run.reason
    failed = agent("tool_calling", output, *[bad] * 4).run(QUESTION)
    assert failed.status == "failed" and "The answer does not fit" in str(failed.reason)


# -- typed dicts


class Point(TypedDict):
    x: int
    y: int


class Options(TypedDict, total=False):
    a: int
    b: Required[str]


class Child(Point, total=False):
    label: NotRequired[str]


class Nested(TypedDict):
    at: Point
    more: list[Child]
    options: Options | None


class Item(TypedDict, Generic[T]):
    item: T


class Node(TypedDict):
    value: int
    nodes: list[Node]


class Bounded(TypedDict):
    size: Annotated[int, Field(ge=1)]


@dataclass
class Holder:
    at: Point
    more: list[Child] = field(default_factory=list)


Functional = TypedDict("Functional", {"in": int, "my key": str})

DICTS: dict[str, tuple[Any, Any, Any]] = {
    "plain": (Point, {"x": 1, "y": 2}, {"x": 1}),
    "not total": (Options, {"b": "s"}, {"a": 1}),
    "inherited": (Child, {"x": 1, "y": 2}, {"label": "a"}),
    "nested": (Nested, {"at": {"x": 1, "y": 2}, "more": [{"x": 1, "y": 2}], "options": None}, {"at": {}}),
    "generic": (Item[int], {"item": 3}, {"item": "no number"}),
    "recursive": (Node, {"value": 1, "nodes": [{"value": 2, "nodes": []}]}, {"value": 1, "nodes": [{}]}),
    "bounded": (Bounded, {"size": 1}, {"size": 0}),
    "functional": (Functional, {"in": 1, "my key": "a"}, {"in": 1}),
    "in a list": (list[Point], [{"x": 1, "y": 2}], [{"x": 1}]),
    "in a dict": (dict[str, Point], {"k": {"x": 1, "y": 2}}, {"k": 1}),
    "in a union": (Point | Options, {"b": "s"}, {"z": 1}),
    "in a dataclass": (Holder, {"at": {"x": 1, "y": 2}, "more": []}, {"at": 1}),
}


@pytest.mark.parametrize("case", DICTS)
def test_a_typed_dict_is_a_parameter_a_result_and_an_output(case: str) -> None:
    kind, good, bad = DICTS[case]

    def take(given: Any) -> Any:
        return given

    take.__annotations__ = {"given": kind, "return": kind}
    each = plait.tool(take)
    _, arguments = each.bind({"given": good})
    taken = arguments["given"]
    assert (vars(taken) if isinstance(taken, Holder) else taken) == good
    with pytest.raises(plait.PlaitError, match="take: given"):
        each.bind({"given": bad})
    assert each.spec.returns
    run = agent("tool_calling", kind, json.dumps(bad), json.dumps(good), json.dumps(good)).run(QUESTION)
    assert run.answer == good and len(run.timeline.model_calls) == 2, run.reason


Plain = typing.TypedDict("Plain", {"x": Annotated[int, Field(ge=1)]})  # noqa: UP013


@dataclass
class HoldsPlain:
    given: Plain


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="pydantic reads typing.TypedDict since Python 3.12")
def test_on_python_3_11_an_error_names_the_typed_dict_to_use() -> None:
    for kind in (Plain, list[Plain], HoldsPlain):

        def take(given: Any) -> None: ...

        take.__annotations__ = {"given": kind}
        with pytest.raises(plait.ConfigError, match=r"typing_extensions\.TypedDict"):
            plait.tool(take).spec  # noqa: B018
        with pytest.raises(plait.ConfigError, match=r"typing_extensions\.TypedDict"):
            plait.Agent("tool_calling", output=kind)
