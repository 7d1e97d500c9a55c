"""Reads numbered calls from a plan while it is being written.

The reader walks the text once, in whole lines. At the start of a line a call may open (`1. tool(`). It tracks strings
and brackets up to the closing parenthesis. All text outside of calls is thought. The result does not depend on how the
text was cut into pieces: the reader waits for the end of a line, and for the next one if that decides.

An unclosed call must not swallow the rest: it ends at the line on which the next numbered call opens.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from msgspec import Struct

from plait.core import JSON, PieceKind, Step, ToolSpec
from plait.core.arguments import BEFORE_COMMENT, COMMENT, InvalidArguments, read_arguments
from plait.core.loose_json import PREFIXES, without_halves
from plait.core.messages import texts_in
from plait.loops.call_notations import TAG, TOKEN
from plait.loops.format import Remark, Unreadable
from plait.loops.label_scan import cut, repair_remark, tool_name
from plait.loops.mentioned_calls import made_calls
from plait.loops.references import RESULTS
from plait.loops.vocabulary import NAME_WORDS, either

JOIN = "join"

_DECORATION = r"[ \t>*_`#\[(•·+→–—-]{0,12}"
_WORD = r"(?:step|call|task|action|tool)[ \t]{0,3}"
_NUMBER = r"[${\[]{0,2}(?P<n>\d{1,6})(?!\d)[)}\]]{0,2}[*_]{0,2}[ \t]{0,3}[.:)=–—-]{1,2}"
_NAME = r"(?P<name>[^\W\d](?:[\w.-]|\\_){0,99})"
_ENDS = r"[*_`]{0,3}"
_BEFORE_NAME = rf"{_ENDS}[ \t]{{0,8}}{_ENDS}"
_VARIABLE = r"(?:(?P<variable>[^\W\d]\w{0,40})[ \t]{0,3}(?::[ \t]{0,3}\w{1,20}[ \t]{0,3})?=[ \t]{0,3}(?:await[ \t])?)?"
_AFTER_CALL = re.compile(rf"(?:[ \t,;.*`\])]|{TAG}|{TOKEN})*+")
_MARKUP = re.compile(rf"(?:{TAG}|{TOKEN})*+")
_OUTSIDE = re.compile(rf"""[()\[\]{{}},\n"'“”‘’]|{COMMENT}""")
_CLOSING = {'"': '"', "'": "'", "“": '”“"', "”": '”“"', "‘": "’'", "’": "’'"}
_IN_STRING = {quote: re.compile(rf"[\\\n{ends}]") for quote, ends in _CLOSING.items()}
_BLANKS = re.compile(r"\s*+")
_BARE_JOIN = re.compile(
    rf"{_DECORATION}(?:{_WORD})?(?:{_NUMBER}{_BEFORE_NAME})?{JOIN}{_ENDS}[ \t]{{0,9}}\.?[ \t\r]{{0,9}}", re.I
)
_PREFIX = rf"{_DECORATION}(?:(?:{_WORD})?{_NUMBER}|{_WORD}:)?{_BEFORE_NAME}"
_JOIN_ALONE = re.compile(rf"^({_PREFIX})(?={JOIN}{_ENDS}[ \t]{{0,9}}\.?[ \t\r]{{0,9}}$)", re.I | re.M)
_MAYBE_CALL = re.compile(rf"\(|{JOIN}", re.I)
# Text in other lines that may still be a call. Each has the tool's name.
_IN_BRACKETS = re.compile(rf"{_PREFIX}{_VARIABLE}{_NAME}{_ENDS}[ \t]{{0,3}}[\[{{]", re.I)
_ITEM = re.compile(rf"{_DECORATION}(?:{_WORD})?{_NUMBER}{_BEFORE_NAME}{_NAME}{_ENDS}[ \t]{{0,3}}(?:\Z|[:\"'“].*)", re.I)
_LED_IN = re.compile(
    r"\W{0,12}(?:(?:first|second|third|firstly|then|next|finally|lastly|now|after that|and|so|i|will|let me|"
    rf"call|use|run|do|execute|invoke)\b[\s,:;-]{{1,4}}){{1,5}}(?:{_NUMBER})?{_BEFORE_NAME}{_NAME}\(.*\)\W{{0,4}}\Z",
    re.I,
)
_AS_OBJECT = re.compile(
    rf"[\"'](?:{either(NAME_WORDS)})[\"']\s{{0,4}}:\s{{0,4}}[\"'](?P<name>[^\"'\n]{{1,100}})[\"']", re.I
)
_CALLED = re.compile(rf"(?<![\w.]){_NAME}\(")
_GOES_ON = re.compile(r"[-+*/×÷^%]{1,2}[ \t]{0,3}[\w$({]")
_STRING = re.compile(r"\"(?:[^\"\\]++|\\.)*+\"|'(?:[^'\\]++|\\.)*+'", re.S)
_FENCE = re.compile(r"\s*```\w{0,20}\s*")
_LABEL = re.compile(
    rf"^{_DECORATION}(?:thought|plan|reason(?:ing)?)(?:[ \t]{{0,3}}\d{{1,6}})?[*_]{{0,2}}[ \t]{{0,3}}:[*_]{{0,2}}", re.I
)

LONGEST_HEAD = 240
"""Maximum number of characters of a call's opening; a longer line without one is thought."""


class NumberedCall(Struct, frozen=True):
    """One call of a plan as read. `problem` says why it cannot be made, or "" if it can."""

    step: Step
    problem: str = ""


class _Open(Struct):
    """An unclosed call, and the state of reading it."""

    id: str
    name: str
    head: int
    start: int
    depth: int = 1
    brackets: int = 0
    quote: str = ""
    looked: int = 0


class CallReader:
    """Reads a plan in pieces and returns each call at the end of its line.

    `ended`: `join()` was read. `remarks`: what was repaired or cut so far. `lost`: descriptions of unreadable calls of
    known tools. `tools`: their names and parameters resolve those of the calls. Calls without a number are read for
    known tools only, and get the next number. Never raises.
    """

    def __init__(self, tools: Sequence[ToolSpec] = ()) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._head = _opening_pattern(tuple(self._tools))
        self._known = {JOIN, *map(str.lower, self._tools)}
        self.ended = False
        self.remarks: list[Remark] = []
        self.lost: list[str] = []
        self._variables: dict[str, str] = {}  # the numbers of calls that are assigned to names
        self._text = ""  # all whole lines
        self._held: list[str] = []  # the incomplete line
        self._at = 0
        self._behind = False  # behind a call, on its line
        self._open: _Open | None = None
        self._commas: list[int] = []
        self._thought: list[str] = []
        self._written: list[tuple[PieceKind, str]] = []
        self._last = 0

    def feed(self, text: str) -> list[NumberedCall]:
        whole, halved = without_halves(text)
        if halved:
            self._remark(repair_remark("a broken character was replaced"))
        self._held.append(whole)
        return self._work(last=False) if "\n" in whole else []

    def close(self) -> list[NumberedCall]:
        calls = self._work(last=True)
        if not (self._last or self.ended):
            tools, notes = list(self._tools.values()), list[Remark]()
            for number, made in enumerate(made_calls(self._text, tools), 1):
                self.lost.clear()
                name = tool_name(made.name, tools, notes)
                step = Step(str(number), name, made.value, made.thought, RESULTS.find_ids(made.value))
                calls.append(NumberedCall(step, made.broken))
                self._remark(repair_remark(f"call {number} was written in another notation"))
        for lost in self.lost:
            self._remark(cut(lost))
        rest = self._text[self._at :].strip() if self.ended else ""
        if rest.strip("`*.<>/_- \n") and not re.fullmatch(r"</?\w{1,20}>", rest):
            self._remark(cut(f"{len(rest)} characters after {JOIN}()"))
        return calls

    @property
    def kept_text(self) -> str:
        """Return the plan so far, including `join()`."""
        return self._text[: self._at] if self.ended else "".join((self._text, *self._held))

    @property
    def thought(self) -> str:
        """Return the text since the last call, on one line."""
        return _one_line(self._thought) if self._thought else ""

    def written(self) -> list[tuple[PieceKind, str]]:
        """Return what was written since the last request: calls, and lines of thought without labels."""
        parts, self._written = self._written, []
        shown = [(kind, _one_line([text]) if kind == "thought" else text.strip()) for kind, text in parts]
        return [(kind, text) for kind, text in shown if text]

    # -- the walk

    def _work(self, *, last: bool) -> list[NumberedCall]:
        whole, newline, rest = "".join(self._held).rpartition("\n")
        self._text += whole + newline + (rest if last else "")
        self._held = [] if last else [rest]
        calls: list[NumberedCall] = []
        while not self.ended:
            if self._open is None:
                if not self._seek():
                    break
            else:
                call = self._open
                if (done := self._scan(call, last)) is None:
                    break
                self._open = None
                if read := self._read(call, *done):
                    calls.append(read)
        return calls

    def _seek(self) -> bool:
        """Go to where the next call's arguments begin; return False if there is none so far."""
        while self._at < len(self._text):
            behind, self._behind = self._behind, False
            self._at = (_AFTER_CALL if behind else _MARKUP).match(self._text, self._at).end()  # type: ignore[union-attr]
            if (head := self._opening(self._at)) is not None:
                number, name = str(int(head["n"] or self._last + 1)), self._name(head)
                if head["variable"]:
                    self._variables[head["variable"]] = number
                if head["n"] is None and name.lower() != JOIN:
                    self._remark(repair_remark(f"a call without a number was taken for number {number}"))
                self._open = _Open(number, name, head.start(), head.end(), looked=head.end())
                self._commas = []
                self._at = head.end()
                return True
            line = self._line(self._at)
            if _BARE_JOIN.fullmatch(line):
                self._finish(self._at + len(line.rstrip()))
                return True
            end = self._text.find("\n", self._at) + 1 or len(self._text)
            loose = self._text[self._at : end]
            if not behind:  # the rest of a call's line says nothing about the next call
                self._thought.append(loose)
                self._written.append(("thought", loose))
            self._look_at_loose_line(loose.strip(), behind=behind)
            self._at = end
        return False

    def _look_at_loose_line(self, line: str, *, behind: bool) -> None:
        """Report a line without a call, or text `behind` a call, if it looks like a call."""
        if not self._tools or not line:
            return
        if behind:
            if line.startswith(("#", "//", "--")):
                return
            if _GOES_ON.match(line):
                self.lost.append(f"call {self._last} goes on after its parenthesis: {line[:80]}")
            elif any(self._is_tool(call) for call in _CALLED.finditer(line)):
                self.lost.append(f"a call behind call {self._last} can't be read: {line[:80]}")
        elif _LABEL.match(line) is None and any(
            match is not None and self._is_tool(match)
            for match in (*(p.match(line) for p in (_IN_BRACKETS, _ITEM, _LED_IN)), _AS_OBJECT.search(line))
        ):
            self.lost.append(f"a line looks like a call and can't be read: {line[:80]}")

    def _is_tool(self, match: re.Match[str]) -> bool:
        return match["name"].replace("\\", "") in self._tools

    def _line(self, at: int) -> str:
        end = self._text.find("\n", at, at + LONGEST_HEAD)
        return self._text[at : at + LONGEST_HEAD if end < 0 else end]

    def _opening(self, at: int, *, numbered: bool = False) -> re.Match[str] | None:
        """Return the opening of a call at `at`, up to its parenthesis; `numbered`: only one with a number."""
        head = self._head.match(self._text, at, at + LONGEST_HEAD)
        if head is None or (numbered and not head["n"]):
            return None
        return head if self.opens(head, unsure=numbered and bool(self._tools)) else None

    def opens(self, head: re.Match[str], *, unsure: bool = False) -> bool:
        """Return whether this opens a call: without a number, or with a gap, only the name of a known tool does."""
        return bool(head["n"] and not head["gap"] and not unsure) or self._name(head).lower() in self._known

    def _name(self, head: re.Match[str]) -> str:
        name = head["odd"] or head["name"]
        name = name.replace("\\", "")
        tail = name.partition(".")[2]
        return tail if name not in self._tools and tail in self._tools else name

    def _scan(self, call: _Open, last: bool) -> tuple[int, bool] | None:
        """Return where the arguments end, and whether a parenthesis closes them; None if more text is needed."""
        text = self._text
        while True:
            match = (_IN_STRING[call.quote] if call.quote else _OUTSIDE).search(text, self._at)
            if match is None:
                self._at = len(text)
                return (len(text), False) if last else None
            at, sign = match.start(), match[0]
            self._at = at + 1
            if sign == "\n":
                if self._at == len(text) and not last:  # the next line decides
                    self._at = at
                    return None
                if self._opening(at + 1, numbered=True) or _BARE_JOIN.fullmatch(self._line(at + 1)):
                    return at + 1, False
            elif sign == "\\":
                self._at = at + 2
            elif call.quote:
                # A quote closes a string only where an argument may end, so that "the "big" one" is one.
                call.looked = _BLANKS.match(text, max(at + 1, call.looked)).end()  # type: ignore[union-attr]
                if call.looked >= len(text) and not last:
                    self._at = at
                    return None
                if call.looked >= len(text) or text[call.looked] in ",)]}:":
                    call.quote = ""
            elif sign in _CLOSING or sign == "#":
                before = at - 1 - (text[at - 1] in PREFIXES and sign != "#")
                while text[before].isspace():
                    before -= 1
                if sign != "#":
                    call.quote = sign if text[before] in "([{,:=+" else ""
                elif text[before] in BEFORE_COMMENT and (end := text.find("\n", at)) > 0:
                    self._at = end
            elif sign in "()":
                call.depth += 1 if sign == "(" else -1
                if not call.depth:
                    return at, True
            elif sign in "[{":
                call.brackets += 1
            elif sign in "]}":
                call.brackets = max(0, call.brackets - 1)
            elif call.depth == 1 and not call.brackets:
                self._commas.append(at)

    # -- results

    def _read(self, call: _Open, end: int, closed: bool) -> NumberedCall | None:
        """Return the call whose arguments end at `end`; None for `join()`."""
        raw = self._text[call.start : end]
        self._written.append(("action", self._text[call.head : end + closed]))
        commas = [comma - call.start for comma in self._commas]
        self._at, self._behind = (end + 1, True) if closed else (end, False)
        if call.name.lower() == JOIN and (JOIN not in self._tools or not raw.strip()):
            self._finish(self._at)
            return None
        self._last = max(self._last, int(call.id))
        why, self._thought = self.thought, []
        notes: list[Remark] = []
        name = tool_name(call.name, list(self._tools.values()), notes)
        tool = self._tools.get(name)
        given, problem = None, ""
        try:
            if not closed:
                # A quotation mark that is never closed may hide the parenthesis at the line's end.
                line = raw.rstrip(" \t\r\n.;,*`")
                if end == len(self._text) or "\n" in line or line[-1:] != ")" or line.count(")") <= line.count("("):
                    raise Unreadable("its parenthesis is never closed")
                raw, commas = line[:-1], [comma for comma in commas if comma < len(line) - 1]
                notes.append(repair_remark("the quotes or brackets in the arguments did not match"))
            read = read_arguments(raw, tool.parameters if tool is not None else {}, commas)
            given = read.value
            notes += map(repair_remark, read.repairs)
            problem = self._not_values(raw, tool, given)
        except (Unreadable, InvalidArguments) as complaint:
            problem = str(complaint)
        for note in notes:
            self._remark(Remark(note.kind, f"call {call.id}: {note.text}"))
        return NumberedCall(Step(call.id, name, given, why, RESULTS.find_ids(given)), problem)

    def _not_values(self, raw: str, tool: ToolSpec | None, given: JSON) -> str:
        """Return the parts of a call's arguments that are not values: another call, or a variable."""
        bare = _STRING.sub("", raw)
        inside = [bare, *(texts_in(given) if tool is not None and tool.computes else ())]
        if name := next(
            (call["name"] for text in inside for call in _CALLED.finditer(text) if self._is_tool(call)), ""
        ):
            return (
                f"it has a call of {name} among its arguments: give that a number of its own and write $ and the number"
            )
        for name, number in self._variables.items():
            used = rf"(?<![\w$.]){name}(?!\w|\s*=[^=])"
            if re.search(used, bare) or re.search(rf"\{{\s*{name}\b|#{name}\b", raw):
                return f"it names {name!r}: write ${number} for the result of call {number}"
        return ""

    def _finish(self, end: int) -> None:
        self.ended = True
        self._at = end

    def _remark(self, remark: Remark) -> None:
        if remark not in self.remarks[-8:]:
            self.remarks.append(remark)


def escape_numbered(text: str, tools: Sequence[ToolSpec] = ()) -> str:
    """Escape calls and `join()` in data: `1. send(2)` becomes `1. send\\(2)`. Escaping twice changes nothing more."""
    if not _MAYBE_CALL.search(text):
        return text
    reader = CallReader(tools)
    opening = _opening_pattern(tuple(tool.name for tool in tools), "^")
    text = opening.sub(lambda head: f"{head[0][:-1]}\\(" if reader.opens(head) else head[0], text)
    return _JOIN_ALONE.sub(r"\1\\", text)


@lru_cache(maxsize=64)
def _opening_pattern(names: tuple[str, ...], start: str = "") -> re.Pattern[str]:
    """Return the pattern that opens a call behind `start`, with a number or without one."""
    odd = "|".join(re.escape(name) for name in names if not re.fullmatch(_NAME, name)) or "(?!)"
    head = rf"{start}{_PREFIX}{_VARIABLE}(?:(?P<odd>{odd})|{_NAME}){_ENDS}(?P<gap>[ \t]{{0,3}})\("
    return re.compile(head, re.I | re.M)


def _one_line(parts: list[str]) -> str:
    """Join thoughts on one line, without their labels."""
    lines = [line for line in "".join(parts).split("\n") if not _FENCE.fullmatch(line)]
    return " ".join(" ".join(_LABEL.sub("", line, count=1) for line in lines).split())
