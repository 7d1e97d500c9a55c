"""Tool calls in text: JSON objects `{"name": ..., "arguments": {...}}`, one or several a turn.

This serves models behind endpoints without native tools. Text without a call is the answer. Consecutive calls are one
turn, and text before them is the thought. Text after them, and all that follows it, is cut: the model has invented its
results there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Any, ClassVar

from msgspec import Struct, structs

from plait.core import Call, Piece, ProviderState, ToolSpec
from plait.core.arguments import UNCLOSED
from plait.core.loose_json import NotJson, is_unclosed, objects, read_value
from plait.loops import label_scan
from plait.loops.call_escape import escape_calls
from plait.loops.call_notations import GLUE, TAG, TOKEN, FoundCall, same_call
from plait.loops.call_objects import ObjectForm
from plait.loops.format import Codec, Parts, Remark, Stream, Unreadable, show_calls, show_value, write_json
from plait.loops.label_scan import cut, read_part, repair_remark
from plait.loops.mentioned_calls import made_calls
from plait.loops.tool_descriptions import argument_types, as_sentence, flat_description
from plait.loops.vocabulary import (
    ANSWER_NAMES,
    FINISH_NAMES,
    INPUT_KEYS,
    INPUT_WORDS,
    NAME_KEYS,
    NAME_WORDS,
    either,
    own_first,
)

SHAPE = 'A call is one JSON object on a line of its own: {"name": "<tool>", "arguments": {...}}.'

_OBJECT = ObjectForm(("name", "arguments"), NAME_KEYS, own_first("arguments", INPUT_KEYS))

MARKUP = re.compile(rf"{TAG}|{TOKEN}")
"""Markup of calls that no answer has, even if the tool is unknown."""
_TOKENS = re.compile(TOKEN)
# Markup that speaks of calls, at the start of a line or behind other markup: a tool's name behind it is not an answer.
_CALL_MARKUP = re.compile(
    r"(?:^|(?<=[\]>]))[ \t]{0,8}(?:<[|｜]|\[/?(?!INFO|WARN|ERROR|DEBUG|FATAL|TRACE)[A-Z_]{4,30}\]|\[\["
    r"|[^\x00-\x7f\w\s“”‘’«»„•·–—…]{1,4}(?=\w)"
    r"|</?[\w:.|｜-]{0,30}(?:tool|function|call|invoke|action|plugin|api)[\w:.|｜-]{0,30}[\s=>/(]"
    r"|[Aa]ction:[^\n]{0,99}\n[ \t]{0,8}[Aa]ction[ _]?[Ii]nput:)",
    re.M,
)
_OPENING = re.compile(
    rf"(?:```(?:json[l5]?|tool_calls?|tool_code|python|xml)?|{TAG}|{TOKEN}|\\?\[|functools|print\(|to=functions\.|assistant"
    rf"|\{{\s*[\"']tool_calls[\"']\s*:)\s*\Z"
)
_MARKS = either((*NAME_WORDS, "tool_calls", "arguments", "parameters", "tool_input"))
_MAY_BEGIN_CALL = re.compile(r"[{\[<`]")
_WANTS = re.compile(rf"""\{{\s*+["'“”„‘’]?(?:{_MARKS})["'“”‘’]?\s*+:""")
_INPUTS = re.compile(rf"""\b(?:{either(INPUT_WORDS)})["'“”‘’]?\s*+:""")


class CallsTurn(Struct, frozen=True, omit_defaults=True):
    """A turn as read: a thought and either calls or an answer.

    `answered` distinguishes an answer of None from no answer. `kept` is the relevant part of the reply, which the model
    is shown again. `remarks` describe what was repaired or cut. `state` is the provider's, to be sent
    back with the turn.
    """

    thought: str = ""
    calls: tuple[Call, ...] = ()
    answer: Any = None
    answered: bool = False
    kept: str = ""
    remarks: tuple[Remark, ...] = ()
    state: ProviderState | None = None


class CallObjectStream(Stream[CallsTurn]):
    """A reply with native calls, or calls in its text, that streams in. Shows plain text while it arrives."""

    _is_plain = True

    def split(self, text: str, *, last: bool) -> None:
        if self._is_plain:
            found = _MAY_BEGIN_CALL.search(text)
            self._is_plain = found is None
            self.show("text", text[: found.start()] if found is not None else text)

    def close(self, acts: bool = False) -> list[Piece]:
        pieces, text = super().close(acts), self.text.strip()
        # A reply that cannot be read was meant for a call.
        return pieces or ([Piece("thought" if acts else "action", text)] if text else [])


@dataclass(frozen=True)
class CallObjects(Codec[CallsTurn]):
    """Calls as JSON objects in text.

    The reader also accepts fences, lists, `<tool_call>` tags, the keys of other formats ("tool", "tool_input",
    "parameters", "function" ...), arguments that are JSON in a string, and broken JSON. The same call twice in one turn
    counts once. A call to `final_answer` is the answer, unless a tool has this name.

    `write` returns the thought, then a line of JSON for each call; or the answer's text. Empty arguments read back as
    None. It raises ValueError for anything that would not read back: a thought or an answer that contains a call,
    blanks at their ends, the same call twice, an answer that is not text, a value that JSON cannot hold.
    """

    name: ClassVar[str] = "call_objects"
    stream_kind = CallObjectStream

    def read(self, text: str, n: int = 1, tools: Sequence[ToolSpec] = ()) -> CallsTurn:
        text, notes = read_part(text)
        if not text.strip():
            raise Unreadable(f"Your reply is empty. Write a call, or the answer in words. {SHAPE}")
        group = made_calls(text, tools)
        if not group:
            _broken(text, tools)
            return CallsTurn(answer=text.strip(), answered=True, kept=text.strip(), remarks=tuple(notes))
        start, end = group[0].start, group[-1].end
        thought, opened = _before(text[:start])
        _broken(thought, tools)
        marks = any(text[a.end : b.start].strip() for a, b in pairwise(group))
        turn = _turn(thought, group, tools, notes)
        after = text[end:]
        rest = after[GLUE.match(after).end() :].strip()  # type: ignore[union-attr]  # it matches the empty string too
        if rest:
            notes.append(cut(f"{len(rest)} characters after the calls"))
        elif opened or marks or after.strip():
            notes.append(repair_remark("what stood around the calls was dropped"))
        kept = text[:end].strip()
        if notes:
            with suppress(ValueError):  # otherwise it stays as the model wrote it
                kept = self.show_turn(turn)
        return structs.replace(turn, kept=kept, remarks=tuple(notes))

    def write(self, turn: CallsTurn, n: int = 1, tools: Sequence[ToolSpec] = ()) -> str:
        text = self.show_turn(turn)
        try:
            back = self.read(text, tools=tools)
        except Unreadable as why:
            raise ValueError(f"This turn would not be read back: {why}") from None
        calls = tuple(Call(call.tool, None if call.input == {} else call.input) for call in turn.calls)
        if back.remarks or (back.thought, back.calls, back.answer) != (turn.thought, calls, turn.answer):
            raise ValueError("This turn would be read back as another: its text holds a call, or blanks at its ends.")
        return text

    def show_turn(self, turn: CallsTurn) -> str:
        """Return the text of a turn for a log: as `write`, for any thought."""
        if not turn.calls:
            if not isinstance(turn.answer, str) or turn.thought:
                raise ValueError("A turn needs calls, or an answer that is text and no thought, to be written.")
            return turn.answer
        given = [{} if call.input is None else call.input for call in turn.calls]
        objects = (_OBJECT.fill(call.tool, each) for call, each in zip(turn.calls, given, strict=True))
        lines = [write_json(each, "The arguments") for each in objects]
        return "\n".join([turn.thought, *lines] if turn.thought else lines)

    def write_calls(self, calls: Sequence[Call], thought: str = "", n: int = 1) -> str:
        return self.show_turn(CallsTurn(thought, tuple(calls)))

    def schema(self, tools: Sequence[ToolSpec]) -> dict[str, Any]:
        """Return JSON Schema of one call, or of the answer as a call."""
        return _OBJECT.schema((*(tool.name for tool in tools), ANSWER_NAMES[0]), {})

    def describe(self, tools: Sequence[ToolSpec]) -> str:
        return "\n".join(_entry(tool) for tool in tools)

    def parts(self, reading: CallsTurn) -> Parts:
        return {"thought": reading.thought, "action": show_calls(reading.calls), "answer": show_value(reading.answer)}

    def escape(self, text: str, tools: Sequence[ToolSpec] = (), inline: bool = False) -> str:
        return escape_calls(text, tools)


def arguments_of(value: Any, remarks: list[Remark]) -> Any:
    """Return a call's arguments: JSON in a text is read, {} is None.

    Raises `Unreadable` for text that begins as an object but is not one, and for half an object, list or string:
    running a tool on half an input is worse than asking again. Other text stays text.
    """
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            found = read_value(value)
        except NotJson as why:
            if value.lstrip()[0] == "[" and not why.unclosed:
                return value
            raise Unreadable(f"the arguments are no JSON object: {why.what} ({why.where(value)})") from None
        rest = value[found.end :].strip()
        if rest.strip("}]"):
            raise Unreadable(f"the arguments are no JSON object: there is more behind them: {rest[:40]!r}")
        remarks += [repair_remark(f"the arguments' JSON had {what}") for what in found.repairs]
        if not found.repairs:
            remarks.append(repair_remark("the arguments stood in a text"))
        if rest:
            remarks.append(cut("brackets too many behind the arguments"))
        value = found.value
    elif isinstance(value, str) and is_unclosed(value):
        raise Unreadable(f"the arguments can't be read: {UNCLOSED}")
    return None if value == {} else value


def _turn(thought: str, group: list[FoundCall], tools: Sequence[ToolSpec], notes: list[Remark]) -> CallsTurn:
    calls: list[Call] = []
    final: list[Any] = []
    said = [thought] if thought else []
    for made in group:
        notes += map(repair_remark, made.repairs)
        if made.thought:
            said.append(made.thought)
        name = label_scan.tool_name(made.name, tools, notes)
        try:
            if made.broken:
                raise Unreadable(f"the input can't be read: {made.broken}")
            given = arguments_of(made.input, notes)
        except Unreadable as why:
            raise Unreadable(f"In your call of {name[:60]!r} {why}. {SHAPE}") from None
        is_one_value = len(given) == 1 if isinstance(given, dict) else given is not None
        if name.lower() in FINISH_NAMES and all(tool.name != name for tool in tools) and is_one_value:
            final.append(next(iter(given.values())) if isinstance(given, dict) else given)
        else:
            calls.append(Call(name, given))
    # A model in a loop writes the same call over and over.
    once = {same_call(call.tool, call.input): call for call in reversed(calls)}
    if len(once) < len(calls):
        notes.append(cut(f"{len(calls) - len(once)} calls that stand there twice"))
        calls = [call for call in calls if once.pop(same_call(call.tool, call.input), None)]
    if final and not calls:
        notes.append(repair_remark("the answer was handed in as a call"))
        return CallsTurn("\n".join(said), answer=final[0], answered=True)
    if final:
        notes.append(cut("an answer beside the calls"))
    return CallsTurn("\n".join(said), tuple(calls))


def _before(text: str) -> tuple[str, bool]:
    """Return the thought in the text before the calls, and whether marks were dropped at its end."""
    bare = _TOKENS.split(text, maxsplit=1)[0].strip()
    for _ in range(8):
        if not (opening := _OPENING.search(bare[-24:])):
            break
        bare = bare[: max(0, len(bare) - 24) + opening.start()].rstrip()
    return bare, len(bare) < len(text.strip())


def _broken(text: str, tools: Sequence[ToolSpec]) -> None:
    """Raise `Unreadable` if a text without a call was clearly meant to hold one."""
    wanted = _WANTS.search(text)
    if wanted is not None and (
        _INPUTS.search(text, wanted.start()) or any(text.find(tool.name, wanted.start()) >= 0 for tool in tools)
    ):
        try:
            if any(found.start < wanted.start() < found.end for found in objects(text)):
                return  # part of data
            found = read_value(text, wanted.start())
        except NotJson as why:
            raise Unreadable(f"Your call can't be read: {why.what} ({why.where(text)}). {SHAPE}") from None
        value = found.value
        lists = isinstance(value, Mapping) and any(isinstance(value.get(key), list) for key in ("tool_calls", "calls"))
        if lists or (isinstance(value, Mapping) and value.keys() & {"arguments", "tool_input"}):
            raise Unreadable(f"Your JSON object names no tool. {SHAPE}")
    if (tag := MARKUP.search(text)) is not None and wanted is None:
        raise Unreadable(f"There is no call behind {tag[0]} in your reply. {SHAPE}")
    known = re.compile("|".join(rf"(?<![\w-]){re.escape(tool.name)}(?![\w-])" for tool in tools) or "(?!)")
    tags = re.compile("|".join(rf"^[ \t]*+<{re.escape(tool.name)}[\s/]" for tool in tools) or "(?!)", re.M)
    if (tag := tags.search(text)) is not None:
        raise Unreadable(f"There is no call behind {tag[0].strip()} in your reply. {SHAPE}")
    for mark in islice(_CALL_MARKUP.finditer(text), 50):
        if (name := known.search(text, mark.start(), mark.end() + 200)) is not None:
            raise Unreadable(f"Your reply names {name[0]} in markup that can't be read as a call. {SHAPE}")


def _entry(tool: ToolSpec) -> str:
    lines = [f"{tool.name}: {as_sentence(tool.description)}"]
    named = argument_types(tool)
    lines.append("  arguments:" if named else "  arguments: none")
    for name, kind in named.items():
        said = flat_description(tool, name)
        lines.append(f"    {name} ({kind})" + (f": {said}" if said else ""))
    if tool.returns:
        lines.append(f"  returns: {as_sentence(tool.returns)}")
    return "\n".join(lines)
