"""The three ways an action is written as text, each read at its label: blob, lines, bracket.

Which one it is shows in its first characters, so every dialect reads all three; its own is read without
a remark.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct

from plait.core import ToolSpec
from plait.core.loose_json import Found, objects, read_value
from plait.formats import scan
from plait.formats.base import Remark
from plait.formats.objects import NAME_KEYS, first_of, input_value, text_key
from plait.formats.scan import Body, Label, cut, repaired

Syntax = Literal["blob", "lines", "bracket"]

_OPEN = re.compile(r"\s*+(?:```[ \t]*+(?:json5?|python|JSON)?)?\s*+(?=[{\[])")
_FENCE_BEFORE = re.compile(r"```[A-Za-z0-9]{0,10}\s{0,20}\Z")
_CLOSE = re.compile(r"\s*+```")
_NAME = re.compile(r"\s*+[`*\"']{0,3}([^\[\]\n{}:`*\"']{1,100}+)[`*]{0,2}\[")
_BRACKETS = re.compile(r"[\[\]]")
_INPUT_INSIDE = re.compile(r"[ \t,;]{0,4}(?:\bAction[ _])?\bInput[ \t]{0,4}[:：]", re.I)
_MAX_NAME = 100


class Action(Struct, frozen=True):
    """An action as read: its name and input, where it ends in the body, which way it was written.

    `raw` is the input's text as written, for the bracket form. `sure` is False for a line that may as
    well be a sentence.
    """

    name: str
    input: Any
    end: int
    syntax: Syntax
    remarks: tuple[Remark, ...] = ()
    raw: str = ""
    raw_start: int = 0
    sure: bool = True


def action_at(body: Body, label: Label, tools: Sequence[ToolSpec]) -> Action | None:
    """The action that follows a label, None where there is none.

    Raises `NotJson` for an object beyond repair.
    """
    end = body.after(label)
    region = body.text[label.end : end]
    if _OPEN.match(region) is not None:
        return _blob(region, label.end)
    if (head := _NAME.match(region)) is not None:
        return _bracket(region, head, label.end, tools)
    if "{" in region:
        # A few words may stand between the label and the object.
        for found in objects(region):
            if text_key(found.value, NAME_KEYS):
                words = repaired("words between the label and the action's object were passed over")
                return _from_object(found, region, label.end, (words,))
    return _lines(body, label, region, end, tools)


def object_action(text: str, *, fenced: bool) -> tuple[int, Action] | None:
    """An object with the key "action" in `text`: where it (or its fence) starts, and the action.

    With `fenced`, only one in a code fence is taken.
    """
    for found in objects(text):
        if isinstance(found.value.get("action"), str) and found.value["action"].strip():
            fence = _FENCE_BEFORE.search(text, max(0, found.start - 40), found.start)
            if fence is None and fenced:
                continue
            start = fence.start() if fence else found.start
            return start, _from_object(found, text, 0, (), fenced=fence is not None)
    return None


def _blob(region: str, offset: int) -> Action | None:
    opening = _OPEN.match(region)
    assert opening is not None
    found = read_value(region, opening.end())
    value = first_of(found.value)
    if not isinstance(value, Mapping) or text_key(value, NAME_KEYS) is None:
        return None
    notes: list[Remark] = []
    if value is not found.value:
        notes.append(repaired("a list around the action was dropped"))
        if len(found.value) > 1:
            notes.append(cut(f"{len(found.value) - 1} more actions in the list"))
    return _from_object(
        Found(value, found.start, found.end, found.repairs),
        region,
        offset,
        tuple(notes),
        fenced="```" in opening[0],
    )


def _from_object(found: Found, region: str, offset: int, notes: tuple[Remark, ...], *, fenced: bool = False) -> Action:
    remarks = [*notes, *(repaired(f"the action's JSON had {what}") for what in found.repairs)]
    key = text_key(found.value, NAME_KEYS)
    assert key is not None
    if key != "action":
        remarks.append(repaired(f"the tool's name was taken from the key {key!r}"))
    given = input_value(found.value, key, remarks)
    end = found.end
    if fenced and (close := _CLOSE.match(region, end)) is not None:
        end = close.end()
    return Action(found.value[key], given, offset + end, "blob", tuple(remarks))


def _bracket(region: str, head: re.Match[str], offset: int, tools: Sequence[ToolSpec]) -> Action:
    notes: list[Remark] = []
    start = head.end()
    depth, close = 1, -1
    for bracket in _BRACKETS.finditer(region, start):
        depth += 1 if bracket[0] == "[" else -1
        if depth == 0:
            close = bracket.start()
            break
    end = close + 1
    if close < 0:
        line = region.find("\n", start)
        line = len(region) if line < 0 else line
        last = region.rfind("]", start, line)
        close, end = (last, last + 1) if last >= 0 else (line, line)
        notes.append(repaired("the brackets around the input don't match"))
    raw = region[start:close]
    tool = scan.tool_of(head[1], tools)
    # What `Finish[...]` holds is no input: it is read as the answer.
    given = scan.input_of(raw, notes if tool or head[1].strip().lower() != "finish" else [], tool, closed=True)
    return Action(head[1].strip(), given, offset + end, "bracket", tuple(notes), raw, offset + start)


def _lines(body: Body, label: Label, region: str, end: int, tools: Sequence[ToolSpec]) -> Action | None:
    notes: list[Remark] = []
    lead = len(region) - len(region.lstrip())
    stop = region.find("\n", lead)
    stop = len(region) if stop < 0 else stop
    line = region[lead:stop]
    rest = ""
    if (inside := _INPUT_INSIDE.search(line, 0, 400)) is not None:
        notes.append(repaired("the input stood on the action's line"))
        line, rest = line[: inside.start()], region[lead + inside.end() :]
    elif (below := _INPUT_INSIDE.match(region, stop + 1)) is not None:
        notes.append(repaired("the label Action Input: was written in another way"))
        rest = region[below.end() :]
    name = line.strip()
    if not name.strip("`*\"'.,;-_ ") or len(name) > _MAX_NAME:
        return None
    following = body.following(label)
    if following is not None and following.kind == "input" and not rest:
        if region[stop:].strip():
            notes.append(cut("text between the action and its input"))
        finish = body.after(following)
        given = scan.input_of(body.text[following.end : finish], notes, scan.tool_of(name, tools))
        return Action(name, given, finish, "lines", tuple(notes))
    if rest:
        given = scan.input_of(rest, notes, scan.tool_of(name, tools))
        return Action(name, given, end, "lines", tuple(notes))
    known = any(tool.name.lower() == name.strip("`*\"'").lower() for tool in tools)
    return Action(name, None, label.end + stop, "lines", tuple(notes), sure=known)
