"""The four dialects of text ReAct: how a turn is written, and what the reader must know of it.

blob                                       lines                     numbered (the form of the 2022 paper)

Thought: I need the number of people.      Thought: I need ...       Thought 1: I need ...
Action:                                    Action: lookup            Action 1: lookup[Lyon]
```json                                    Action Input: Lyon        Observation 1: 522250
{"action": "lookup",                       Observation: 522250       Thought 2: That is all.
 "action_input": "Lyon"}                   Thought: That is all.     Action 2: Finish[522250]
```                                        Final Answer: 522250
Observation: 522250
Thought: That is all.
Final Answer: 522250

`original` is `numbered`, read as the environments of the published episodes did.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, ClassVar

from msgspec import Struct

from plait.core import Splitter, ToolSpec
from plait.core.arguments import is_plain_text
from plait.core.errors import ConfigError
from plait.loops import gbnf, label_scan
from plait.loops.call_notations import disarm_calls
from plait.loops.call_objects import disarm_objects
from plait.loops.format import Format, Turn
from plait.loops.react.reader import Dialect, finish_answer, read_turn
from plait.loops.react.splitter import TextSplitter
from plait.loops.tool_descriptions import numbered_lines, tool_lines

DIALECTS = ("blob", "lines", "numbered", "original")

_BLOB_SHAPE = (
    "Write `Thought:` and what you think, then either\n"
    'Action:\n```json\n{"action": "<tool name>", "action_input": <input>}\n```\n'
    "or `Final Answer:` and the whole answer."
)
_LINES_SHAPE = (
    "Write `Thought:` and what you think, then either\n"
    "Action: <tool name>\nAction Input: <input>\n"
    "or `Final Answer:` and the whole answer."
)
_LINE_CALL = re.compile(r"^([ \t>*`-]{0,12}[A-Za-z]\w{0,63})\[", re.M | re.A)


def react_format(dialect: str) -> Format:
    """Return the format of a dialect. Raises `ConfigError` for an unknown name."""
    if dialect not in DIALECTS:
        raise ConfigError(f"There is no ReAct dialect {dialect!r}.", hint=f"Choose one of {', '.join(DIALECTS)}.")
    if dialect in ("numbered", "original"):
        return Numbered(original=dialect == "original")
    return Blob() if dialect == "blob" else Lines()


class TextFormat(Struct, frozen=True):
    """What the dialects share.

    The reader takes the first action that can be read; it wins over any answer. Every dialect reads the actions of the
    others, with a remark. The writer strips the ends of thought and answer, leaves out an empty thought, and puts a
    backslash into words that would read as a label, which the reader takes away. It raises ValueError for a turn with
    neither call nor answer, for an empty answer, for a tool's name that does not fit, and for input that JSON cannot
    hold.
    """

    def stop(self, n: int) -> tuple[str, ...]:
        return ("\nObservation:",)

    def observation(self, text: str, n: int) -> str:
        return f"Observation: {text}"

    def disarm(self, text: str) -> str:
        """Return data with a backslash in whatever would read as a label, a fence or an action's JSON object."""
        return disarm_calls(disarm_objects(label_scan.disarm(text), ("action",)))

    def describe(self, tools: Sequence[ToolSpec]) -> str:
        return tool_lines(tuple(tools))

    def schema(self, tools: Sequence[ToolSpec]) -> dict[str, Any] | None:
        return None

    def splitter(self) -> Splitter:
        return TextSplitter()


class Blob(TextFormat, frozen=True):
    """An action is a JSON object in a fence. An answer that is not text is an action named "Final Answer"."""

    name: ClassVar[str] = "blob"
    dialect: ClassVar[Dialect] = Dialect("blob", _BLOB_SHAPE)

    def read(self, text: str, n: int, tools: Sequence[ToolSpec] = ()) -> Turn:
        return read_turn(text, n, tools, self.dialect)

    def write(self, turn: Turn, n: int) -> str:
        head = _write_thought(turn, "Thought:")
        if turn.call is not None:
            if turn.call.tool.strip().lower() in label_scan.FINAL:
                raise ValueError(f"A tool named {turn.call.tool!r} would be read as the final answer.")
            return head + _write_object(turn.call.tool, turn.call.input)
        if turn.answered and not isinstance(turn.answer, str | None):
            return head + _write_object("Final Answer", turn.answer)
        return f"{head}Final Answer: {_write_answer(turn, none='')}"

    def grammar(self, tools: Sequence[ToolSpec], n: int, *, opened: bool = False) -> str | None:
        rules = [f"root ::= {_thought_rule('Thought:', opened)} act", 'act ::= "Final Answer: " text']
        if tools:
            opening, middle, closing = 'Action:\n```json\n{"action": ', ', "action_input": ', "}\n```"
            rules[1:] = [
                'act ::= call | "Final Answer: " text',
                f"call ::= {gbnf.literal(opening)} name {gbnf.literal(middle)} value {gbnf.literal(closing)}",
                f"name ::= {gbnf.one_of(json.dumps(tool.name, ensure_ascii=False) for tool in tools)}",
            ]
        rules += [gbnf.THOUGHT_RULE, gbnf.LINE_RULE, gbnf.TEXT_RULE]
        return "\n".join([*rules, *([gbnf.JSON_RULES] if tools else [])])


class Lines(TextFormat, frozen=True):
    """An action is two labelled lines: the tool's name and its input.

    Input that is a JSON object or list is read as that value, a JSON string as its text. Numbers, `true` and `null`
    stay text: the tool's schema decides what text means. No input line, or an empty one, is None. The writer writes
    text that would be read as something else as a JSON string.
    """

    name: ClassVar[str] = "lines"
    dialect: ClassVar[Dialect] = Dialect("lines", _LINES_SHAPE)

    def read(self, text: str, n: int, tools: Sequence[ToolSpec] = ()) -> Turn:
        return read_turn(text, n, tools, self.dialect)

    def write(self, turn: Turn, n: int) -> str:
        head = _write_thought(turn, "Thought:")
        if turn.call is None:
            return f"{head}Final Answer: {_write_answer(turn)}"
        if not label_scan.is_plain_name(turn.call.tool):
            raise ValueError(f"The tool's name {turn.call.tool!r} can't stand on an `Action:` line.")
        given = write_input(turn.call.input)
        return f"{head}Action: {turn.call.tool}" + (f"\nAction Input: {given}" if given else "")

    def grammar(self, tools: Sequence[ToolSpec], n: int, *, opened: bool = False) -> str | None:
        rules = [f"root ::= {_thought_rule('Thought:', opened)} act", 'act ::= "Final Answer: " text']
        if tools:
            rules[1:] = [
                'act ::= "Action: " name ( "\\nAction Input: " line )? | "Final Answer: " text',
                f"name ::= {gbnf.one_of(tool.name for tool in tools)}",
            ]
        return "\n".join([*rules, gbnf.THOUGHT_RULE, gbnf.LINE_RULE, gbnf.TEXT_RULE])


class Numbered(TextFormat, frozen=True):
    """Turns are numbered, an action is `Name[input]`, and `Finish[answer]` ends the run.

    Input follows the rule of `Lines`; `[]` is None for a tool and an empty answer for Finish. `original` reads the end
    of a run as the environments of the published episodes did: an action that does not begin on its label's line does
    not finish (ReAct's FEVER environment called it invalid), and text after Finish's bracket, up to the next action,
    belongs to the answer (as FireAct's HotpotQA scores have it).
    """

    original: bool = False

    @property
    def name(self) -> str:
        return "original" if self.original else "numbered"

    def stop(self, n: int) -> tuple[str, ...]:
        return (f"\nObservation {n}:",)

    def read(self, text: str, n: int, tools: Sequence[ToolSpec] = ()) -> Turn:
        shape = (
            f"Write `Thought {n}:` and what you think, then on a new line `Action {n}: ToolName[input]`, "
            f"or `Action {n}: Finish[answer]` when you know the answer."
        )
        return read_turn(text, n, tools, Dialect("bracket", shape, finish=True, original=self.original))

    def write(self, turn: Turn, n: int) -> str:
        head = _write_thought(turn, f"Thought {n}:")
        if turn.call is not None:
            name = turn.call.tool
            if not label_scan.is_plain_name(name) or name.lower() == "finish":
                raise ValueError(f"A tool named {name!r} can't be written as `{name}[...]`.")
            return f"{head}Action {n}: {name}[{write_input(turn.call.input, brackets=True)}]"
        if not turn.answered:
            raise ValueError("A turn needs a call or an answer to be written.")
        return f"{head}Action {n}: Finish[{_write_finish(turn.answer)}]"

    def observation(self, text: str, n: int) -> str:
        return f"Observation {n}: {text}"

    def disarm(self, text: str) -> str:
        """As in the other dialects. `Name[` at the start of a line is an action: the label may be forgotten."""
        plain = _LINE_CALL.sub(r"\1\\[", label_scan.disarm(text))
        return disarm_calls(disarm_objects(plain, ("action",)))

    def describe(self, tools: Sequence[ToolSpec]) -> str:
        listed = numbered_lines(tuple(tools))
        last = f"({len(tools) + 1}) Finish[answer]: gives the answer and ends the task."
        return f"{listed}\n{last}" if listed else last

    def grammar(self, tools: Sequence[ToolSpec], n: int, *, opened: bool = False) -> str | None:
        rules = [
            f'root ::= {_thought_rule(f"Thought {n}:", opened)} "Action {n}: " name "[" inside* "]"',
            f"name ::= {gbnf.one_of([*(tool.name for tool in tools), 'Finish'])}",
            r'inside ::= [^\[\]\r\n] | "[" inside* "]"',
            gbnf.THOUGHT_RULE,
        ]
        return "\n".join(rules)

    def splitter(self) -> Splitter:
        return TextSplitter(finish=True)


def write_input(given: Any, *, brackets: bool = False) -> str:
    """Write an input so that `label_scan.input_of` reads it back; "" for None. `brackets`: square brackets match."""
    if given is None:
        return ""
    dumped = _dump(given, "An input")
    plain = label_scan.in_json(dumped)
    if isinstance(given, str) and given == given.strip() and "\r" not in given:
        plain = given if label_scan.guard(given) == given and is_plain_text(given) else plain
    if not brackets or _is_balanced(plain):
        return plain
    return _escape_brackets(dumped if plain is given else plain)  # only strings can hold single brackets


def _escape_brackets(dumped: str) -> str:
    """Return the same JSON with escapes for the brackets inside its strings."""
    parts = re.findall(r'"(?:[^"\\]|\\.)*"|[^"]+', dumped)
    escaped = (part.replace("[", "\\u005b").replace("]", "\\u005d") if part[0] == '"' else part for part in parts)
    return label_scan.in_json("".join(escaped))


def _is_balanced(text: str) -> bool:
    depth = 0
    for char in text:
        depth += (char == "[") - (char == "]")
        if depth < 0:
            return False
    return depth == 0


def _thought_rule(label: str, opened: bool) -> str:
    return '" " thought "\\n"' if opened else f'( "{label} " thought "\\n" )?'


def _write_thought(turn: Turn, label: str) -> str:
    thought = label_scan.guard(turn.thought.strip())
    return f"{label} {thought}\n" if thought else ""


def _write_answer(turn: Turn, none: str = "null") -> str:
    if not turn.answered:
        raise ValueError("A turn needs a call or an answer to be written.")
    value = none if turn.answer is None else turn.answer
    answer = value.strip() if isinstance(value, str) else _dump(value, "An answer")
    if not answer:
        raise ValueError("An empty answer can't be written: the reader would not take it for one.")
    return label_scan.guard(answer)


def _write_finish(answer: Any) -> str:
    text = answer.strip() if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False, allow_nan=False)
    if text == label_scan.guard(text) and _is_balanced(text) and finish_answer(text) == text:
        return text
    dumped = label_scan.in_json(json.dumps(text, ensure_ascii=False))
    if not _is_balanced(text):
        dumped = dumped.replace("[", "\\u005b").replace("]", "\\u005d")
    # The reader takes a string for the writer's only where it has escapes.
    return dumped if "\\" in dumped else f'"\\u{ord(text[0]):04x}{dumped[2:]}'


def _write_object(name: str, given: Any) -> str:
    dumped = _dump({"action": name, "action_input": given}, f"The input of {name!r}")
    return f"Action:\n```json\n{label_scan.in_json(dumped)}\n```"


def _dump(value: Any, what: str) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, RecursionError) as error:
        raise ValueError(f"{what} can't be written as JSON: {error}") from None
