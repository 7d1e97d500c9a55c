"""Shared reading for the text formats: labels, the cut at an observation, and the escaping of data.

A label is a word of the protocol with a colon: `Thought:`, `Action 3:`, `**Final Answer:**`. A `LabelWords` holds the
words of a protocol. The reader accepts labels at the start of a line, in any case, with a number, with Markdown around
them, and with a full-width colon. An answer may contain the word `Observation:`, so it counts only at the start of a
line. All patterns have bounded or possessive repeats: each is linear in the text.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from operator import attrgetter
from typing import Literal, get_args

from msgspec import Struct

from plait.core import ToolSpec
from plait.core.loose_json import Found, without_halves
from plait.core.reasoning import drop_reasoning, split_unopened
from plait.core.tools import tool_named
from plait.loops.escape import LabelGuard, from_line_start
from plait.loops.format import Remark
from plait.loops.vocabulary import ANSWER_NAMES, INPUT_LABELS, THOUGHT_WORDS, either

LabelKind = Literal["thought", "action", "input", "observation", "answer"]
KINDS: tuple[LabelKind, ...] = get_args(LabelKind)

_DECORATION = r"[ \t\u00a0\u200b\ufeff\u2060>*_#`•-]{0,12}"
_NUMBER = r"(?:[ \t]{0,3}#?\d{1,9})?"
_AFTER = r"[*_`]{0,3}[ \t\u00a0\u200b]{0,4}"
_FLAGS = re.M | re.I | re.A
_SIGN = r"[:：](?:\*\*|__)?"
_BEFORE_LABEL = re.compile(_DECORATION)
_BLANK = re.compile(r"[ _-]")
"""What may join the parts of a label's word."""
_LONGEST_REST = 24
"""Characters of a label behind its word, at most."""
_TOOL_WORDS = r"action|tool|function"
_OTHER_KINDS: tuple[LabelKind, ...] = ("thought", "input", "action", "answer")
# Labels in other words, numbered as a list, or as headings without a colon.
_OTHER_LABEL = re.compile(
    r"(?P<words>^[ \t>*_#`•-]{0,12}(?:(?:step[ ]?)?\d{1,2}[.):][ \t*_`]{0,4})?(?:"
    rf"(?P<thought>{either(THOUGHT_WORDS)})"
    rf"|(?P<input>(?:(?:{_TOOL_WORDS})[ _-]?(?:\d{{1,3}}[ _-])?)?(?:{either(INPUT_LABELS)}))"
    rf"|(?P<action>(?:next |selected |chosen )?(?:{_TOOL_WORDS})(?:[ _](?:name|call|to[ _](?:use|call)))?|act)"
    r"|(?P<answer>(?:the )?(?:final[ _-]?)?answer(?: is)?|final[ _](?:response|result|output)|conclusion)"
    r")[ \t]{0,2}(?:#?\d{1,3})?[*_`]{0,3}[ \t]{0,3})(?:[:：](?:\*\*|__)?|(?:->|=>|[–—=-])(?=[ \t])|$)",
    _FLAGS,
)
_MORE = re.compile(r"\s*+\S")
# A call on a line of its own, which counts even without a label.
_CALL_LINES = LabelGuard(r"^[ \t>*\[-]{0,12}", r"\{\s{0,9}[\"'“‘]|<[a-zA-Z|｜]|\[TOOL_CALLS", re.M)
_FENCES = LabelGuard("```", r"(?=[A-Za-z0-9]{0,10}\s*+[{\[])")

_BLANKS = " \t\r\n.,;\u00a0\u200b\u2060\ufeff"
_AROUND_NAME = re.compile(
    r"\A(?:(?:use|using|call|run|invoke|execute)\s+)?(?:the\s+)?(?:(?:tool|function|action)(?:\s*:\s*|\s+))?[`\"'*]{0,3}"
    r"|[`\"'*]{0,3}(?:\s+(?:tool|function|action))?(?:\s*\[[^\[\]]{0,100}\])?\Z",
    re.I,
)

TURN_ENDS = (
    r"<\|(?:im_end|eot_id|eom_id|end|end_of_text|endoftext|end_of_turn|return|END_OF_TURN_TOKEN)\|>|<end_of_turn>"
)
_END = re.compile(rf"(?:{TURN_ENDS}|<｜end▁of▁sentence｜>)(?=\s*(?:\Z|<\||\n))|</s>\s*\Z")


class Label(Struct, frozen=True):
    """A label in a text: its kind, its number (0: none), and its place, text[start:end]."""

    kind: LabelKind
    number: int
    start: int
    end: int


class Body(Struct, frozen=True):
    """A reply up to its first observation: the text, its labels in order, what was cut, and the labels' words."""

    text: str
    labels: tuple[Label, ...]
    remarks: tuple[Remark, ...]
    words: LabelWords

    def of(self, kind: LabelKind) -> list[Label]:
        return [label for label in self.labels if label.kind == kind]

    def following(self, label: Label) -> Label | None:
        index = bisect_right(self.labels, label.start, key=attrgetter("start"))
        return self.labels[index] if index < len(self.labels) else None

    def after(self, label: Label) -> int:
        """Return where a label's content ends: at the next label, or at the text's end."""
        following = self.following(label)
        return following.start if following else len(self.text)


def read_part(text: str) -> tuple[str, list[Remark]]:
    """Return a reply without reasoning (`core/reasoning.py`) and text after the end of its turn."""
    remarks: list[Remark] = []
    whole = text = replace_halves(text, remarks)
    text = split_unopened(drop_reasoning(text))[1]
    if len(text) < len(whole):
        remarks.append(Remark("cut", f"{len(whole) - len(text)} characters of thinking before the reply"))
    if (end := _END.search(text)) is not None and text[: end.start()].strip():
        rest = text[end.end() :].strip()
        said = f"{len(rest)} characters after the end of the turn" if rest else "a token at the end of the turn"
        remarks.append(Remark("cut", said))
        text = text[: end.start()]
    return text, remarks


@dataclass(frozen=True)
class LabelWords:
    """The words of a protocol's labels: finds them in replies and escapes them in data.

    `guard` puts one backslash before the colon of anything that could be read as a label, and `unguard` removes one, so
    any text survives being written and read. `escape` escapes data for good.
    """

    thought: str = "Thought"
    action: str = "Action"
    input: str = "Action Input"
    observation: str = "Observation"
    answer: str = "Final Answer"
    inside: bool = True
    """Whether the writer escapes labels inside a line, too, because the reader may take one there."""

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """A label at the start of a line: its word is group 1, its number group 2."""
        return re.compile(rf"^{_DECORATION}({self._any})({_NUMBER}){_AFTER}{_SIGN}", _FLAGS)

    def kind_of(self, word: str) -> LabelKind:
        """Return the kind of a label's word, whatever joins its parts."""
        return self._kinds[_joined(word)]

    def label_at(self, match: re.Match[str]) -> Label:
        """Return the label of a match of `pattern`."""
        number = int(match[2].strip().lstrip("#") or 0)
        return Label(self.kind_of(match[1]), number, match.start(), match.end())

    def may_begin(self, line: str) -> bool:
        """Return whether an incomplete line may still become a label."""
        rest = line[_BEFORE_LABEL.match(line).end() :]  # type: ignore[union-attr]  # it matches the empty string too
        low = _BLANK.sub("", rest.lower())
        return not rest or any(
            low and (word.startswith(low) or (low.startswith(word) and len(low) <= len(word) + _LONGEST_REST))
            for word in self._kinds
        )

    def scan(self, text: str) -> Body:
        """Return the reply up to the first observation, which the model invented, with its labels."""
        text, remarks = read_part(text)
        labels: list[Label] = []
        end = len(text)
        for match in self.pattern.finditer(text):
            label = self.label_at(match)
            if label.kind == "observation":
                end = label.start
                break
            labels.append(label)
        if end < len(text):
            remarks.append(cut_at(end, len(text)))
        return Body(text[:end], tuple(labels), tuple(remarks), self)

    def find_action_inside(self, text: str) -> Label | None:
        """Find an `Action:` inside a line: the last resort if no line begins with one."""
        match = re.search(rf"(?<![A-Za-z0-9]){re.escape(self.action)}{_NUMBER}{_AFTER}{_SIGN}", text, re.A)
        return Label("action", 0, match.start(), match.end()) if match else None

    def replace_others(self, text: str) -> str:
        """Replace labels in other words by these; put a `Final Answer:` inside a line on a line of its own."""
        usual = _OTHER_LABEL.sub(lambda match: f"{getattr(self, next(filter(match.group, _OTHER_KINDS)))}:", text)
        if usual != text or re.search(rf"(?<![\w\\]){re.escape(self.observation)}{_NUMBER}{_AFTER}[:：]", text, re.A):
            return usual
        words = " ".join(f"[{word[0].upper()}{word[0].lower()}]{re.escape(word[1:])}" for word in self.answer.split())
        inside = re.search(rf"(?<![A-Za-z0-9\"'`])(?:The )?{words}(?: is)?{_AFTER}{_SIGN}", text, re.A)
        return f"{text[: inside.start()]}\n{self.answer}:{text[inside.end() :]}" if inside else text

    def guard(self, text: str) -> str:
        """Escape a text so that nothing reads as a label or an action in a fence; `unguard` undoes it exactly."""
        return _CALL_LINES.add(_FENCES.add(self._labels.add(text)))

    def unguard(self, text: str) -> str:
        """Undo `guard`, so that escaped data which a model copies becomes plain again."""
        return _FENCES.remove(self._labels.remove(_CALL_LINES.remove(text))) if "\\" in text else text

    def escape(self, text: str, tools: Sequence[ToolSpec] = (), inline: bool = False) -> str:
        """Escape labels in data: `Observation:` becomes `Observation\\:`. Escaping twice changes nothing more."""
        return from_line_start(partial(_OTHER_LABEL.sub, _escape_other), self._labels.escape(text), inline)

    def in_json(self, dumped: str) -> str:
        """Escape labels and fences in the strings of JSON text; the JSON value stays the same."""
        safe = self._labels.armed.sub(lambda m: f"{m[1]}{m[2]}\\u{ord(m[3]):04x}", dumped)
        return safe.replace("```", "\\u0060``")

    @cached_property
    def _any(self) -> str:
        words = sorted(filter(None, (getattr(self, kind) for kind in KINDS)), key=len, reverse=True)
        return "|".join("[ _-]?".join(map(re.escape, word.split())) for word in words)

    @cached_property
    def _kinds(self) -> dict[str, LabelKind]:
        return {_joined(word): kind for kind in reversed(KINDS) if (word := getattr(self, kind))}

    @cached_property
    def _labels(self) -> LabelGuard:
        """Everything that is read as a label, at any place."""
        if not self.inside:
            return LabelGuard(rf"^{_DECORATION}(?:{self._any}){_NUMBER}{_AFTER}", "[:：]", _FLAGS)
        words = rf"(?:(?<![A-Za-z0-9])(?:{self._any})(?: is)?|(?-i:{re.escape(self.observation)}))"
        return LabelGuard(rf"{words}{_NUMBER}{_AFTER}", "[:：]", _FLAGS)


@lru_cache(maxsize=256)
def _joined(word: str) -> str:
    return _BLANK.sub("", word.lower())


def _escape_other(label: re.Match[str]) -> str:
    """Escape a label in other words that acts or answers. A heading with nothing below it is a word."""
    words, sign = label["words"], label[0][len(label["words"]) :]
    harmless = not (label["action"] or label["answer"]) or not (sign or _MORE.match(label.string, label.end()))
    return label[0] if harmless else f"{words}\\{sign}"


USUAL = LabelWords()
"""The labels of ReAct, which many models write unasked."""


def repair_remark(what: str) -> Remark:
    """Return a remark about a repaired deviation from the format."""
    return Remark("repaired", what)


def cut(what: str) -> Remark:
    """Return a remark about an ignored part of the reply."""
    return Remark("cut", what)


def cut_at(end: int, size: int) -> Remark:
    """Return a remark about what follows from an observation in the reply on."""
    return cut(f"an observation the model wrote itself, and what followed ({size - end} characters)")


def replace_halves(text: str, remarks: list[Remark]) -> str:
    """Replace the lone surrogates of a reply, which later steps cannot hold."""
    whole, halved = without_halves(text)
    if halved:
        remarks.append(repair_remark("a broken character was replaced"))
    return str(whole)


def note_surroundings(text: str, found: Found, what: str, remarks: list[Remark]) -> Found:
    """Return the JSON that was found; add a remark about ignored text around it."""
    before, after = text[: found.start].strip(), text[found.end :].strip()
    if before.startswith("```") or before.endswith(("```", "```json")) or after.startswith("```"):
        remarks.append(repair_remark(f"a code fence around the {what} was dropped"))
        before = before.removesuffix("json").removesuffix("```").strip()
        after = after.removeprefix("```").strip()
    if before:
        remarks.append(repair_remark(f"{len(before)} characters of text before the {what} were dropped"))
    if after:
        remarks.append(cut(f"{len(after)} characters after the {what}"))
    return found


def is_plain_name(name: str, words: LabelWords = USUAL) -> bool:
    """Return whether a line of text can hold a tool's name without ambiguity."""
    return (
        0 < len(name) <= 100
        and not set(name) & set("\n\r[]{}:`*\"'")
        and name == name.strip()
        and name.lower() not in (*ANSWER_NAMES, words.answer.lower())
        and words.input.lower() not in name.lower()
        and any(char.isalnum() for char in name)
    )


def tool_of(name: str, tools: Sequence[ToolSpec]) -> ToolSpec | None:
    """The tool of that name, as `tool_name` matches it."""
    return tool_named(tool_name(name, tools, []), tools)


def tool_name(name: str, tools: Sequence[ToolSpec], remarks: list[Remark]) -> str:
    """The name of the tool that is meant: exactly, else without what may stand around a name, else in another case."""
    if tool_named(name, tools) is not None:
        return name
    plain = name.replace("\\_", "_").strip(_BLANKS).strip("`*\"'“”‘’").strip(_BLANKS)
    plain = plain.removesuffix("()").removesuffix("{}").strip() or name.strip()
    if plain[:1] in ("[", "<", "(", "{"):
        plain = plain.strip("[]<>(){}`*\"' ") or plain
    found = plain
    if len(plain) > 200:
        return plain  # not a name, and too long for the patterns below
    for one in dict.fromkeys((plain, _AROUND_NAME.sub("", plain), plain.partition(".")[2], plain.rpartition(".")[2])):
        low = _folded(one)
        same = [tool.name for tool in tools if low and _folded(tool.name) == low]
        alike = [each for each in same if each.lower() == one.lower()] or same
        if one in same or len(alike) == 1:
            found = one if one in same else alike[0]
            break
    if found != name:
        remarks.append(repair_remark(f"the tool {name[:60]!r} was read as {found[:60]!r}"))
    return found


@lru_cache(maxsize=1024)
def _folded(name: str) -> str:
    return re.sub(r"[-. ]", "_", name.lower())
