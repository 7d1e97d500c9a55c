"""Tool calls in the notations that models were trained on, anywhere in a reply.

Without a parser in the endpoint, or when asked for another format, models fall back to what they know: a JSON object
with a name and arguments, tags such as `<tool_call>`, `<function=...>` with or without parameters, the tool's name
before a JSON object, Python calls, special tokens around any of these. `NOTATIONS` is the table of them. `calls_in`
finds the first group of consecutive calls. Only JSON objects and tags can name an unknown tool.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, Literal

from msgspec import Struct, structs

from plait.core import JSON, ToolSpec
from plait.core.arguments import (
    PLAIN,
    InvalidArguments,
    brings_result,
    end_of_arguments,
    named_input,
    parameter_names,
    read_arguments,
    read_structure,
)
from plait.core.loose_json import PER_OBJECT, Found, NotJson, next_start, read_value
from plait.loops.call_objects import fits_names, input_of_object, is_call, plain_call, text_key
from plait.loops.call_tags import ARG_KEY, FAMILY, read_content, read_fields
from plait.loops.vocabulary import INPUT_WORDS, NAME_KEYS, NAME_WORDS, PLAIN_INPUTS, either

LIST_KEYS = ("tool_calls", "function_calls", "calls", "actions", "tool_uses", "functions", "toolCalls")

# -- markup around calls

MARKS = {
    "tag": rf"</?{FAMILY}(?:\w{{1,20}}_)?(?:tool_?calls?|functions?_?calls?|tool_use|use_mcp_tool|tool_code|invoke)>"
    r"|</?TOOLCALL>|<<functions?>>",
    "word in brackets": r"\[/?(?:AVAILABLE_TOOLS|(?:END_)?TOOL_(?:CALLS?|REQUEST))\]",
    "token": r"<[|｜][\w▁ .:=/-]{1,40}[|｜]>|<\|\w{1,30}>|<\w{1,30}\|>",
}
"""Markup behind which a call may begin anywhere in a line. A backslash behind its first character makes it text."""

TAG, TOKEN = f"{MARKS['tag']}|{MARKS['word in brackets']}", MARKS["token"]
LANGUAGE = r"json[l5c]?|tool_?\w{0,12}|function_?\w{0,12}|python3?|py|xml|te?xt|plaintext"
_CLOSING = rf"</{FAMILY}(?:function|invoke|parameters|tools?|actions?|[\w:]{{1,30}}calls?)>"
GLUE = re.compile(
    rf"(?:{TAG}|{TOKEN}|{_CLOSING}|[\s,;\[\]}})`]|\\(?=[\[\]])|(?<=```)(?:{LANGUAGE})\b|functools(?=\[))*+"
)
"""Allowed around calls and between two of them: blanks, list marks, fences, tags, tokens."""

_WORDS = (
    r"[ \t*#>-]{0,8}(?:(?:[\w'-]{1,20} ){0,%d}(?:tool|function|call|action|api)s?[ \w]{0,20}|(?:assistant|ai|model|bot"
    r"|(?:final )?(?:answer|output|response|result|solution)|step \d{1,3})[ \t]?)\*{0,2}:[*` \t]{0,4}"
)
_PLACE = re.compile(
    rf"^{_WORDS % 12}(?=\\?\[)|^{_WORDS % 3}(?=[\w\\.]{{1,80}}\()"
    rf"|\[/?[A-Z_]{{0,20}}(?:TOOL|CALL|FUNCTION|ACTION|INST)[A-Z_]{{0,20}}\]"
    rf"|^[ \t]{{0,8}}<(?:\w{{0,20}}call|tool|function|action|api|execute|answer|output|response|result|s)>\s{{0,4}}"
    rf"(?=\[|[\w\\.]{{1,80}}\()|^[ \t]{{0,8}}[^\w\s\[(){{<\"'\\`|]{{1,4}}[ \t]?(?=\[)"
    rf"|^[ \t>*`•-]{{0,8}}(?:\d{{1,3}}[.)][ \t]{{1,3}})?[`*]{{0,4}}|{TAG}|{TOKEN}"
    rf"|```(?:{LANGUAGE})?[ \t]*\n?|(?=\{{)|functools(?=\[)|\bto=",
    re.M | re.I,
)
"""Where a call may begin: at a line's start or a brace, behind announcing words, a tag, a token or a fence."""

# -- the notations

_NAME = r"[A-Za-z_][\w.-]{0,80}+(?:\\[_.-][\w.-]{0,80}+){0,8}+"  # `get\_weather` is Markdown
_PREFIX = r"(?:(?:(?:functions?|tools?|api|call|action)(?:[ _]name)?|name):[*` \t]{0,4}(?=\w)|>>>|\*\*|`|to=)?"
_OPEN = r"(?:[`*]{0,2}|[ ](?=\(\w{1,64}\s?=))\("
_SUFFIX = r"(?::\d{1,4})?[`*\"]{0,3}"
_BETWEEN = (
    rf"[ \t]{{0,4}}(?:[:=]|(?:\[CALL_ID\]\w{{1,40}})?\[ARGS\]|(?:\s?(?:{TOKEN}|<tool_sep>)"
    r"(?:(?:json|code|commentary|analysis)\s?){0,2}){1,4})?\s{0,20}"
    rf"(?:\*{{0,2}}(?:action[ _]|tool[ _])?(?:{either(PLAIN_INPUTS)})[ \t]?[:=][*`\s]{{0,4}})?"
    r"(?:```(?:json)?\s{0,4})?"
)
_CALL_TAG = r"(?:\w{1,20}_)?(?:function|invoke|tool|call|action|command|skill|plugin|api)"
SURE_TAGS = ("function", "invoke")
"""Tags that name a tool, also one that is not known."""
_NAME_TAG = either((*NAME_WORDS, "function_name"))


class Notation(Struct, frozen=True):
    """A notation of calls.

    `opening` matches where such a call begins. A backslash behind its group `arm` makes the call text, in every
    notation that could read it. `read` is the reader's method that takes the match and returns the calls, or nothing.
    """

    name: str
    opening: re.Pattern[str]
    read: Literal["read_object", "read_string", "read_tags", "read_named", "read_python"]


NOTATIONS = (
    Notation("an object", re.compile(r"(?P<arm>\{)"), "read_object"),
    Notation("a call in quotes", re.compile(r"(?P<arm>[\"'“‘])"), "read_string"),
    Notation(
        "a tag with the tool's name as a value",
        re.compile(
            rf"(?P<arm><){FAMILY}(?P<tag>{_CALL_TAG})(?:=|\s{{1,9}}[a-z]{{2,10}}=)[\"']?(?P<name>[\w.-]{{1,80}})[\"']?"
            r"[^<>]{0,80}>(?P<named>)"
        ),
        "read_tags",
    ),
    Notation(
        "a tag around the tool's name",
        re.compile(rf"(?P<arm><)(?P<tag>{_NAME_TAG})>\s*+(?P<name>[\w.-]{{1,80}})\s*+(?P<named></(?P=tag)>)\s*+"),
        "read_tags",
    ),
    Notation(
        "a tag that is the tool's name",
        re.compile(r"(?P<arm><)(?P<tag>(?P<name>[A-Za-z_][\w.-]{0,80}))>(?P<named>)"),
        "read_tags",
    ),
    Notation(
        "the tool's name before an object",
        re.compile(rf"{_PREFIX}(?P<arm>(?P<name>{_NAME}){_SUFFIX}){_BETWEEN}(?=\{{|{ARG_KEY})", re.A | re.I),
        "read_named",
    ),
    Notation("Python", re.compile(rf"{_PREFIX}(?P<arm>(?P<name>{_NAME})){_OPEN}", re.A), "read_python"),
)
"""All notations of calls, in the order in which the reader tries them at one place."""

_LEAD = re.compile(
    r"(?:\#[^\n]*+\n\s*+|\d{1,3}[.)]\s|[-*•]\s)*+(?:[^\W\d]\w{0,40}\s?(?::\s?[\w\[\]]{1,20}\s?)?=(?!=)\s?)?"
    r"(?:(?:print|list)\(\s*|(?:await|return)\s|\()?[\[\s]*+"
)
"""What may stand before a call in Python: comments, a number, a variable, `print(`, `await`, a bracket."""
_END = re.compile(r"(?:[ \t`*_\"'”’.;,)\]}]|\\\]|\(\))*+(?:\n|\Z|<|\[[A-Z/]|(?<=\] )[-–—→(A-Z]|(?:\#|//|--)[ #])")
"""What may stand behind the last call of a group on its line."""
_STRING_END = re.compile(rf"(?:\(\)|\#[^\n]*+|{GLUE.pattern})*+\Z")
_BETWEEN_CALLS = re.compile(
    r"(?<=[|｜]>)[\w.:-]{1,40}(?=<[|｜]| to=) ?|(?:and|then|&&?)\s{1,9}"
    r"|(?:\*{0,2}\d{1,2}[.)] )?[A-Z][^\n\d:]{0,160}:[ \t]*\n|(?:Step|Call|Action) \d{1,2}\*{0,2}:[* \t]{0,4}"
    r"|(?:And|Also|Then|Next|Now|Second(?:ly)?|Finally|After that|I(?:'ll| will| also)|Let me|For)\b[^\n\d]{0,160}\n"
)
"""What may stand between two calls: a word between tokens, or a sentence that announces a call and tells no result."""
_OTHER = re.compile(rf"[\"'`]?(?P<name>{_NAME})\(")
_UNCLOSED = re.compile(r"\s*+(?:\w{1,64}\s?=(?!=)|[\"'\[{])")
_SIGNATURE = re.compile(r"(\w+)\s*(?::.*)?", re.S)
INPUT_TAG = re.compile(rf"<({either(INPUT_WORDS)})>")
_TRAILER = re.compile(r"\s*+(?:```)?\s*+(?:</[\w:.|｜-]{1,80}>)?")
_TAG_END = re.compile(rf"\s*+(?:{_CLOSING}|{TAG}|{TOKEN}|</[\w:.-]{{1,80}}>)")
_HALF = "its input is never closed"
_BLANK = re.compile(r"\s*+")
_NO_CALL = re.compile(r"\\:|\\u00[2-7]|(?<!\\)\w[`*\":=]{0,4}\s?(?:\\[nrt]\s?){1,20}(?=[{a-z`])")
"""What a string with a call does not have: the escape's backslash before a colon, letters in JSON escapes, and a line
break behind a name. The escape could not see what they hide."""
_LONGEST_NAME = 300  # of a tool in a text, with what stands around it
_LOOKS, _TRIES = 8, 300  # limits of a search, as in loose_json


class FoundCall(Struct, frozen=True):
    """A call found in a text, at text[start:end].

    `certain`: it is a call even if the name is unknown. `broken`: why the input cannot be read, or "" if it can.
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
    reader = _CallFinder(text, tools)
    return next((group for found in reader.first(start) if (group := reader.read_group(found))), [])


def find_tool(name: str, names: tuple[str, ...]) -> str:
    """Return which of the tools' `names` a name in a text means, ignoring decoration; "" if none."""
    plain = name[:_LONGEST_NAME].replace("\\", "").strip(".-")
    while plain:
        for one in (plain, plain.removesuffix(".call")):
            if one in names:
                return one
            if found := folded_names(names).get(fold(one)):
                return found
        plain = plain.partition(".")[2]
    return ""


@lru_cache(maxsize=64)
def folded_names(names: tuple[str, ...]) -> Mapping[str, str]:
    """Return the names of tools by their folded form."""
    return {fold(name): name for name in names}


def fold(text: str) -> str:
    """Return a text in the form in which the names of tools are compared."""
    return text.replace("\\", "").lower().replace(".", "_").replace("-", "_")


class _CallFinder:
    """Looks for calls at places in one text, which may be a string inside another one (`depth`)."""

    def __init__(self, text: str, tools: Sequence[ToolSpec], depth: int = 0) -> None:
        self.text, self.depth = text, depth
        self.tools = {tool.name: tool for tool in tools}
        self.find_tool = partial(find_tool, names=tuple(self.tools))
        self.budget, self.tries = _LOOKS * (len(text) + 64), _TRIES
        self.listed = tools
        self.passed = 0  # an object that is not a call is data, and nothing in it is a call

    def first(self, start: int) -> Iterator[list[FoundCall]]:
        """Yield the calls at each place that has some, from `start` on."""
        at = start
        # A search from behind the end would start at the end again.
        while at <= len(self.text) and self.budget > 0 and self.tries > 0:
            if (place := _PLACE.search(self.text, at)) is None:
                return
            begin = place.end() - 3 if place[0] == "to=" else place.end()
            begin = max(begin, GLUE.match(self.text, begin).end())  # type: ignore[union-attr]
            self.passed = begin - (self.text[begin - 1 : begin] == "[")  # `[INST]` is a place too
            if found := self.at(begin):
                yield found
            at = max(self.passed, place.start() + 1)

    def at(self, at: int) -> list[FoundCall]:
        """Return the calls that begin exactly at `at`; empty if there are none."""
        for start in dict.fromkeys((at, _LEAD.match(self.text, at).end())):  # type: ignore[union-attr]
            for notation in NOTATIONS:
                head = notation.opening.match(self.text, start)
                if head is not None and (calls := getattr(self, notation.read)(head)):
                    return [structs.replace(calls[0], start=at), *calls[1:]]
        return []

    def read_group(self, first: list[FoundCall]) -> list[FoundCall]:
        """Return the first calls with those that follow directly, or behind a sentence; empty if they are prose."""
        text, group = self.text, [*first]
        while not group[-1].broken:
            at = GLUE.match(text, group[-1].end).end()  # type: ignore[union-attr]  # it matches the empty string too
            for _ in range(4):
                if (more := self.at(at)) or (said := _BETWEEN_CALLS.match(text, at)) is None or brings_result(said[0]):
                    break
                at = GLUE.match(text, said.end()).end()  # type: ignore[union-attr]
            if not more:
                break
            group += more
        if group[-1].certain or group[-1].broken:
            return group
        listed = "[" in text[max(0, group[0].start - 4) : group[0].start] and "]" not in text[group[-1].end : at]
        if listed and (other := _OTHER.match(text, at)) is not None:
            why = f"a call of {other['name'][:60]!r}, which is not a tool, stands beside it"
            return [structs.replace(group[0], broken=why)]
        while group and not _END.match(text, group[-1].end):
            group.pop()  # a word on the same line makes it a part of a sentence
        return group

    def parameters(self, name: str) -> Mapping[str, Any]:
        return self.tools[name].parameters if name in self.tools else {}

    def json(self, at: int) -> Found | NotJson:
        try:
            found = read_value(self.text, at)
        except NotJson as error:
            self.budget -= max(error.reach - at, 1)
            self.tries -= 1
            if (behind := next_start(self.text, at, error)) > at + 1:
                self.passed = behind
            return error
        self.budget -= found.end - found.start + PER_OBJECT
        return found

    def read_object(self, head: re.Match[str]) -> list[FoundCall]:
        at = head.start()
        found = self.json(at)
        if isinstance(found, NotJson):
            quoted = rf"[\"'“‘]({either(self.tools) or '(?!)'})[\"'”’]"
            named = re.compile(quoted).search(self.text, at) if found.unclosed else None
            why = f"{found.what} ({found.where(self.text)})"
            return [FoundCall(named[1], None, at, len(self.text), broken=why)] if named else []
        if not isinstance(found.value, Mapping):
            return []
        value: Mapping[str, Any] = found.value
        self.passed = found.end
        held = next((value[key] for key in LIST_KEYS if isinstance(value.get(key), list | dict)), value)
        wrapped = held if isinstance(held, list) else [held]
        if wrapped and all(isinstance(one, str) for one in wrapped):
            groups = [self.inside(str(one)) for one in wrapped]
            every = [structs.replace(call, start=found.start, end=found.end) for each in groups for call in each]
            return every if all(groups) else []
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
                continue
            for word, given in one.items():
                name = self.find_tool(str(word))
                fits = given is None or isinstance(given, list) or fits_names(given, self.parameters(name))
                if not (name and fits):
                    return []
                calls.append(FoundCall(name, given, found.start, found.end, (*repairs, "the tool's name was a key")))
        return calls

    def read_named(self, head: re.Match[str]) -> list[FoundCall]:
        """Read `get_weather {"city": "Paris"}`, with anything usual between the two."""
        if not (name := self.find_tool(head["name"])):
            return []
        note = "the tool's name stood before its input"
        if self.text.startswith("<", head.end()):
            return [self.with_fields(name, head.start(), head.end(), note)]
        return [self.with_object(name, head.start(), head.end(), note, certain=False)]

    def with_object(self, name: str, start: int, at: int, note: str, *, certain: bool) -> FoundCall:
        found = self.json(at)
        if isinstance(found, NotJson):
            why = f"{found.what} ({found.where(self.text)})"
            return FoundCall(name, None, start, len(self.text), (note,), certain, broken=why)
        repairs = (note, *(f"the input's JSON had {what}" for what in found.repairs))
        return FoundCall(name, found.value, start, found.end, repairs, certain)

    def with_fields(self, name: str, start: int, at: int, note: str) -> FoundCall:
        """Return the call whose input is in the tags at `at`. It is broken if they may lack more of its arguments."""
        parameters = self.parameters(name)
        given, end, closed = read_fields(self.text, at, parameters)
        whole = name not in self.tools or given.keys() >= set(parameter_names(parameters))
        broken = "" if closed and (whole or _TAG_END.match(self.text, end)) else _HALF
        return FoundCall(name, given or None, start, end, (note,), broken=broken)

    def read_string(self, head: re.Match[str]) -> list[FoundCall]:
        """Read `"get_weather(city='Paris')"`: a string with one call or more, or a call in quotes as it stands."""
        at = head.start()
        found, calls = self.json(at), list[FoundCall]()
        if isinstance(found, Found) and isinstance(found.value, str):
            hidden = _NO_CALL.search(self.text, at, found.end) is not None
            calls = [] if hidden else self.inside(found.value)
        if not calls or calls[-1].broken:
            python = NOTATIONS[-1].opening.match(self.text, _LEAD.match(self.text, at + 1).end())  # type: ignore[union-attr]
            if python is not None and (call := self.read_python(python)):
                return call
        return [structs.replace(call, start=at, end=found.end) for call in calls if isinstance(found, Found)]

    def inside(self, text: str) -> list[FoundCall]:
        """Return the calls in a string that holds calls and nothing else."""
        self.budget -= len(text)
        if self.depth > 2:
            return []
        inner = _CallFinder(text, self.listed, self.depth + 1)
        first = inner.at(GLUE.match(text).end())  # type: ignore[union-attr]  # it matches the empty string too
        calls = inner.read_group(first) if first else []
        return calls if calls and _STRING_END.match(text, calls[-1].end) is not None else []

    def read_python(self, head: re.Match[str]) -> list[FoundCall]:
        """Read `get_weather(city="Paris")` on a line of its own or in a list."""
        if not (name := self.find_tool(head["name"])):
            return []
        at, start = head.start(), head.end()
        end = end_of_arguments(self.text, start)
        self.budget -= max(1, (len(self.text) if end < 0 else end) - at)
        self.tries -= 1
        note = "the call was written as in Python"
        if end < 0:
            if not _UNCLOSED.match(self.text, start) and (
                self.text.find("\n", start) >= 0 or self.text.count(" ", at) > 40
            ):
                return []
            return [FoundCall(name, None, at, len(self.text), (note,), False, broken="its parenthesis is never closed")]
        raw = self.text[start:end].replace("\\_", "_") if "\\" in head["name"] else self.text[start:end]
        parameters = self.tools[name].parameters
        try:
            read = read_arguments(raw, parameters)
        except InvalidArguments as why:
            return [FoundCall(name, None, at, end + 1, (note,), False, broken=str(why))]
        given = named_input(read.value, parameters)
        broken = ""
        for key, value in given.items() if isinstance(given, Mapping) and PLAIN in read.repairs else ():
            words = value if isinstance(value, str) else ""
            if (said := _SIGNATURE.fullmatch(words)) is not None and said[1] == key:
                return []  # `get_weather(city)` and `get_weather(city: str)` tell how to call it
            if (call := NOTATIONS[-1].opening.match(words)) is not None and self.find_tool(call["name"]):
                broken = f"it has a call of {call['name']} among its arguments"
        return [FoundCall(name, given, at, end + 1, (note, *read.repairs), False, broken=broken)]

    def read_tags(self, head: re.Match[str]) -> list[FoundCall]:
        """Read a call in tags. Its input is in a tag for each parameter, or JSON or text inside."""
        text, note = self.text, "the call was written with tags"
        self.tries -= 1
        tool, opening = self.find_tool(head["name"]), INPUT_TAG.match(text, head.end())
        if head[0].endswith("/>") or not (tool or opening or head["tag"] in SURE_TAGS):
            return []
        name, start = tool or head["name"], opening.end() if opening else head.end()
        at = _BLANK.match(text, start).end()  # type: ignore[union-attr]  # it matches the empty string too
        if text.startswith("{", at):
            call = self.with_object(name, head.start(), at, note, certain=True)
        else:
            call = self.with_fields(name, head.start(), at, note)
            close = text.find(f"</{opening[1] if opening else text[head.start() + 1 : head.end('tag')]}>", call.end)
            if close < 0 and head["tag"] == head["name"] and not text.startswith("<", at):
                return []
            if call.input is None and close >= 0 and (opening or not head["named"]):
                given = read_content(text[at:close], self.parameters(tool))
                call = structs.replace(call, input=given, end=close, broken="")
            elif close < 0 and (opening or head["tag"] == head["name"]):
                call = structs.replace(call, broken=_HALF)
        return [structs.replace(call, end=_TRAILER.match(text, call.end).end())]  # type: ignore[union-attr]


def same_call(name: str, given: JSON) -> str:
    """Return a key that two equal calls share."""
    return f"{name} {json.dumps(given, sort_keys=True, default=str)}"
