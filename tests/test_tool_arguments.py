"""Claims about a tool's input as text: what is read, what is cut off, no invented result in it."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import LONG, for_each
from patience import cpu_seconds
from plait.core.arguments import (
    InvalidArguments,
    end_of_arguments,
    is_no_input,
    is_plain_text,
    read_arguments,
    read_input,
    read_structure,
    separate_inputs,
)
from plait.tools import tool

TEXT = {"properties": {"city": {"type": "string"}}, "required": ["city"]}
TWO = {"properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city", "days"]}
NUMBER = {"properties": {"value": {"type": "number"}}, "required": ["value"]}
LIST = {"properties": {"names": {"type": "array"}}, "required": ["names"]}
NOTHING: dict[str, Any] = {"properties": {}}
LYON = {"city": "Lyon", "days": 2}
WHOLE = '{"city": "Lyon", "days": 2}'

READ = [
    (WHOLE, LYON),
    ("{'city': 'Lyon', 'days': 2,}", LYON),
    ("{“city”: “Lyon”, “days”: 2}", LYON),
    ("{city: 'Lyon', days: 2}", LYON),
    (f"```json\n{WHOLE}\n```", LYON),
    (f"```{WHOLE}```", LYON),
    (f"```json\n{WHOLE}", LYON),
    (f"\u200b{WHOLE}\u00a0", LYON),
    ('["Lyon", 2]', ["Lyon", 2]),
    ('city="Lyon", days=2', LYON),
    ("city='Lyon', days=2", LYON),
    ('("Lyon", 2)', LYON),
    ("city: Lyon\ndays: 2", LYON),
    ('City: "Lyon"\n- days: 2', LYON),
    ("Lyon, 2", "Lyon, 2"),
    ("", None),
    ("``` \n```", None),
]


@for_each(("text", "value"), READ)
def test_an_input_is_read_in_every_usual_spelling(text: str, value: Any) -> None:
    assert read_input(text, TWO).value == value


BEHIND = [
    "\n```",
    "\n```\nResult: 265,000",
    "\nResult: 265,000",
    " Result: 265,000",
    "\nThe weather is fine.",
    " The weather is fine.",
    "\n**Tool Output**: 265,000",
    "\n=> 265,000",
    "\n{'temperature': 20}",
    "\n<tool_response>265,000</tool_response>",
    "\nErgebnis: 265,000",
    "\n\nAnswer: 265,000\nThat is all.",
]


@for_each("behind", BEHIND)
@for_each("start", [WHOLE, f"```json\n{WHOLE}\n```"])
def test_whatever_follows_a_json_input_is_cut_off_and_said(start: str, behind: str) -> None:
    read = read_input(start + behind, TWO)
    assert read.value == LYON
    assert read.cut or read.repairs


@for_each(
    "label",
    [
        "Result:", "Results:", "RESULT:", "**Result:**", "Output:", "Tool output:", "Search results:", "Response:",
        "Calculator result:", "The result of weather:", "Result of the tool:", "Observation:", "Observation 2:",
        "Answer:", "=", "=>", "->", "→", "<result>", "- Result:", "Result：", "Returned:", "<tool_response>",
    ],
)  # fmt: skip
def test_an_invented_result_is_never_part_of_an_input_whatever_its_label(label: str) -> None:
    for text in ("Lyon", '"Lyon"', "'Lyon'", "```\nLyon\n```"):
        read = read_input(f"{text}\n{label} 22 degrees\nThought: good", TEXT)
        assert (read.value, "22" in read.cut) == ("Lyon", True)


@for_each(
    "text",
    [
        '"The Hobbit" author', "[1] and [2]", "[draft] Hello", "it's", "{x} is a set", "'60s music", "07001", "null",
        "Results of the 2019 election", "Dear Bob,\nthe results: see below", "select * from t\nwhere a = 1",
        "https://example.org/a?b=c", "for x in xs:\n    print(x)", "a = 5\nprint(a)", "town: Lyon", "a == b",
        "Run\n```\nx = 1\n```\nand\n```\ny = 2\n```",
    ],
)  # fmt: skip
def test_a_text_for_a_tool_that_takes_text_stays_as_it_is(text: str) -> None:
    read = read_input(text, TEXT)
    assert (read.value, read.repairs, read.cut, read.plain) == (text, (), "", True)


def test_brackets_enclose_all_of_an_input() -> None:
    assert read_input('{"a": 1} and more', TEXT, closed=True).value == '{"a": 1} and more'
    assert read_input("a\nResult: 5", TEXT, closed=True).value == "a\nResult: 5"


@given(
    st.text(max_size=30)
    | st.lists(st.sampled_from(["Result:", "\n", "city", "=", ":", "(", '"', "'", "a"])).map("".join)
)
def test_plain_text_is_read_as_it_stands_whatever_the_tool_takes(text: str) -> None:
    for parameters in ({}, TEXT, TWO, NUMBER, LIST, NOTHING):
        read = read_input(text, parameters)
        if is_plain_text(text):
            assert (read.value, read.repairs, read.cut) == (text, (), "")


@for_each(
    ("raw", "value"),
    [
        ('"Lyon", 2', LYON), ('"Lyon", days=2', LYON), ("days=2, city='Lyon'", LYON), (f"{WHOLE}", LYON),
        ('"Lyon (69), east", 2', {"city": "Lyon (69), east", "days": 2}), ("", None), ("Lyon, 2", LYON),
        ('"it\'s", 2', {"city": "it's", "days": 2}), ("'a, b', [1, 2]", {"city": "a, b", "days": [1, 2]}),
    ],
)  # fmt: skip
def test_the_arguments_of_a_call_are_read_as_python_reads_them(raw: str, value: Any) -> None:
    assert read_arguments(raw, TWO).value == value
    assert end_of_arguments(f"f({raw}) and (more)", 2) == 2 + len(raw)


def test_an_argument_that_is_given_twice_is_refused() -> None:
    with pytest.raises(InvalidArguments, match="given twice"):
        read_arguments("'Lyon', city='Nice'", TWO)


def test_a_list_for_a_tool_with_one_parameter_is_several_calls() -> None:
    assert separate_inputs(["IBM", "T"], TEXT) == [["IBM"], ["T"]]
    assert separate_inputs([{"city": "IBM"}, {"city": "T"}], TEXT) == [{"city": "IBM"}, {"city": "T"}]
    for parameters, value in ((TEXT, ["IBM"]), (TEXT, "IBM"), (TWO, ["IBM", 2]), (LIST, ["IBM", "T"]), ({}, [1, 2])):
        assert separate_inputs(value, parameters) == [value]


@for_each("value", [None, "", [], {}, [""], ["None"], [None], "null", "N/A", ["none", None], {"input": ""}])
def test_what_stands_for_no_input_is_none_for_a_tool_without_parameters(value: Any) -> None:
    @tool
    def today() -> None: ...

    assert is_no_input(value)
    assert separate_inputs(value, NOTHING) == [None]
    assert today.bind(value) == ((), {})


@pytest.mark.parametrize("behind", ["", "\n```", "\nResult: 265,000", " and so on", ",}"])
def test_binding_reads_json_in_a_text_as_formats_do(behind: str) -> None:
    @tool
    def weather(city: str, days: int) -> None: ...

    @tool
    def names(names: list[str]) -> None: ...

    for text in (WHOLE, "{'city': 'Lyon', 'days': 2,}", "{city: 'Lyon', days: 2}"):
        assert weather.bind(text + behind) == ((), LYON)
    assert weather.bind('city="Lyon", days=2') == ((), LYON)
    assert names.bind("['a', 'b']" + behind) == ((), {"names": ["a", "b"]})
    assert read_structure("Lyon") is None


UNITS = [
    "('a ", '("a ', "{'", '{"a":', "[", "(", '"', "```", "Result:", "\nResult:", "a=", "a: ", "\n", "x ", "$1", "T x ",
    "“", "=> ", ",'", "Aa_",
]  # fmt: skip


@pytest.mark.parametrize("unit", UNITS)
def test_a_long_hostile_input_is_read_in_linear_time(unit: str) -> None:
    text = unit * (LONG // len(unit))

    def read_all() -> None:
        for parameters in (TEXT, TWO):
            for read in (read_input, read_arguments):
                with contextlib.suppress(InvalidArguments):  # never closed
                    read(text, parameters)
            end_of_arguments(text, 0)

    most = LONG / 30_000  # seconds of CPU
    assert cpu_seconds(read_all, most) < most


@pytest.mark.parametrize(
    ("text", "given"),
    [("2, 3", [2, 3]), ('"Lyon", 2', ["Lyon", 2]), ("-1.5,true", [-1.5, True]), ("1, 2, 3", None), ("Lyon, 2", None)],
)
def test_values_between_commas_are_the_arguments_of_a_tool_that_needs_so_many(text: str, given: object) -> None:
    assert read_input(text, TWO).value == (text if given is None else given)
    assert read_input(text, TEXT).value == text or text.startswith('"')
