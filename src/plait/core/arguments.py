"""Reads a tool's input as the value that the model meant.

Models write inputs as JSON, as broken JSON, in quotes, in fences, as Python arguments, as `name: value` lines or as
plain text. They often add a closing fence, a remark, or an invented result. `read_input` reads such a text;
`read_arguments` reads the text between the parentheses of a call. Both report what they repaired and cut off. Text
formats, plans and the binding of tools share them, so an input means the same everywhere.

`parameters` is always the JSON Schema of a tool's parameters, `{}` for an unknown tool.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from msgspec import Struct

from plait.core.json_schema import types_of
from plait.core.loose_json import (
    MIXED,
    PREFIXES,
    PYTHON,
    QUOTES,
    NotJson,
    is_unclosed,
    read_float,
    read_python_text,
    read_value,
)
from plait.core.messages import JSON

FENCE = "a code fence around the input was dropped"
PLAIN = "a text without quotes was taken as it stands"
UNCLOSED = "it is never closed: an object ends with `}`, a list with `]`, a string with its quotation mark"

_NO_INPUT = frozenset({"", "none", "null", "n/a", "{}", "[]", "()", '""', "''", "no input"})
_INVISIBLE = "\u200b\u200c\u200d\u2060\ufeff"
_OPEN_FENCE = re.compile(r"```[A-Za-z0-9_+-]{0,20}[ \t]*+(?:\r?\n)?")
_CLOSE_FENCE = re.compile(r"\r?\n[ \t]{0,8}```|```")
_CLOSERS = re.compile(r"[`}\])\s]*+")
_QUOTES = {'"': '"', "'": "'", "“": "”", "‘": "’", "`": "`"}
# A line that begins a result. Only tools have results, so the model invented it and all that follows.
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
# A bare reference to a result; or an escaped character or a string, inside which it is not a reference.
_BARE = re.compile(r"""\\.|"(?:[^"\\]++|\\.)*+"|'(?:[^'\\]++|\\.)*+'|(\$\{\d{1,6}\}|\$\d{1,6}(?![\w.]))""", re.S | re.A)
COMMENT = r"(?<=[\s,(\[{])#(?=[\s#])"
"""Where a comment may begin between the arguments of a call, if one of `BEFORE_COMMENT` stands before it."""
_PARTS = re.compile(rf"""["'“‘()\[\]{{}},]|{COMMENT}""")
BEFORE_COMMENT = frozenset("([{,)]}\"'0123456789")
_MOST_COMMAS = 1000
_PYTHON_SIGNS = frozenset("(+-.0123456789")
_COMMENTS = re.compile(r"\A(?:\s*+#[^\n]*+\n)++")
_COLON = re.compile(r"""\s*+["']?([^\W\d]\w{0,63})["']?[ \t]?(?::(?!//)|=(?!=))\s*+""")
_ESCAPED_KEYWORD = re.compile(r"(?:\A|[,(\s])\w{0,60}\\_[\w\\]{0,60}\s?=(?!=)")
_AFTER_LITERAL = re.compile(r"\s*+(?:#[^\n]*+\s*+)*+")
_STRINGS = {
    '"': re.compile(r'"""(?:[^"\\]++|\\.|"(?!""))*+"""|"(?:[^"\\]++|\\.|"(?!\s*+(?:[,:)}\]]|\#\s|\Z)))*+"', re.S),
    "'": re.compile(r"'''(?:[^'\\]++|\\.|'(?!''))*+'''|'(?:[^'\\]++|\\.|'(?!\s*+(?:[,:)}\]]|\#\s|\Z)))*+'", re.S),
    "“": re.compile(r"“[^”“\"]*+[”“\"]"),
    "‘": re.compile(r"‘(?:[^’']++|[’'](?!\s*+(?:[,:)}\]]|\#\s|\Z)))*+[’']"),
}
# A string of Python that begins a value and never ends. (JSON strings: see `is_unclosed`.)
_HALF_STRING = re.compile(
    r"""("{3}|'{3})(?!.*?\1)|(?:'(?:[^'\\]++|\\.)*+'\s*+\+?\s*+)*+'(?:[^'\\]++|\\.)*+\Z|[“„][^“”"]*+\Z|‘[^’']*+\Z""",
    re.S,
)
_TEXT, _COMPUTED = {"type": "string"}, {"type": "null"}


class ParsedInput(Struct, frozen=True):
    """The value of an input, what was repaired, and the text after it that was cut off. `plain`: the value is the
    unchanged text, which is neither JSON nor quoted."""

    value: JSON
    repairs: tuple[str, ...] = ()
    cut: str = ""
    plain: bool = False


class InvalidArguments(ValueError):
    """The arguments of a call contradict each other, or are never closed. The text explains the error to the model."""


class _Argument(Struct, frozen=True):
    """One argument: its keyword or "", its value, and whether the value was written as a literal."""

    key: str
    value: JSON
    literal: bool


# -- what a tool takes


def parameter_names(parameters: Mapping[str, Any]) -> list[str]:
    """Return the names of a tool's parameters, in order."""
    return list(parameters.get("properties", {}))


def takes_list(parameters: Mapping[str, Any], name: str) -> bool:
    return bool({"array", "any"} & types_of(parameters.get("properties", {}).get(name), parameters))


def is_no_input(value: JSON) -> bool:
    """Return whether a value means no input: None, "none", or a container of these, such as {}, [""] and [null]."""
    if isinstance(value, str):
        return value.strip().lower() in _NO_INPUT
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return all(map(is_no_input, value))
    return value is None


def separate_inputs(value: JSON, parameters: Mapping[str, Any]) -> list[JSON]:
    """Return the inputs of the calls that the model meant. A list of several values means several calls if the tool's
    one parameter is not a list. For a tool without parameters, any value that means no input becomes None."""
    names = parameter_names(parameters)
    if not names and parameters.get("properties") is not None and is_no_input(value):
        return [None]
    if len(names) != 1 or not isinstance(value, list) or len(value) < 2 or takes_list(parameters, names[0]):
        return [value]
    if any(isinstance(each, list) for each in value):
        return [value]
    return [each if isinstance(each, Mapping) else [each] for each in value]


def named_input(value: JSON, parameters: Mapping[str, Any]) -> JSON:
    """Return the input as an object by parameter name, if the schema shows which parameters are meant."""
    names = parameter_names(parameters)
    if names and isinstance(value, list) and len(value) == 1 and isinstance(value[0], Mapping) and value[0]:
        first = types_of(parameters["properties"][names[0]], parameters)
        if value[0].keys() <= set(names) and not first & {"object", "array", "any"}:
            return value[0]  # the arguments as one object in a list
    if (
        isinstance(value, list)
        and 0 < len(value) <= len(names)
        and not (len(names) == 1 and takes_list(parameters, names[0]))
    ):
        return dict(zip(names, value, strict=False))
    if value is None or isinstance(value, Mapping) or len(names) != 1:
        return value
    return {names[0]: value}


def _takes_text(parameters: Mapping[str, Any]) -> bool:
    """Return whether the input may be one text: the tool is unknown, or its one required parameter is a text."""
    names = parameter_names(parameters)
    if "properties" not in parameters:
        return True
    needed = [name for name in names if name in parameters.get("required", ())] or names[:1]
    return len(needed) == 1 and bool({"string", "any"} & types_of(parameters["properties"][needed[0]], parameters))


# -- an input as text


def read_input(text: str, parameters: Mapping[str, Any], *, closed: bool = False) -> ParsedInput:
    """Read the value in an input's text. Raises `InvalidArguments` for JSON, or an argument, that is never closed.

    A JSON object or list is that value; a text in quotes is its content. Everything else stays text, even numbers and
    `null`: a number may be a postcode, and the tool's schema decides. An empty text is None. Text after the value is
    cut off, as is an invented result after plain text. `closed`: brackets enclosed the text, so all of it is the input.
    """
    text = text.strip().strip(_INVISIBLE).strip()
    if not text:
        return ParsedInput(None)
    if not closed and text.startswith("```") and (inside := _read_in_fence(text, parameters)) is not None:
        return inside
    if (values := _read_in_order(text, parameters)) is not None:
        return values
    if text[0] in '{["“„' and (found := _read_json(text, parameters, closed)) is not None:
        return found
    _require_closed(text)
    kept = text if closed else _cut_result(text)
    if kept != text:
        inner = read_input(kept, parameters)
        return ParsedInput(inner.value, inner.repairs, text[len(kept) - len(inner.cut) :].strip(), inner.plain)
    if (quoted := _unquote(text)) is not None:
        return ParsedInput(quoted, ("quotes around the input were dropped",))
    return read_keywords(text, parameters) or _read_named_lines(text, parameters) or ParsedInput(text, plain=True)


def _require_closed(text: str) -> None:
    if is_unclosed(text) or (text[:2] in ("('", '("') and end_of_arguments(text, 1) < 0):
        raise InvalidArguments(UNCLOSED)


def _read_in_order(text: str, parameters: Mapping[str, Any]) -> ParsedInput | None:
    """Read values between commas, such as `2, "Lyon"`, as arguments in order, if the tool needs that many."""
    needed = len(parameters.get("required", ()))
    if needed < 2 or "," not in text or text[0] in "{[":
        return None
    try:
        values = json.loads(f"[{text}]", parse_float=read_float)
    except (ValueError, RecursionError):
        return None
    fits = needed <= len(values) <= len(parameter_names(parameters))
    if not fits or any(isinstance(value, dict | list) for value in values):
        return None
    return ParsedInput(values, ("values between commas were read as the arguments in order",))


def brings_result(text: str) -> bool:
    """Return whether a line of a text begins a result. If a model wrote the text, it invented the result."""
    return _RESULT_LINE.search(text) is not None


def is_plain_text(text: str) -> bool:
    """Return whether `read_input` returns this text unchanged for every tool."""
    return (
        bool(text)
        and text == text.strip().strip(_INVISIBLE).strip()
        and text[0] not in "{[\"“‘'`("
        and KEYWORD.match(text) is None
        and _NAMED_LINE.match(text) is None
        and _RESULT_LINE.search(text) is None
    )


def read_structure(text: str) -> JSON:
    """Read a text as a list or an object, with repairs, and ignore what follows; None if it is neither."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    with suppress(InvalidArguments):
        found = _read_json(text.strip(), {"properties": {}}, False)
        return found.value if found is not None else None
    return None


def _read_in_fence(text: str, parameters: Mapping[str, Any]) -> ParsedInput | None:
    """Read the input inside the fence at the beginning of a text; None if the text looks like a page with code."""
    opening = _OPEN_FENCE.match(text)
    assert opening is not None
    closing = _CLOSE_FENCE.search(text, opening.end())
    inside = text[opening.end() : closing.start() if closing else len(text)]
    behind = text[closing.end() :].strip() if closing else ""
    if inside.lstrip()[:1] in ("{", "[") and (found := _read_json(inside.strip(), parameters, False)) is not None:
        rest = text[text.index(found.cut, opening.end()) :] if found.cut else behind
        return ParsedInput(found.value, (FENCE, *found.repairs), rest)
    if "```" in behind and _RESULT_LINE.match(behind) is None:
        return None
    _require_closed(inside)
    return ParsedInput(inside.strip() or None, (FENCE,), behind, plain=True)


def _read_json(text: str, parameters: Mapping[str, Any], closed: bool) -> ParsedInput | None:
    """Read the JSON value at the beginning of a text, and what follows it; None if the text looks like plain text."""
    try:
        found = read_value(text)
    except NotJson as why:
        if why.what == MIXED:
            raise InvalidArguments(MIXED) from None
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


def _cut_result(text: str) -> str:
    """Return a text up to the line where an invented result begins."""
    second = text.find("\n") + 1
    found = (_RESULT_LINE.search(text, second) if second else None, _INLINE.search(text))
    starts = [each.start() for each in found if each is not None]
    return text[: min(starts)].strip() or text if starts else text


def _unquote(text: str) -> str | None:
    """Return the text inside the quotes around a whole text; None if the quotes may belong to the text."""
    if (python := read_python_text(text)) is not None and python[1] == len(text):
        return python[0]
    if len(text) < 3 or _QUOTES.get(text[0]) != text[-1] or text[0] == '"':
        return None
    return None if set(text[1:-1]) & {text[0], text[-1], "\n"} else text[1:-1]


def read_keywords(text: str, parameters: Mapping[str, Any]) -> ParsedInput | None:
    """Read a text such as `city="Lyon", days=2` or `("Lyon", 2)` as arguments."""
    names = parameter_names(parameters)
    text = text.replace("\\_", "_") if _ESCAPED_KEYWORD.search(text) is not None else text
    bare = text[1:-1] if text[:1] == "(" and text[-1] == ")" else text
    if not names or (bare is text and (KEYWORD.match(text) is None or KEYWORD.match(text)[1] not in names)):  # type: ignore[index]
        return None
    repairs: list[str] = []
    given = _split_arguments(bare, _scan_arguments(bare, 0)[1], parameters, repairs)
    if not all(each.literal and (each.key in names or bare is not text) for each in given):
        return None
    try:
        read = read_arguments(bare, parameters)
    except InvalidArguments:
        return None
    return ParsedInput(read.value, ("the input was written as Python arguments", *read.repairs))


def _read_named_lines(text: str, parameters: Mapping[str, Any]) -> ParsedInput | None:
    """Read lines such as `city: Lyon` as arguments, if each line names a different parameter."""
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
        read = read_literal(match[2].strip().rstrip(","), parameters["properties"][name], parameters)
        _require_closed(match[2])
        given[name] = match[2].strip() if read is None else read[0]
    return ParsedInput(given, ("the input was written as lines, each with a parameter's name",))


# -- the arguments of a call


def end_of_arguments(text: str, start: int) -> int:
    """Return the place of the parenthesis that closes the one before `start`; -1 if there is none."""
    return _scan_arguments(text, start)[0]


def read_arguments(raw: str, parameters: Mapping[str, Any], commas: Sequence[int] | None = None) -> ParsedInput:
    """Read the text between a call's parentheses, as Python does: `"Lyon", limit=3, $1`.

    A value is a JSON or Python literal, or a reference (`$1`, `${1}`), which becomes a text. A tuple is a list, and a
    constant such as `1/6` its value, unless the parameter takes text. Other text is accepted if it is unambiguous:
    `$1 - $2` for a tool of one parameter, `EUR` between two commas. `commas` are the places of the commas between
    arguments, if they are known.

    The value is None without arguments, a scalar for the one argument of a tool with one parameter, else an object by
    parameter name. It stays a list if the tool is unknown or has fewer parameters. Raises `InvalidArguments` for an
    argument that is given twice, and for one that is never closed.
    """
    if not raw.strip():
        return ParsedInput(None)
    if raw.lstrip().startswith("**{"):
        raw, commas = raw.lstrip()[2:], None
    names = parameter_names(parameters)
    repairs: list[str] = []
    if _ESCAPED_KEYWORD.search(raw) is not None:  # Markdown
        raw, commas = raw.replace("\\_", "_"), None
        repairs.append("Markdown escapes were dropped")
    commas = _scan_arguments(raw, 0)[1] if commas is None else commas
    if len(commas) > _MOST_COMMAS and len(names) != 1:
        raise InvalidArguments(f"it gives more than {_MOST_COMMAS} arguments")
    given = _split_arguments(raw, commas, parameters, repairs) if len(commas) <= _MOST_COMMAS else []
    if len(names) == 1 and not (given and all(each.literal for each in given)):
        return ParsedInput(_text_for_one(raw, names[0]), (PLAIN,))
    placed = [each.value for each in given if not each.key]
    keyed = [each for each in given if each.key]
    if len(names) == 1 and len(given) == 1:
        value = _name_single_argument(given[0], names[0], parameters, repairs)
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
        value = _name_arguments(placed, keyed, names)
    return ParsedInput(value, tuple(repairs))


def _scan_arguments(text: str, start: int) -> tuple[int, list[int]]:
    """Find the end of the arguments that begin at `start` (-1: not closed) and the commas between them. A quote opens a
    string only where a value may begin, so `it's` is text."""
    depth, at, last_line = 0, start, text.rfind("\n")
    commas: list[int] = []
    unclosed: set[str] = set()
    while (match := _PARTS.search(text, at)) is not None:
        sign, at = match[0], match.end()
        before = match.start() - 1 if sign in "\"'“‘#" else start
        before -= sign in _STRINGS and text[before] in PREFIXES
        while before >= start and text[before].isspace():
            before -= 1
        if sign in _STRINGS:
            if sign in unclosed or (before >= start and text[before] not in "([{,=:+"):
                continue
            if (string := _STRINGS[sign].match(text, match.start())) is not None:
                at = string.end()
            else:
                unclosed.add(sign)
        elif sign == "#":  # a comment, if a value has ended before it and its line ends within the arguments
            if match.start() < last_line and (before < start or text[before] in BEFORE_COMMENT):
                at = text.index("\n", at)
        elif sign in "([{":
            depth += 1
        elif sign in ")]}":
            if sign == ")" and not depth:
                return match.start(), commas
            depth = max(0, depth - 1)
        elif not depth:
            commas.append(match.start())
    return -1, commas


def _split_arguments(
    raw: str, commas: Sequence[int], parameters: Mapping[str, Any], repairs: list[str]
) -> list[_Argument]:
    names, properties = parameter_names(parameters), parameters.get("properties", {})
    ends = [*commas, len(raw)]
    starts = [0, *(comma + 1 for comma in commas)]
    pieces = [_COMMENTS.sub("", raw[start:end]) for start, end in zip(starts, ends, strict=True)]
    if len(pieces) > 1 and not pieces[-1].strip():
        pieces.pop()
    found = []
    for place, piece in enumerate(pieces):
        colon = None if (match := KEYWORD.match(piece)) is not None else _COLON.match(piece)
        match = colon if colon is not None and colon[1] in names else match
        key, text = (match[1], piece[match.end() :].strip()) if match is not None else ("", piece.strip())
        schema = properties.get(key or (names[place] if place < len(names) else ""), _COMPUTED if key else _TEXT)
        read = read_literal(text, schema, parameters)
        if read is None and key and (match is colon or (key not in names and len(names) == 1)):
            key, text = "", piece.strip()
        if read is not None:
            repairs += [f"an argument had {what}" for what in read[1] if what != QUOTES]
        elif any(_HALF_STRING.match(each) or is_unclosed(each) for each in {text, text.lstrip("rf")}):
            raise InvalidArguments(f"an argument can't be read: {UNCLOSED}")
        elif len(text) > 1 and text[0] != "`" and _QUOTES.get(text[0], "") == text[-1]:
            repairs.append("quotes inside a text in quotes were kept")
            read = text[1:-1], ()
        else:
            repairs.append(PLAIN)
        found.append(_Argument(key, text if read is None else read[0], read is not None))
    return found


def read_literal(text: str, schema: Any, root: Mapping[str, Any]) -> tuple[JSON, tuple[str, ...]] | None:
    """Read a whole text as one literal: its value and what was repaired in it; None if it is not a literal.

    A tuple or a constant such as `1/6` is not one for a parameter whose `schema` allows a text. Raises
    `InvalidArguments` for a string whose backslashes are unclear.
    """
    text = _BARE.sub(lambda match: f'"{match[0]}"' if match[1] else match[0], text.strip())
    bare = text[1:-1] if text[:1] == "(" and text[-1] == ")" else text
    if (python := read_python_text(bare, joined=True)) is not None and not bare[python[1] :].strip():
        return python[0], (PYTHON,)
    inside = text[:1] in _PYTHON_SIGNS and "string" not in types_of(schema, root)
    try:
        found = read_value(f"[{text}\n]" if inside else text)
    except NotJson as why:
        if why.what == MIXED:
            raise InvalidArguments(MIXED) from None
        return None
    if inside and (len(found.value) != 1 or found.end != len(text) + 3):
        return None
    if not inside and _AFTER_LITERAL.match(text, found.end).end() < len(text):  # type: ignore[union-attr]
        return None
    return found.value[0] if inside else found.value, found.repairs


def _text_for_one(raw: str, name: str) -> str:
    """Return all text between the parentheses, for a tool's one parameter."""
    match = KEYWORD.match(raw)
    return (raw[match.end() :] if match and match[1] == name else raw).strip()


def _name_single_argument(given: _Argument, name: str, parameters: Mapping[str, Any], repairs: list[str]) -> JSON:
    if given.key == name or (given.key and parameters.get("additionalProperties")):
        return {given.key: given.value}
    if given.key:
        repairs.append(f"the argument {given.key!r} was taken for {name!r}")
    return {name: given.value} if given.value is None or isinstance(given.value, list | dict) else given.value


def _name_arguments(placed: list[JSON], keyed: list[_Argument], names: list[str]) -> JSON:
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
