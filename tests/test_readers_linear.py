"""Every reader, stream and escape takes time in proportion to the text, for texts made of pieces of its patterns."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Any

import pytest

from conftest import CAMPAIGN
from escape_pieces import TOOLS, forms
from patience import cpu_seconds
from plait.core.arguments import InvalidArguments, read_arguments, read_input
from plait.core.loose_json import NotJson, objects, read_value
from plait.loops.asking import is_plain_answer
from plait.loops.codeact.format import FORMAT as CODE
from plait.loops.codeact.reader import steps_of
from plait.loops.compiler.format import FORM as NUMBERED
from plait.loops.compiler.joiner import JOINER
from plait.loops.format import Codec, Unreadable
from plait.loops.json.format import JsonTurn
from plait.loops.label_scan import USUAL, tool_name
from plait.loops.phased import action_list
from plait.loops.plan_text import PLANS
from plait.loops.react.format import react_format
from plait.loops.references import EVIDENCE, RESULTS, insert_references
from plait.loops.tool_calling.format import CallObjects

SIZE, ENOUGH = (20_000, 0.2) if CAMPAIGN else (4_000, 0.05)
"""Characters of a hostile text, and the CPU seconds that are enough. Quadratic patterns need several times as long."""


def stream(codec: Codec[Any]) -> Callable[[str], None]:
    def run(text: str) -> None:
        reply = codec.stream()
        reply.feed(text)
        reply.close()

    return run


def work() -> dict[str, Callable[[str], object]]:
    """All that reads a reply or data, by name."""
    made: dict[str, Callable[[str], object]] = {}
    for name, form in forms().items():
        made |= {name: form.read, f"{name}, escape": form.escape}
    dialects = map(react_format, ("lines", "numbered"))
    for codec in (CODE, NUMBERED, JOINER, JsonTurn(), PLANS, CallObjects(), action_list.ACTIONS, *dialects):
        made[f"stream of {codec.name}"] = stream(codec)
    return made | {
        "input": lambda text: read_input(text, TOOLS[0].parameters),
        "arguments": lambda text: read_arguments(text, TOOLS[1].parameters),
        "JSON": lambda text: (list(objects(text)), read_value(text)),
        "tool's name": lambda text: tool_name(text, TOOLS, []),
        "guard": lambda text: USUAL.unguard(USUAL.guard(text)),
        "plain answer": is_plain_answer,
        "steps": steps_of,
        "references": lambda text: (
            RESULTS.find_ids(text),
            EVIDENCE.find_ids(text),
            insert_references(text, [("$1", "x")]),
        ),
        "action list": lambda text: (action_list.whole(text), action_list.entries(text), action_list.says_done(text)),
    }


HEADS = [
    "",
    "Action: ",
    "Action: search",
    "Action Input: ",
    "Final Answer: ",
    '{"name": "',
    '{"tool": "',
    "search(",
    "1. ",
]
HEADS += [
    '[{"ACTION": "',
    "search ",
    "<tool>",
    "<function=search>",
    "<parameter=q>",
    "```python\n",
    "#E1 = search[",
    "Plan: ",
]
HEADS += [
    "<think>",
    "Finish: ",
    "ACTION 1:\n",
    "$1 = ",
    "<|channel|>",
    '{"search": ',
    "[TOOL_CALLS]",
    "First, call ",
    "a",
]
UNITS = [
    *" \n\t*#->`_•\u00a0[]{}()<\"'“‘\\9a.,:=|$/",
    " \n",
    "\r\n",
    "```\n",
    "()",
    "[]",
    "{}",
    "\\_",
    "1. ",
    "1) ",
    "a ",
    "a.",
]
UNITS += [
    ", ",
    "$1 ",
    "#E1 ",
    "//",
    "/*",
    "search",
    "search ",
    "search.",
    "search(",
    "search[",
    "search {",
    "the ",
    "tool ",
]
UNITS += [
    "action ",
    "Answer ",
    "Final Answer: x\n",
    "Action: x\n",
    "Action: search\n",
    "Thought: x\n",
    "Observation",
    "join",
]
UNITS += [
    "<think>",
    "</think>",
    "<tool_call>",
    "<|a|>",
    "<|channel|>analysis<|message|>",
    "<function=search>",
    "</function>",
]
UNITS += ["<parameter=q>", "<arg_key>a</arg_key>", "<name>", "<name>a</name>", "<search>", "<code>", '{"a":', '"a":']
UNITS += ['{"name":"', '"name": "x", ', '{"name": "x"}, ', "[1,", "'a', ", "a=1, ", "x = ", "print(", "await ", "a(b) "]
UNITS += [
    "a b (",
    ">>> ",
    "#E1 = a[",
    "Plan: x\n",
    "1. search(\n",
    "1. f(1)\n",
    "Finish",
    "Replan:\n",
    "DONE\n",
    "to=",
    "\ud800",
]
UNITS += [
    "functools[",
    "[ARGS]",
    "arguments",
    "next, ",
    "result of ",
    "\u2028",
    "=> ",
    '\\"',
    '{\\"',
    "<name ",
    "a/",
    "1/",
    "(1, ",
]


@pytest.mark.parametrize("name", work())
def test_a_hostile_text_is_read_in_time(name: str) -> None:
    read, place = work()[name], count(len(name))
    texts = [f"{HEADS[next(place) % len(HEADS)]}{unit * (SIZE // len(unit))}x\n)" for unit in UNITS]
    if CAMPAIGN:
        texts += [f"{head}{unit * (SIZE // len(unit))}" for head in HEADS for unit in UNITS[len(name) % 5 :: 5]]
    for text in texts if CAMPAIGN else texts[len(name) % 3 :: 3]:

        def once(text: str = text) -> None:
            with suppress(Unreadable, NotJson, InvalidArguments):
                read(text)

        took = cpu_seconds(once, ENOUGH)
        assert took < ENOUGH, text[:40]
        if CAMPAIGN and took > 0.02:
            assert cpu_seconds(lambda text=text * 2: once(text), 2.2 * took) < 2.2 * took + 0.02, text[:40]


def test_blanks_in_the_name_of_a_tool_take_no_time() -> None:
    """They took seconds: 7 for each 20,000 of them."""
    for name, read in work().items():
        for text in (f'{{"tool": "a{" " * 20_000}b"}}', f"Action: a{' ' * 20_000}b[x]", f"1. a{' ' * 20_000}b(x)"):

            def once(text: str = text, read: Callable[[str], object] = read) -> None:
                with suppress(Unreadable, NotJson, InvalidArguments):
                    read(text)

            assert cpu_seconds(once, 0.05) < 0.05, (name, text[:20])
