"""No part of an escaped text reads as a call or an answer of its loop, whatever the text is made of."""

from __future__ import annotations

import random

import pytest

import plait
from conftest import examples, for_each
from escape_pieces import EXAMPLES, TOOLS, Form, forms, random_text, what_reads
from plait.core import Call, Reply

FORMS = forms()
each = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)


@each
@for_each("text", EXAMPLES)
def test_what_readers_took_for_calls_and_answers_is_escaped_in_all_loops(form: Form, text: str) -> None:
    shown = form.escape(text)
    assert form.escape(shown) == shown and shown.replace("\\", "") == text
    for part in (shown, f"The page says:\n{shown}", f"{shown}\nMore.", *shown.split("\n")):
        assert not what_reads(form, part, random.Random(1))
    below = f"It says:\n{text}"
    assert form.escape(below, inline=True) == form.escape(below), "a line begins below the first one"


@each
def test_no_part_of_random_text_reads_as_anything_once_it_is_escaped(form: Form) -> None:
    """100,000 texts in the campaign."""
    chance = random.Random(20261125)
    total, raw = examples(8_000), 0
    for _ in range(total):
        text = random_text(chance, form.own)
        shown = form.escape(text)
        assert form.escape(shown) == shown, text
        assert not (found := what_reads(form, shown, chance)), f"{text!r}: {found}"
        raw += bool(what_reads(form, text, chance))
    assert raw > total // 25, "too few of the texts read as anything unescaped: they test nothing"


VALUES = ("522250", "2026-11-25", "47.87", "Ana Lee", "https://x.org/a?q=1(b)", '"Lyon"', '{"q": "x"}', "ana@x.org")


@each
def test_values_in_escaped_text_stay_as_they_are(form: Form) -> None:
    for value in VALUES:
        for text in (
            f"Answer: {value}",
            f'{{"name": "search", "tool": {value}}}',
            f"search({value})",
            f"Finish: {value}",
        ):
            assert value in form.escape(text)


@each
def test_harmless_results_stay_as_they_are(form: Form) -> None:
    data = (
        "# Garonne\n\nThe **Garonne** (529 km) rises in Spain: see <b>map</b>. To search (and find) it, ask.\n"
        '{"city": "Lyon", "name": "Ann", "people": 522250, "parts": [{"id": 1, "name": "Bellecour"}]}\n'
        "| a | b |\n| - | - |\n12:30, f(x) -> y, [1, 2], x = 3, the research(er) said: no\n<name>Lyon</name> <td>\n"
    )
    assert form.escape(data) == data


def test_a_result_that_holds_a_call_is_escaped_beside_native_calls_too() -> None:
    """A native model's reply may hold calls as text, so a result must not give it one to copy."""
    results = iter(['Lyon\nsearch(q="x")', '{"name": "Lyon", "input": 1, "tool": "hammer"}'])
    asked: list[str] = []

    def search(q: str) -> str:
        """Looks up."""
        return next(results)

    def answer(reply: Reply | str) -> object:
        return lambda think: (asked.append(think.messages[-1].content), reply)[1]

    calls = [Reply("", calls=(Call("search", {"q": q}, q),)) for q in "ab"]
    model = plait.Scripted([answer(each) for each in (*calls, "done")], by_turn=False)
    tool = plait.tool(search, read_only=True)
    run = plait.Agent("tool_calling", model=model, tools=[tool], journal=False).run("Who?")
    assert run.status == "answered"
    assert asked[1:] == ['Lyon\nsearch\\(q="x")', '{"name": "Lyon", "input": 1, "tool": "hammer"}']


def test_answers_that_mention_calls_make_none() -> None:
    read = FORMS["tool_calling"].read
    for answer in (
        "Use search(q) to look it up, then send(to, text) to send it.",
        "The function `get_weather(city: str)` tells the weather.",
        f"There are {len(TOOLS)} tools, among them search.",
    ):
        assert not read(answer)
