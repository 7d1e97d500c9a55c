"""Actions as one JSON list: `[{"ACTION": name, "ARGUMENTS": [...], "EXPLANATION": text}]`.

The actions run concurrently, unless an argument contains a reference such as `$1`: the result of the first action of
the list. An empty list, or the action `Basic`, says that nothing is needed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from msgspec import Struct

from plait.core import JSON, Call, Step, ToolSpec
from plait.loops.call_escape import escape_calls, escape_objects
from plait.loops.format import Codec, Remark, Stream
from plait.loops.phased.reader import BASIC as BASIC
from plait.loops.phased.reader import OBJECT, is_basic, steps_in
from plait.loops.tool_descriptions import are_exclusive, argument_types, as_sentence, describe_parameter

MOST = 8
"""Maximum number of actions; a longer list is cut."""

CHUNK = 512
"""Tokens between checks of an unfinished list: a small model may never end it."""

_NEXT = re.compile(r"\}\s*+,\s*+(?=\{\s*+[\"']?(?:" + "|".join(OBJECT.name) + r")\b)")
_DONE = re.compile(r"^([^\w\\\n]*+)(?=DONE\b)", re.M)


class Actions(Struct, frozen=True):
    """The actions of a reply. A step's id is its place in the list, from 1; its input None, a list or an object.

    `kept` is the list as the model wrote it, or in canonical form if anything was repaired, cut or replaced.
    """

    steps: tuple[Step, ...] = ()
    kept: str = "[]"
    remarks: tuple[Remark, ...] = ()


class ActionStream(Stream[Actions]):
    """A list that streams in: all of it is shown as written."""

    def split(self, text: str, *, last: bool) -> None:
        self.show("action", text)


@dataclass(frozen=True)
class ActionList(Codec[Actions]):
    """Lists of at most `most` actions."""

    most: int = MOST

    name: ClassVar[str] = "action_list"
    stream_kind = ActionStream

    def read(self, text: str, n: int = 1, tools: Sequence[ToolSpec] = ()) -> Actions:
        """Read the actions in a reply, leniently. Raises only `Unreadable`.

        Accepts fences and surrounding text, broken JSON, objects without a list, consecutive lists, other usual keys in
        any case, missing arguments (none), a single value or an object (by name) as arguments. Actions after `most` are
        cut. Actions that wait for each other are refused, as is a reply with an unreadable action. An empty list counts
        if it ends its line and the reply names no action.
        """
        listed, kept, notes = steps_in(text, tools, self.most)
        steps = tuple(step for step in listed if not is_basic(step, tools))
        return Actions(steps, self.write(listed) if kept is None else kept, tuple(dict.fromkeys(notes)))

    def write(self, reading: Actions | Sequence[Step], n: int = 1) -> str:
        """Return the canonical list; `read` reads the steps back, with no remarks, if their ids count from 1."""
        steps = reading.steps if isinstance(reading, Actions) else reading
        entries = [OBJECT.fill(step.tool, step.input or [], step.why) for step in steps]
        return json.dumps(entries, ensure_ascii=False)

    def write_calls(self, calls: Sequence[Call], thought: str = "", n: int = 1) -> str:
        return self.write([Step(str(i), call.tool, call.input, thought) for i, call in enumerate(calls, 1)])

    def escape(self, text: str, tools: Sequence[ToolSpec] = (), inline: bool = False) -> str:
        """Put a backslash into fences, into what would read as an action, and before DONE at the start of a line."""
        return escape_calls(escape_objects(_DONE.sub(r"\1\\", text), OBJECT.name), tools)

    def describe(self, tools: Sequence[ToolSpec]) -> str:
        """Return a line for each tool: `name: what for. Takes 2 arguments: what goes in, ... Returns: ...`."""
        lines = []
        for tool in tools:
            parts = [as_sentence(tool.description), _takes(_arguments(tool))]
            parts += [f"Returns: {as_sentence(tool.returns)}"] if tool.returns else []
            others = [other.name for other in tools if are_exclusive(tools, tool.name, other.name)]
            parts += [f"Never together with {', '.join(others)}."] if others else []
            lines.append(f"{tool.name}: " + " ".join(part for part in parts if part))
        return "\n".join(lines)

    def schema(self, tools: Sequence[ToolSpec]) -> dict[str, Any]:
        """Return JSON Schema of a list, `ACTION` one of the tools' names or `Basic`."""
        entry = OBJECT.schema((*(tool.name for tool in tools), BASIC), {"type": "array", "items": {}})
        return {"type": "array", "items": entry, "maxItems": self.most}


ACTIONS = ActionList()


def entries(text: str) -> int:
    """Return how many entries of an unfinished list are certainly complete: another one follows them."""
    return len(_NEXT.findall(text))


def whole(text: str) -> str:
    """Return an unfinished list up to its last complete entry; unchanged if all of it is complete."""
    *_, last = (None, *_NEXT.finditer(text))
    if last is None:
        return text
    try:
        _, end = json.JSONDecoder().raw_decode(text, last.end())
    except (ValueError, RecursionError):
        return text[: last.start() + 1] + "]"
    return text if "]" in text[end:] else text[:end] + "]"


def call_words(step: Step, given: JSON) -> str:
    """Return an action with its actual arguments, in one line: `lookup("Lyon")`."""
    if isinstance(given, Mapping):
        inside = ", ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in given.items())
    else:
        values = given if isinstance(given, list | tuple) else [] if given is None else [given]
        inside = ", ".join(json.dumps(value, ensure_ascii=False) for value in values)
    return f"{step.tool}({inside})"


def forms(tools: Sequence[ToolSpec]) -> str:
    """Return a line for each tool: a list entry that calls it, with its arguments' names in place of values."""
    return "\n".join(
        json.dumps(
            OBJECT.fill(tool.name, [f"<{name}>" for name in argument_types(tool)], "<what for>"), ensure_ascii=False
        )
        for tool in tools
    )


def says_done(text: str) -> bool:
    """Return whether the reply says DONE, alone or first in its first or last line: nothing is left to do."""
    lines = text.strip().split("\n")
    return any(_DONE.match(line) for line in (lines[0], lines[-1]))


def _takes(words: Sequence[str]) -> str:
    count = {0: "no arguments", 1: "one argument"}.get(len(words), f"{len(words)} arguments")
    return f"Takes {count}{': ' if words else ''}{', '.join(words)}."


def _arguments(tool: ToolSpec) -> list[str]:
    """Describe each argument: its description, or its name, and its type."""
    said = []
    for name, kind in argument_types(tool).items():
        optional = ", optional" if kind.endswith(" (optional)") else ""
        said.append(f"{describe_parameter(tool, name) or name} ({kind.removesuffix(' (optional)')}{optional})")
    return said
