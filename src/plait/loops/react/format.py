"""The format of text ReAct: how the turns of a dialect are written, read, escaped and constrained."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from plait.core import Splitter, ToolSpec
from plait.core.arguments import is_plain_text
from plait.loops import gbnf, label_scan
from plait.loops.call_escape import disarm_calls, disarm_objects
from plait.loops.format import Turn
from plait.loops.label_scan import LabelWords
from plait.loops.react.dialects import DIALECTS, Dialect, DialectName
from plait.loops.react.reader import LINE_CALL, bracket_names, finish_answer, read_turn
from plait.loops.react.splitter import TextSplitter
from plait.loops.tool_descriptions import numbered_lines, tool_lines


def react_format(dialect: DialectName | Dialect) -> TextFormat:
    """Return the format of a dialect."""
    return TextFormat(dialect if isinstance(dialect, Dialect) else DIALECTS[dialect])


class TextFormat(Struct, frozen=True):
    """Reads and writes the turns of a dialect.

    The reader takes the first action that can be read; it wins over any answer. Every dialect reads the actions of the
    others, with a remark. The writer strips the ends of thought and answer, leaves out an empty thought, and puts a
    backslash into words that would read as a label, which the reader takes away. It raises ValueError for a turn with
    neither call nor answer, for an empty answer, for a tool's name that does not fit, and for input that JSON cannot
    hold.

    In the syntax "blob", an answer that is not text is an action named as the answer's label. In the others, input that
    is a JSON object or list is read as that value, a JSON string as its text. Numbers, `true` and `null` stay text: the
    tool's schema decides what text means. No input, or an empty one, is None. Text that would be read as something else
    is written as a JSON string.
    """

    dialect: Dialect

    @property
    def name(self) -> str:
        return self.dialect.name

    def stop(self, n: int) -> tuple[str, ...]:
        return (f"\n{self.dialect.label('observation', n)}",)

    def observation(self, text: str, n: int) -> str:
        return f"{self.dialect.label('observation', n)} {text}"

    def read(self, text: str, n: int, tools: Sequence[ToolSpec] = ()) -> Turn:
        return read_turn(text, n, tools, self.dialect)

    def write(self, turn: Turn, n: int) -> str:
        words = self.dialect.words
        thought = words.guard(turn.thought.strip())
        head = f"{self.dialect.label('thought', n)} {thought}\n" if thought else ""
        if turn.call is not None:
            return head + self._write_action(turn.call.tool, turn.call.input, n)
        if not turn.answered:
            raise ValueError("A turn needs a call or an answer to be written.")
        if self.dialect.finish:
            given = _write_finish(turn.answer, words)
            return f"{head}{self.dialect.label('action', n)} {self.dialect.finish}[{given}]"
        blob = self.dialect.syntax == "blob"
        if blob and not isinstance(turn.answer, str | None):
            return head + self._write_object(words.answer, turn.answer, n)
        return (
            f"{head}{self.dialect.label('answer', n)} {_write_answer(turn.answer, words, none='' if blob else 'null')}"
        )

    def _write_action(self, name: str, given: Any, n: int) -> str:
        label, words = self.dialect.label("action", n), self.dialect.words
        if self.dialect.syntax == "blob":
            if name.strip().lower() in (*label_scan.FINAL, words.answer.lower()):
                raise ValueError(f"A tool named {name!r} would be read as the final answer.")
            return self._write_object(name, given, n)
        is_plain = label_scan.is_plain_name(name, words)
        if self.dialect.syntax == "bracket":
            if not is_plain or name.lower() == self.dialect.finish.lower():
                raise ValueError(f"A tool named {name!r} can't be written as `{name}[...]`.")
            return f"{label} {name}[{write_input(given, words, brackets=True)}]"
        if not is_plain:
            raise ValueError(f"The tool's name {name!r} can't stand on an `{label}` line.")
        text = write_input(given, words)
        return f"{label} {name}" + (f"\n{self.dialect.label('input', n)} {text}" if text else "")

    def _write_object(self, name: str, given: Any, n: int) -> str:
        dumped = _dump({"action": name, "action_input": given}, f"The input of {name!r}")
        return f"{self.dialect.label('action', n)}\n```json\n{self.dialect.words.in_json(dumped)}\n```"

    def disarm(self, text: str, tools: Sequence[ToolSpec] = (), inline: bool = False) -> str:
        """Return data with a backslash in whatever would read as a label, a fence or an action.

        `Name[` at the start of a line is an action too: every dialect reads it, also without its label.
        """
        plain = self.dialect.words.disarm(text, tools, inline)
        if LINE_CALL.search(plain):
            names = bracket_names(tools, self.dialect)
            plain = LINE_CALL.sub(lambda call: f"{call[0][:-1]}\\[" if call[1].lower() in names else call[0], plain)
        return disarm_calls(disarm_objects(plain, ("action",)), tools)

    def describe(self, tools: Sequence[ToolSpec]) -> str:
        if not self.dialect.finish:
            return tool_lines(tuple(tools))
        listed = numbered_lines(tuple(tools))
        last = f"({len(tools) + 1}) {self.dialect.finish}[answer]: gives the answer and ends the task."
        return f"{listed}\n{last}" if listed else last

    def grammar(self, tools: Sequence[ToolSpec], n: int, *, opened: bool = False) -> str | None:
        thought, action, answer = (self.dialect.label(kind, n) for kind in ("thought", "action", "answer"))
        begun = '" " thought "\\n"' if opened else f'( "{thought} " thought "\\n" )?'
        if self.dialect.finish:
            names = [*(tool.name for tool in tools), self.dialect.finish]
            call = f'"{action} " name "[" inside* "]"'
            return "\n".join([f"root ::= {begun} {call}", f"name ::= {gbnf.one_of(names)}", _INSIDE, gbnf.THOUGHT_RULE])
        rules = [f"root ::= {begun} act", f'act ::= "{answer} " text']
        ends = [gbnf.THOUGHT_RULE, gbnf.LINE_RULE, gbnf.TEXT_RULE]
        if tools and self.dialect.syntax == "blob":
            opening, middle, closing = f'{action}\n```json\n{{"action": ', ', "action_input": ', "}\n```"
            rules[1:] = [
                f'act ::= call | "{answer} " text',
                f"call ::= {gbnf.literal(opening)} name {gbnf.literal(middle)} value {gbnf.literal(closing)}",
                f"name ::= {gbnf.one_of(json.dumps(tool.name, ensure_ascii=False) for tool in tools)}",
            ]
            ends.append(gbnf.JSON_RULES)
        elif tools:
            lines = f'( "\\n{self.dialect.label("input", n)} " line )?'
            given = lines if self.dialect.syntax == "lines" else '"[" inside* "]"'
            rules[1:] = [
                f'act ::= "{action} " name {given} | "{answer} " text',
                f"name ::= {gbnf.one_of(tool.name for tool in tools)}",
                *([_INSIDE] if self.dialect.syntax == "bracket" else []),
            ]
        return "\n".join([*rules, *ends])

    def schema(self, tools: Sequence[ToolSpec]) -> dict[str, Any] | None:
        return None

    def splitter(self) -> Splitter:
        return TextSplitter(self.dialect)


_INSIDE = r'inside ::= [^\[\]\r\n] | "[" inside* "]"'


def write_input(given: Any, words: LabelWords, *, brackets: bool = False) -> str:
    """Write an input so that `label_scan.input_of` reads it back; "" for None. `brackets`: square brackets match."""
    if given is None:
        return ""
    dumped = _dump(given, "An input")
    plain = words.in_json(dumped)
    if isinstance(given, str) and given == given.strip() and "\r" not in given:
        plain = given if words.guard(given) == given and is_plain_text(given) else plain
    if not brackets or _is_balanced(plain):
        return plain
    return _escape_brackets(dumped if plain is given else plain, words)  # only strings can hold single brackets


def _escape_brackets(dumped: str, words: LabelWords) -> str:
    """Return the same JSON with escapes for the brackets inside its strings."""
    parts = re.findall(r'"(?:[^"\\]|\\.)*"|[^"]+', dumped)
    escaped = (part.replace("[", "\\u005b").replace("]", "\\u005d") if part[0] == '"' else part for part in parts)
    return words.in_json("".join(escaped))


def _is_balanced(text: str) -> bool:
    depth = 0
    for char in text:
        depth += (char == "[") - (char == "]")
        if depth < 0:
            return False
    return depth == 0


def _write_answer(answer: Any, words: LabelWords, none: str) -> str:
    value = none if answer is None else answer
    text = value.strip() if isinstance(value, str) else _dump(value, "An answer")
    if not text:
        raise ValueError("An empty answer can't be written: the reader would not take it for one.")
    return words.guard(text)


def _write_finish(answer: Any, words: LabelWords) -> str:
    text = answer.strip() if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False, allow_nan=False)
    if text == words.guard(text) and _is_balanced(text) and finish_answer(text, words) == text:
        return text
    dumped = words.in_json(json.dumps(text, ensure_ascii=False))
    if not _is_balanced(text):
        dumped = dumped.replace("[", "\\u005b").replace("]", "\\u005d")
    # The reader takes a string for the writer's only where it has escapes.
    return dumped if "\\" in dumped else f'"\\u{ord(text[0]):04x}{dumped[2:]}'


def _dump(value: Any, what: str) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, RecursionError) as error:
        raise ValueError(f"{what} can't be written as JSON: {error}") from None
