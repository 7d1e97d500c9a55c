"""A tool's input, read as the value that the model meant.

Models write inputs as JSON, as JSON in need of repair, in quotes, in fences, as Python arguments, as `name: value`
lines or as plain text, and often write more behind it: a closing fence, a remark, a result that they invented.
`read_input` reads such a text, `read_arguments` what stands between the parentheses of a call. Both say what they
repaired and what they cut off. Text formats, plans and the binding of tools share them, so that an input means the same
everywhere.

`parameters` is always the JSON Schema of a tool's parameters, `{}` for a tool that is not known.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from plait.core.json_schema import types_of
from plait.core.loose_json import MISSING, QUOTES, NotJson, read_value
from plait.core.messages import JSON

FENCE = "a code fence around the input was dropped"
PLAIN = "a text without quotes was taken as it stands"

_NO_INPUT = frozenset({"", "none", "null", "n/a", "{}", "[]", "()", '""', "''", "no input"})
_INVISIBLE = "\u200b\u200c\u200d\u2060\ufeff"
_OPEN_FENCE = re.compile(r"```[A-Za-z0-9_+-]{0,20}[ \t]*+(?:\r?\n)?")
_CLOSE_FENCE = re.compile(r"\r?\n[ \t]{0,8}```|```")
_CLOSERS = re.compile(r"[`}\])\s]*+")
_QUOTES = {'"': '"', "'": "'", "“": "”", "‘": "’", "`": "`"}
# A line that brings a result: only tools have results, so whatever an input holds from there on is invented.
_WORD = r"(?:[A-Z][\w.-]{0,40}|of|the|from|tool|function|search|call)"
_RESULT = (
    r"(?:[Rr]esults?|[Oo]utputs?|[Rr]esponses?|[Rr]eturns?|[Rr]eturned|[Oo]bservations?|[Oo]utcomes?|[Aa]nswer"
    r"|RESULTS?|OUTPUTS?|RESPONSES?|RETURNS?|RETURNED|OBSERVATIONS?|ANSWER)"
)
_RESULT_LINE = re.compile(
    rf"^[ \t>*_#`-]{{0,12}}(?=[A-Z*_#`>-])(?:{_WORD}[ _]){{0,4}}{_RESULT}"
    rf"(?:[ _](?:of|from|for|by)(?:[ _]`?[\w.-]{{1,40}}`?){{1,3}}|(?:[ _]{_WORD}){{0,4}})"
    r"(?:[ \t]{0,3}#?\d{1,9})?[*_`]{0,3}[ \t]{0,4}[:：](?!=)"
    r"|^[ \t]{0,12}(?:=>?|->|→|⇒)[ \t]"
    r"|^[ \t(*\[]{0,12}(?:PAUSE\b|(?:I(?:'ll| will| am| must)|Let me|Now)? ?[Ww]ait(?:ing)? for (?:the|an|its) "
    r"(?:\w{1,20} )?(?:results?|observations?|outputs?|responses?|tool)\b)"
    r"|^[ \t]{0,12}</?(?:tool_|function_)?(?:result|output|response|observation|results|tool_call|function_call)s?>"
    r"|(?<![\w\\])Observation(?:[ \t]{0,3}#?\d{1,9})?[*_`]{0,3}[ \t]{0,4}[:：]",
    re.M,
)
_INLINE = re.compile(r"(?<![\w\\])Observation(?:[ \t]{0,3}#?\d{1,9})?[*_`]{0,3}[ \t]{0,4}[:：]")
KEYWORD = re.compile(r"\s*+([^\W\d]\w{0,63})\s*+=(?!=)\s*+")
_NAMED_LINE = re.compile(r"[ \t*_`\"'-]{0,8}([^\W\d][\w-]{0,63})[*_`\"']{0,3}[ \t]*+[:：](?!//)[ \t]*+(.*)")
# A bare reference to a result, or what may hold its like and is none: an escaped character, a string.
_BARE = re.compile(r"""\\.|"(?:[^"\\]++|\\.)*+"|'(?:[^'\\]++|\\.)*+'|(\$\{\d{1,6}\}|\$\d{1,6}(?![\w.]))""", re.S | re.A)
_PARTS = re.compile(r"""["'“‘()\[\]{},]""")
_STRINGS = {
    '"': re.compile(r'"""(?:[^"\\]++|\\.|"(?!""))*+"""|"(?:[^"\\]++|\\.|"(?!\s*+(?:[,:)}\]]|\Z)))*+"', re.S),
    "'": re.compile(r"'''(?:[^'\\]++|\\.|'(?!''))*+'''|'(?:[^'\\]++|\\.|'(?!\s*+(?:[,:)}\]]|\Z)))*+'", re.S),
    "“": re.compile(r"“[^”“\"]*+[”“\"]"),
    "‘": re.compile(r"‘(?:[^’']++|[’'](?!\s*+(?:[,:)}\]]|\Z)))*+[’']"),
}
_SIMPLE = frozenset({"string", "integer", "number", "boolean"})


class ParsedInput(Struct, frozen=True):
    """An input as read: its value, what was repaired, and what stood behind it and was cut off.

    `plain`: the value is the text as it stood there, and neither JSON nor quoted.
    """

    value: JSON
    repairs: tuple[str, ...] = ()
    cut: str = ""
    plain: bool = False


class InvalidArguments(ValueError):
    """The arguments of a call contradict each other. The text says how, in words for the model."""


class _Argument(Struct, frozen=True):
    """One argument as written: its keyword, if it has one, its value, and whether that stood there as a literal."""

    key: str
    value: JSON
    literal: bool


# -- what a tool takes


def parameter_names(parameters: Mapping[str, Any]) -> list[str]:
    """The names of a tool's parameters, in order."""
    return list(parameters.get("properties", {}))


def takes_list(parameters: Mapping[str, Any], name: str) -> bool:
    """A list is a value that this parameter can have."""
    return bool({"array", "any"} & _types(parameters, name))


def is_no_input(value: JSON) -> bool:
    """The value stands for no input at all: None, "none", or what holds
    nothing else, such as {}, [""] and [null]."""
    if isinstance(value, str):
        return value.strip().lower() in _NO_INPUT
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return all(map(is_no_input, value))
    return value is None


def separate_inputs(value: JSON, parameters: Mapping[str, Any]) -> list[JSON]:
    """The inputs of the calls that are meant: one, or one for each entry of a list.

    A tool with one parameter that is no list gets a list of several values only if it is to be called several times.
    A tool without parameters gets None for whatever stands for no input.
    """
    names = parameter_names(parameters)
    if not names and parameters.get("properties") is not None and is_no_input(value):
        return [None]
    if len(names) != 1 or not isinstance(value, list) or len(value) < 2 or takes_list(parameters, names[0]):
        return [value]
    if any(isinstance(each, list) for each in value):
        return [value]
    return [each if isinstance(each, Mapping) else [each] for each in value]


def named_input(value: JSON, parameters: Mapping[str, Any]) -> JSON:
    """The input as an object by the parameters' names, where the tool's parameters say which ones are meant."""
    names = parameter_names(parameters)
    if (
        isinstance(value, list)
        and 0 < len(value) <= len(names)
        and not (len(names) == 1 and takes_list(parameters, names[0]))
    ):
        return dict(zip(names, value, strict=False))
    if value is None or isinstance(value, Mapping) or len(names) != 1:
        return value
    return {names[0]: value}


def _types(parameters: Mapping[str, Any], name: str) -> set[str]:
    return types_of(parameters.get("properties", {}).get(name), parameters)


def _takes_text(parameters: Mapping[str, Any]) -> bool:
    """The whole input may be one text: the tool is not known, or has one parameter that is needed, a text."""
    names = parameter_names(parameters)
    if "properties" not in parameters:
        return True
    needed = [name for name in names if name in parameters.get("required", ())] or names[:1]
    return len(needed) == 1 and bool({"string", "any"} & _types(parameters, needed[0]))


# -- an input as text


def read_input(text: str, parameters: Mapping[str, Any], *, closed: bool = False) -> ParsedInput:
    """The value in an input's text.

    A JSON object or list is that value, a text in quotes is its text. Anything else stays text, numbers and `null`
    among it: what looks like a number may be a postcode, and the tool's schema decides. No text is None. What follows
    the value is cut off, and so is an invented result behind plain text. `closed`: brackets enclosed the text, so
    all of it is the input. Raises nothing, whatever the text.
    """
    text = text.strip().strip(_INVISIBLE).strip()
    if not text:
        return ParsedInput(None)
    if not closed and text.startswith("```") and (inside := _unfenced(text, parameters)) is not None:
        return inside
    if (values := _in_order(text, parameters)) is not None:
        return values
    if text[0] in '{["“„' and (found := _json(text, parameters, closed)) is not None:
        return found
    kept = text if closed else _before_result(text)
    if kept != text:
        inner = read_input(kept, parameters)
        return ParsedInput(inner.value, inner.repairs, text[len(kept) - len(inner.cut) :].strip(), inner.plain)
    if (quoted := _in_quotes(text)) is not None:
        return ParsedInput(quoted, ("quotes around the input were dropped",))
    return _by_keywords(text, parameters) or _by_lines(text, parameters) or ParsedInput(text, plain=True)


def _in_order(text: str, parameters: Mapping[str, Any]) -> ParsedInput | None:
    """Values between commas, such as `2, "Lyon"`, for a tool that needs so many: the arguments in order."""
    needed = len(parameters.get("required", ()))
    if needed < 2 or "," not in text or text[0] in "{[":
        return None
    try:
        values = json.loads(f"[{text}]")
    except (ValueError, RecursionError):
        return None
    fits = needed <= len(values) <= len(parameter_names(parameters))
    if not fits or any(isinstance(value, dict | list) for value in values):
        return None
    return ParsedInput(values, ("values between commas were read as the arguments in order",))


def brings_result(text: str) -> bool:
    """A line of this text begins a result. Where a model wrote the text, it invented the result."""
    return _RESULT_LINE.search(text) is not None


def is_plain_text(text: str) -> bool:
    """`read_input` gives this text back as it stands, whatever the tool takes."""
    return (
        bool(text)
        and text == text.strip().strip(_INVISIBLE).strip()
        and text[0] not in "{[\"“‘'`("
        and KEYWORD.match(text) is None
        and _NAMED_LINE.match(text) is None
        and _RESULT_LINE.search(text) is None
    )


def read_structure(text: str) -> JSON:
    """The list or object that a text is, with repairs and whatever may follow it; None where it is neither."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    found = _json(text.strip(), {"properties": {}}, False)
    return found.value if found is not None else None


def _unfenced(text: str, parameters: Mapping[str, Any]) -> ParsedInput | None:
    """The input inside the fence that a text begins with; None where the text is rather a page with code in it."""
    opening = _OPEN_FENCE.match(text)
    assert opening is not None
    closing = _CLOSE_FENCE.search(text, opening.end())
    inside = text[opening.end() : closing.start() if closing else len(text)]
    behind = text[closing.end() :].strip() if closing else ""
    if inside.lstrip()[:1] in ("{", "[") and (found := _json(inside.strip(), parameters, False)) is not None:
        rest = text[text.index(found.cut, opening.end()) :] if found.cut else behind
        return ParsedInput(found.value, (FENCE, *found.repairs), rest)
    if "```" in behind and _RESULT_LINE.match(behind) is None:
        return None
    return ParsedInput(inside.strip() or None, (FENCE,), behind, plain=True)


def _json(text: str, parameters: Mapping[str, Any], closed: bool) -> ParsedInput | None:
    """The JSON value that a text begins with, and what follows it; None where the text is rather a text."""
    try:
        found = read_value(text)
    except NotJson:
        return None
    if not isinstance(found.value, dict | list | str):
        return None
    repairs = tuple(f"the input's JSON had {what}" for what in found.repairs)
    rest = text[found.end :]
    if not rest.strip():
        return ParsedInput(found.value, repairs)
    if closed:
        return None
    end = _CLOSERS.match(rest).end()  # type: ignore[union-attr]  # it matches the empty string too
    if end == len(rest):
        return ParsedInput(found.value, (*repairs, "brackets or a fence too many behind the input were dropped"))
    own_line = rest.lstrip(" \t\r`")[:1] == "\n" or _RESULT_LINE.match(rest.lstrip()) is not None
    if not isinstance(found.value, dict) and not own_line and (isinstance(found.value, str) or _takes_text(parameters)):
        return None  # `"The Hobbit" author`, `[1] and [2]`
    return ParsedInput(found.value, repairs, rest.strip())


def _before_result(text: str) -> str:
    """A text up to the line with which an invented result begins."""
    second = text.find("\n") + 1
    found = (_RESULT_LINE.search(text, second) if second else None, _INLINE.search(text))
    starts = [each.start() for each in found if each is not None]
    return text[: min(starts)].strip() or text if starts else text


def _in_quotes(text: str) -> str | None:
    """What stands in the quotes around a whole text; None where they may belong to it."""
    if len(text) < 3 or _QUOTES.get(text[0]) != text[-1] or text[0] == '"':
        return None
    inside = text[1:-1]
    return None if set(inside) & {text[0], text[-1], "\n"} else inside


def _by_keywords(text: str, parameters: Mapping[str, Any]) -> ParsedInput | None:
    """The arguments of a text such as `city="Lyon", days=2` or `("Lyon", 2)`, by name where they have one."""
    names = parameter_names(parameters)
    bare = text[1:-1] if text[0] == "(" and text[-1] == ")" else text
    if not names or (bare is text and (KEYWORD.match(text) is None or KEYWORD.match(text)[1] not in names)):  # type: ignore[index]
        return None
    repairs: list[str] = []
    given = _arguments(bare, _walk(bare, 0)[1], names, repairs)
    if not all(each.literal and (each.key in names or bare is not text) for each in given):
        return None
    try:
        read = read_arguments(bare, parameters)
    except InvalidArguments:
        return None
    return ParsedInput(read.value, ("the input was written as Python arguments", *read.repairs))


def _by_lines(text: str, parameters: Mapping[str, Any]) -> ParsedInput | None:
    """The arguments of lines such as `city: Lyon`, where each line names a parameter of its own."""
    names = {name.lower().replace("-", "_"): name for name in parameter_names(parameters)}
    lines = [line for line in text.splitlines() if line.strip()]
    if not names or len(lines) > len(names):
        return None
    given: dict[str, JSON] = {}
    for line in lines:
        match = _NAMED_LINE.fullmatch(line)
        name = names.get(match[1].lower().replace("-", "_")) if match else None
        if match is None or name is None or name in given:
            return None
        read = _literal(match[2].strip().rstrip(","))
        given[name] = match[2].strip() if read is None else read[0]
    return ParsedInput(given, ("the input was written as lines, each with a parameter's name",))


# -- the arguments of a call


def end_of_arguments(text: str, start: int) -> int:
    """Where the parenthesis closes that was opened just before `start`; -1 where it does not."""
    return _walk(text, start)[0]


def read_arguments(raw: str, parameters: Mapping[str, Any], commas: Sequence[int] | None = None) -> ParsedInput:
    """The input that stands between a call's parentheses, as in Python: `"Lyon", limit=3, $1`.

    A value is a JSON or Python literal, or a reference (`$1`, `${1}`), which becomes a text. What is no literal is
    taken as text where that is clear: `$1 - $2` for a tool of one parameter, `EUR` between two commas. `commas` are
    the places where `raw` is parted, if they are known. None without arguments; a scalar for the one argument of a tool
    with one parameter; else an object by the parameters' names. Arguments of an unknown tool, or more than a tool has
    parameters, stay a list. Raises `InvalidArguments` for an argument that is given twice.
    """
    if not raw.strip():
        return ParsedInput(None)
    names = parameter_names(parameters)
    repairs: list[str] = []
    given = _arguments(raw, _walk(raw, 0)[1] if commas is None else commas, names, repairs)
    if len(names) == 1 and not all(each.literal for each in given):
        return ParsedInput(_text_for_one(raw, names[0]), (PLAIN,))
    placed = [each.value for each in given if not each.key]
    keyed = [each for each in given if each.key]
    if len(names) == 1 and len(given) == 1:
        value = _one(given[0], names[0], parameters, repairs)
    elif len(names) == 1 and not keyed:
        schema = parameters["properties"][names[0]]
        if not (isinstance(schema, Mapping) and schema.get("type") == "array"):
            return ParsedInput(_text_for_one(raw, names[0]), (*repairs, PLAIN))
        value = {names[0]: placed}
    elif not keyed and (not names or len(placed) > len(names)):
        value = placed[0] if len(placed) == 1 and not isinstance(placed[0], list | dict) else placed
    elif (
        len(given) == len(placed) == 1 and isinstance(placed[0], dict) and placed[0] and placed[0].keys() <= set(names)
    ):
        value = placed[0]  # the arguments as one object
    else:
        value = _by_name(placed, keyed, names)
    return ParsedInput(value, tuple(repairs))


def _walk(text: str, start: int) -> tuple[int, list[int]]:
    """Where the arguments that begin at `start` end, -1 where no parenthesis closes them, and the commas between them.

    A quote opens a string only where a value may begin, so that `it's` is text.
    """
    depth, at = 0, start
    commas: list[int] = []
    unclosed: set[str] = set()
    while (match := _PARTS.search(text, at)) is not None:
        sign, at = match[0], match.end()
        if sign in _STRINGS:
            before = match.start() - 1
            while before >= start and text[before].isspace():
                before -= 1
            if sign in unclosed or (before >= start and text[before] not in "([{,=:"):
                continue
            if (string := _STRINGS[sign].match(text, match.start())) is not None:
                at = string.end()
            else:
                unclosed.add(sign)
        elif sign in "([{":
            depth += 1
        elif sign in ")]}":
            if sign == ")" and not depth:
                return match.start(), commas
            depth = max(0, depth - 1)
        elif not depth:
            commas.append(match.start())
    return -1, commas


def _arguments(raw: str, commas: Sequence[int], names: list[str], repairs: list[str]) -> list[_Argument]:
    ends = [*commas, len(raw)]
    starts = [0, *(comma + 1 for comma in commas)]
    pieces = [raw[start:end] for start, end in zip(starts, ends, strict=True)]
    if len(pieces) > 1 and not pieces[-1].strip():
        pieces.pop()
    found = []
    for piece in pieces:
        match = KEYWORD.match(piece)
        key = match[1] if match and (match[1] in names or len(names) != 1 or _literal(piece[match.end() :])) else ""
        found.append(_argument(key, piece[match.end() :] if match and key else piece, repairs))
    return found


def _argument(key: str, text: str, repairs: list[str]) -> _Argument:
    text = text.strip()
    if (read := _literal(text)) is not None:
        value, mended = read
        repairs += [f"an argument had {what}" for what in mended if what != QUOTES]
        return _Argument(key, value, True)
    if len(text) > 1 and text[0] != "`" and _QUOTES.get(text[0], "") == text[-1]:
        repairs.append("quotes inside a text in quotes were kept")
        return _Argument(key, text.strip(text[0] + text[-1]) if text[:3] in ('"""', "'''") else text[1:-1], True)
    repairs.append(PLAIN)
    return _Argument(key, text, False)


def _literal(text: str) -> tuple[JSON, tuple[str, ...]] | None:
    """The value if the whole text is one literal, and what was repaired in it."""
    text = _BARE.sub(lambda match: f'"{match[0]}"' if match[1] else match[0], text.strip())
    try:
        found = read_value(text)
    except NotJson:
        return None
    return (found.value, found.repairs) if found.end == len(text) and MISSING not in found.repairs else None


def _text_for_one(raw: str, name: str) -> str:
    """All that stands between the parentheses, as the text for a tool's one parameter."""
    match = KEYWORD.match(raw)
    text = (raw[match.end() :] if match and match[1] == name else raw).strip()
    # A string that was not closed.
    return text[1:] if text.startswith('"') and text.count('"') == 1 else text


def _one(given: _Argument, name: str, parameters: Mapping[str, Any], repairs: list[str]) -> JSON:
    if given.key == name or (given.key and parameters.get("additionalProperties")):
        return {given.key: given.value}
    if given.key:
        repairs.append(f"the argument {given.key!r} was taken for {name!r}")
    return {name: given.value} if given.value is None or isinstance(given.value, list | dict) else given.value


def _by_name(placed: list[JSON], keyed: list[_Argument], names: list[str]) -> JSON:
    if len(placed) > len(names):
        raise InvalidArguments(
            f"it gives {len(placed)} arguments without a name, but there are {len(names)} parameters"
        )
    named = dict(zip(names, placed, strict=False))
    for each in keyed:
        if each.key in named:
            raise InvalidArguments(f"the argument '{each.key}' is given twice")
        named[each.key] = each.value
    return named
