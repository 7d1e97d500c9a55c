"""A formula that says in words what an earlier step finds is read as naming that step's result."""

from __future__ import annotations

from typing import Any

from conftest import for_each
from plait.core import ToolSpec
from plait.loops import plan_text
from plait.loops.phased import action_list
from plait.loops.references import EVIDENCE, insert_references, words_in_formula

TEXT = {"type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"]}
TOOLS = (ToolSpec("lookup", "Finds.", TEXT), ToolSpec("calculator", "Computes.", TEXT))
EARLIER: list[tuple[str, Any]] = [("$1", ["people in Ghent"]), ("$2", {"key": "area of Ghent in km2"}), ("$3", ["3"])]


@for_each(
    ("written", "read"),
    [
        ("people in Ghent / area of Ghent in km2", "$1 / $2"),
        ("19 * <people in Ghent>", "19 * $1"),
        ("round('people in Ghent' / 2, 1)", "round($1 / 2, 1)"),
        ("People in ghent - 10%", "$1 - 10%"),
        ("[people in Ghent] + {area of Ghent in km2}", "$1 + $2"),
        ("19 * $<people in Ghent>", "19 * $1"),
        ("${people in Ghent} / <area_of_Ghent_in_km2>", "$1 / $2"),
        ("who counts the <people in Ghent>", "who counts the $1"),  # a gap, whatever stands around it
        ("<Ghent's people>", "<Ghent's people>"),  # neither has just these words
        ("<area of Ghent>", "$2"),  # all its words, and only there
    ],
)
def test_words_of_an_earlier_step_in_a_formula_are_its_result(written: str, read: str) -> None:
    assert insert_references([written], EARLIER)[0] == [read]
    assert insert_references({"key": [written]}, EARLIER)[0] == {"key": [read]}


@for_each(
    "written",
    [
        "people in Ghent",  # may be looked up twice
        "people in Ghent and Bruges",
        "the people in Ghent + 3",  # other words beside it
        "hotels - people in Ghent",
        "many people in Ghent",
        "3 * 4",
        "$1 / $2",
        "people in Ghentbrugge / 2",
        "<p>people in Ghent</p>",
        "<Ghent>",  # either of two
        "<the number>",
        "${1} / ${2}",
        "",
    ],
)
def test_all_else_stays_as_it_is(written: str) -> None:
    assert insert_references([written], EARLIER) == ([written], ())


def test_a_list_of_actions_is_read_so_and_it_is_noted() -> None:
    read = action_list.ACTIONS.read(
        '[{"ACTION": "lookup", "ARGUMENTS": ["people in Ghent"], "EXPLANATION": "a"},'
        ' {"ACTION": "lookup", "ARGUMENTS": ["area of Ghent"], "EXPLANATION": "b"},'
        ' {"ACTION": "calculator", "ARGUMENTS": ["people in Ghent / area of Ghent"], "EXPLANATION": "c"}]',
        tools=TOOLS,
    )
    assert read.steps[2].input == ["$1 / $2"] and read.steps[2].needs == ("1", "2")
    assert [remark.text for remark in read.remarks] == ["action 3 had words in place of $1, $2"]


def test_a_plan_is_read_so() -> None:
    read = plan_text.read_plan(
        "Plan: a\n#E1 = lookup[people in Ghent]\nPlan: b\n#E2 = calculator[<people in Ghent> * 2]", TOOLS
    )
    assert read.plan.calls[1].input == "#E1 * 2" and read.plan.calls[1].needs == ("E1",)
    assert [remark.text for remark in read.remarks] == ["step E2 had words in place of #E1"]


def test_long_inputs_take_no_longer_than_they_are_long() -> None:
    for text in (
        "1," * 20_000 + "x + people in Ghent",
        "(" * 20_000 + "people in Ghent / x",
        "people in Ghent - " * 2_000,
    ):
        assert insert_references([text], EARLIER)[0]


def test_letters_that_only_a_pattern_takes_for_alike_do_no_harm() -> None:
    assert insert_references(["\u0130zmir / 2"], [("$1", ["izmir"])]) == (["\u0130zmir / 2"], ())


@for_each(
    ("text", "words"),
    [
        ("7 * price of a lamp", ("price of a lamp",)),
        ("#E2 - birth year of #E1", ("birth year of #E1",)),
        ("round(people of Dun / #E1, 1)", ("people of Dun",)),
        ("age of #E1 - age of #E2 + 3", ("age of #E1", "age of #E2")),
        ("20% * price", ("price",)),
        ("#E1 * 2", ()),
        ("sqrt(#E1) / 2", ()),
        ("mayor of #E1", ()),
        ("birth year of Una Falk", ()),
        ("python 3.11 - release date", ()),
        ("24/7 opening hours", ()),
        ("2024-05-01", ()),
        ("AC/DC", ()),
        ("weather in Dun, 3 days", ()),
        ("Kel Bridge (#E1)", ()),
        ("7 * price " * 100, ()),
        ("7 * price\0", ()),
    ],
)
def test_words_that_stand_in_a_formula_are_told_from_a_question(text: str, words: tuple[str, ...]) -> None:
    assert words_in_formula({"expression": [text]}, EVIDENCE) == words
