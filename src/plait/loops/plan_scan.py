"""Finds where a plan's lines begin in a reply, and reads the call of a step.

The text is first cut at every head: a label `Plan:` at the start of a line, `#E1 =` at the start of a line, or `#E1 =`
before `Name[` inside one. Each part is then read by itself, so the whole is linear in the text. All patterns have
bounded or possessive repeats.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct

from plait.core import JSON, ToolSpec
from plait.core.arguments import (
    UNCLOSED,
    InvalidArguments,
    end_of_arguments,
    parameter_names,
    read_input,
    read_keywords,
)
from plait.core.loose_json import NotJson, is_unclosed, read_float, read_value
from plait.loops.brackets import close_of_bracket
from plait.loops.escape import LabelGuard
from plait.loops.format import Remark, Unreadable
from plait.loops.label_scan import repair_remark, tool_of
from plait.loops.vocabulary import either

_FLAGS = re.M | re.A
_AFTER = r"[*_`]{0,3}[ \t]{0,4}"
_LABEL = r"^[ \t>*_#`-]{0,12}(?i:plan(?:[ \t]{0,3}#?\d{1,6})?|step[ \t]{0,3}#?\d{1,6})" + _AFTER + r"[:：](?:\*\*|__)?"
_LEAD = r"^[ \t>*_`-]{0,12}(?:\d{1,3}[.)][ \t]{1,4}[*_`]{0,3})?"
_CALL_NEXT = r"[ \t]{0,4}(?=[*_`]{0,3}[A-Za-z_][\w.-]{0,63}[*_`]{0,3}\[)"
HEAD = re.compile(
    rf"(?P<plan>{_LABEL})"
    rf"|{_LEAD}#[Ee](?P<line>\d{{1,6}}){_AFTER}="
    rf"|{_LEAD}#?[Ee](?P<loose>\d{{1,6}}){_AFTER}[=:：]{_CALL_NEXT}"
    rf"|(?<=[\s;,.(])#[Ee](?P<inside>\d{{1,6}}){_AFTER}=[ \t]{{0,4}}{_CALL_NEXT}",
    _FLAGS,
)
# Text in data that could pass for a label of a plan, for a reference or for a step.
SHOWN = (
    re.compile(
        rf"^([ \t>*_#`-]{{0,12}}(?i:plan|step|evidence)(?:[ \t]{{0,3}}#?E?\d{{1,6}})?{_AFTER})(?=[:：])", re.M | re.A
    ),
    re.compile(rf"(#)(?=E\d{{1,6}}(?!\w)|[Ee]\d{{1,6}}{_AFTER}[=:：])", re.A),
    re.compile(rf"({_LEAD}[Ee]\d{{1,6}}{_AFTER})(?=[=:：]{_CALL_NEXT})", _FLAGS),
)
# Whatever HEAD may match of a step, at any place.
STEPS = LabelGuard(rf"#[Ee]\d{{1,6}}{_AFTER}", "[=:：]", re.A)

_NAME = re.compile(r"\s{0,4}[`*\"']{0,3}([^\[\](){}\n:=`*\"']{1,100}+)[`*\"']{0,3}[ \t]{0,4}\[")
_ROUND = re.compile(r"\s{0,4}[`*]{0,3}((?:[\w .-]|\\_){1,100}+)[`*]{0,3}\(")
_BARE = re.compile(r'\\.|"(?:[^"\\]++|\\.)*+"|\'(?:[^\'\\\n]++|\\.)*+\'|(#E\d{1,6})(?!\w)', re.S | re.A)
_QUOTED = re.compile(r"['‘“]([^'‘’“”\"]*+)['’”]")
_NAMED = re.compile(r"[A-Za-z_]\w{0,63}[ \t]{0,4}[=:]", re.A)


class Part(Struct, frozen=True):
    """A head and the text up to the next head. `id` is "" for a line of thought."""

    id: str
    text: str
    line: int


def parts_of(text: str) -> tuple[str, list[Part]]:
    """Return the text before the first head, and the parts in order."""
    heads = list(HEAD.finditer(text))
    if not heads:
        return text, []
    ends = [head.start() for head in heads[1:]] + [len(text)]
    parts: list[Part] = []
    line, at = 1, 0
    for head, end in zip(heads, ends, strict=True):
        line += text.count("\n", at, head.start())
        at = head.start()
        number = head["line"] or head["loose"] or head["inside"]
        parts.append(Part(f"E{int(number)}" if number else "", text[head.end() : end], line))
    return text[: heads[0].start()], parts


class StepCall(Struct, frozen=True):
    """A step's call as written: the tool's name, the text in its brackets, and the text behind them."""

    name: str
    raw: str
    rest: str


def call_of(text: str, tools: Sequence[ToolSpec], remarks: list[Remark]) -> StepCall | None:
    """Return the call behind `#E1 =`, or None. Raises `Unreadable` for an input that is never closed."""
    if (head := _NAME.match(text)) is not None:
        if (close := close_of_bracket(text, head.end())) is None:
            raise Unreadable(f"The input of {head[1].strip()} is never closed: end it with `]`.")
        return StepCall(head[1].strip(), text[head.end() : close], text[close + 1 :])
    known = {tool.name.lower() for tool in tools}
    if (head := _ROUND.match(text)) is not None and tool_of(head[1], tools) is not None:
        remarks.append(repair_remark("round brackets around an input were taken for square ones"))
        if (close := end_of_arguments(text, head.end())) < 0:
            raise Unreadable(f"The input of {head[1].strip()} is never closed: end it with `)`.")
        return StepCall(head[1].strip(), text[head.end() : close], text[close + 1 :].lstrip(" .;`*"))
    start = len(text) - len(text.lstrip())
    end = text.find("\n", start)
    end = len(text) if end < 0 else end
    line = text[:end].strip()
    name, _, rest = line.partition(" ")
    if (plain := name.strip("`*:,.\"'")).lower() in known:
        if any(map(str.isalnum, text[end:])):
            raise Unreadable(f"It is not clear where the input of {plain} ends: write `{plain}[input]`.")
        remarks.append(repair_remark("an input without brackets was taken"))
        return StepCall(plain, rest.lstrip(" :="), text[end:])
    return None


def input_of(raw: str, tool: ToolSpec | None, remarks: list[Remark]) -> JSON:
    """Read the value in a step's brackets: JSON objects, lists and strings; other input as text; None for no input.

    `tool`, if known, distinguishes named arguments (`city="Lyon", days=3`) from text that looks like them. Raises
    `Unreadable` for JSON that is never closed.
    """
    text = raw.strip()
    names = parameter_names(tool.parameters) if tool is not None else []
    try:
        keyed = read_keywords(_with_quotes(text), tool.parameters) if tool is not None else None
    except InvalidArguments as why:
        raise Unreadable(f"An input can't be read: {why}.") from None
    if keyed is not None:
        remarks += map(repair_remark, keyed.repairs)
        return keyed.value[names[0]] if len(names) == 1 and isinstance(keyed.value, dict) else keyed.value
    if names and (given := _by_name(text, names)) is not None:
        remarks.append(repair_remark("arguments written as name=value were taken by name"))
        return given
    if len(names) > 1 and text[:1] in ('"', "#") and (listed := _listed(text)) is not None:
        return listed
    if text[:1] in ("{", "[", '"'):
        quoted = _with_quotes(text)
        try:
            read = read_input(quoted, {}, closed=True)
        except InvalidArguments as why:
            raise Unreadable(f"An input can't be read: {why}.") from None
        if not read.plain and not (isinstance(read.value, str) and read.repairs):
            remarks += [repair_remark("a reference in a JSON input was put in quotes")] if quoted != text else []
            remarks += map(repair_remark, read.repairs)
            return read.value
    if (inside := _QUOTED.fullmatch(text)) is not None:
        remarks.append(repair_remark("quotes around an input were dropped"))
        return inside[1]
    return text or None


def is_plain_input(text: str) -> bool:
    """Return whether every reader takes this text as it is, for any tool."""
    return text[:1] not in ("", *"{[\"'‘“") and not (text[0] == "#" and "," in text) and _NAMED.match(text) is None


def _with_quotes(text: str) -> str:
    """Return JSON text with its bare references in quotes."""
    return _BARE.sub(lambda match: f'"{match[1]}"' if match[1] else match[0], text)


def _by_name(text: str, names: Sequence[str]) -> JSON:
    """Read `a=1, b="x"` as an object, if each name is one of `names`; with one name, return the value alone."""
    marks = list(re.finditer(rf"(?:\A|,)\s{{0,9}}({either(names)})[ \t]{{0,4}}[=:]", text))
    if not marks or marks[0].start() != 0:
        return None
    if len(names) == 1:
        marks = marks[:1]
    ends = [mark.start() for mark in marks[1:]] + [len(text)]
    given = {mark[1]: _scalar(text[mark.end() : end].strip()) for mark, end in zip(marks, ends, strict=True)}
    return next(iter(given.values())) if len(names) == 1 else given


def _scalar(text: str) -> JSON:
    quoted = _QUOTED.fullmatch(text)
    if quoted is not None:
        return quoted[1]
    given = _with_quotes(text)
    if is_unclosed(given):
        raise Unreadable(f"An input can't be read: {UNCLOSED}.")
    try:
        found = read_value(given)
    except NotJson:
        return text
    return found.value if found.end == len(given) else text


def _listed(text: str) -> JSON:
    """Read `"a", 3` as a list, if it has two values or more."""
    try:
        value: Any = json.loads(f"[{_with_quotes(text)}]", parse_float=read_float)
    except (ValueError, RecursionError):
        return None
    return value if len(value) > 1 else None


def lines_of(text: str) -> Iterator[str]:
    """Yield the lines of a text except comments (`# ...`), fences and blank lines."""
    for line in text.split("\n"):
        flat = " ".join(line.split())
        if flat and not flat.startswith(("# ", "```")) and flat != "#":
            yield flat
