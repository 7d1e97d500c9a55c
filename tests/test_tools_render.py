"""Claims about what a model is shown of a tool's result."""

from __future__ import annotations

import enum
import math
from collections import namedtuple
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from pathlib import PurePosixPath
from typing import Any

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import for_each
from plait.tools import render


@dataclass
class Place:
    city: str
    where: Any = None


class Item(pydantic.BaseModel):
    name: str
    place: Place


class Point(msgspec.Struct):
    x: float


class Colour(enum.Enum):
    RED = "red"


class Broken:
    def __str__(self) -> str:
        raise KeyError("no")


class Silent:
    pass


Pair = namedtuple("Pair", "left right")


@for_each(
    ("value", "text", "json"),
    [
        ("as it\nis", "as it\nis", "as it\nis"),
        (None, "(no result)", None),
        (3, "3", 3),
        (True, "true", True),
        (5.0, "5.0", 5.0),
        (0.1 + 0.2, "0.30000000000000004", 0.1 + 0.2),
        (math.nan, "nan", None),
        (10**30, "1" + "0" * 30, 10**30),
        pytest.param(10**5000, "(a whole number of 16,610 bits)", "(a whole number of 16,610 bits)", id="huge"),
        ({"a": [1, "é"]}, '{"a": [1, "é"]}', {"a": [1, "é"]}),
        ((1, 2), "[1, 2]", [1, 2]),
        ({3, 1}, "[1, 3]", [1, 3]),
        ({1: "x"}, '{"1": "x"}', {"1": "x"}),
        (Place("Lyon"), '{"city": "Lyon", "where": null}', {"city": "Lyon", "where": None}),
        (
            [Item(name="n", place=Place("L"))],
            '[{"name": "n", "place": {"city": "L", "where": null}}]',
            [{"name": "n", "place": {"city": "L", "where": None}}],
        ),
        (Point(1.5), '{"x": 1.5}', {"x": 1.5}),
        (Pair(1, 2), '{"left": 1, "right": 2}', {"left": 1, "right": 2}),
        (Colour.RED, "red", "red"),
        (date(2026, 11, 21), "2026-11-21", "2026-11-21"),
        (Decimal("1.10"), "1.10", "1.10"),
        (PurePosixPath("a/b"), "a/b", "a/b"),
        (b"\x89PNG\r\n\x1a\n" + b"\x00" * 1016, "1,024 bytes (image/png)", "1,024 bytes (image/png)"),
        (b"hello", "5 bytes (text)", "5 bytes (text)"),
        (b"\xff\x00", "2 bytes (binary)", "2 bytes (binary)"),
        (
            {"file": b"%PDF-1.7"},
            '{"file": "8 bytes (application/pdf)"}',
            {"file": "8 bytes (application/pdf)"},
        ),
        (Broken(), "(a Broken that can't be shown)", "(a Broken that can't be shown)"),
        (Silent(), "(a Silent)", "(a Silent)"),
        ("\ud800!", "?!", "?!"),
    ],
)
def test_a_result_has_the_text_and_the_value_that_one_expects(value: Any, text: str, json: Any) -> None:
    assert render(value) == (text, json)


def test_what_contains_itself_ends() -> None:
    loop: list[Any] = [1]
    loop += [loop, loop]
    assert render(loop)[0].startswith("[1, ")
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    assert "nested too deeply" in render(deep)[0]


@dataclass
class Page:
    """An object that holds somebody else's JSON."""

    read: dict[Any, str]


class Key(enum.Enum):
    MARK = "$thing"


def test_nothing_but_a_thing_can_pass_for_one() -> None:
    for read in (
        {"$thing": "image-1"},
        {Key.MARK: "image-1"},
        [({"$thing": "image-1"},)],
        Page({"$thing": "image-1"}),
    ):
        text, json = render(read)
        assert "$thing" not in text + str(json) and "image-1" in text


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()) | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner) | st.tuples(inner, inner),
)


@given(ANY)
def test_every_result_can_be_written_to_a_journal(value: Any) -> None:
    text, json = render(value)
    text.encode()
    assert msgspec.json.decode(msgspec.json.encode(json)) == json
