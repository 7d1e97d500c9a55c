"""The JSON-blob dialect of text ReAct: `Thought:`, `Action:` with a fenced JSON object, `Final Answer:`.

Thought: I need the number of people in Lyon.
Action:
```json
{"action": "lookup", "action_input": "Lyon"}
```
Observation: 522250
Thought: That is all.
Final Answer: 522250
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, ClassVar

import msgspec
from msgspec import Struct

from plait.core import Call, Splitter, ToolSpec
from plait.loops import gbnf, label_scan
from plait.loops.action_objects import NAME_KEYS, disarm_objects
from plait.loops.call_objects import CallObjects
from plait.loops.format import Turn
from plait.loops.react.reader import FINAL, Dialect, read_turn
from plait.loops.react.splitter import TextSplitter
from plait.loops.tool_descriptions import tool_lines

SHAPE = (
    "Write `Thought:` and what you think, then either\n"
    'Action:\n```json\n{"action": "<tool name>", "action_input": <input>}\n```\n'
    "or `Final Answer:` and the whole answer."
)
_DIALECT = Dialect("blob", SHAPE)
_CANONICAL = re.compile(r"\A\s*Thought: ([^\n:：`]+)\nAction:\n```json\n(\{[^\n]+\})\n```\s*\Z")
_OPENING = 'Action:\n```json\n{"action": '
_MIDDLE = ', "action_input": '
_CLOSING = "}\n```"


class Blob(Struct, frozen=True):
    """Text ReAct whose action is a JSON object `{"action": name, "action_input": value}` in a fence.

    Writer: thought and answer are stripped of blanks at their ends; a thought that is empty is left out;
    words that would read as a label get a backslash before their colon, which the reader takes away; an
    answer that is not text is written as an action named "Final Answer". `write` raises ValueError for a
    turn with neither call nor answer, an empty answer, and input that JSON can't hold.
    """

    name: ClassVar[str] = "blob"

    def stop(self, n: int) -> tuple[str, ...]:
        """The label that only the runtime may write, on a line of its own: an answer may well hold the word."""
        return ("\nObservation:",)

    def read(self, text: str, n: int, tools: Sequence[ToolSpec] = ()) -> Turn:
        """The turn in a reply. The first action that can be read counts, and wins over any answer.

        Beside the canonical form it takes: other fences or none, the object on the label's line, a list
        of objects (the first counts), a missing input (None), `"action": "Final Answer"`, JSON in need of
        repair, the dialects with `Action Input:` and `name[input]`, an object without the label.
        Raises `Unreadable`, and nothing else.
        """
        return _canonical(text, tools) or read_turn(text, n, tools, _DIALECT)

    def write(self, turn: Turn, n: int) -> str:
        """The canonical text of a turn. Raises ValueError as the class says."""
        thought = label_scan.guard(turn.thought.strip())
        head = f"Thought: {thought}\n" if thought else ""
        if turn.call is not None:
            if turn.call.tool.strip().lower() in FINAL:
                raise ValueError(f"A tool named {turn.call.tool!r} would be read as the final answer.")
            return f"{head}{_action(turn.call.tool, turn.call.input)}"
        if not turn.answered:
            raise ValueError("A turn needs a call or an answer to be written.")
        if turn.answer is not None and not isinstance(turn.answer, str):
            return f"{head}{_action('Final Answer', turn.answer)}"
        if not (answer := label_scan.guard((turn.answer or "").strip())):
            raise ValueError("An empty answer can't be written: the reader would not take it for one.")
        return f"{head}Final Answer: {answer}"

    def observation(self, text: str, n: int) -> str:
        """The line that brings an observation into the log."""
        return f"Observation: {text}"

    def disarm(self, text: str) -> str:
        """Data with a backslash in whatever would read as a label, a fence, or an action's JSON object."""
        return CallObjects().disarm(disarm_objects(label_scan.disarm(text), NAME_KEYS[:1]))

    def describe(self, tools: Sequence[ToolSpec]) -> str:
        """A line a tool: name, what for, what goes in, what comes back."""
        return tool_lines(tuple(tools))

    def grammar(self, tools: Sequence[ToolSpec], n: int, *, opened: bool = False) -> str | None:
        """GBNF of a turn with a thought of one line. `opened`: the prompt already ends in `Thought:`."""
        thought = '" " thought "\\n"' if opened else '( "Thought: " thought "\\n" )?'
        action = (
            f'call | "Final Answer: " text\n'
            f"call ::= {gbnf.literal(_OPENING)} name {gbnf.literal(_MIDDLE)} value {gbnf.literal(_CLOSING)}\n"
            f"name ::= {gbnf.one_of(json.dumps(tool.name, ensure_ascii=False) for tool in tools)}"
            if tools
            else '"Final Answer: " text'
        )
        rules = [f"root ::= {thought} act", f"act ::= {action}", gbnf.THOUGHT_RULE, gbnf.LINE_RULE, gbnf.TEXT_RULE]
        return "\n".join([*rules, *([gbnf.JSON_RULES] if tools else [])])

    def schema(self, tools: Sequence[ToolSpec]) -> dict[str, Any] | None:
        """None: a turn is text."""
        return None

    def splitter(self) -> Splitter:
        """Thought, action (the fenced object as written) and final answer, without their labels."""
        return TextSplitter()


def _action(name: str, given: Any) -> str:
    try:
        dumped = json.dumps({"action": name, "action_input": given}, ensure_ascii=False, allow_nan=False)
    except (TypeError, RecursionError) as error:
        raise ValueError(f"The input of {name!r} can't be written as JSON: {error}") from None
    return f"Action:\n```json\n{label_scan.in_json(dumped)}\n```"


def _canonical(text: str, tools: Sequence[ToolSpec]) -> Turn | None:
    """A turn with a call just as `write` makes it, which needs no repair; None for anything else.

    Only a short cut: the lenient reader gives the same for these.
    """
    match = _CANONICAL.match(text)
    if match is None or "\\" in text or "Observation" in match[2]:
        return None
    try:
        value = msgspec.json.decode(match[2])
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return None
    if list(value) != ["action", "action_input"]:
        return None
    name = value["action"]
    if not any(tool.name == name for tool in tools) or not match[1].strip():
        return None
    return Turn(match[1].strip(), Call(name, value["action_input"]), kept=text.strip())
