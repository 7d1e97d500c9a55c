"""A value that fits a type is read back from any way in which a model writes it."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, TypeAdapter

from plait.core.output import OutputSpec, find_output_faults, read_output
from plait.runtime.agents.output import OutputType

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x00", exclude_categories=("Cs",)), max_size=12)


class Part(BaseModel):
    name: str
    size: int | None = None
    tags: list[str] = []


class Whole(BaseModel):
    kind: Literal["a", "b"]
    parts: list[Part]
    notes: dict[str, float] = {}


PARTS = st.builds(Part, name=TEXT, size=st.none() | st.integers(-(10**6), 10**6), tags=st.lists(TEXT, max_size=2))
NOTES = st.dictionaries(TEXT, st.floats(-1e6, 1e6), max_size=2)
WHOLES = st.builds(Whole, kind=st.sampled_from("ab"), parts=st.lists(PARTS, max_size=2), notes=NOTES)
VALUES: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (Whole, WHOLES),
    (list[Part], st.lists(PARTS, max_size=3)),
    (list[int], st.lists(st.integers(-(10**9), 10**9))),
    (dict[str, bool], st.dictionaries(TEXT, st.booleans())),
    (int, st.integers(-(10**9), 10**9)),
    (bool, st.booleans()),
    (Whole | list[str], WHOLES),
]
WAYS = ("{}", " {}\n", "```json\n{}\n```", "```\n{}```")


@pytest.mark.parametrize(("kind", "values"), VALUES, ids=[str(kind) for kind, _ in VALUES])
@given(data=st.data())
def test_a_value_that_is_written_as_json_is_read_back(kind: Any, values: Any, data: st.DataObject) -> None:
    value, way = data.draw(values), data.draw(st.sampled_from(WAYS))
    output, adapter = OutputType(kind), TypeAdapter(kind)
    text = adapter.dump_json(value).decode()
    assert output.make_value(output.read(way.replace("{}", text))) == value
    assert output.fits(text) and output.find_objection(text) == ""


@pytest.mark.parametrize(("kind", "values"), VALUES, ids=[str(kind) for kind, _ in VALUES])
@given(data=st.data())
def test_a_value_is_read_back_from_the_form_that_endpoints_take(kind: Any, values: Any, data: st.DataObject) -> None:
    value = data.draw(values)
    output = OutputType(kind)
    assert output.spec is not None
    plain = msgspec.json.decode(TypeAdapter(kind).dump_json(value))
    sent = plain if output.spec.request_schema is output.spec.schema else {"value": plain}
    assert find_output_faults(sent, OutputSpec("reply", output.spec.request_schema)) == ""
    assert output.make_value(output.read(sent)) == value


@given(text=st.text(max_size=60), schema=st.sampled_from([OutputType(kind).spec for kind, _ in VALUES]))
def test_any_text_is_read_without_an_error(text: str, schema: OutputSpec) -> None:
    value = read_output(text, schema.schema)
    find_output_faults(value, schema)


@given(whole=WHOLES, share=st.floats(0, 1))
def test_the_beginning_of_an_answer_has_a_value_or_none(whole: Whole, share: float) -> None:
    text = whole.model_dump_json()
    part = OutputType(Whole).make_partial(text[: int(len(text) * share)])
    assert part is None or isinstance(part, dict | Whole)
    assert OutputType(Whole).make_partial(text) == whole
