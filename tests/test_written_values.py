"""Numbers and backslashes of a model arrive as it wrote them, in tools and in answers, in every loop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from pydantic import BaseModel, ConfigDict, Field

import plait
from conftest import for_each
from plait.core.arguments import InvalidArguments, read_input
from plait.core.events import Observed
from plait.core.loose_json import MIXED, NotJson, read_value
from typed_support import QUESTION, agent

NUMBERS = [
    "12345678901234567.89",
    "1234567890123456789012.34",
    "-0.1000000000000000055",
    "123456789012345678901234567890",
    "9007199254740993",
    "1.234567890123456789e-7",
    "1e400",
    "19.99",
    "1e3",
    "0.10",
]


class Line(BaseModel):
    price: Decimal = Field(max_digits=500)
    note: str = ""


class Bill(BaseModel):
    model_config = ConfigDict(strict=True)
    total: Decimal
    lines: list[Line] = []


@dataclass
class Money:
    amount: Decimal


class Packed(msgspec.Struct):
    amount: Decimal


got: list[Any] = []


@plait.tool
def pay(
    amount: Decimal,
    lines: list[Line] = [],  # noqa: B006
    money: Money | None = None,
    packed: Packed | None = None,
    rates: dict[str, Decimal] = {},  # noqa: B006
    either: Decimal | str = "",
) -> str:
    """Pay."""
    found = [amount, *(each.price for each in lines), *rates.values()]
    found += [each.amount for each in (money, packed) if each is not None]
    got.extend([*found, either] if isinstance(either, Decimal) else found)
    return "paid"


def react(tool: str, text: str) -> list[str]:
    return [f'Thought: x\nAction:\n```\n{{"action": "{tool}", "action_input": {text}}}\n```', "Final Answer: x"]


def as_json(tool: str, text: str) -> list[str]:
    answer = '{"thought": "x", "tool": "final_answer", "tool_input": "x"}'
    return [f'{{"thought": "x", "tool": "{tool}", "tool_input": {text}}}', answer]


def in_text(tool: str, text: str) -> list[str]:
    return [f'{{"name": "{tool}", "arguments": {text}}}', "x"]


def labelled(tool: str, text: str) -> list[str]:
    return [f"Thought: x\nAction: {tool}\nAction Input: {text}", "Final Answer: x"]


def planned(tool: str, text: str) -> list[str]:
    return [f"Plan: x.\n#E1 = {tool}[{text}]", "x"]


def numbered(tool: str, text: str) -> list[str]:
    named = text[1:-1].replace('"', "", 1).replace('": ', "=", 1)
    return [f"Thought: x\n1. {tool}({named})\n2. join()", "Thought: x\nFinish: x"]


WAYS: dict[str, tuple[str, Callable[[str, str], list[str]]]] = {
    "react": ("react", react),
    "react, labels": ("react", labelled),
    "json": ("json", as_json),
    "tool_calling": ("tool_calling", in_text),
    "rewoo": ("rewoo", planned),
    "compiler": ("compiler", numbered),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_decimal_has_all_digits_in_every_loop(way: str) -> None:
    loop, write = WAYS[way]
    for number in NUMBERS:
        got.clear()
        plait.Agent(
            loop,
            model=plait.Scripted(write("pay", f'{{"amount": {number}}}'), by_turn=False),
            tools=[pay],
            journal=False,
        ).run("q")
        assert got == [Decimal(number)], number


def test_decimals_inside_of_lists_objects_and_unions_have_all_digits() -> None:
    for number in NUMBERS:
        got.clear()
        each = f'{{"amount": {number}}}'
        text = (
            f'{{"amount": {number}, "lines": [{{"price": {number}}}], "money": {each}, "packed": {each}, '
            f'"rates": {{"a": {number}}}}}'
        )
        plait.Agent("react", model=plait.Scripted(react("pay", text)), tools=[pay], journal=False).run("q")
        assert got == [Decimal(number)] * 5, number


async def test_a_native_call_has_all_digits(tmp_path: Any) -> None:
    for stream in (False, True):
        got.clear()
        script = tmp_path / "script.json"
        script.write_text(f'[{{"text": "", "calls": [{{"tool": "pay", "input": {{"amount": {NUMBERS[0]}}}}}]}}, "x"]')
        made = plait.Agent("tool_calling", model=f"scripted:{script}", tools=[pay], journal=tmp_path / f"{stream}.db")
        run = await made.arun("q")
        assert got == [Decimal(NUMBERS[0])] and made.replay(run.id).whole


@pytest.mark.parametrize("loop", ["react", "json", "tool_calling", "rewoo", "compiler", "phased"])
def test_answers_have_all_digits(loop: str, tmp_path: Any) -> None:
    for i, number in enumerate(NUMBERS[:6]):
        text = f'{{"total": {number}, "lines": [{{"price": {number}}}]}}'
        made = agent(loop, Bill, text, journal=tmp_path / f"{i}.db")
        run = made.run(QUESTION)
        assert run.output == Bill(total=Decimal(number), lines=[Line(price=Decimal(number))]), run.reason
        assert made.resume(run.id).output == run.output
    exact = Decimal(NUMBERS[0])
    for output, form, value in (
        (Decimal, "{}", exact),
        (list[Decimal], "[{}]", [exact]),
        (dict[str, Decimal], '{{"a": {}}}', {"a": exact}),
    ):
        assert agent(loop, output, form.format(exact)).run(QUESTION).output == value


def test_other_types_get_the_numbers_that_they_take() -> None:
    kept: list[Any] = []

    @plait.tool(name="take")
    def take(f: float, i: int, s: str, u: int | float | None = None, fs: list[float] = []) -> str:  # noqa: B006
        kept.append((f, i, s, u, fs))
        return ""

    text = (
        '{"f": 0.12345678901234567891, "i": 1e23, "s": 12345678901234567.89, "u": 1.10, "fs": [1234567890123456.789]}'
    )
    plait.Agent("react", model=plait.Scripted(react("take", text)), tools=[take], journal=False).run("q")
    assert kept == [(0.12345678901234568, 10**23, "12345678901234567.89", 1.1, [1234567890123456.789])]
    assert all(type(each) is float for each in (kept[0][0], kept[0][3], *kept[0][4]))
    assert read_value("[1.5, 1.50, 1e3, 0.1, 3.0]").value == [1.5, 1.5, 1000.0, 0.1, 3.0]


# -- backslashes

LITERAL = [
    r"C:\Users\ana\new.txt",
    r"\b\d{4}\b",
    r"\frac{\alpha}{\theta}",
    r"C:\data\report.txt",
    r"D:\temp\q1",
    r"\nabla \times \vec{B}",
    r"\\server\share\files\new",
    r"\users\bin\x",
    r"a\_b\nc",
]


@dataclass
class Found:
    path: str


@for_each("way", WAYS)
@for_each("text", LITERAL)
def test_one_impossible_escape_makes_all_backslashes_literal(text: str, way: str) -> None:
    kept: list[str] = []

    @plait.tool(name="find")
    def find(pattern: str, where: str = ".") -> str:
        kept.append(pattern)
        return ""

    loop, write = WAYS[way]
    script = plait.Scripted(write("find", f'{{"pattern": "{text}"}}'), by_turn=False)
    plait.Agent(loop, model=script, tools=[find], journal=False).run("q")
    assert kept == [text]


@for_each("text", LITERAL)
def test_backslashes_of_answers_are_literal_too(text: str) -> None:
    assert agent("tool_calling", Found, f'{{"path": "{text}"}}').run(QUESTION).output == Found(text)
    assert read_value(f"{{'path': '{text}'}}").value == {"path": text}


@for_each(
    ("text", "value"),
    [
        (r'"C:\temp\new"', "C:\temp\new"),
        (r'"say \"hi\" in C:\data"', 'say "hi" in C:\\data'),
        (r'"\\d+\.\\w"', r"\d+\.\w"),
        (r'"C:\\dir\d\\"', "C:\\dir\\d\\"),
        (r'"\\\\server\\share\d"', r"\\server\share\d"),
        (r'["\d", "a\nb"]', [r"\d", "a\nb"]),
        (r'"it\'s\n"', "it's\n"),
        (r'[r"\d\n", """\d\n"""]', [r"\d\n", "\\d\n"]),
    ],
)
def test_escapes_keep_their_meaning_in_other_strings(text: str, value: Any) -> None:
    assert read_value(f"[{text},]").value == [value]


@pytest.mark.parametrize(
    "text",
    [
        r"^\s*\w+\t$|\n\.",
        r"x = 1\nre.sub('\d', '')\n    y",
        r"one\n\ntwo \d",
        r"caf\u00e9 \d",
        r"a\nb C:\\x\d",
        r"\d\t\\",
        r"end \d\n",
    ],
)
def test_a_string_with_escapes_and_single_backslashes_is_refused(text: str) -> None:
    with pytest.raises(NotJson, match="both escapes and single backslashes"):
        read_value(f'{{"code": "{text}"}}')
    with pytest.raises(InvalidArguments, match="both escapes"):
        read_input(f'{{"code": "{text}"}}', {"properties": {"code": {"type": "string"}}, "required": ["code"]})
    kept: list[str] = []

    @plait.tool(name="run_it")
    def run_it(code: str) -> str:
        kept.append(code)
        return ""

    for loop, write in WAYS.values():
        script = plait.Scripted(write("run_it", f'{{"code": "{text}"}}') * 2, by_turn=False)
        run = plait.Agent(loop, model=script, tools=[run_it], journal=False).run("q")
        seen = [each.observation.trouble for each in run.events if isinstance(each, Observed)]
        assert not kept and all(seen), (loop, kept)
    assert MIXED
