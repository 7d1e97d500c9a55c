"""The format of text ReAct: how the turns of a dialect are written, read, escaped and constrained."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from plait.core import ToolSpec
from plait.core.arguments import is_plain_text
from plait.loops import gbnf, label_scan
from plait.loops.call_escape import escape_calls, escape_objects
from plait.loops.format import Turn, TurnCodec, write_json
from plait.loops.label_scan import LabelKind, LabelWords
from plait.loops.label_stream import LabelStream
from plait.loops.react.dialects import DIALECTS, Dialect, DialectName
from plait.loops.react.reader import LINE_CALL, bracket_names, finish_answer, read_turn
from plait.loops.tool_descriptions import numbered_lines, tool_lines
from plait.loops.vocabulary import ANSWER_NAMES


def react_format(dialect: DialectName | Dialect) -> ReActCodec:
    """Return the codec of a dialect."""
    return ReActCodec(dialect if isinstance(dialect, Dialect) else DIALECTS[dialect])


@dataclass(frozen=True)
class ReActCodec(TurnCodec):
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
    def name(self) -> str:  # type: ignore[override]
        return self.dialect.name

    def stop(self, n: int) -> tuple[str, ...]:
        return (f"\n{self.dialect.label('observation', n)}",)

    def observation(self, text: str, n: int) -> str:
        return f"{self.dialect.label('observation', n)} {text}"

    def read(self, text: str, n: int = 1, tools: Sequence[ToolSpec] = ()) -> Turn:
        return read_turn(text, n, tools, self.dialect)

    def stream(self, n: int = 1, tools: Sequence[ToolSpec] = ()) -> ReActStream:
        return ReActStream(self, n, tools)

    def write(self, turn: Turn, n: int = 1) -> str:
        dialect, words, form = self.dialect, self.dialect.words, self.dialect.form(n)
        thought = words.guard(turn.thought.strip())
        head = f"{dialect.label('thought', n)} {thought}\n" if thought else ""
        if turn.call is None and not turn.answered:
            raise ValueError("A turn needs a call or an answer to be written.")
        if turn.call is None and dialect.finish:
            return head + dialect.write_action(dialect.finish, _write_finish(turn.answer, words), n)
        if turn.call is None and not (form.is_json and not isinstance(turn.answer, str | None)):
            answer = _write_answer(turn.answer, words, none="" if form.is_json else "null")
            return f"{head}{dialect.label('answer', n)} {answer}"
        name, given = (words.answer, turn.answer) if turn.call is None else (turn.call.tool, turn.call.input)
        if form.is_json:
            if turn.call is not None and name.strip().lower() in (*ANSWER_NAMES, words.answer.lower()):
                raise ValueError(f"A tool named {name!r} would be read as the final answer.")
            shown, value = (words.in_json(write_json(each, f"The input of {name!r}")) for each in (name, given))
            return head + dialect.write_action(shown, value, n)
        in_brackets = form.middle == "["
        if not label_scan.is_plain_name(name, words) or (in_brackets and name.lower() == dialect.finish.lower()):
            if in_brackets:
                raise ValueError(f"A tool named {name!r} can't be written as `{name}[...]`.")
            raise ValueError(f"The tool's name {name!r} can't stand on an `{dialect.label('action', n)}` line.")
        return head + dialect.write_action(name, write_input(given, words, brackets=in_brackets), n)

    def escape(self, text: str, tools: Sequence[ToolSpec] = (), inline: bool = False) -> str:
        """Return data with a backslash in whatever would read as a label, a fence or an action. `Name[` at the start of
        a line is an action too: every dialect reads it, also without its label."""
        plain = self.dialect.words.escape(text, tools, inline)
        if LINE_CALL.search(plain):
            names = bracket_names(tools, self.dialect)
            plain = LINE_CALL.sub(lambda call: f"{call[0][:-1]}\\[" if call[1].lower() in names else call[0], plain)
        return escape_calls(escape_objects(plain, ("action",)), tools)

    def describe(self, tools: Sequence[ToolSpec]) -> str:
        if not self.dialect.finish:
            return tool_lines(tuple(tools))
        listed = numbered_lines(tuple(tools))
        last = f"({len(tools) + 1}) {self.dialect.finish}[answer]: gives the answer and ends the task."
        return f"{listed}\n{last}" if listed else last

    def grammar(self, tools: Sequence[ToolSpec], n: int = 1, *, opened: bool = False) -> str | None:
        dialect, form = self.dialect, self.dialect.form(n)
        begun = '" " thought "\\n"' if opened else f'( "{dialect.label("thought", n)} " thought "\\n" )?'
        head, middle, tail = map(gbnf.literal, (form.head, form.middle, form.tail))
        given = f"( {middle} {form.value} )?" if form.is_optional else f"{middle} {form.value} {tail}"
        call = f"{head} name {given}"
        names = [*(tool.name for tool in tools), *([dialect.finish] if dialect.finish else [])]
        named = f"name ::= {gbnf.one_of(map(gbnf.literal, names) if form.is_json else names)}" if names else ""
        if dialect.finish:
            return "\n".join([f"root ::= {begun} {call}", named, _INSIDE, gbnf.THOUGHT_RULE])
        answer = f'"{dialect.label("answer", n)} " text'
        rules = [f"root ::= {begun} act"]
        if not tools:
            rules += [f"act ::= {answer}"]
        elif form.is_json:
            rules += [f"act ::= call | {answer}", f"call ::= {call}", named]
        else:
            rules += [f"act ::= {call} | {answer}", named, *([_INSIDE] if form.middle == "[" else [])]
        json_rules = [gbnf.JSON_RULES] if tools and form.is_json else []
        return "\n".join([*rules, gbnf.THOUGHT_RULE, gbnf.LINE_RULE, gbnf.TEXT_RULE, *json_rules])


class ReActStream(LabelStream[Turn]):
    """A turn that streams in. If an action of the dialect gives the answer, it is the inside of its brackets."""

    def __init__(self, codec: ReActCodec, n: int, tools: Sequence[ToolSpec]) -> None:
        super().__init__(codec, n, tools, codec.dialect.words)
        self._finish = codec.dialect.finish.lower()
        self._runs_on = codec.dialect.original  # an answer may go on behind its bracket, so the end shows it
        self._acted = False
        self._head: str | None = None  # the start of an action that may contain `Finish[`
        self._depth = 0  # open brackets inside Finish[...]
        self._below: list[str] = []  # their lines below the first one

    def begin_label(self, kind: LabelKind) -> None:
        before = self.kind
        if kind == "observation" or (self._acted and kind != "input"):
            self.over = True  # the reader cuts everything after the first action
        elif kind in ("input", "action"):
            self.kind, self._acted = "action", True
            self._head = "" if self._finish and kind == "action" else None
        else:
            self.kind = "answer" if kind == "answer" else "thought"
        # A second thought is joined to the first, an input to its tool's name, by a line break.
        self.begin("\n" if kind == "input" or kind == before == "thought" else "")

    def add(self, text: str) -> None:
        if self._head is not None:
            self._head += text
            name, bracket, text = self._head.partition("[")
            plain = name.strip(" \t\n`*\"'").lower()
            if not bracket and self._finish.startswith(plain):
                return
            if bracket and plain == self._finish:
                self.kind, self._depth, self._head = "answer", 1, None
                self.over = self._runs_on
            else:
                text, self._head = self._head, None
        if self.over:
            return
        if self._depth:
            for index, char in enumerate(text):
                self._depth += (char == "[") - (char == "]")
                if not self._depth:
                    self.over, text = True, "".join((*self._below, text[:index]))
                    break
            else:
                # If they are never closed, the answer ends with the line.
                line, newline, below = text.partition("\n") if not self._below else ("", "", text)
                self._below += [newline + below] if newline + below else []
                text = line
        super().add(text)

    def end_part(self) -> None:
        head, self._head = self._head or "", None
        self.put("action", head)
        super().end_part()


_INSIDE = r'inside ::= [^\[\]\r\n] | "[" inside* "]"'


def write_input(given: Any, words: LabelWords, *, brackets: bool = False) -> str:
    """Write an input so that `read_value_text` reads it back; "" for None. `brackets`: square brackets match."""
    if given is None:
        return ""
    dumped = write_json(given, "An input")
    plain = words.in_json(dumped)
    if isinstance(given, str) and given == given.strip() and "\r" not in given:
        plain = given if words.guard(given) == given and is_plain_text(given) else plain
    if not brackets or _is_balanced(plain):
        return plain
    parts = re.findall(r'"(?:[^"\\]|\\.)*"|[^"]+', dumped if plain is given else plain)
    # Only strings can hold single brackets.
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
    text = value.strip() if isinstance(value, str) else write_json(value, "An answer")
    if not text:
        raise ValueError("An empty answer can't be written: the reader would not take it for one.")
    return words.guard(text)


def _write_finish(answer: Any, words: LabelWords) -> str:
    text = answer.strip() if isinstance(answer, str) else write_json(answer, "An answer")
    if text == words.guard(text) and _is_balanced(text) and finish_answer(text, words) == text:
        return text
    dumped = words.in_json(json.dumps(text, ensure_ascii=False))
    if not _is_balanced(text):
        dumped = dumped.replace("[", "\\u005b").replace("]", "\\u005d")
    # The reader takes a string for the writer's only where it has escapes.
    return dumped if "\\" in dumped else f'"\\u{ord(text[0]):04x}{dumped[2:]}'
