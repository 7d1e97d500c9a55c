"""Claims about tools made of functions: what a model is told of them, and what stays usable in Python."""

from __future__ import annotations

import enum
import subprocess
import sys
from dataclasses import dataclass
from datetime import date
from functools import partial
from typing import Annotated, Any, Literal

import msgspec
import pydantic
import pytest

from plait.core.errors import ConfigError
from plait.tools import Tool, Toolset, tool, tools_from
from plait.tools.docstrings import read_docstring


class Unit(enum.Enum):
    KM = "km"
    MILE = "mile"


@dataclass
class Place:
    city: str
    zip: int = 0


class Order(pydantic.BaseModel):
    title: str
    lines: list[Place]


class Point(msgspec.Struct):
    x: float
    y: float


class Opaque:
    def __init__(self, secret: Any) -> None:
        self.secret = secret


@tool
def population(city: str, year: int = 2020, kind: Literal["a", "b"] = "a", tags: list[str] | None = None) -> int:
    """People living
    in a city.

    Counted at the end of the year

    - without
      the suburbs

    Args:
        city (str): The name
            of it.
        year: When.

    Returns:
        int: how many people.
    """
    return len(city) + year


def test_spec_says_name_description_parameters_in_order_and_what_comes_back() -> None:
    spec = population.spec
    assert (spec.name, spec.description, spec.returns) == (
        "population",
        "People living in a city. Counted at the end of the year. - without the suburbs",
        "how many people.",
    )
    assert spec.parameters == {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "The name of it."},
            "year": {"type": "integer", "description": "When.", "default": 2020},
            "kind": {"enum": ["a", "b"], "default": "a"},
            "tags": {
                "anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}],
                "default": None,
            },
        },
        "required": ["city"],
        "additionalProperties": False,
    }
    assert list(spec.parameters["properties"]) == ["city", "year", "kind", "tags"]


def test_each_array_says_what_its_items_are() -> None:
    """OpenAI refuses all tools of a request if one has an array without `items`."""

    @tool
    def lists(a: list, b: list[Any] | None, c: dict[str, list], d: tuple, e: list[list]) -> str:  # type: ignore[type-arg]
        return ""

    def check(schema: Any) -> None:
        assert schema.get("type") != "array" or "items" in schema
        for each in (schema.get("items"), schema.get("additionalProperties"), *schema.get("anyOf", [])):
            if isinstance(each, dict):
                check(each)

    for each in lists.spec.parameters["properties"].values():
        check(each)


def test_a_tool_is_still_the_function() -> None:
    assert population("Lyon", year=1) == 5
    assert population.__wrapped__("Nice", 1) == 5


async def test_async_functions_and_partials_and_callable_objects_are_told_apart() -> None:
    @tool(timeout=2.5)
    async def later(x: int) -> int:
        return x + 1

    class Adder:
        async def __call__(self, x: int) -> int:
            return x

    assert later.is_async and await later(1) == 2 and later.timeout == 2.5
    assert Tool(partial(later.function, 1), "one").is_async
    assert Tool(Adder(), "adder").is_async
    assert Tool(Adder(), "adder").bind("3") == ((), {"x": 3})
    assert not population.is_async


def test_tools_are_frozen_and_methods_bind_to_their_instance() -> None:
    class Bank:
        balance = 7

        @tool(read_only=True)
        def look(self, extra: int = 0) -> int:
            return self.balance + extra

    with pytest.raises(AttributeError):
        population.name = "other"  # type: ignore[misc]
    looked = Bank().look
    assert isinstance(looked, Tool) and looked() == 7 and looked.spec.read_only
    assert list(looked.spec.parameters["properties"]) == ["extra"]
    args, kwargs = looked.bind({"extra": "2"})
    assert looked(*args, **kwargs) == 9


@pytest.mark.parametrize(
    "text",
    [
        """Adds.

        Args:
            a: One
                more.
            b (int, optional): Two.

        Returns:
            The sum.

        Raises:
            X: y
        """,
        """Adds.

        Parameters
        ----------
        a : int
            One
            more.
        b : int, optional
            Two.

        Returns
        -------
        int
            The sum.
        """,
        """Adds.

        :param int a: One
            more.
        :param b: Two.
        :type b: int
        :returns: The sum.
        :raises X: y
        """,
    ],
    ids=["google", "numpy", "sphinx"],
)
def test_three_styles_of_docstring_say_the_same(text: str) -> None:
    read = read_docstring(text)
    assert (read.summary, read.parameters, read.returns) == (
        "Adds.",
        {"a": "One more.", "b": "Two."},
        "The sum.",
    )


def test_annotated_texts_and_fields_describe_parameters() -> None:
    @tool
    def f(a: Annotated[str, "the a"], b: Annotated[int, pydantic.Field(ge=1, description="the b")] = 1) -> None: ...

    properties = f.spec.parameters["properties"]
    assert properties["a"] == {"type": "string", "description": "the a"}
    assert properties["b"]["minimum"] == 1 and properties["b"]["description"] == "the b"
    assert f.spec.returns == "nothing"


def test_users_own_types_get_schemas_with_shared_definitions_and_values_of_their_type() -> None:
    @tool
    def ship(order: Order, to: Place, unit: Unit, at: Point, on: date) -> str:
        return f"{order.title} {to.city} {unit.name} {at.x} {on.year}"

    schema = ship.spec.parameters
    assert schema["$defs"]["Place"]["properties"]["city"] == {"type": "string"}
    assert "title" in schema["$defs"]["Order"]["properties"], "a field named title is no schema title"
    assert schema["properties"]["on"] == {"type": "string", "format": "date"}
    args, kwargs = ship.bind(
        {
            "order": {"title": "t", "lines": [{"city": "Lyon", "zip": "69000"}]},
            "to": '{"city": "Nice"}',
            "unit": "mile",
            "at": {"x": 1, "y": "2"},
            "on": "2026-11-21",
        }
    )
    assert ship(*args, **kwargs) == "t Nice MILE 1.0 2026"
    assert kwargs["order"].lines == [Place("Lyon", 69000)]


def test_star_parameters_and_positional_only_ones_are_called_right() -> None:
    @tool
    def f(a: int, b: int = 5, /, *rest: int, flag: bool = False, **more: str) -> tuple[Any, ...]:
        return a, b, rest, flag, more

    def call(value: Any) -> Any:
        args, kwargs = f.bind(value)
        return f(*args, **kwargs)

    assert call(["1", 2, 3, "4"]) == (1, 2, (3, 4), False, {})
    assert call({"a": 1, "rest": [7], "flag": "yes", "x": 3}) == (1, 5, (7,), True, {"x": "3"})
    assert call({"a": 1}) == (1, 5, (), False, {})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"name": "two words"}, "can't be the name"),
        ({"name": "f", "read_only": True, "destructive": True}, "both"),
        ({"name": "f", "timeout": 0}, "timeout"),
    ],
)
def test_impossible_options_are_refused_when_written(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        tool(**options)(lambda x: x)


def test_a_lambda_needs_a_name() -> None:
    with pytest.raises(ConfigError, match="name="):
        tool(lambda x: x)


def test_what_cannot_be_described_is_refused_when_an_agent_is_made() -> None:
    def opaque(x: Opaque) -> None: ...

    def unresolved(x: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(ConfigError, match=r"opaque.*JSON can't describe: x"):
        tools_from([opaque])
    with pytest.raises(ConfigError, match=r"unresolved.*Nowhere"):
        tools_from([unresolved])
    with pytest.raises(ConfigError, match="int cannot be used as a tool"):
        tools_from([3])  # type: ignore[list-item]


def test_two_tools_of_one_name_are_refused_and_both_are_named() -> None:
    def population(x: int) -> int:
        return x

    with pytest.raises(ConfigError, match=r"calculator.*calculator") as caught:
        tools_from(["calculator", "calculator"])
    assert "NAME=WORD" in str(caught.value)
    with pytest.raises(ConfigError, match="test_two_tools"):
        tools_from([globals()["population"], population])


def test_an_unknown_tool_is_answered_with_near_names_and_with_all_when_they_are_few() -> None:
    few = tools_from(["calculator", population])
    assert few.get("Calculator") is None and few.get("calculator") is not None
    assert "Did you mean calculator" in few.describe_unknown("CALCULATOR")
    assert few.describe_unknown("get_population") == (
        "There is no tool named 'get_population'. Did you mean population? The tools are: calculator, population."
    )
    many = Toolset(tuple(Tool(len, f"tool_{i}") for i in range(13)))
    assert "The tools are" not in many.describe_unknown("tool_3x") and "tool_3" in many.describe_unknown("tool_3x")
    assert "13 tools" in many.describe_unknown("zzz")
    assert "no tools at all" in Toolset().describe_unknown("x")
    assert len(few.describe_unknown("x" * 100_000)) < 300


def test_making_a_tool_imports_no_pydantic_before_the_tool_is_described() -> None:
    code = (
        "import sys, plait.tools as t\n"
        "@t.tool\ndef f(a: str, b: list[int] | None = None) -> str:\n    return a\n"
        "import plait.toolkits\n"
        "assert 'pydantic' not in sys.modules and 'fractions' not in sys.modules, 'heavy'"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
