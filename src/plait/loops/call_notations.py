"""Tool calls in the notations that models were trained on, anywhere in a reply.

Without a parser in the endpoint, or when asked for another format, models fall back to what they know: a JSON object
with a name and arguments, tags such as `<tool_call>`, `<function=...>` with or without parameters, the tool's name
before a JSON object, Python calls, special tokens around any of these. `calls_in` finds the first group of consecutive
calls. Only JSON objects and tags can name an unknown tool; all other text is prose.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from plait.core import JSON, ToolSpec
from plait.core.arguments import (
    InvalidArguments,
    end_of_arguments,
    named_input,
    parameter_names,
    read_arguments,
    read_structure,
)
from plait.core.loose_json import Found, NotJson, objects, read_value
from plait.loops.call_objects import (
    NAME_KEYS,
    all_inside,
    disarm_objects,
    input_of_object,
    is_call,
    plain_call,
    text_key,
)

_LISTS = ("tool_calls", "calls", "actions")

TOKEN = r"<[|｜][\w▁ .:=/-]{1,40}[|｜]>"
TAG = (
    r"</?(?:tool_calls?|function_calls?|tool_use|toolcall|functions?_?call|invoke|tool_code|(?:antml|minimax):\w{1,20})>"
    r"|\[/?(?:TOOL_CALLS|AVAILABLE_TOOLS|TOOL_CALL)\]|</?TOOLCALL>"
)
_LANGUAGE = r"json[l5]?|tool_calls?|tool_code|python|xml"
_CLOSING = r"</(?:function|invoke|parameters|tool|tools|action|actions|tool_call|[\w:]{1,30}calls?)>"
# Allowed around calls and between two of them: blanks, list marks, fences, tags, tokens.
GLUE = re.compile(rf"(?:{TAG}|{TOKEN}|{_CLOSING}|[\s,;\[\]}})`]|(?<=```)(?:{_LANGUAGE})\b|functools(?=\[))*+")
# Where a call may begin: at the start of a line, behind a tag, a token or a fence, at a brace.
_CANDIDATE = re.compile(
    rf"^[ \t>*`-]{{0,8}}|{TAG}|{TOKEN}|\[/?[A-Z_]{{3,20}}\]|```(?:{_LANGUAGE})?[ \t]*\n?|(?=\{{)|functools(?=\[)|\bto=",
    re.M,
)
_PREFIX = r"(?:(?:functions?|default_api|tools?|api|multi_tool_use)[.:](?=\w)|>>>|\*\*|`|\"|to=functions\.|to=)?"
_SUFFIX = r"(?::\d{1,4})?[`*\"]{0,3}"
_BETWEEN = (
    rf"[ \t]{{0,4}}(?:[:=]|\[ARGS\]|(?:\s?{TOKEN}(?:json|code|commentary|analysis)?){{1,4}})?\s{{0,20}}"
    rf"(?:(?:arguments|args|parameters|input)[ \t]?[:=]\s{{0,4}})?(?:```(?:json)?\s{{0,4}})?"
)
_NAME = r"[A-Za-z_][\w.-]{0,80}"
_NAMED = re.compile(rf"{_PREFIX}(?P<name>{_NAME}){_SUFFIX}{_BETWEEN}(?=\{{|<arg_key>)", re.A)
_PYTHON = re.compile(rf"(?:print\(\s*)?(?:[a-z_]\w{{0,30}}\s?=\s?)?(?:await )?{_PREFIX}(?P<name>{_NAME})`?\(", re.A)
_FUNCTION = re.compile(r"<(?:function|invoke)(?:=|\s+name=)[\"']?(?P<name>[\w.-]{1,80})[\"']?\s*>")
_FUNCTION_END = re.compile(r"</(?:function|invoke)>")
_PARAMETER = re.compile(r"<parameter(?:=|\s+name=)[\"']?([\w.-]{1,80})[\"']?[^>\n]{0,80}>")
_PARAMETER_END = re.compile(r"</parameter>|(?=<parameter[= ])|</(?:function|invoke)>|</tool_call>")
_ARG_KEY = re.compile(r"\s*<arg_key>([^<\n]{1,80})</arg_key>\s*<arg_value>")
_NAME_TAG = re.compile(r"<(tool_name|tool|function_name|function|action|name)>\s*([\w.-]{1,80})\s*</\1>\s*")
_INPUT_TAG = re.compile(r"<(parameters|tool_input|action_input|input|arguments|args|params)>")
_TOOL_TAG = re.compile(r"<([A-Za-z_][\w.-]{0,80})>")
_CHILD = re.compile(r"\s*<([A-Za-z_][\w.-]{0,80})>")
_TAG_END = re.compile(rf"\s*+(?:{_CLOSING}|{TAG}|{TOKEN})")
_ARGUMENT = re.compile(r"\s*+(?:[A-Za-z_]\w*+\s*+=(?!=)|[\"'\[{])")
_HALF = "its input is never closed"
_TRAILER = re.compile(r"\s*(?:```)?\s*(?:</(?:function|invoke|tool_call|tool|action)>)?")
_BLANK = re.compile(r"\s*+")
_LINE_END = re.compile(r"[ \t`.;)\]}]*+(?:\n|\Z|<|,|\[)")
_HARMLESS = re.compile(rf"{TAG}|{TOKEN}|<(?=/?(?:function|invoke|tool_name|tool|action)[=\s>])")
_LOOKS, _TRIES = 8, 300  # limits of a search, as in loose_json


class FoundCall(Struct, frozen=True):
    """A call found in a text, at text[start:end].

    `certain`: the notation is that of a call, even if the name is unknown. `broken` says why the input cannot be read,
    or "" if it can.
    """

    name: str
    input: JSON
    start: int
    end: int
    repairs: tuple[str, ...] = ()
    certain: bool = True
    thought: str = ""
    broken: str = ""

    @property
    def value(self) -> JSON:
        """Return the input; JSON inside a text is read."""
        read = read_structure(self.input) if isinstance(self.input, str) else None
        return self.input if read is None else read


def calls_in(text: str, tools: Sequence[ToolSpec], start: int = 0) -> list[FoundCall]:
    """Return the first group of consecutive calls in a text; empty if there is no call."""
    reader = _Reader(text, tools)
    group: list[FoundCall] = []
    for found in reader.first(start):
        group = [*found]
        break
    while group and not group[-1].broken:
        glued = GLUE.match(text, group[-1].end).end()  # type: ignore[union-attr]  # it matches the empty string too
        more = reader.at(glued)
        if not more:
            break
        group += more
    return group


class _Reader:
    """Looks for calls at places in one text."""

    def __init__(self, text: str, tools: Sequence[ToolSpec]) -> None:
        self.text = text
        self.tools = {tool.name: tool for tool in tools}
        self.folded = {name.lower().replace("-", "_"): name for name in self.tools}
        self.budget, self.tries = _LOOKS * (len(text) + 64), _TRIES
        self.listed = tools
        self.passed = 0  # an object that is not a call is data, and nothing in it is a call

    def find_tool(self, name: str) -> str:
        """Return the tool that a name means, ignoring decoration; "" if there is none."""
        plain = name.replace("\\_", "_").strip(".-")
        for one in (plain, plain.removesuffix(".call"), plain.rpartition(".")[2]):
            if one in self.tools:
                return one
            if found := self.folded.get(one.lower().replace("-", "_")):
                return found
        return ""

    def first(self, start: int) -> Iterator[list[FoundCall]]:
        """Yield the calls at each place that has some, from `start` on."""
        at = start
        # A search from behind the end would start at the end again.
        while at <= len(self.text) and self.budget > 0 and self.tries > 0:
            if (place := _CANDIDATE.search(self.text, at)) is None:
                return
            begin = place.end() - 3 if place[0] == "to=" else place.end()
            begin = max(begin, GLUE.match(self.text, begin).end())  # type: ignore[union-attr]
            self.passed = begin
            if found := self.at(begin):
                yield found
            at = max(self.passed, place.start() + 1)

    def at(self, at: int) -> list[FoundCall]:
        """Return the calls that begin exactly at `at`; empty if there are none."""
        sign = self.text[at : at + 1]
        if sign == "{":
            return self.object(at)
        if sign == "<":
            return self.read_tagged(at)
        return self.read_named(at) or self.python(at)

    def json(self, at: int) -> Found | NotJson:
        try:
            found = read_value(self.text, at)
        except NotJson as error:
            self.budget -= max(error.reach - at, 1)
            self.tries -= 1
            return error
        self.budget -= found.end - found.start
        return found

    def object(self, at: int) -> list[FoundCall]:
        found = self.json(at)
        if isinstance(found, NotJson):
            quoted = rf"[\"'“‘]({'|'.join(map(re.escape, self.tools)) or '(?!)'})[\"'”’]"
            named = re.compile(quoted).search(self.text, at) if found.unclosed else None
            why = f"{found.what} ({found.where(self.text)})"
            return [FoundCall(named[1], None, at, len(self.text), broken=why)] if named else []
        if not isinstance(found.value, Mapping):
            return []
        value: Mapping[str, Any] = found.value
        self.passed = found.end
        wrapped = next((value[key] for key in _LISTS if isinstance(value.get(key), list)), [value])
        inner = [plain_call(one) for one in wrapped if isinstance(one, Mapping)]
        repairs = tuple(f"the JSON had {what}" for what in found.repairs)
        if inner and inner[0] != value:
            repairs += ("what stood around the call in its object was dropped",)
        calls: list[FoundCall] = []
        for one in inner:
            if is_call(one, self.listed):
                key = text_key(one, NAME_KEYS)
                assert key is not None
                given, more = input_of_object(one, key)
                thought = one.get("thought")
                said = thought.strip() if isinstance(thought, str) else ""
                calls.append(FoundCall(one[key], given, found.start, found.end, (*repairs, *more), thought=said))
            elif len(one) == 1 and (name := self.find_tool(str(next(iter(one))))):
                given = next(iter(one.values()))
                if not isinstance(given, Mapping | list) and given is not None:
                    return []
                calls.append(FoundCall(name, given, found.start, found.end, (*repairs, "the tool's name was a key")))
            else:
                return []
        return calls

    def read_named(self, at: int) -> list[FoundCall]:
        """Read `get_weather {"city": "Paris"}`, with anything usual between the two."""
        head = _NAMED.match(self.text, at)
        if head is None or not (name := self.find_tool(head["name"])):
            return []
        note = "the tool's name stood before its input"
        if self.text.startswith("<arg_key>", head.end()):
            return [self.read_argument_pairs(name, at, head.end(), note)]
        found = self.json(head.end())
        if isinstance(found, NotJson):
            why = f"{found.what} ({found.where(self.text)})"
            return [FoundCall(name, None, at, len(self.text), (note,), False, broken=why)]
        repairs = (note, *(f"the input's JSON had {what}" for what in found.repairs))
        return [FoundCall(name, found.value, at, found.end, repairs, False)]

    def read_argument_pairs(self, name: str, start: int, at: int, note: str) -> FoundCall:
        """Read pairs of `<arg_key>` and `<arg_value>`."""
        given: dict[str, JSON] = {}
        while (pair := _ARG_KEY.match(self.text, at)) is not None:
            end = self.text.find("</arg_value>", pair.end())
            if end < 0:
                return FoundCall(name, None, start, len(self.text), (note,), broken=_HALF)
            given[pair[1].strip()] = _value(self.text[pair.end() : end])
            at = end + len("</arg_value>")
        return FoundCall(name, given, start, at, (note,), broken=self.find_lack(name, given, at))

    def find_lack(self, name: str, given: Mapping[str, JSON], at: int) -> str:
        """Return why a call's tags may lack more of its arguments at `at`; "" if they are closed, or it has all."""
        tool = self.tools.get(name)
        whole = tool is None or given.keys() >= set(parameter_names(tool.parameters))
        return "" if whole or _TAG_END.match(self.text, at) else _HALF

    def python(self, at: int) -> list[FoundCall]:
        """Read `get_weather(city="Paris")` on a line of its own or in a list."""
        head = _PYTHON.match(self.text, at)
        if head is None or not (name := self.find_tool(head["name"])):
            return []
        end = end_of_arguments(self.text, head.end())
        self.budget -= max(1, (len(self.text) if end < 0 else end) - at)
        self.tries -= 1
        note = "the call was written as in Python"
        if end < 0 or _LINE_END.match(self.text, end + 1) is None:
            prose = self.text.find("\n", head.end()) >= 0 or self.text.count(" ", at) > 40
            if end >= 0 or (prose and not _ARGUMENT.match(self.text, head.end())):
                return []
            return [FoundCall(name, None, at, len(self.text), (note,), False, broken="its parenthesis is never closed")]
        raw = self.text[head.end() : end]
        try:
            read = read_arguments(raw, self.tools[name].parameters)
        except InvalidArguments as why:
            return [FoundCall(name, None, at, end + 1, (note,), False, broken=str(why))]
        given = named_input(read.value, self.tools[name].parameters)
        close = end + 2 if head[0].startswith("print(") and self.text.startswith(")", end + 1) else end + 1
        return [FoundCall(name, given, at, close, (note, *read.repairs), False)]

    def read_tagged(self, at: int) -> list[FoundCall]:
        """Read tags that name a tool: `<function=...>`, `<invoke name=...>`, `<tool_name>`, or the tool's own tag."""
        note = "the call was written with tags"
        self.tries -= 1
        if (head := _FUNCTION.match(self.text, at)) is not None:
            return [self.function(head, note)]
        if (head := _NAME_TAG.match(self.text, at)) is not None:
            given, end = None, head.end()
            if (opening := _INPUT_TAG.match(self.text, end)) is not None:
                close = self.text.find(f"</{opening[1]}>", opening.end())
                stop = len(self.text) if close < 0 else close
                given = self.inside(self.text[opening.end() : stop])
                end = stop + len(opening[1]) + 3 if close >= 0 else stop
                if close < 0 and read_structure(self.text[opening.end() :].strip()) is None:
                    return [FoundCall(head[2], None, at, end, (note,), broken=_HALF)]
            elif not self.find_tool(head[2]):
                return []
            name = self.find_tool(head[2]) or head[2]
            return [FoundCall(name, given, at, min(end, len(self.text)), (note,))]
        head = _TOOL_TAG.match(self.text, at)
        if head is not None and head[1] in self.tools:
            close = self.text.find(f"</{head[1]}>", head.end())
            if close >= 0:
                given = self.inside(self.text[head.end() : close])
                return [FoundCall(head[1], given, at, close + len(head[1]) + 3, (note,))]
            if self.text[head.end() :].lstrip()[:1] in ("<", "{"):
                return [FoundCall(head[1], None, at, len(self.text), (note,), broken=_HALF)]
        return []

    def function(self, head: re.Match[str], note: str) -> FoundCall:
        at = head.end()
        name = self.find_tool(head["name"]) or head["name"]
        blank = _BLANK.match(self.text, at).end()  # type: ignore[union-attr]
        if self.text.startswith("{", blank):
            found = self.json(blank)
            if isinstance(found, NotJson):
                why = f"{found.what} ({found.where(self.text)})"
                return FoundCall(name, None, head.start(), len(self.text), (note,), broken=why)
            end = _TRAILER.match(self.text, found.end).end()  # type: ignore[union-attr]
            return FoundCall(name, found.value, head.start(), end, (note,))
        given: dict[str, JSON] = {}
        while (opening := _PARAMETER.match(self.text, blank)) is not None:
            close = _PARAMETER_END.search(self.text, opening.end())
            if close is None:
                return FoundCall(name, None, head.start(), len(self.text), (note,), broken=_HALF)
            given[opening[1]] = _value(self.text[opening.end() : close.start()])
            at = close.end() if close[0] == "</parameter>" else close.start()
            blank = _BLANK.match(self.text, at).end()  # type: ignore[union-attr]
        end = _FUNCTION_END.match(self.text, blank)
        if end is None and not given and (close := _FUNCTION_END.search(self.text, at)) is not None:
            inside = self.inside(self.text[at : close.start()])
            return FoundCall(name, inside, head.start(), close.end(), (note,))
        lack = self.find_lack(name, given, blank)
        return FoundCall(name, given or None, head.start(), end.end() if end else at, (note,), broken=lack)

    def inside(self, text: str) -> JSON:
        """Read the content between two tags: JSON, a tag for each parameter, or text."""
        if (value := read_structure(text.strip())) is not None:
            return value
        given: dict[str, JSON] = {}
        at = 0
        while (child := _CHILD.match(text, at)) is not None:
            close = text.find(f"</{child[1]}>", child.end())
            if close < 0:
                break
            given[child[1]] = _value(text[child.end() : close])
            at = close + len(child[1]) + 3
        return given if given and not text[at:].strip() else text.strip() or None


def _value(text: str) -> JSON:
    """Return a parameter's text without the line breaks beside its tags. Binding knows its type."""
    return text.removeprefix("\n").removesuffix("\n").strip(" \t") if "\n" not in text.strip() else text.strip("\n")


def same_call(name: str, given: JSON) -> str:
    """Return a key that two equal calls share."""
    return f"{name} {json.dumps(given, sort_keys=True, default=str)}"


def disarm_calls(text: str, tools: Sequence[ToolSpec] = ()) -> str:
    """Put a backslash into tags of calls and objects that read as one. Other data stays unchanged."""
    text = _HARMLESS.sub(lambda tag: f"{tag[0][0]}\\{tag[0][1:]}", text)
    if not tools and "{" not in text and "<" not in text:
        return text  # only objects and tags can name a tool that is not known
    if "{" in text and _holds_call(text, tools):
        text = disarm_objects(text, (*NAME_KEYS, "function"))
    return _without_named(text, tools) if calls_in(text, tools) else text


def _holds_call(text: str, tools: Sequence[ToolSpec]) -> bool:
    try:
        return any(_calls_inside(found.value, tools) for found in objects(text, whole=True))
    except NotJson:
        return True


def _calls_inside(value: Any, tools: Sequence[ToolSpec]) -> bool:
    """Return whether a value contains a call, at any depth: a part of data may be cut out and read alone."""
    return any(isinstance(one, Mapping) and is_call(plain_call(one), tools) for one in all_inside(value))


def _without_named(text: str, tools: Sequence[ToolSpec]) -> str:
    """Put a backslash behind each tool's name that the following text makes a call."""
    names = "|".join(re.escape(tool.name) for tool in sorted(tools, key=lambda tool: -len(tool.name)))
    text = re.sub(rf"\b({names})\b(?=[^\n\\]{{0,60}}\s{{0,20}}[({{<])", r"\1\\", text, flags=re.I)
    return text.replace("{", "{\\") if calls_in(text, tools) else text
