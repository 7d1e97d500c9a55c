"""Reads a list of actions from a reply: finds the list, and interprets each entry."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from graphlib import CycleError, TopologicalSorter
from typing import Any

from msgspec import structs

from plait.core import JSON, Step, ToolSpec
from plait.core.arguments import UNCLOSED, separate_inputs
from plait.core.loose_json import (
    BACKSLASH,
    BARE_KEY,
    COMMA,
    COMMENT,
    LITERAL,
    QUOTES,
    RAW_BREAK,
    Found,
    NotJson,
    is_unclosed,
    read_value,
    values,
)
from plait.core.tools import tool_named
from plait.loops.call_objects import ObjectForm, text_key
from plait.loops.format import Remark, Unreadable
from plait.loops.label_scan import cut, note_surroundings, repair_remark, replace_halves, tool_name
from plait.loops.mentioned_calls import made_calls
from plait.loops.references import RESULTS, refer_to_steps
from plait.loops.tool_descriptions import argument_types
from plait.loops.vocabulary import LONG_INPUTS, PLAIN_INPUTS, TOOL_WORDS

BASIC = "Basic"
"""The action that means "nothing needed"."""

SHAPE = 'Reply with a JSON list and nothing else: [{"ACTION": name, "ARGUMENTS": [...], "EXPLANATION": text}].'


def _spelt(*keys: str) -> tuple[str, ...]:
    """Return the keys in the spellings that models use: upper case, lower case, capitalized."""
    return tuple(dict.fromkeys(form for key in keys for form in (key.upper(), key.lower(), key.title())))


OBJECT = ObjectForm(
    ("ACTION", "ARGUMENTS", "EXPLANATION"),
    name=_spelt("ACTION", *TOOL_WORDS),
    input=_spelt("ARGUMENTS", "ARGUMENT", *PLAIN_INPUTS, *LONG_INPUTS),
    words=_spelt("EXPLANATION", "EXPLAINATION", "REASON", "WHY", "THOUGHT"),
)
_SIMPLE = ("string", "integer", "number", "boolean")

# Where a list of objects, an empty list or an object may begin.
_OPEN = re.compile(r"""\[(?=\s*+[{\]])|\{(?=\s*+(?:["'‘’“”„}/#]|[A-Za-z_]\w*+\s*+:))""")
# Allowed between two lists that are meant as one.
_NO_WORDS = re.compile(r"[\s,;`*-]*(?:json)?[\s`]*")
_NAMED = re.compile(rf"""["']?\b(?:{"|".join(OBJECT.name)})["']?\s{{0,9}}:\s{{0,9}}["']([^"'\n]{{1,100}})""")
_CALLED = re.compile(r"\b([A-Za-z_][\w.-]{0,63})[(\[](?!\])")
_HEAD = 400
"""Characters at the beginning of an object that must hold its key."""
# Repairs that do not change the meaning of the text.
_PUNCTUATION = frozenset({QUOTES, BARE_KEY, COMMA, LITERAL, RAW_BREAK, BACKSLASH, COMMENT})


def steps_in(text: str, tools: Sequence[ToolSpec], most: int) -> tuple[tuple[Step, ...], str | None, list[Remark]]:
    """Return the actions in a reply, including `Basic`, the list as the model wrote it, and what was repaired or cut.

    The list is None if the reading differs from the text: brackets were repaired, a part was cut, or words were
    replaced by references. Raises `Unreadable`.
    """
    notes: list[Remark] = []
    text = replace_halves(text, notes)
    found = _find(text, tools, notes)
    notes += [repair_remark(f"the JSON had {what}") for what in found.repairs]
    entries = found.value
    changed = len(entries) > most or (text[found.start] != "[" and len(entries) > 1)
    if len(entries) > most:
        notes.append(cut(f"{len(entries) - most} of {len(entries)} actions: {most} count"))
    named: list[Step] = []
    for place, entry in enumerate(entries[:most], 1):
        before = len(notes)
        step = _step(entry, place, tools, notes)
        named.append(refer_to_steps("action", step, named, "$", notes))
        changed |= named[-1] is not step or any(note.kind == "cut" for note in notes[before:])
    ids = {step.id for step in named if not is_basic(step, tools)}
    needs = [[id for id in RESULTS.meant(each.input, ids - {each.id}) if id in ids - {each.id}] for each in named]
    steps = tuple(structs.replace(step, needs=tuple(found)) for step, found in zip(named, needs, strict=True))
    try:
        TopologicalSorter({step.id: step.needs for step in steps}).prepare()
    except CycleError as why:
        ring = " -> ".join(f"${id}" for id in reversed(why.args[1]))
        raise Unreadable(f"These actions wait for each other's results: {ring}. {SHAPE}") from None
    as_written = not changed and _PUNCTUATION.issuperset(found.repairs)
    return steps, text[found.start : found.end] if as_written else None, notes


# -- finding the list


def _find(text: str, tools: Sequence[ToolSpec], notes: list[Remark]) -> Found:
    """Find the list of entries in a reply with other text, and its place. If a part of the reply looks like an action
    and cannot be read, the whole reply is unreadable: half of a list never runs."""
    names = frozenset(tool.name.lower() for tool in tools)
    lists: list[Found] = []
    loose: list[Found] = []
    empty: list[Found] = []
    broken: NotJson | None = None
    other: Found | None = None
    for begin, found in values(text, _OPEN):
        if isinstance(found, NotJson):
            if broken is None or (text[begin] == "[" and text[broken.position : broken.position + 1] != "["):
                broken = found
            named = _NAMED.search(text[begin : begin + _HEAD])
            is_action = named is not None and (not names or named[1].strip().lower() in names)
            if text[begin] == "[" or found.unclosed or is_action:
                raise Unreadable(_complaint(text, found, None))
            continue
        if (entries := _entries(found.value)) is not None:
            if not isinstance(found.value, list):
                notes.append(repair_remark("an object around the list was dropped"))
            lists.append(Found(entries, found.start, found.end, found.repairs))
        elif isinstance(found.value, Mapping) and text_key(found.value, OBJECT.name):
            loose.append(found)
        elif found.value == []:
            empty.append(found)
        else:
            other = other or found
    whole = all(isinstance(entry, Mapping) and text_key(entry, OBJECT.name) for each in lists for entry in each.value)
    if not (lists and whole) and len(calls := made_calls(text, tools)) > len(loose):
        if wrong := next((f"Your call of {call.name[:60]!r}: {call.broken}" for call in calls if call.broken), ""):
            raise Unreadable(f"{wrong}. {SHAPE}")
        listed = [{"ACTION": call.name, "ARGUMENTS": call.value, "EXPLANATION": call.thought} for call in calls]
        return Found(listed, calls[0].start, calls[-1].end, ("calls in another notation",))
    if lists:
        return note_surroundings(text, _one_list(text, lists, loose, notes), "list", notes)
    if loose:
        what = "an action without" if len(loose) == 1 else f"{len(loose)} actions without"
        notes.append(repair_remark(f"{what} a list around"))
        return note_surroundings(text, _joined(loose, [found.value for found in loose]), "list", notes)
    alone = next((found for found in (*empty[:1], *empty[-1:]) if _stands_alone(text, found)), None)
    if alone is not None and "{" not in text and not any(m[1].lower() in names for m in _CALLED.finditer(text)):
        return note_surroundings(text, alone, "list", notes)
    raise Unreadable(_complaint(text, broken, other))


def _one_list(text: str, lists: list[Found], loose: list[Found], notes: list[Remark]) -> Found:
    """Return the intended list of a reply with several. Raises `Unreadable` if it is not clear."""
    first, *more = lists
    outside = [found for found in loose if found.value not in first.value]
    if all(found.value == first.value for found in more) and not outside:
        return first
    ends = [first.end, *(found.end for found in more)]
    gaps = [text[end : found.start] for end, found in zip(ends, more, strict=False)]
    if outside or not all(_NO_WORDS.fullmatch(gap) for gap in gaps):
        raise Unreadable(
            f"There is more than one list of actions in your reply. Write one list with all of them. {SHAPE}"
        )
    notes.append(repair_remark(f"{len(lists)} lists were read as one"))
    return _joined(lists, [entry for found in lists for entry in found.value])


def _joined(parts: Sequence[Found], entries: list[Any]) -> Found:
    repairs = tuple(dict.fromkeys(repair for found in parts for repair in found.repairs))
    return Found(entries, parts[0].start, parts[-1].end, repairs)


def _stands_alone(text: str, found: Found) -> bool:
    """Return whether an empty list is the whole reply or ends a line, rather than being part of a sentence."""
    line = text[text.rfind("\n", 0, found.start) + 1 : found.start].strip(" \t`*>")
    after = text[found.end :].split("\n", 1)[0].strip(" \t\r`*.")
    return not after and (not line or line[-1] in ":.!;=-\u2013\u2014" or line.lower() == "json")


def _entries(value: Any) -> list[Any] | None:
    """Return the entries in a list of actions, or in an object that holds one and is not an action itself."""
    if isinstance(value, list):
        names = any(isinstance(entry, Mapping) and text_key(entry, OBJECT.name) for entry in value)
        return value if names else None
    if isinstance(value, Mapping) and not text_key(value, OBJECT.name):
        return next(
            (entries for held in value.values() if isinstance(held, list) and (entries := _entries(held))), None
        )
    return None


def _complaint(text: str, trouble: NotJson | None, other: Found | None) -> str:
    if trouble is not None:
        return f"Your JSON can't be read: {trouble.what} ({trouble.where(text)}). {SHAPE}"
    if other is not None:
        return f'Your JSON has no key "ACTION" with the name of an action. {SHAPE}'
    return f"{'There is no JSON list in your reply' if text.strip() else 'Your reply is empty'}. {SHAPE}"


# -- one entry


def _step(entry: Any, place: int, tools: Sequence[ToolSpec], notes: list[Remark]) -> Step:
    key, given, why = OBJECT.find_keys(entry) if isinstance(entry, Mapping) else (None, None, None)
    if key is None:
        raise Unreadable(f'Entry {place} of your list has no "ACTION" with the name of an action. {SHAPE}')
    name = tool_name(entry[key], tools, notes)
    tool = tool_named(name, tools)
    rest = {word: value for word, value in entry.items() if word not in (key, given, why)}
    for used, wanted in zip((key, given, why), OBJECT.keys, strict=True):
        if used is None:
            notes.append(repair_remark(f"{wanted} is missing"))
        elif used != wanted:
            notes.append(repair_remark(f"{wanted} was taken from the key {used!r}"))
    if given is None and rest and tool is not None and rest.keys() <= argument_types(tool).keys():
        notes.append(repair_remark("the keys beside ACTION were taken for its arguments"))
        value: JSON = rest
    else:
        if rest:
            notes.append(cut(f"the keys {', '.join(sorted(rest))[:80]}, which an action does not have"))
        value = _input(entry[given] if given is not None else None, tool, notes)
    words = entry[why] if why is not None else ""
    if not isinstance(words, str):
        notes.append(repair_remark("an EXPLANATION was not text"))
        words = "" if words is None else json.dumps(words, ensure_ascii=False)
    return Step(str(place), name, value or None, words)


def _input(value: JSON, tool: ToolSpec | None, notes: list[Remark]) -> JSON:
    """Return the arguments as None, a list or an object."""
    if tool is not None and separate_inputs(value, tool.parameters) == [None]:
        return None  # `[""]` or `[null]` for a tool without parameters
    if value is None or isinstance(value, Mapping):
        return value
    if tool is not None and tool.read_only and not argument_types(tool):
        # An effect may be meant for these arguments only, so the model is asked again for such a tool.
        notes.append(repair_remark(f"the arguments of {tool.name}, which takes none, were dropped"))
        return None
    if isinstance(value, str) and is_unclosed(value):
        raise Unreadable(f"ARGUMENTS can't be read: {UNCLOSED}. {SHAPE}")
    if not isinstance(value, list):
        notes.append(repair_remark("ARGUMENTS was one value and no list"))
        if isinstance(value, str) and value.strip()[:1] in ("[", "{"):
            with suppress(NotJson):
                found = read_value(value)
                if not value[found.end :].strip() and isinstance(found.value, list | dict):
                    return found.value
        return [value]
    only = value[0] if len(value) == 1 else None
    if isinstance(only, Mapping) and only and tool is not None and only.keys() <= argument_types(tool).keys():
        first = next(iter(tool.parameters["properties"].values()))
        if first.get("type") in _SIMPLE:  # not a value of an object, so these are arguments by name
            notes.append(repair_remark("the object in ARGUMENTS was taken for arguments by name"))
            return only
    return value


def is_basic(step: Step, tools: Sequence[ToolSpec]) -> bool:
    """Return whether the step means "nothing needed"."""
    return step.tool.lower() == BASIC.lower() and all(tool.name != step.tool for tool in tools)
