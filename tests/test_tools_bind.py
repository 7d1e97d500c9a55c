"""Claims about a model's input becoming arguments: what is read leniently, and how what is not is refused."""

from __future__ import annotations

import contextlib
import sys
from typing import Any, Literal

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import for_each
from plait.core.errors import BadInput
from plait.tools import Tool, tool


class Query(pydantic.BaseModel):
    text: str
    limit: int = 3

    @pydantic.field_validator("text")
    @classmethod
    def check(cls, value: str) -> str:
        if value == "boom":
            raise ZeroDivisionError
        return value


@tool
def one(city: str) -> None: ...


@tool
def two(a: int, b: float) -> None: ...


@tool
def none() -> None: ...


@tool
def optional(city: str = "Lyon", days: int = 3) -> None: ...


@tool
def listed(xs: list[int]) -> None: ...


@tool
def obj(data: dict[str, Any]) -> None: ...


@tool
def model(query: Query) -> None: ...


@tool
def anything(x: Any) -> None: ...


@tool
def maybe(x: int | None) -> None: ...


@tool
def mixed(x: int | str, unit: Literal["km", "mile"] = "km", on: bool = False) -> None: ...


@for_each(
    ("made", "value", "arguments"),
    [
        (one, "Lyon", {"city": "Lyon"}),
        (one, 3, {"city": "3"}),
        (one, True, {"city": "true"}),
        (one, ["Lyon"], {"city": "Lyon"}),
        (one, {"city": "Lyon"}, {"city": "Lyon"}),
        (one, {"City": "Lyon"}, {"city": "Lyon"}),
        (one, '{"city": "Lyon"}', {"city": "Lyon"}),
        (one, '{"town": "Lyon"}', {"city": '{"town": "Lyon"}'}),
        (one, "a, b", {"city": "a, b"}),
        (one, "", {"city": ""}),
        (two, [1, 2], {"a": 1, "b": 2.0}),
        (two, ["1", "2.5"], {"a": 1, "b": 2.5}),
        (two, {"b": "1,234.5", "a": 3.0}, {"a": 3, "b": 1234.5}),
        (two, '{"a": 1, "b": 2}', {"a": 1, "b": 2.0}),
        (two, "[1, 2]", {"a": 1, "b": 2.0}),
        (none, None, {}),
        (none, {}, {}),
        (none, [], {}),
        (none, "", {}),
        (none, "None", {}),
        (optional, None, {}),
        (optional, "Nice", {"city": "Nice"}),
        (optional, {"days": "4"}, {"days": 4}),
        (listed, [1, "2"], {"xs": [1, 2]}),
        (listed, [], {"xs": []}),
        (listed, [[1, 2]], {"xs": [1, 2]}),
        (listed, {"xs": [1]}, {"xs": [1]}),
        (listed, "[1, 2]", {"xs": [1, 2]}),
        (obj, {"k": 1}, {"data": {"k": 1}}),
        (obj, {"data": {"k": 1}}, {"data": {"k": 1}}),
        (obj, {"data": 1}, {"data": {"data": 1}}),
        (obj, '{"k": 1}', {"data": {"k": 1}}),
        (obj, {}, {"data": {}}),
        (model, {"text": "x"}, {"query": Query(text="x")}),
        (model, {"query": {"text": "x", "limit": "5"}}, {"query": Query(text="x", limit=5)}),
        (model, '{"text": "x"}', {"query": Query(text="x")}),
        (anything, [1, 2], {"x": [1, 2]}),
        (anything, {"k": 1}, {"x": {"k": 1}}),
        (maybe, None, {"x": None}),
        (maybe, "null", {"x": None}),
        (maybe, "7", {"x": 7}),
        (mixed, "7", {"x": "7"}),
        (mixed, [7, "KM", "yes"], {"x": 7, "unit": "km", "on": True}),
        (mixed, {"x": 1, "on": 1}, {"x": 1, "on": True}),
    ],
)
def test_input_that_has_one_sensible_reading_is_read(made: Tool, value: Any, arguments: dict[str, Any]) -> None:
    args, kwargs = made.bind(value)
    assert (args, kwargs) == ((), arguments)
    assert {k: type(v) for k, v in kwargs.items()} == {k: type(v) for k, v in arguments.items()}


@for_each(
    ("made", "value", "said"),
    [
        (one, None, "city is missing"),
        (one, ["a", "b"], "it takes at most 1 value, but 2 are given"),
        (one, {"city": ["a"]}, "city must be a string, not the list ['a']"),
        (one, {"town": "a"}, "there is no parameter 'town' (known: city)"),
        (two, "1 2", "it needs a, b, but only '1 2' is given"),
        (two, 3, "it needs a, b"),
        (two, [1], "b is missing"),
        (two, {"a": "x", "b": 1}, "a must be a whole number, not 'x'"),
        (two, {"a": 1.5, "b": 1}, "a must be a whole number, not the number 1.5"),
        (two, {"a": True, "b": 1}, "a must be a whole number, not the boolean True"),
        (two, {"a": 1, "b": "nan"}, "b must be a number"),
        (two, {"a": 1, "b": "1" * 5000}, "b must be a number, not '111"),
        (two, {"a": "1" * 5000, "b": 1}, "a must be a whole number"),
        (two, {"a": 10**400, "b": 10**400}, "b must be a number"),
        (none, "today", "it takes no input, but 'today' is given"),
        (none, {"x": 1}, "there is no parameter 'x' (known: none)"),
        (listed, "1, 2", "xs must be a list with a whole number each, not '1, 2'"),
        (listed, [1, "x"], "xs[1] must be a whole number, not 'x'"),
        (mixed, {"x": 1, "unit": "m"}, "unit must be one of 'km', 'mile', not 'm'"),
        (model, {"txt": "x"}, "query.text is missing"),
        (model, {"text": "boom"}, "ZeroDivisionError"),
    ],
)
def test_input_that_does_not_fit_is_refused_in_one_line_with_the_shape(made: Tool, value: Any, said: str) -> None:
    with pytest.raises(BadInput) as caught:
        made.bind(value)
    text = str(caught.value)
    assert said in text and "\n" not in text and len(text) < 500
    assert text.startswith(f"{made.name}: ")
    assert ("It takes {" in text) != ("It takes no input" in text)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["[1]", '{"a": 1}', "1e999"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=3) | st.sampled_from(["a", "b", "x", "xs", "city", "data", "text"]), inner)
    ),
    max_leaves=12,
)
MADE: list[Tool] = [one, two, none, optional, listed, obj, model, anything, maybe, mixed]


@given(st.sampled_from(MADE), JSON)
def test_no_json_makes_bind_raise_anything_but_bad_input(made: Tool, value: Any) -> None:
    try:
        args, kwargs = made.bind(value)
    except BadInput as error:
        assert "\n" not in str(error)
    else:
        made(*args, **kwargs)


def test_input_nested_without_end_is_refused() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    for made in MADE:
        with contextlib.suppress(BadInput):
            made.bind(deep)
    with pytest.raises(BadInput):
        listed.bind("[" * 100_000)


def test_binding_plain_types_takes_few_calls() -> None:
    """Counted, as seconds depend on the machine: a call takes some ten microseconds."""
    two.bind({"a": 1, "b": 2})
    calls = 0

    def count(frame: Any, event: str, arg: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        two.bind({"a": 1, "b": "2"})
    finally:
        sys.setprofile(None)
    assert 0 < calls < 110
