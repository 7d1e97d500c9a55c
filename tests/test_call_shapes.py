"""Calls in the shapes in which models write them: every reader reads them, and no answer that mentions them is one."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

import pytest

from call_mentions import MENTIONS
from call_shapes import FAMILIES, JSON, PYTHON, READERS, TOOLS, lost, meant, replies, takes
from conftest import LONG, examples, for_each
from patience import cpu_seconds
from plait.core import ToolSpec
from plait.core.arguments import read_arguments
from plait.core.loose_json import NotJson, read_value
from plait.loops.call_notations import calls_in
from plait.loops.format import Unreadable
from plait.loops.plan_text import read_plan, with_llm
from plait.loops.tool_calling.format import CallObjects

NATIVE = CallObjects()


@for_each("reader", READERS)
def test_no_reader_loses_a_call_in_any_shape(reader: str) -> None:
    """Text ReAct and JSON read one call a turn: the first one."""
    shapes = replies(random.Random(len(reader)), examples(2_000))
    assert [said for shape in shapes if (said := lost(reader, shape))] == []


def test_tool_calling_reads_every_shape_and_the_notation_of_every_family() -> None:
    found = {shape.name.split(", ")[1]: shape for shape in replies(random.Random(1), 700)}
    assert found.keys() == {name.split(", ")[0] for table in (PYTHON, JSON, FAMILIES) for name in table}
    assert [said for shape in found.values() if (said := lost("call objects", shape))] == []


OSLO, SMALL = ("get_weather", {"city": "Oslo"}), ("binomial", {"n": 3, "p": 0.5})
RECORDED = {
    r"[get\_weather(city='Oslo')]": [OSLO],
    r"[get\_weather(unit\_system='very\_cold')]": [("get_weather", {"unit_system": "very_cold"})],
    '["get\\_weather(unit\\_system=\'very\\_cold\')"]': [("get_weather", {"unit_system": "very_cold"})],
    "[\"get_weather(city='Oslo')\"]": [OSLO],
    "[\"get_weather(city='Oslo')\", \"binomial(n=3, p=1/2)\"]": [OSLO, SMALL],
    '["get_weather(city=\\"Oslo\\")"]': [OSLO],
    "get_weather(city='Oslo'); binomial(n=3, p=1/2)": [OSLO, SMALL],
    "distance(a=(1, 2), b=[(3, 4), (5,)])": [("distance", {"a": [1, 2], "b": [[3, 4], [5]]})],
    '{"name": "distance", "arguments": {"a": (1, 2)}}': [("distance", {"a": [1, 2]})],
    "tools call: [get_weather(city='Oslo')]": [OSLO],
    "functions.lookup(key_word='x')": [("functions.lookup", {"key_word": "x"})],
    '{"name": "functions.lookup", "arguments": {"key_word": "x"}}': [("functions.lookup", {"key_word": "x"})],
    "binomial(n=50_000, p=1/6)": [("binomial", {"n": 50000, "p": 1 / 6})],
    "[get_weather(city='Oslo')]\n\nI will also compute:\n[binomial(n=3, p=0.5)]": [OSLO, SMALL],
    "[get_weather(city='Oslo')]<|call|>[binomial(n=3, p=0.5)]": [OSLO, SMALL],
    "\"get_weather(city='Oslo')\"": [OSLO],
    "'get_weather(city='Oslo')'": [OSLO],
    "`get_weather(city='Oslo')`": [OSLO],
    "[get_weather(city='Oslo')]()": [OSLO],
    "get_weather(city='Oslo')  # the weather, as asked": [OSLO],
    "get_weather(city='Oslo',  # the city (asked for)\n    days=2)": [("get_weather", {"city": "Oslo", "days": 2})],
    'get_weather(**{"city": "Oslo"})': [OSLO],
    'get_weather(city: "Oslo")': [OSLO],
    "{\"tool_calls\": [\"get_weather(city='Oslo')\", \"binomial(n=3, p=0.5)\"]}": [OSLO, SMALL],
    "get_weather(city='Oslo') and binomial(n=3, p=0.5)": [OSLO, SMALL],
    'Action: get_weather\nAction Input: {"city": "Oslo"}': [OSLO],
    "<function>math.factorial</function><number>5</number>": [("math.factorial", {"number": 5})],
    '"[get\\_weather(city=\'Oslo\'); distance(a=(1, 2))]"': [OSLO, ("distance", {"a": [1, 2]})],
    "distance(a=[5., -.5, 1_000.])": [("distance", {"a": [5.0, -0.5, 1000.0]})],
    # strings of Python
    r"[get_weather(city=r'\d, (x')]": [("get_weather", {"city": r"\d, (x"})],
    r"[plan_trip(stops=['a', r'\w+', b'c'], note=u'd')]": [("plan_trip", {"stops": ["a", r"\w+", "c"], "note": "d"})],
    "[get_weather(city='New ' + 'York')]": [("get_weather", {"city": "New York"})],
    "get_weather(city=('New '\n    'York, \"NY\"'))": [("get_weather", {"city": 'New York, "NY"'})],
    'get_weather(city="""a\n"b"""")': [("get_weather", {"city": 'a\n"b"'})],
    "get_weather(city='''print(1)\n''', days=2)": [("get_weather", {"city": "print(1)\n", "days": 2})],
    '{"name": "get_weather", "arguments": {"city": """a\n"b" c"""}}': [("get_weather", {"city": 'a\n"b" c'})],
    'get_weather("city"="Oslo", "days"=2)': [("get_weather", {"city": "Oslo", "days": 2})],
    # other keys of objects
    '{"function_name": "get_weather", "kwargs": {"city": "Oslo"}}': [OSLO],
    '{"api_name": "get_weather", "parameters": {"city": "Oslo"}}': [OSLO],
    '{"tool_uses": [{"recipient_name": "functions.get_weather", "parameters": {"city": "Oslo"}}]}': [OSLO],
    '{"functionCall": {"name": "get_weather", "args": {"city": "Oslo"}}}': [OSLO],
    '{"tool_calls": {"name": "get_weather", "arguments": {"city": "Oslo"}}}': [OSLO],
    '{"name": "get_weather", "arguments": [{"city": "Oslo"}]}': [OSLO],
    '{"get_weather": {"city": "Oslo"}, "binomial": {"n": 3, "p": 0.5}}': [OSLO, SMALL],
    # what stands around a call
    "**get_weather(city='Oslo')**": [OSLO],
    "1. **get_weather**(city='Oslo')": [OSLO],
    "**[get_weather(city='Oslo')]**": [OSLO],
    "→ [get_weather(city='Oslo')]": [OSLO],
    "Assistant: [get_weather(city='Oslo')]": [OSLO],
    "**Function Call:** `[get_weather(city='Oslo')]`": [OSLO],
    "Step 1: [get_weather(city='Oslo')]\nStep 2: [binomial(n=3, p=0.5)]": [OSLO, SMALL],
    "1. The weather:\n   [get_weather(city='Oslo')]\n2. The number:\n   [binomial(n=3, p=0.5)]": [OSLO, SMALL],
    "[get_weather(city='Oslo')] - what was asked": [OSLO],
    "[FUNCTION_CALL] [get_weather(city='Oslo')]": [OSLO],
    "<answer>[get_weather(city='Oslo')]</answer>": [OSLO],
    "<call>get_weather(city='Oslo')</call>": [OSLO],
    "<function>get_weather(city='Oslo')</function>": [OSLO],
    "<get_weather><city>Oslo</city></get_weather>": [OSLO],
    '**Function:** `get_weather`\n**Arguments:** `{"city": "Oslo"}`': [OSLO],
    '- name: get_weather\n  arguments: {"city": "Oslo"}': [OSLO],
    "'[get_weather(city='Oslo'), binomial(n=3, p=0.5)]'": [OSLO, SMALL],
    "get_weather (city='Oslo')": [OSLO],
}  # fmt: skip


@for_each("text", RECORDED)
def test_calls_in_the_shapes_of_recorded_replies_are_read(text: str) -> None:
    turn = NATIVE.read(text, tools=TOOLS)
    assert [meant(call.tool, call.input) for call in turn.calls] == [meant(*each) for each in RECORDED[text]]


@for_each("text", MENTIONS)
def test_an_answer_that_mentions_calls_is_the_answer(text: str) -> None:
    turn = NATIVE.read(text, (*TOOLS, ToolSpec("search", "Finds.", takes(query="string"))))
    assert (turn.answer, turn.calls) == (text, ())
    with suppress(Unreadable):
        assert READERS["action list"](text) == []


UNREADABLE = [
    "[get_weather(city='Oslo'), get_weather(city=",
    "[get_weather(city='Oslo'), get_weather(city='Ber",
    "[get_weather(city='Oslo'), unknown(n=2)]",
    "[\n  get_weather(city='Oslo'),\n  unknown(n=2)\n]",
    "[\"get_weather(city='Oslo')\", \"unknown(n=2)\"]",
    "get_weather(city='Oslo',\n    days=2",
    "distance(a=distance(a=1))",
    "<function>get_weather</function><city>Oslo</city>",
    "<｜foo｜begin><get_weather>",
    "<|foo|>get_weather Oslo",
    '<weather_call get_weather city="Oslo"/>',
    '<tool name="get_weather" city="Oslo"/>',
    "[CALL_TOOL] get_weather Oslo",
    "[[get_weather|Oslo]]",
    "§§get_weather§§ Oslo",
    "I check.\n<call>get_weather Oslo</call>",
    "<plugin>\nget_weather: Oslo\n</plugin>",
    "Action: get_weather\nAction Input: Oslo",
    '<get_weather city="Oslo"/>',
    '<function(get_weather){"city": "Oslo"}</function>',
    "[get_weather(city=r'Oslo)]",
    "[get_weather(city='New ' + 'York)]",
    "[get_weather(city='''Oslo')]",
    '[get_weather(city="""Oslo")]',
    '✿FUNCTION✿: get_weather\n✿ARGS✿: Oslo',
]  # fmt: skip


@for_each("text", UNREADABLE)
def test_half_a_list_is_not_made_and_markup_with_a_tools_name_is_no_answer(text: str) -> None:
    with pytest.raises(Unreadable):
        NATIVE.read(text, tools=TOOLS)


PARAMETERS = takes(a="array", n="integer", p="number", said="string", more="object")
VALUES: dict[str, Any] = {
    "a=(1, 2)": {"a": [1, 2]},
    "a=[('x', 'y'), ()]": {"a": [["x", "y"], []]},
    "more={'to': (1, (2, 'b')), 'p': 1/4}": {"more": {"to": [1, [2, "b"]], "p": 0.25}},
    "p=1/6": {"p": 1 / 6},
    "p=-1/6": {"p": -1 / 6},
    "p=(1/4)": {"p": 0.25},
    "p=2 * 3.5": {"p": 7.0},
    "p=10**-2": {"p": 0.01},
    "n=50_000": {"n": 50000},
    "n=-2**2": {"n": -4},
    "n=60 * 60 * 24": {"n": 86400},
    "n=+5, p=.5": {"n": 5, "p": 0.5},
    "n=5,  # five, of course\n    p=0.5": {"n": 5, "p": 0.5},
    "said=1/6": {"said": "1/6"},
    "said=50_000": {"said": "50_000"},
    "said=(1, 2)": {"said": "(1, 2)"},
    "said='1/6'": {"said": "1/6"},
    "n=2**999": {"n": "2**999"},
    "n=9**9**9": {"n": "9**9**9"},
    "p=1/0": {"p": "1/0"},
    "p=3/10/2024": {"p": "3/10/2024"},
    "n=007": {"n": "007"},
}


@for_each("raw", VALUES)
def test_a_value_is_what_python_says_unless_the_parameter_takes_text(raw: str) -> None:
    assert read_arguments(raw, PARAMETERS).value == VALUES[raw]
    (step,) = read_plan(f"#E1 = tool({raw})", with_llm([ToolSpec("tool", "", PARAMETERS)])).plan.calls
    assert step.input == VALUES[raw]


@for_each("text", ["[2**999]", "[9**9**9]", "[1/0]", "[3/10/2024]", "[(1, 2]", "[007]", "[True*2]"])
def test_arithmetic_without_a_value_that_can_be_stated_is_not_json(text: str) -> None:
    with pytest.raises(NotJson):
        read_value(text)


def test_a_text_outside_of_brackets_is_never_computed() -> None:
    for text in ("1/6", "50_000", "(1, 2)"):
        with suppress(NotJson):
            assert read_value(text).end < len(text)


UNITS = ["[(", "1*", "2**", "-", "(1,", '["', "get_weather(", "get\\_", "# ", "a = ", "call ", "tool call: ", "<|a|>x",
         '<parameter name="a">x', "<arg_key>a</arg_key><arg_value>", 'call:get_weather{city:<|"|>', "§", "<city>", " ",
         "get_weather(city='a') is.\n\nYou can call\nget_weather(city='b')\n"]  # fmt: skip


@pytest.mark.parametrize("head", ["", "get_weather(city=", '{"name": "get', '<invoke name="get_weather">'])
def test_a_hostile_text_takes_no_more_than_linear_time(head: str) -> None:
    def read_all() -> None:
        for unit in UNITS:
            text = head + unit * (LONG // 8 // len(unit)) + 'weather"}'
            calls_in(text, TOOLS)
            try:
                NATIVE.read(text, tools=TOOLS)
            except Unreadable as why:
                assert len(str(why)) < 1000

    assert cpu_seconds(read_all, 2.0) < 2.0
