"""The plain-lines dialect of text ReAct: `Action: name`, `Action Input: text`.

Thought: I need the number of people in Lyon.
Action: lookup
Action Input: Lyon
Observation: 522250
Thought: That is all.
Final Answer: 522250
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, ClassVar

from msgspec import Struct

from plait.core import Splitter, ToolSpec
from plait.core.arguments import is_plain_text
from plait.loops import gbnf, label_scan
from plait.loops.action_objects import NAME_KEYS, disarm_objects
from plait.loops.call_objects import CallObjects
from plait.loops.format import Turn
from plait.loops.react.reader import FINAL, Dialect, read_turn
from plait.loops.react.splitter import TextSplitter
from plait.loops.tool_descriptions import tool_lines

SHAPE = (
    "Write `Thought:` and what you think, then either\n"
    "Action: <tool name>\nAction Input: <input>\n"
    "or `Final Answer:` and the whole answer."
)
_DIALECT = Dialect("lines", SHAPE)


class Lines(Struct, frozen=True):
    """Text ReAct whose action is two labelled lines: the tool's name and its input.

    Input that is a JSON object or list is read as that value, a JSON string as its text; numbers, `true`
    and `null` stay text (a postcode is no number: the tool's schema decides what text means). No input
    line, or an empty one, is None.

    Writer: blanks at the ends of thought and answer are dropped; labels inside a thought or an answer get
    a backslash before the colon, which the reader takes away; input text that would be read as something
    else is written as a JSON string; numbers and `true`/`false` are written as JSON and so read back as
    text, as are answers that are not text. `write` raises ValueError for a turn with neither call nor
    answer, an empty answer, a tool's name that does not fit on a line, and input that JSON can't hold.
    """

    name: ClassVar[str] = "lines"

    def stop(self, n: int) -> tuple[str, ...]:
        """The label that only the runtime may write, on a line of its own: an answer may well hold the word."""
        return ("\nObservation:",)

    def read(self, text: str, n: int, tools: Sequence[ToolSpec] = ()) -> Turn:
        """The turn in a reply. The first action that can be read counts, and wins over any answer.

        Beside the canonical form it takes input over several lines or in a fence, input on the action's
        line, a missing input, and actions written as in the other dialects. Raises `Unreadable`, and
        nothing else.
        """
        return read_turn(text, n, tools, _DIALECT)

    def write(self, turn: Turn, n: int) -> str:
        """The canonical text of a turn. Raises ValueError as the class says."""
        thought = label_scan.guard(turn.thought.strip())
        head = f"Thought: {thought}\n" if thought else ""
        if turn.call is not None:
            name = turn.call.tool
            if not plain_name(name):
                raise ValueError(f"The tool's name {name!r} can't stand on an `Action:` line.")
            given = input_text(turn.call.input)
            return f"{head}Action: {name}" + (f"\nAction Input: {given}" if given else "")
        return head + "Final Answer: " + answer_text(turn)

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
        """GBNF of a turn, thought and input on a line each. `opened`: the prompt ends in `Thought:`."""
        thought = '" " thought "\\n"' if opened else '( "Thought: " thought "\\n" )?'
        rules = [f"root ::= {thought} act", gbnf.THOUGHT_RULE, gbnf.LINE_RULE, gbnf.TEXT_RULE]
        if tools:
            rules[1:1] = [
                'act ::= "Action: " name ( "\\nAction Input: " line )? | "Final Answer: " text',
                f"name ::= {gbnf.one_of(tool.name for tool in tools)}",
            ]
        else:
            rules[1:1] = ['act ::= "Final Answer: " text']
        return "\n".join(rules)

    def schema(self, tools: Sequence[ToolSpec]) -> dict[str, Any] | None:
        """None: a turn is text."""
        return None

    def splitter(self) -> Splitter:
        """Thought, action (name and input) and final answer, without their labels."""
        return TextSplitter()


def plain_name(name: str) -> bool:
    """A tool's name that a line of text can hold and that nothing reads as something else."""
    return (
        bool(name)
        and len(name) <= 100
        and not set(name) & set("\n\r[]{}:`*\"'")
        and (
            name == name.strip()
            and name.lower() not in FINAL
            and "action input" not in name.lower()
            and any(char.isalnum() for char in name)
        )
    )


def input_text(given: Any, *, brackets: bool = False) -> str:
    """An input as text that `label_scan.input_of` reads back; "" for None. Raises ValueError if JSON can't hold it.

    `fences`: text in a code fence is written as a JSON string. `brackets`: so is text whose square
    brackets don't match, with the brackets as escapes.
    """
    if given is None:
        return ""
    try:
        dumped = json.dumps(given, ensure_ascii=False, allow_nan=False)
    except (TypeError, RecursionError) as error:
        raise ValueError(f"An input can't be written as JSON: {error}") from None
    if not isinstance(given, str):
        plain = dumped
    else:
        same = given == given.strip() and label_scan.guard(given) == given and "\r" not in given
        plain = given if same and is_plain_text(given) else dumped
    plain = plain if plain is given else label_scan.in_json(plain)
    if brackets and not balanced(plain):
        # Only strings can hold single brackets, so escapes are always allowed here.
        strings = dumped if plain is given else plain
        plain = _escaped_brackets(strings)
    return plain


def _escaped_brackets(dumped: str) -> str:
    parts, inside, at = [], False, 0
    while at < len(dumped):
        char = dumped[at]
        if inside and char == "\\":
            parts.append(dumped[at : at + 2])
            at += 2
            continue
        inside ^= char == '"'
        parts.append(f"\\u{ord(char):04x}" if inside and char in "[]" else char)
        at += 1
    return label_scan.in_json("".join(parts))


def balanced(text: str) -> bool:
    """Every square bracket in the text has its partner."""
    depth = 0
    for char in text:
        depth += (char == "[") - (char == "]")
        if depth < 0:
            return False
    return depth == 0


def answer_text(turn: Turn) -> str:
    """The answer of a turn as text after `Final Answer:`. Raises ValueError where there is none."""
    if not turn.answered:
        raise ValueError("A turn needs a call or an answer to be written.")
    if isinstance(turn.answer, str):
        text = turn.answer.strip()
    else:
        text = json.dumps(turn.answer, ensure_ascii=False, allow_nan=False)
    if not text:
        raise ValueError("An empty answer can't be written: the reader would not take it for one.")
    return label_scan.guard(text)
