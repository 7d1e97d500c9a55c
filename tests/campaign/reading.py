"""Fuzzes all readers with replies made of labels, with mutated replies (written by the formats, or recorded), and with
calls in the shapes in which models write them."""

from __future__ import annotations

import gzip
import json
import random
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from figures import Figures, line_of

from call_shapes import READERS, lost, replies
from conftest import DATA
from plait.core import Call, ToolSpec
from plait.loops.codeact.format import CodeFormat, code_call
from plait.loops.compiler.format import NumberedCalls
from plait.loops.compiler.joiner import Joiner
from plait.loops.format import Turn, Unreadable
from plait.loops.json.format import JsonTurn
from plait.loops.phased import action_list
from plait.loops.phased.loop import Phased
from plait.loops.plan_scan import PlanSplitter
from plait.loops.plan_text import read_plan, with_llm
from plait.loops.react.format import react_format
from plait.loops.tool_calling.format import CallObjects
from test_formats_properties import PROTOCOL, by_kind, mutated


def takes(*names: str) -> dict[str, Any]:
    return {"type": "object", "properties": {name: {"type": "string"} for name in names}}


TOOLS = (
    ToolSpec("search", "Looks up.", takes("query")),
    ToolSpec("calculator", "Adds.", takes("expression")),
    ToolSpec("send", "Sends.", takes("to", "text")),
    ToolSpec("Log In", "Odd name."),
)
MORE = ["#E1 = search[", "Plan: ", "1. search(", "$1", "join()", "Finish: ", "Replan: ", "<tool_call>", "```python\n"]
MORE += ['[{"ACTION": "search", "ARGUMENTS": ["x"], "EXPLANATION": "why"}]', '{"name": "search", "arguments": {}}']
WRITTEN = [
    "Plan: a\n#E1 = search[x]\nPlan: b\n#E2 = calculator[#E1 * 2]\n",
    'Thought: both\n1. search("Lyon")\n2. send(to="a", text=$1)\n3. join()\n',
    "Thought: I see\nFinish: 5",
    '```json\n[{"ACTION": "search", "ARGUMENTS": ["Lyon"], "EXPLANATION": "why"}]\n```',
    'I look.\n<tool_call>\n{"name": "search", "arguments": {"query": "a"}}\n</tool_call>',
    '[{"get_weather": {"city": "Paris"}}]',
    CodeFormat().write(Turn("I need it.", code_call('x = search("Lyon")\nprint(x)')), 2),
]

Read = Callable[[str, int], Any]


class Whole:
    """A reader as the fuzzer uses it: reads a whole reply, and splits one that streams."""

    def __init__(self, name: str, read: Read, splitter: Callable[[], Any]) -> None:
        self.name, self.read, self.splitter = name, read, splitter


def readers() -> list[Whole]:
    """All readers of the loops."""
    turns = [react_format(name) for name in ("blob", "lines", "numbered", "original")] + [JsonTurn(), CodeFormat()]
    calls, objects, joiner = NumberedCalls(), CallObjects(), Joiner()
    made = [Whole(each.name, lambda text, n, each=each: each.read(text, n, TOOLS), each.splitter) for each in turns]
    made += [
        Whole("plan", lambda text, n: read_plan(text, with_llm(TOOLS)), PlanSplitter),
        Whole("numbered calls", lambda text, n: calls.read(text, tools=TOOLS), calls.splitter),
        Whole("joiner", lambda text, n: joiner.read(text), joiner.splitter),
        Whole(
            "action list",
            lambda text, n: action_list.ACTIONS.read(text, tools=TOOLS),
            lambda: Phased().splitter("react"),
        ),
        Whole("call objects", lambda text, n: objects.read(text, tools=TOOLS), objects.splitter),
    ]
    return made


def recorded() -> list[str]:
    """Replies of real models, where the development data is beside the checkout."""
    found: list[str] = []
    for name, key in (("react-fever", "text"), ("react-hotpotqa", "trajectory")):
        path = DATA / name / "episodes.jsonl.gz"
        if path.exists():
            with gzip.open(path, "rt") as lines:
                for line in lines:
                    text = json.loads(line)[key]
                    texts = [text] if isinstance(text, str) else [each["content"] for each in text]
                    found += [each[-3000:] for each in texts[-3:]]
    return found


def run(count: int, seed: int, folder: Path) -> Figures:
    """Read so many replies: two of three whole, the third one character at a time as well."""
    chance = random.Random(seed)
    all_readers, real = readers(), recorded()
    turn = Turn("I need Lyon.", Call("search", {"query": "people in Lyon"}))
    texts = [*WRITTEN, *(react_format(name).write(turn, 2) for name in ("blob", "lines")), JsonTurn().write(turn, 2)]
    reads = read = refused = streamed = 0
    failures: list[str] = []
    while reads < count:
        kind = chance.random()
        if kind < 0.25:
            text = "".join(chance.choices(PROTOCOL + MORE, k=chance.randint(0, 25)))
        elif kind < 0.27:
            text = "".join(chr(chance.randrange(0xFFFF)) for _ in range(40))
        else:
            text = mutated(chance, chance.choice(real if real and kind < 0.6 else texts))
        for each in all_readers:
            reads += 1
            try:
                try:
                    each.read(text, 2)
                    read += 1
                except Unreadable as why:
                    refused += 1
                    assert str(why), "a refusal without a text"
                if reads % 3 == 0 and len(text) < 1500:
                    reads, streamed = reads + 1, streamed + 1
                    whole, cut = by_kind(each, text, []), by_kind(each, text, list(range(len(text))))
                    assert whole == cut, f"one character at a time gives {cut}, whole {whole}"
            except Exception:
                failures.append(f"{each.name}: {text!r}\n{traceback.format_exc(limit=-3)}")
    each_reader = count // 150  # 2,000 in the full campaign
    missed = [said for reader in READERS for shape in replies(chance, each_reader) if (said := lost(reader, shape))]
    errors = len(failures)
    failures += missed
    figures = line_of(
        reads=reads,
        read=read,
        refused=refused,
        streamed=streamed,
        untyped_errors=errors,
        calls_in_shapes=len(READERS) * each_reader,
        lost_calls=len(missed),
    )
    return Figures(figures, failures)
