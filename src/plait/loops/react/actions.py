"""The three text forms of an action, each read at its label: blob, lines, bracket.

The first characters show the form, so every dialect reads all three; it reads its own without a remark.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from msgspec import Struct, structs

from plait.core import ToolSpec
from plait.core.arguments import InvalidArguments, end_of_arguments, parameter_names, read_arguments, read_input
from plait.core.loose_json import Found, NotJson, objects, read_value
from plait.loops import label_scan
from plait.loops.brackets import close_of_bracket
from plait.loops.call_objects import find_input, first_of, text_key
from plait.loops.format import Remark
from plait.loops.label_scan import Body, Label, LabelWords, cut, repair_remark
from plait.loops.react.dialects import Dialect, Syntax
from plait.loops.vocabulary import INPUT_LABELS, TOOL_WORDS, either, own_first

_OPEN = re.compile(r"\s*+(?:```[ \t]*+(?:json5?|python|JSON)?)?\s*+(?=[{\[])")
_CLOSE = re.compile(r"\s*+```")
_NAME = re.compile(r"\s*+[`*\"']{0,3}([^\[\]\n{}:`*\"']{1,100}+)[`*]{0,2}\[")
# A name with its input right behind it: `search("Lyon")`, `search {"query": "Lyon"}`, `search: Lyon`.
_HEAD = re.compile(
    r"\s*+[\[<`*\"']{0,3}(?:functions?\.|tools?\.|default_api\.)?([A-Za-z_](?:[\w.-]|\\_){0,80})[`*\"'>]{0,3}[ \t]{0,3}"
    r"(\(|\s{0,9}(?:```(?:json)?\s{0,4})?(?=\{)|[:=](?=[ \t]*\S)|(?=[\"“][^\n]*+$)|(?=\n\s{0,9}(?:```|\"|\[)))",
    re.M,
)
_AFTERWORD = re.compile(
    r"(?<=\S)[ \t\r]*\n[ \t\r]*\n\s*(?=(?:I|I'll|I'm|We|Let|Once|After|This|These|Now|Then|Please|Note|Waiting|Based"
    r"|The (?:result|output|tool|search|observation|action|answer))\b)"
)
_IN_BRACKETS = re.compile(r"\s*+[\[<({]{1,2}[\w. -]{1,80}[\])>}]{1,2}[ \t]*+(?:\n|\Z)")
_WORDS = re.compile(r"([A-Za-z_][\w.-]{0,80})[ \t]+(?:for[ \t]+)?(\S.*)")
_MAX_NAME = 100
_NAME_KEYS = own_first("action", (*TOOL_WORDS, "name"))


@lru_cache(maxsize=16)
def _input_label(word: str) -> re.Pattern[str]:
    """Return the pattern of an input's label inside a line, or in another way; `word` is the dialect's own."""
    own = "[ -]".join(map(re.escape, word.split()))
    others = rf"(?:\b(?:Action|Tool|Function)[ _-]?)?\b(?:{either(INPUT_LABELS)})"
    sign = r"[*_`]{0,3}[ \t]{0,4}[:：](?:\*\*|__)?"
    return re.compile(rf"[ \t,;*_`-]{{0,6}}(?:{others}|\b{own}){sign}", re.I)


class ParsedAction(Struct, frozen=True):
    """An action as read: its name and input, its end in the body, and its form.

    `raw` is the input's text as written, for the bracket form. `sure` is False for a line that may be a sentence.
    `half` says what the input lacks at its end, "" for a whole one.
    """

    name: str
    input: Any
    end: int
    syntax: Syntax
    remarks: tuple[Remark, ...] = ()
    raw: str = ""
    raw_start: int = 0
    sure: bool = True
    half: str = ""


def action_at(body: Body, label: Label, tools: Sequence[ToolSpec], dialect: Dialect) -> ParsedAction | None:
    """Return the action that follows a label, or None. Raises `NotJson` for an object beyond repair or never closed."""
    following = body.following(label)
    end = following.start if following else len(body.text)
    region = body.text[label.end : end]
    labelled = following is not None and following.kind == "input"
    if (head := _HEAD.match(region)) is not None and (tool := label_scan.tool_of(head[1], tools)) is not None:
        if (beside := _beside(region, head, label.end, tool, body.words, labelled=labelled)) is not None:
            return beside
    elif _IN_BRACKETS.match(region) is not None and label_scan.tool_of(region.partition("\n")[0], tools) is not None:
        return _lines(body, label, region, end, tools)
    if (opening := _OPEN.match(region)) is not None:
        found = read_value(region, opening.end())
        value = first_of(found.value)
        if not isinstance(value, dict) or text_key(value, _NAME_KEYS) is None:
            return None
        notes: list[Remark] = []
        if value is not found.value:
            notes.append(repair_remark("a list around the action was dropped"))
            if len(found.value) > 1:
                notes.append(cut(f"{len(found.value) - 1} more actions in the list"))
        fenced = "```" in opening[0]
        return _from_object(structs.replace(found, value=value), region, label.end, notes, fenced=fenced)
    if (head := _NAME.match(region)) is not None and not (labelled and label_scan.tool_of(head[1], tools)):
        return _bracket(region, head, label.end, tools, dialect)
    if "{" in region:
        # A few words may come between the label and the object.
        for found in objects(region):
            if text_key(found.value, _NAME_KEYS):
                words = repair_remark("words between the label and the action's object were passed over")
                return _from_object(found, region, label.end, [words])
            if len(found.value) == 1 or "function" in found.value:
                break  # a call in another notation
    return _lines(body, label, region, end, tools)


def _beside(
    region: str, head: re.Match[str], offset: int, tool: ToolSpec, words: LabelWords, *, labelled: bool
) -> ParsedAction | None:
    """Return an action with its input right behind the tool's name, or None. Raises `NotJson`."""
    notes = [repair_remark(f"the tool {head[1]!r} was read as {tool.name!r}")] if head[1] != tool.name else []
    notes.append(repair_remark("the input stood beside the tool's name"))
    at = head.end()
    if head[2] == "(":
        if set("\"'") & set(head[0]):
            return None  # a call in a string
        close = end_of_arguments(region, at)
        if close < 0:
            raise NotJson("a parenthesis is never closed", at, unclosed=True)
        if labelled and not region[at:close].strip():
            return None
        try:
            read = read_arguments(region[at:close], tool.parameters)
        except InvalidArguments as why:
            raise NotJson(str(why), at, unclosed=True) from None
        notes += map(repair_remark, read.repairs)
        return ParsedAction(tool.name, read.value, offset + close + 1, "lines", tuple(notes))
    if labelled:
        return None
    if region[at : at + 1] == "{":
        found = read_value(region, at)
        if found.value == {} or text_key(found.value, ("action",)):
            return None
        notes += [repair_remark(f"the input's JSON had {what}") for what in found.repairs]
        end = _CLOSE.match(region, found.end)
        return ParsedAction(tool.name, found.value, offset + (end.end() if end else found.end), "lines", tuple(notes))
    text, half = region[at:], ""
    opening = text.lstrip()[:1]
    if opening == "[" and close_of_bracket(text, text.index("[") + 1) is None:
        half = f"The input of {tool.name} is never closed: end it with `]`."
    elif head[2] in (":", "=") and opening not in ("{", "[", "`", '"'):
        text, _, below = text.partition("\n")
        if below.strip() and not tool.read_only:
            half = f"Write the input of {tool.name} in the form that was asked for: it is not clear where it ends."
    given, upto, unclosed = _read_input(text, notes, tool.name, tool, words)
    return ParsedAction(tool.name, given, offset + at + upto, "lines", tuple(notes), half=half or unclosed)


def _read_input(
    text: str, notes: list[Remark], name: str, tool: ToolSpec | None, words: LabelWords, *, closed: bool = False
) -> tuple[Any, int, str]:
    """Return the value of an input, where its text ends, and what it lacks at its end."""
    try:
        return *read_value_text(text, notes, tool, closed=closed, words=words), ""
    except InvalidArguments as why:
        return text.strip(), len(text), f"The input of {name} can't be read: {why}."


def _from_object(
    found: Found, region: str, offset: int, remarks: list[Remark], *, fenced: bool = False
) -> ParsedAction:
    for what in found.repairs:
        remarks.append(repair_remark(f"the action's JSON had {what}"))
    key = text_key(found.value, _NAME_KEYS)
    assert key is not None
    if key != "action":
        remarks.append(repair_remark(f"the tool's name was taken from the key {key!r}"))
    usual = "tool_input" if key == "tool" else "action_input"
    given, taken = find_input(found.value, usual, (key, "thought"))
    if taken and taken != usual:
        remarks.append(repair_remark(f"the input was taken from the key {taken!r}"))
    elif not taken:
        beside = "the keys beside the tool's name were taken for its input"
        remarks.append(repair_remark(beside if given else "the input is missing: none was taken"))
    end = found.end
    if fenced and (close := _CLOSE.match(region, end)) is not None:
        end = close.end()
    return ParsedAction(found.value[key], given, offset + end, "blob", tuple(remarks))


def _bracket(
    region: str, head: re.Match[str], offset: int, tools: Sequence[ToolSpec], dialect: Dialect
) -> ParsedAction:
    notes: list[Remark] = []
    start = head.end()
    close = close_of_bracket(region, start)
    stop = start + len(region[start:].partition("\n")[0]) if close is None else close
    raw = region[start:stop]
    tool, name = label_scan.tool_of(head[1], tools), head[1].strip()
    # `Finish[...]` holds an answer, not an input.
    kept = notes if tool or name.lower() not in ("finish", dialect.finish.lower()) else []
    given, _, half = _read_input(raw, kept, name, tool, dialect.words, closed=True)
    if close is None:
        half = f"The input of {name} is never closed: end it with `]`."
    end = offset + stop + (close is not None)
    return ParsedAction(name, given, end, "bracket", tuple(notes), raw, offset + start, half=half)


def _lines(body: Body, label: Label, region: str, end: int, tools: Sequence[ToolSpec]) -> ParsedAction | None:
    notes: list[Remark] = []
    lead = len(region) - len(region.lstrip())
    stop = region.find("\n", lead)
    stop = len(region) if stop < 0 else stop
    line = region[lead:stop]
    rest, words, input_label = "", body.words, _input_label(body.words.input)
    if (inside := input_label.search(line, 0, 400)) is not None:
        notes.append(repair_remark("the input stood on the action's line"))
        line, rest = line[: inside.start()], region[lead + inside.end() :]
    elif (below := input_label.match(region, stop + 1)) is not None:
        notes.append(repair_remark(f"the label {words.input}: was written in another way"))
        rest = region[below.end() :]
    name = line.strip()
    if not name.strip("`*\"'.,;-_ ") or len(name) > _MAX_NAME:
        return None
    tool, following, start = label_scan.tool_of(name, tools), body.following(label), end - len(rest)
    labelled = following is not None and following.kind == "input"
    if following is not None and labelled and not rest:
        if region[stop:].strip():
            notes.append(cut("text between the action and its input"))
        start, rest = following.end, body.text[following.end : body.after(following)]
    if rest or labelled:
        given, upto, half = _read_input(rest, notes, name, tool, words)
        return ParsedAction(name, given, start + upto, "lines", tuple(notes), half=half)
    if (said := _WORDS.match(name)) is not None and tool is None:
        meant = label_scan.tool_of(said[1], tools)
        if meant is not None and meant.read_only and len(parameter_names(meant.parameters)) == 1:
            notes.append(repair_remark("the input stood beside the tool's name"))
            return ParsedAction(meant.name, said[2].strip(), label.end + stop, "lines", tuple(notes), sure=False)
    return ParsedAction(name, None, label.end + stop, "lines", tuple(notes), sure=tool is not None)


def read_value_text(
    text: str, remarks: list[Remark], tool: ToolSpec | None = None, *, closed: bool = False, words: LabelWords
) -> tuple[Any, int]:
    """Read the value of an action's input; also return where its text ends. Raises `InvalidArguments`."""
    if tool is not None and tool.read_only and not closed and (more := _AFTERWORD.search(text)) is not None:
        # A search is one paragraph: what follows is the model talking.
        remarks.append(cut(f"{len(text) - more.start()} characters after the input"))
        text = text[: more.start()]
    read = read_input(text, tool.parameters if tool is not None else {}, closed=closed)
    remarks += map(repair_remark, read.repairs)
    if read.cut:
        remarks.append(cut(f"{len(read.cut)} characters after the input"))
    end = text.rfind(read.cut) if read.cut else len(text)
    value = words.unguard(read.value) if read.plain and isinstance(read.value, str) else read.value
    return value, end if end >= 0 else len(text)
