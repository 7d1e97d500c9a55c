"""One JSON object a turn: `{"thought": text, "tool": name, "tool_input": any value}`.

The built-in tools are ordinary names here. `final_answer` ends the turn with its input as the answer; `fail_task` and
`ask_user` stay calls, which the loop handles.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, ClassVar

import msgspec
from msgspec import structs

from plait.core import Call, ToolSpec
from plait.core.loose_json import Found, NotJson, objects, read_float, read_value, without_halves
from plait.core.output import FINAL_ANSWER
from plait.loops import label_scan
from plait.loops.call_escape import escape_calls, escape_objects
from plait.loops.call_notations import calls_in
from plait.loops.call_objects import ObjectForm, first_of, text_key
from plait.loops.format import Codec, Remark, Stream, Turn, TurnCodec, Unreadable, write_json
from plait.loops.label_scan import cut, note_surroundings, read_part, repair_remark
from plait.loops.tool_descriptions import tool_entries
from plait.loops.vocabulary import INPUT_WORDS, TOOL_WORDS, own_first

FAIL_TASK, ASK_USER = "fail_task", "ask_user"
ARGUMENTS = {FINAL_ANSWER: "answer", FAIL_TASK: "reason", ASK_USER: "question"}
"""The built-in tools, and the one argument of each."""

_DECODER = msgspec.json.Decoder(float_hook=read_float)
_KEYS = _THOUGHT, _TOOL, _INPUT = ("thought", "tool", "tool_input")
_OBJECT = ObjectForm(_KEYS, name=own_first(_TOOL, TOOL_WORDS), input=own_first(_INPUT, INPUT_WORDS), words=(_THOUGHT,))
SHAPE = 'Reply with exactly one JSON object: {"thought": "<text>", "tool": "<name>", "tool_input": <any JSON value>}.'

# The parts of JSON while it streams in.
_OUTSIDE = re.compile(r"[\"{}\[\]:,]|[^\"{}\[\]:,]++")
_PAIR = r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_INSIDE = re.compile(rf"\"|[^\"\\]++|{_PAIR}|\\u[0-9a-fA-F]{{4}}|\\.?", re.S)
_HALF = re.compile(r"\\(?:u(?:[0-9a-fA-F]{0,3}|[dD][89abAB][0-9a-fA-F]{2}(?:\\(?:u[0-9a-fA-F]{0,3})?)?))?\Z")
"""An escape that may be incomplete."""


class JsonStream(Stream[Turn]):
    """A turn that streams in. Text around the object is passed over; only the first object counts.

    The text of the thought is decoded and shown as it arrives. A call is shown as the tool's name, a blank, and the
    input as written. If the tool is `final_answer`, its input is the answer: text decoded, other values as written. An
    input that is written before the tool's name is shown at the end.
    """

    def __init__(self, codec: Codec[Turn], n: int, tools: Sequence[ToolSpec]) -> None:
        super().__init__(codec, n, tools)
        self._depth = 0
        self._in_string = self._over = False
        self._half = ""
        self._key: str | None = None  # the key whose value follows, in the turn's object
        self._word = ""  # the string that is read as a key or the tool's name
        self._named: str | None = None  # the tool's name

    def split(self, text: str, *, last: bool) -> None:
        text, at, self._half = self._half + text, 0, ""
        while at < len(text) and not self._over:
            if not self._depth:
                at = (text.find("{", at) + 1) or len(text)
                self._depth = int(text[at - 1] == "{")
            elif self._in_string and not last and text[at] == "\\" and _HALF.match(text, at):
                self._half = text[at:]
                return
            else:
                token = (_INSIDE if self._in_string else _OUTSIDE).match(text, at)
                assert token is not None
                at = token.end()
                (self._take_string if self._in_string else self._take_sign)(token[0])

    def _take_sign(self, token: str) -> None:
        if token == '"':
            self._in_string, self._word = True, ""
        elif token == ":" and self._depth == 1 and self._key is None:
            self._key = self._word
            return
        elif token == "," and self._depth == 1:
            self._key = None
        elif token in "{[":
            self._depth += 1
        elif token in "}]":
            self._depth -= 1
            self._over = not self._depth
        elif self._depth == 1:
            token = "".join(token.split())
        if not self._over:
            self._show_given(token)

    def _take_string(self, token: str) -> None:
        """Take a part of a string, or the quote that ends it."""
        self._in_string = token != '"'
        if self._depth > 1 or not self._in_string or (self._key == _INPUT and self._named != FINAL_ANSWER):
            self._show_given(token)
            if not self._in_string and self._depth == 1 and self._key == _TOOL:
                self._named = self._word
                self.show("action", f"{self._word} " if self._word != FINAL_ANSWER else "")
            return
        plain = token
        if token[0] == "\\":
            try:
                plain = json.loads(f'"{token}"')
            except ValueError:
                plain = token[1:]
        if self._key in (_THOUGHT, _INPUT):
            self.show("thought" if self._key == _THOUGHT else "answer", without_halves(plain)[0])
        else:
            self._word += plain

    def _show_given(self, token: str) -> None:
        """Show a part of the input as it is written; the quotes around a text answer do not belong to it."""
        if self._key == _INPUT and self._named is not None:
            is_answer = self._named == FINAL_ANSWER
            if not (is_answer and self._depth == 1 and token == '"'):
                self.show("answer" if is_answer else "action", token)


@dataclass(frozen=True)
class JsonTurn(TurnCodec):
    """JSON turns with exactly the keys thought, tool and tool_input.

    `lenient` accepts fences, text around the object, broken JSON, a list around the object, other usual keys, a missing
    thought or input, and more keys (dropped), each with a remark. Otherwise anything but the bare object is
    `Unreadable`. `can_ask`: offer `ask_user`.

    `write` returns one line of JSON and drops blanks at the thought's ends. It raises ValueError for a turn with
    neither call nor answer and for input that JSON cannot hold. A call of `final_answer` reads back as an answer.
    """

    lenient: bool = True
    can_ask: bool = True

    name: ClassVar[str] = "json"
    stream_kind = JsonStream

    def stop(self, n: int) -> tuple[str, ...]:
        return ()

    def read(self, text: str, n: int = 1, tools: Sequence[ToolSpec] = ()) -> Turn:
        """Read the turn in a reply. `kept` is the object as written, or in canonical form after a repair."""
        if self.lenient and (turn := _canonical(text, tools)) is not None:
            return turn
        text, notes = read_part(text)
        if self.lenient and (other := self._in_another_notation(text, tools, notes)) is not None:
            return other
        found = self._find(text, notes) if self.lenient else _bare(text)
        fields = first_of(found.value)
        if not isinstance(fields, Mapping):
            raise Unreadable(f"Your reply is JSON, but {_kind(fields)} and not an object. {SHAPE}")
        if not self.lenient:
            _exact(fields)
        notes += [repair_remark(f"the JSON had {what}") for what in found.repairs]
        if found.value is not fields:
            more = len(found.value) - 1
            notes.append(repair_remark("a list around the object was dropped"))
            notes += [cut(f"{more} more objects in the list")] if more else []
        turn = self._turn(fields, tools, notes)
        kept = text[found.start : found.end]
        if notes:
            kept = self.write(turn, n)
        return structs.replace(turn, kept=kept, remarks=tuple(notes))

    def _find(self, text: str, notes: list[Remark]) -> Found:
        """Find the object that is a turn, in a reply that may hold other text."""
        first: Found | None = None
        trouble: NotJson | None = None
        bare = text.strip()
        if bare[:1] in ("{", "["):
            try:
                found = read_value(text)
                value = first_of(found.value)
                if isinstance(value, Mapping) and text_key(value, _OBJECT.name):
                    note_surroundings(text, found, "object", notes)
                    return found
            except NotJson as error:
                trouble = error
        try:
            for found in objects(text):
                if text_key(found.value, _OBJECT.name):
                    note_surroundings(text, found, "object", notes)
                    return found
                if FINAL_ANSWER in found.value:  # the tool's name as a key
                    notes.append(repair_remark("the answer was taken from the key 'final_answer'"))
                    note_surroundings(text, found, "object", notes)
                    turn = {"thought": found.value.get("thought", ""), "tool": FINAL_ANSWER}
                    turn["tool_input"] = found.value[FINAL_ANSWER]
                    return Found(turn, found.start, found.end, found.repairs)
                first = first or found
        except NotJson as error:
            first, trouble = None, trouble or error
        if first is not None:
            raise Unreadable(
                f'The JSON object in your reply has no key "tool" with a tool\'s name '
                f"(its keys are {_listed(first.value)}). {SHAPE}"
            )
        if trouble is None and (at := text.find("{")) >= 0:
            try:
                read_value(text, at)
            except NotJson as error:
                trouble = error
        if trouble is not None:
            raise Unreadable(f"Your JSON can't be read: {trouble.what} ({trouble.where(text)}). {SHAPE}")
        what = "There is no JSON object in your reply" if bare else "Your reply is empty"
        raise Unreadable(f"{what}. {SHAPE}")

    def _in_another_notation(self, text: str, tools: Sequence[ToolSpec], notes: list[Remark]) -> Turn | None:
        """Read the turn whose first call of a known tool is in another notation; None if there is none."""
        known = _with_built_ins(tools)
        made = next(iter(calls_in(text, known)), None)
        if made is None or made.broken or (tool := label_scan.tool_of(made.name, known)) is None:
            return None
        if text[made.start : made.start + 1] == "{":
            with suppress(NotJson):
                value = read_value(text, made.start).value
                if isinstance(value, Mapping) and text_key(value, _OBJECT.name) is not None:
                    return None
        before, after = text[: made.start].strip("` \n"), text[made.end :].strip("` \n")
        notes += [*map(repair_remark, made.repairs), repair_remark("the call was no object with the keys of a turn")]
        notes += [cut(f"{len(after)} characters after the call")] if after else []
        if tool.name == FINAL_ANSWER:
            turn = Turn(made.thought, answer=argument_of(FINAL_ANSWER, made.value), answered=True)
        else:
            turn = Turn(made.thought or ("" if "<" in before else before), Call(tool.name, made.value))
        kept = self.write(turn, 0)
        return structs.replace(turn, kept=kept, remarks=tuple(notes))

    def _turn(self, fields: Mapping[str, Any], tools: Sequence[ToolSpec], notes: list[Remark]) -> Turn:
        name_key, input_key, thought_key = _OBJECT.find_keys(fields)
        if name_key is None:
            raise Unreadable(f'The value of "tool" must be the name of a tool, as text. {SHAPE}')
        if name_key != "tool":
            notes.append(repair_remark(f'the tool was taken from the key "{name_key}"'))
        if input_key is None:
            notes.append(repair_remark("tool_input is missing: null was taken"))
        elif input_key != "tool_input":
            notes.append(repair_remark(f'the input was taken from the key "{input_key}"'))
        thought = fields.get("thought", "")
        if thought_key is None:
            notes.append(repair_remark("the thought is missing"))
        elif not isinstance(thought, str):
            notes.append(repair_remark("the thought was not text"))
            thought = "" if thought is None else json.dumps(thought, ensure_ascii=False)
        extra = [key for key in fields if key not in (name_key, input_key, thought_key)]
        if extra:
            notes.append(cut(f"the keys {_listed(extra)}, which a turn does not have"))
        given = fields[input_key] if input_key is not None else None
        name = label_scan.tool_name(str(fields[name_key]), _with_built_ins(tools), notes)
        if name == FINAL_ANSWER:
            return Turn(thought.strip(), answer=given, answered=True)
        return Turn(thought.strip(), Call(name, given))

    def write(self, turn: Turn, n: int = 1) -> str:
        if turn.call is None and not turn.answered:
            raise ValueError("A turn needs a call or an answer to be written.")
        name, given = (turn.call.tool, turn.call.input) if turn.call else (FINAL_ANSWER, turn.answer)
        return write_json(_OBJECT.fill(name, given, turn.thought.strip()), f"The input of {name!r}")

    def observation(self, text: str, n: int) -> str:
        return f"Observation: {text}"

    def escape(self, text: str, tools: Sequence[ToolSpec] = (), inline: bool = False) -> str:
        """Put a backslash into fences, and into anything that would read as a turn's object."""
        return escape_calls(escape_objects(text, (*_OBJECT.name, FINAL_ANSWER)), _with_built_ins(tools))

    def describe(self, tools: Sequence[ToolSpec]) -> str:
        return tool_entries(tuple(tools))

    def schema(self, tools: Sequence[ToolSpec]) -> dict[str, Any] | None:
        built_ins = [name for name in ARGUMENTS if self.can_ask or name != ASK_USER]
        return _OBJECT.schema((*(tool.name for tool in tools), *built_ins), {})


def _canonical(text: str, tools: Sequence[ToolSpec]) -> Turn | None:
    """Read a turn in exactly the requested form, else None: a fast path with the result of the lenient reader."""
    text = text.strip()
    if not text.startswith("{") or "<" in text:
        return None
    try:
        fields = _DECODER.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return None
    if tuple(fields) != _KEYS or not isinstance(fields["thought"], str):
        return None
    name, given, thought = fields["tool"], fields["tool_input"], fields["thought"].strip()
    if name == FINAL_ANSWER:
        return Turn(thought, answer=given, answered=True, kept=text)
    if name not in ARGUMENTS and name not in map(attrgetter("name"), tools):
        return None
    return Turn(thought, Call(name, given), kept=text)


def _with_built_ins(tools: Sequence[ToolSpec]) -> list[ToolSpec]:
    known = set(map(attrgetter("name"), tools))
    return [*tools, *(ToolSpec(name, "") for name in ARGUMENTS if name not in known)]


def argument_of(tool: str, given: Any) -> Any:
    """Return a built-in's one argument, given directly, by name, or in a list of one if it is a text."""
    if isinstance(given, list) and len(given) == 1 and tool != FINAL_ANSWER:
        return given[0]
    return given[ARGUMENTS[tool]] if isinstance(given, Mapping) and list(given) == [ARGUMENTS[tool]] else given


def _bare(text: str) -> Found:
    try:
        found = read_value(text)
    except NotJson as error:
        raise Unreadable(f"Your reply is not JSON: {error.what} ({error.where(text)}). {SHAPE}") from None
    if text[found.end :].strip() or text[: found.start].strip():
        raise Unreadable(f"There is text around your JSON object. {SHAPE}")
    if found.repairs:
        raise Unreadable(f"Your reply is not valid JSON: it has {', '.join(found.repairs)}. {SHAPE}")
    if isinstance(found.value, list):
        raise Unreadable(f"Your reply is JSON, but a list and not an object. {SHAPE}")
    return found


def _exact(fields: Mapping[str, Any]) -> None:
    missing = [key for key in _KEYS if key not in fields]
    extra = [key for key in fields if key not in _KEYS]
    if missing or extra:
        parts = [f"lacks {_listed(missing)}"] if missing else []
        parts += [f"has {_listed(extra)} too many"] if extra else []
        raise Unreadable(f"Your JSON object {' and '.join(parts)}. {SHAPE}")
    if not isinstance(fields["thought"], str):
        raise Unreadable(f'The value of "thought" must be text, not {_kind(fields["thought"])}. {SHAPE}')


def _listed(keys: Any) -> str:
    shown = [json.dumps(str(key)[:40], ensure_ascii=False) for key in list(keys)[:6]]
    return ", ".join(shown) + (" and more" if len(keys) > 6 else "") if shown else "none"


def _kind(value: Any) -> str:
    names = {bool: "a boolean", int: "a number", float: "a number", str: "text", list: "a list", dict: "an object"}
    return names.get(type(value), "null")
