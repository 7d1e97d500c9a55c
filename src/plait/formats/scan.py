"""What the text formats share in reading: labels, the cut at an observation, and making data harmless.

A label is a word of the protocol with a colon: `Thought:`, `Action 3:`, `**Final Answer:**`. The reader
takes labels at the start of a line, in any case, with a number, with Markdown around them, and with a
full-width colon. `Observation:` is taken anywhere, because a stop string is as well.

`guard` puts one backslash before the colon of whatever could be read as a label, and `unguard` takes one
away again, so that any text survives being written and read. `disarm` does the same to data for good,
and to the other things a format takes for its own (fences, objects that look like an action).
All patterns have bounded or possessive repeats: each is linear in the text.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, Literal

from msgspec import Struct

from plait.core import ToolSpec
from plait.core.arguments import read_input
from plait.core.loose_json import without_halves
from plait.formats.base import Remark, Unreadable

LabelKind = Literal["thought", "action", "input", "observation", "answer"]

_WORDS = r"thought|action[ _]input|action|observation|final[ _]answer"
_NUMBER = r"(?:[ \t]{0,3}#?\d{1,9})?"
_AFTER = r"[*_`]{0,3}[ \t]{0,4}"
_FLAGS = re.M | re.I | re.A

LABEL = re.compile(
    rf"^[ \t>*_#`-]{{0,12}}({_WORDS})({_NUMBER}){_AFTER}[:：](?:\*\*|__)?",
    _FLAGS,
)
OBSERVATION = re.compile(rf"Observation{_NUMBER}{_AFTER}[:：]", re.A)
_ACTION_INSIDE = re.compile(rf"(?<![A-Za-z0-9])Action{_NUMBER}{_AFTER}[:：](?:\*\*|__)?", re.A)
# Everything LABEL, OBSERVATION and _ACTION_INSIDE can see, wherever it stands.
_GUARDED = re.compile(rf"((?:(?<![A-Za-z0-9])(?:{_WORDS})|(?-i:Observation)){_NUMBER}{_AFTER})(\\*+)([:：])", _FLAGS)
_GUARD_OFF = re.compile(
    rf"((?:(?<![A-Za-z0-9])(?:{_WORDS})|(?-i:Observation)){_NUMBER}{_AFTER})\\(\\*+)([:：])", _FLAGS
)
_FENCE = re.compile(r"(```)(\\*+)(?=[A-Za-z0-9]{0,10}\s*+[{\[])")
_FENCE_OFF = re.compile(r"(```)\\(\\*+)(?=[A-Za-z0-9]{0,10}\s*+[{\[])")
_LEFTOVER = re.compile(r"\s*(?:<end_code>|</code>?|<\|im_end\|>|</s>)\s*\Z", re.I)

_KINDS: dict[str, LabelKind] = {
    "thought": "thought",
    "action": "action",
    "action input": "input",
    "observation": "observation",
    "final answer": "answer",
}


class Label(Struct, frozen=True):
    """A label in a text: its kind, its number (0 where it has none), and where it stands, text[start:end]."""

    kind: LabelKind
    number: int
    start: int
    end: int


class Body(Struct, frozen=True):
    """A reply up to its first observation: the text, its labels in order, and what was cut."""

    text: str
    labels: tuple[Label, ...]
    remarks: tuple[Remark, ...]

    def of(self, kind: LabelKind) -> list[Label]:
        """The labels of one kind, in order."""
        return [label for label in self.labels if label.kind == kind]

    def following(self, label: Label) -> Label | None:
        """The label after this one."""
        index = bisect_right(self.labels, label.start, key=lambda one: one.start)
        return self.labels[index] if index < len(self.labels) else None

    def after(self, label: Label) -> int:
        """Where what belongs to a label ends: the next label's start, or the text's end."""
        following = self.following(label)
        return following.start if following else len(self.text)


def body_of(text: str) -> Body:
    """The part of a reply that is the model's to write, with its labels. An own observation ends it."""
    remarks: list[Remark] = []
    text, halved = without_halves(text)
    if halved:
        remarks.append(repaired("a broken character was replaced"))
    labels: list[Label] = []
    end = len(text)
    if (own := OBSERVATION.search(text)) is not None:
        end = own.start()
    for match in LABEL.finditer(text, 0):
        kind = _KINDS[match[1].lower().replace("_", " ")]
        if kind == "observation":
            end = min(end, match.start())
        if match.start() >= end:
            break
        labels.append(Label(kind, int(match[2].strip().lstrip("#") or 0), match.start(), match.end()))
    if end < len(text):
        remarks.append(cut(f"an observation the model wrote itself, and what followed ({len(text) - end} characters)"))
    return Body(text[:end], tuple(labels), tuple(remarks))


def action_inside(text: str) -> Label | None:
    """An `Action:` that stands inside a line: the last resort where no line begins with one."""
    match = _ACTION_INSIDE.search(text)
    return Label("action", 0, match.start(), match.end()) if match else None


def repaired(what: str) -> Remark:
    """A remark: something was not as the format says and was read all the same."""
    return Remark("repaired", what)


def cut(what: str) -> Remark:
    """A remark: something of the reply does not count."""
    return Remark("cut", what)


def thought_of(body: Body, upto: int, remarks: list[Remark]) -> str:
    """The thought before the index `upto`: what stands under `Thought:` labels, and text before any label."""
    labels = [label for label in body.labels if label.start < upto]
    first = labels[0].start if labels else upto
    parts = [body.text[:first].strip()]
    if parts[0]:
        remarks.append(repaired("text without the label Thought: was taken for the thought"))
    starts = [label.start for label in labels[1:]] + [upto]
    parts += [
        body.text[label.end : min(end, upto)].strip()
        for label, end in zip(labels, starts, strict=False)
        if label.kind == "thought"
    ]
    parts = [part for part in parts if part]
    if sum(label.kind == "thought" for label in labels) > 1:
        remarks.append(repaired("several thoughts were joined"))
    return unguard("\n".join(parts)).strip()


def answer_of(body: Body, remarks: list[Remark]) -> tuple[str, int] | None:
    """What follows the last `Final Answer:`, and where it ends; None where there is no such label."""
    answers = body.of("answer")
    if not answers:
        return None
    last = answers[-1]
    end = next((x.start for x in body.labels if x.start > last.start and x.kind == "thought"), len(body.text))
    if end < len(body.text):
        remarks.append(cut("a thought after the final answer"))
    if len(answers) > 1:
        remarks.append(repaired(f"of {len(answers)} final answers the last one counts"))
    text = without_leftovers(body.text[last.end : end].strip(), body.text[: last.start], remarks)
    if not text:
        raise Unreadable("Your Final Answer is empty. Write the whole answer after `Final Answer:`.")
    return unguard(text), end


def without_leftovers(text: str, before: str, remarks: list[Remark]) -> str:
    """An answer without the markup some models leave behind it: `</code`, a fence that was opened earlier."""
    kept = text
    if "<code" not in kept and (match := _LEFTOVER.search(kept, max(0, len(kept) - 40))) is not None:
        kept = kept[: match.start()]
    if kept.endswith("```") and kept.count("```") % 2 and before.count("```") % 2:
        kept = kept[:-3].rstrip()
    if kept != text:
        remarks.append(repaired("markup left over after the answer was dropped"))
    return kept


def cut_after(text: str, end: int, remarks: list[Remark]) -> None:
    """Remark what stands after the action, which ended at `end`, if there is anything."""
    rest = text[end:].strip()
    if rest.strip("`}] \n"):
        several = " (with another label among them)" if LABEL.search(text, end) else ""
        remarks.append(cut(f"{len(rest)} characters after the action{several}"))


def tool_of(name: str, tools: Sequence[ToolSpec]) -> ToolSpec | None:
    """The tool of that name, as `tool_name` matches it."""
    matched = tool_name(name, tools, [])
    return next((tool for tool in tools if tool.name == matched), None)


def tool_name(name: str, tools: Sequence[ToolSpec], remarks: list[Remark]) -> str:
    """The name of the tool that is meant: exactly, else without decoration, else in another case."""
    if any(tool.name == name for tool in tools):
        return name
    plain = name.strip().strip("`*\"'“”‘’").removesuffix("()").strip() or name.strip()
    same = [tool.name for tool in tools if tool.name.lower() == plain.lower()]
    found = plain if plain in same else same[0] if len(same) == 1 else plain
    if found != name:
        remarks.append(repaired(f"the tool {name[:60]!r} was read as {found[:60]!r}"))
    return found


def input_of(text: str, remarks: list[Remark], tool: ToolSpec | None = None, *, closed: bool = False) -> Any:
    """The value in an action's input text: see `plait.core.arguments.read_input`. Plain text is unguarded."""
    read = read_input(text, tool.parameters if tool is not None else {}, closed=closed)
    remarks += map(repaired, read.repairs)
    if read.cut:
        remarks.append(cut(f"{len(read.cut)} characters after the input"))
    return unguard(read.value) if read.plain and isinstance(read.value, str) else read.value


def guard(text: str) -> str:
    """A text in which nothing reads as a label or an action in a fence; `unguard` undoes it exactly."""
    return _FENCE.sub(r"\1\2\\", _GUARDED.sub(r"\1\2\\\3", text))


def unguard(text: str) -> str:
    """Undo `guard`. So data that was shown escaped comes back plain when a model copies it."""
    return _FENCE_OFF.sub(r"\1\2", _GUARD_OFF.sub(r"\1\2\3", text))


def disarm(text: str) -> str:
    """Data in which nothing reads as a label: `Observation:` becomes `Observation\\:`. Twice is as once."""
    return _GUARDED.sub(lambda m: m[0] if m[2] else f"{m[1]}\\{m[3]}", text)


def in_json(dumped: str) -> str:
    """JSON text whose strings hold no label and no fence, as the same JSON: with escapes in their place."""
    safe = _GUARDED.sub(lambda m: f"{m[1]}{m[2]}\\u{ord(m[3]):04x}", dumped)
    return safe.replace("```", "\\u0060``")
