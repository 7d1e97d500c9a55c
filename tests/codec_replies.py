"""All codecs, recorded and fuzzed replies for them, and what holds when a reply is read whole and as it streams in."""

from __future__ import annotations

import gzip
import json
import random
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple

from conftest import DATA
from plait.core import Piece, ToolSpec
from plait.core.loose_json import NotJson, read_value
from plait.loops.codeact.format import CodeFormat
from plait.loops.compiler.format import NumberedCalls
from plait.loops.compiler.joiner import Joiner
from plait.loops.format import Codec, Unreadable
from plait.loops.json.format import JsonTurn
from plait.loops.label_scan import LabelWords
from plait.loops.phased.action_list import ActionList
from plait.loops.plan_text import EvidencePlans, with_llm
from plait.loops.react.dialects import DIALECTS, Dialect
from plait.loops.react.format import react_format
from plait.loops.tool_calling.format import CallObjects


def takes(*names: str) -> dict[str, Any]:
    return {"type": "object", "properties": {name: {"type": "string"} for name in names}}


TOOLS = (
    ToolSpec("search", "Looks up.", takes("query"), read_only=True),
    ToolSpec("lookup", "Finds.", takes("city"), read_only=True),
    ToolSpec("calculator", "Adds.", takes("expression")),
    ToolSpec("send", "Sends.", takes("to", "text")),
    ToolSpec("get_weather", "Tells.", takes("city", "days")),
    ToolSpec("Log In", "Odd name."),
)
OWN = LabelWords("Reflection", "Do", "With", "Result", "Done")


class Form(NamedTuple):
    """A codec, and the tools for which it reads."""

    codec: Codec[Any]
    tools: Sequence[ToolSpec] = TOOLS


FORMS: dict[str, Form] = {
    **{name: Form(react_format(dialect)) for name, dialect in DIALECTS.items()},
    "own labels": Form(react_format(Dialect("own", "lines", OWN))),
    "own labels, numbered": Form(react_format(Dialect("own", "bracket", OWN, numbered=True, finish="Stop"))),
    "json": Form(JsonTurn()),
    "json, strict": Form(JsonTurn(lenient=False)),
    "code": Form(CodeFormat()),
    "plan": Form(EvidencePlans(), with_llm(TOOLS)),
    "numbered calls": Form(NumberedCalls()),
    "joiner": Form(Joiner()),
    "action list": Form(ActionList()),
    "call objects": Form(CallObjects()),
}

REPLACED = (
    "the action wins|final answers the last one|referred to the text above|markup left over|action's label was missing"
    "|the keys of a turn|of thinking before the reply|of text before the object"
)
"""What a reader says of a reply whose later part replaces the answer that was shown: what is shown stays."""


def joined(pieces: Sequence[Piece]) -> dict[str, str]:
    """The text of each kind."""
    kinds = dict.fromkeys(piece.kind for piece in pieces)
    return {kind: "".join(piece.text for piece in pieces if piece.kind == kind) for kind in kinds}


def read_both_ways(form: Form, text: str) -> bool:
    """Check that a reply reads the same whole and one character at a time, and that what is shown agrees with that.
    Return whether it can be read."""
    codec, tools = form
    whole, slow = codec.stream(2, tools), codec.stream(2, tools)
    shown = joined([*whole.feed(text), *whole.close()])
    pieces = [piece for char in text for piece in slow.feed(char)] + slow.close()
    assert joined(pieces) == shown, f"one character at a time shows {joined(pieces)}, whole {shown}"
    try:
        reading = codec.read(text, 2, tools)
    except Unreadable as why:
        for stream in (whole, slow):
            try:
                assert not stream.result(), "a stream reads what the reader refuses"
            except Unreadable as other:
                assert str(other) == str(why)
        return False
    assert whole.result() == slow.result() == reading
    parts = codec.parts(reading)
    if parts.get("action"):
        assert shown.get("action"), f"the call is not shown: {parts['action']}"
    remarks = getattr(reading, "remarks", ())
    if parts and not shows_answer(shown.get("answer", ""), parts.get("answer", ""), getattr(reading, "answer", "")):
        said = "; ".join(remark.text for remark in remarks)
        assert re.search(REPLACED, said), (
            f"shown as answer {shown.get('answer')!r}, read {parts.get('answer')!r}, {said!r}"
        )
    if parts and not remarks:
        assert shown.get("thought", "").strip() == parts.get("thought", "")
    return True


def shows_answer(shown: str, said: str, answer: Any) -> bool:
    """Whether what was shown is the answer: a value that is no text is shown as it was written."""
    with suppress(NotJson):
        return shown == said or (not isinstance(answer, str | None) and read_value(shown).value == answer)
    return False


def texts_in(value: Any) -> Iterator[str]:
    """All texts in a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from texts_in(each)


def streamed_text(sse: str) -> str:
    """The text of a reply that was recorded as it streamed in."""
    said = []
    for line in sse.splitlines():
        with suppress(ValueError):
            chunk = json.loads(line.removeprefix("data:")) if line.startswith("data:") else {}
            for choice in chunk.get("choices") or ():
                said.append(choice.get("delta", {}).get("content") or "")
            delta = chunk.get("delta")
            said.append(delta if isinstance(delta, str) else (delta or {}).get("text") or "")
    return "".join(said)


@cache
def recorded_replies() -> dict[str, list[str]]:
    """Replies of real models by where they come from; empty where the development data is absent."""
    found: dict[str, list[str]] = {}
    for name, key in (("react-fever", "text"), ("react-hotpotqa", "trajectory"), ("code-gsm8k", "response")):
        for path in sorted((DATA / name).glob("*.jsonl.gz")):
            with gzip.open(path, "rt") as lines:
                values = [json.loads(line)[key] for line in lines]
            episodes = [value if isinstance(value, str) else "\n".join(texts_in(value)) for value in values]
            parts = [re.split(r"\nObservation(?: \d+)?:|^assistant$", text, flags=re.M) for text in episodes]
            found[name] = [part for each in parts for part in each]
    for path in sorted((DATA / "repl-logs").glob("*.txt")):
        found.setdefault("repl-logs", []).extend(re.split(r"^OBSERVATION \d+:\n", path.read_text(), flags=re.M))
    for path in sorted((DATA / "published").glob("*.json")):
        found.setdefault("published", []).extend(texts_in(json.loads(path.read_text())))
    for path in sorted((DATA / "wires").rglob("*.json")):
        for each in json.loads(path.read_text()):
            said = [streamed_text(each["sse"])] if "sse" in each else [*texts_in(each["response"])]
            found.setdefault("wires", []).extend(text for text in said if " " in text or "{" in text)
    return {name: sorted({text for text in texts if text.strip()}) for name, texts in found.items()}


WRITTEN = [
    'Thought: I look.\nAction:\n```json\n{"action": "search", "action_input": {"query": "Lyon"}}\n```',
    "Thought: I look.\nAction: search\nAction Input: Lyon",
    "Thought: That is all.\nFinal Answer: 522,250 people\nin Lyon",
    "Thought 2: I look.\nAction 2: search[Lyon [north]]",
    "Thought 2: That is all.\nAction 2: Finish[522,250]",
    "Reflection: I look.\nDo: search\nWith: Lyon",
    "Reflection 2: That is all.\nDo 2: Stop[522,250]",
    '{"thought": "I look.", "tool": "search", "tool_input": {"query": "Lyon \\"x\\" \\ud83d\\ude00"}}',
    '{"thought": "That\\nis all.", "tool": "final_answer", "tool_input": "522,250"}',
    '{"thought": "", "tool": "final_answer", "tool_input": {"people": [1, null]}}',
    'THOUGHT 2:\nI look.\nACTION 2:\n```python\nif x:\n\n    print(search("Lyon"))\n```',
    "THOUGHT 2:\nThat is all.\nFINAL ANSWER: 522,250",
    'Plan: I look.\n#E1 = search[Lyon]\nPlan: I send it.\n#E2 = send[{"to": "Ana", "text": "#E1"}]',
    'Thought: Both.\n1. search("Lyon")\n2. send(to="Ana", text="$1")\n3. join()',
    "Thought: I see.\nFinish: 522,250",
    "Thought: I see.\nReplan: what Nice has",
    '[{"ACTION": "search", "ARGUMENTS": ["Lyon"], "EXPLANATION": "why"}]',
    'I look.\n{"name": "search", "arguments": {"query": "Lyon"}}\n{"name": "lookup", "arguments": {"city": "Nice"}}',
]
"""A reply or two of each format, as it writes them."""

PROTOCOL = [
    *("Thought: I look.\n", "Thought 2:", "\nAction: ", "Action: search\nAction Input: x\n", "Action 2: Search[x]\n"),
    *(
        "Action Input:",
        "\nObservation: 5\n",
        "Observation\\:",
        "\nFinal Answer: 42\n",
        "Action 2: Finish[x]\n",
        "Answer:",
    ),
    *("Conclusion\n", "**Final Answer:** x", "<think>", "</think>", "```", "```json\n", "```python\nsearch(1)\n```\n"),
    *("THOUGHT 2:\n", "ACTION 2:\n", "OBSERVATION 2:\n", "FINAL ANSWER: x", "Plan: why\n", "#E1 = search[x]\n", "$1"),
    *("1. search(x)\n", "join()\n", "Finish: 5\n", "Replan: more\n", "Reflection: ", "\nDo: search\n", "With: x\n"),
    *("Result: ", "\nDone: x\n", "Stop[x]", '{"action": "search", "action_input": "x"}', "{", "}", "[", "]", '"', "\\"),
    *('{"thought": "t", "tool": "search", "tool_input": "x"}', '{"name": "search", "arguments": {"query": "x"}}'),
    *('{"thought": "t", "tool": "final_answer", "tool_input": {"a": 1}}', "<tool_call>", "</tool_call>", "search(x)"),
    *('[{"ACTION": "search", "ARGUMENTS": ["x"], "EXPLANATION": "y"}]', "\\u00e9", "\\ud83d\\ude00", "\n", "\n\n", " "),
    *("search", ": ", "None", "</code>", "`", "~~~\n", "ſ", "İ", "\u00a0", "•", "_"),
]


def fuzzed_reply(chance: random.Random, replies: Sequence[str]) -> str:
    """A reply made of the formats' words, or a recorded one that was cut, joined, nested, or given other labels."""
    kind = chance.random()
    if kind < 0.1:
        return chance.choice(WRITTEN)
    if kind < 0.35:
        return "".join(chance.choices(PROTOCOL, k=chance.randint(1, 14)))
    replies = replies or WRITTEN
    text = chance.choice(replies if kind < 0.8 else WRITTEN)[:1500]
    for _ in range(chance.randint(1, 3)):
        at, upto = sorted(chance.randrange(len(text) + 1) for _ in range(2))
        lines = text.split("\n")
        line = chance.randrange(len(lines))
        match chance.randrange(6):
            case 0:
                text = text[:upto]
            case 1:
                text = text[:at] + text[upto:]
            case 2:
                text = text[:at] + chance.choice(PROTOCOL) + text[at:]
            case 3:
                text = f"{text}\n{chance.choice(replies)[:700]}"
            case 4:
                text = text[:at] + chance.choice(replies)[:700] + text[at:]
            case _:
                lines[line] = chance.choice(PROTOCOL) + lines[line]
                text = "\n".join(lines)
    return text[:1500]
