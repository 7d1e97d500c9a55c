"""Finds ungrounded values: literals of a call that are neither in the task nor in any observation.

Sources are texts: the task, the conversation before it, results of tools and code, and the user's words. Plait keeps
their words, numbers and dates, and checks a literal by its kind:

- A number must be in the sources, as given or rounded, or follow from their numbers by simple arithmetic.
- A date must be in the sources, in any form.
- A text of one word must be in the sources, in any case.
- In a text of several words, which is the model's own wording, only numbers, dates, addresses and #names are checked.

Defaults and choices of a tool are always grounded. If the action is code, only its literals are checked: values that it
computed or took from a result are not. A text may be as long as a page, so each pattern is linear in it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from math import isfinite
from typing import Any

from plait.core.artifacts import ArtifactHandle
from plait.core.effects import UNKNOWN
from plait.core.loop import Task
from plait.core.tools import Call, ToolSpec
from plait.runtime import known_values
from plait.runtime.known_values import can_be_computed, find_constants, find_operands

_MONTHS = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
_MONTH = "|".join(rf"{name[:3]}(?:{name[3:]})?" for name in _MONTHS)
_DATE = re.compile(
    r"(?P<y>\d{4})[-/.](?P<m>\d{1,2})[-/.](?P<d>\d{1,2})(?!\d)"
    r"|(?<!\d)(?P<d2>\d{1,2})[-/.](?P<m2>\d{1,2})[-/.](?P<y2>\d{4})(?!\d)"
    rf"|(?<!\d)(?P<d3>\d{{1,2}})(?:st|nd|rd|th)?\.?\s+(?:of\s+)?(?P<m3>{_MONTH})\.?,?\s+(?P<y3>\d{{4}})"
    rf"|\b(?P<m4>{_MONTH})\.?\s+(?P<d4>\d{{1,2}})(?:st|nd|rd|th)?,?\s+(?P<y4>\d{{4}})",
    re.I,
)
_NUMBER = re.compile(r"(?<![\w.])-?(?:\d{1,3}(?:,\d{3})+|\d++)(?:\.\d++)?(?:e[-+]?\d++)?(?!\w*\d)", re.I)
_NAMED = re.compile(r"https?://[^\s'\"<>)]+|(?<![\w.+-])[\w.+-]++@[\w-]++\.[\w.]+|(?<!\w)[#@][\w-]+")
_WORDS = {
    "half": 0.5, "quarter": 0.25, "third": 1 / 3, "double": 2.0, "twice": 2.0, "triple": 3.0, "dozen": 12.0,
    "one": 1.0, "two": 2.0, "three": 3.0, "four": 4.0, "five": 5.0, "six": 6.0, "seven": 7.0, "eight": 8.0,
    "nine": 9.0, "ten": 10.0, "eleven": 11.0, "twelve": 12.0, "hundred": 100.0, "thousand": 1000.0,
}  # fmt: skip
"""Words that give a number, also in the plural."""
_WORD = re.compile(r"[^\W\d_]+|%")
_TRIVIAL = {0.0, 1.0, -1.0}
"""Numbers that say nothing: none, one, the last one."""
_COUNTED = 10
"""Whole numbers up to this one are not checked within a text, because texts count and formulas halve and double. Those
that a formula adds or subtracts are checked."""
_FORMULA = re.compile(r"(?=\D*\d.*[-+*/^%(]|[a-z]+\(.*\d)(?:[a-z]{2,8}\(|[\d.,+*/()^%e-])++")
"""Numbers and operators without a blank, and functions of them: `abs(-3)`."""
_ARITHMETIC = re.compile(r"(?:[a-z]{2,8}\(|[\d.,+*/()^%e\s-])++")
"""Nothing but numbers, operators and functions."""
_TERM = re.compile(r"(?<![\d.*/^%)])(\d+)(?=[+-])|(?<=[+-])(\d+)(?![\d.*/^%(])")
"""A number of it that is added or subtracted as it stands; without blanks."""


class Sources:
    """The texts that a model may take values from."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self._texts: list[str] = []
        self._numbers: set[float] = set()
        self._dates: set[str] = set()
        self._units = False
        self._code: Sources | None = None
        for text in texts:
            self.add(text)

    def add(self, text: str) -> None:
        """Add a text that the model was shown."""
        folded = text.casefold()
        self._texts.append(folded)
        for dates, _ in _dates(folded):
            self._dates |= dates
        self._numbers.update(value for value, _ in _numbers(folded))
        words = {each.removesuffix("s") for each in _WORD.findall(folded)}
        self._numbers.update(value for word, value in _WORDS.items() if word in words)
        self._units = self._units or not words.isdisjoint(known_values.UNITS)

    def wrote(self, code: str) -> None:
        """Add code that the model wrote. From now on only constants of such code count as literals."""
        self._code = self._code or Sources()
        for value in find_constants(code):
            self._code.add(value)

    def find_invented(self, call: Call, spec: ToolSpec | None) -> tuple[str, ...]:
        """Return the call's ungrounded literals, as `parameter: value`."""
        own = _own(spec)
        found: list[str] = []
        for where, value in _literals(call.input):
            if value in own or (isinstance(value, str) and value.casefold() in own):
                continue
            found.extend(f"{where}{each}" for each in self._strange(value))
        return tuple(dict.fromkeys(found))

    def in_answer(self, answer: Any) -> tuple[str, ...]:
        """Return the ungrounded numbers, dates and addresses of an answer."""
        text = answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False, default=str)
        return tuple(dict.fromkeys(self._within(text)))

    def in_words(self, text: str) -> tuple[str, ...]:
        """Return the ungrounded numbers, dates and addresses of a thought."""
        return tuple(dict.fromkeys(self._within(text, written=True)))

    def in_code(self, code: str) -> tuple[str, ...]:
        """Return the ungrounded numbers that code computes with or gives a name to. Others are widths and limits, or
        literals of a call, which is checked itself."""
        numbers = find_operands(code, units=self._units)
        found = (each for number, each in numbers if abs(number) > _COUNTED or not float(number).is_integer())
        return tuple(each for each in dict.fromkeys(found) if not self.has_number(float(each), each))

    def _strange(self, value: str | float) -> list[str]:
        if not isinstance(value, str):
            written = repr(value)
            return [written] if self._counts(written, value) and not self.has_number(value, written) else []
        text = value.casefold().strip()
        if not any(map(str.isalnum, text)):  # what is left of a formula of references
            return []
        if len(text.split()) == 1 and "(" not in text and not _DATE.search(text) and not _FORMULA.fullmatch(text):
            known = any(text in each for each in self._texts) or text.strip("#@") in _WORDS
            if known or (self._code is not None and not any(text in each for each in self._code._texts)):
                return []
            numbers = _numbers(text)
            if numbers and numbers[0][1] == text:
                return [] if self.has_number(*numbers[0]) else [value]
            return [value]
        return self._within(value)

    def _within(self, value: str, *, written: bool = False) -> list[str]:
        """Return the ungrounded values within a text in the model's own wording. `written`: no code made that text."""
        counts = (lambda *_: True) if written else self._counts
        text = value.casefold().strip()
        found = [UNKNOWN] if UNKNOWN in text and not self._knows(UNKNOWN, counts) else []
        found += [each for each in _NAMED.findall(value) if not self._knows(each.rstrip(".,;:!?"), counts)]
        rest = _NAMED.sub(" ", text)
        for dates, each in _dates(rest):
            rest = rest.replace(each, " ")
            if not dates & self._dates and counts(each):
                found.append(each)
        converting = known_values.find_conversions(rest)
        guessed = set() if self._units else known_values.find_guesses(rest)
        terms = set[str]()
        if _ARITHMETIC.fullmatch(text):
            terms = {each for match in _TERM.finditer("".join(rest.split())) for each in match.groups()}
        for number, each in _numbers(rest):
            small = number.is_integer() and abs(number) <= _COUNTED and each.lstrip("-") not in terms
            passes = (small or each in converting) and each not in guessed
            if not passes and counts(each, number) and not self.has_number(number, each):
                found.append(each)
        return found

    def _knows(self, text: str, counts: Callable[..., bool]) -> bool:
        folded = text.casefold()
        return any(folded in each for each in self._texts) or not counts(folded)

    def _counts(self, written: str, number: float | None = None) -> bool:
        """Say whether it is a literal: the model wrote it, and its code did not compute it."""
        if self._code is None:
            return True
        if number is not None:
            return number in self._code._numbers
        return any(written in each for each in self._code._texts)

    def has_number(self, value: float, written: str) -> bool:
        """Say whether the sources have the number, as given, rounded as it is written, or as a result of arithmetic."""
        try:
            value = float(value)
        except OverflowError:  # a whole number of more than 300 digits
            return False
        if value in _TRIVIAL or value in self._numbers:
            return True
        digits = len(written.partition("e")[0].partition(".")[2])
        near = (value, -value, value * 100, value / 100)
        return (
            any(abs(round(each, digits) - value) < 1e-12 for each in self._numbers)
            or any(abs(each - other) <= 1e-9 * abs(other) for other in self._numbers - _TRIVIAL for each in near[1:])
            or can_be_computed(value, digits, self._numbers)
        )


def sources_of(task: Task, *rules: str | None) -> Sources:
    """Return the sources that a run begins with; `rules` are the user's own prompts."""
    before = (
        text for turn in task.history for text in (turn.question, turn.answer, *(call.result for call in turn.calls))
    )
    files = (text for _, text in task.texts)
    return Sources((task.question, *files, *before, *filter(None, rules)))


def describe_findings(found: Iterable[str]) -> str:
    """Return what the user reads about ungrounded values."""
    return f"stands neither in the task nor in any observation: {', '.join(found)}"


def warning(found: Iterable[str]) -> str:
    """Return what the model reads about ungrounded values."""
    return (
        f"Not from the task or an observation: {', '.join(found)}. Use only values that you were given or have "
        "observed; look up those you don't have."
    )


def refuse_invented(found: Iterable[str], others: Iterable[str]) -> str:
    """Return what the model reads about a refused call. `others` are the names of the other tools."""
    names = list(others)
    who = f" ({', '.join(names[:6])})" if names else ""
    return (
        f"This call was not made: {', '.join(found)} stands neither in the task nor in any result, so it is made up. "
        f"First call another tool{who}, with the name of what you need in words, then use what it gives."
    )


def _literals(value: Any, where: str = "") -> Iterator[tuple[str, str | float]]:
    """Yield each scalar in a call's input, with its parameter."""
    if isinstance(value, bool) or value is None or ArtifactHandle.read(value) is not None:
        return
    if isinstance(value, (str, int, float)):
        yield where, value
    elif isinstance(value, Mapping):
        for name, each in value.items():
            yield from _literals(each, where or f"{name}: ")
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _literals(each, where)


def _own(spec: ToolSpec | None) -> set[Any]:
    """Return the defaults and choices of a tool."""
    own: set[Any] = set()
    for schema in (spec.parameters.get("properties", {}) if spec is not None else {}).values():
        for each in (schema.get("default"), *schema.get("enum", ())):
            if isinstance(each, (str, int, float)):
                own.add(each.casefold() if isinstance(each, str) else each)
    return own


def _numbers(folded: str) -> list[tuple[float, str]]:
    found = [(float(each.replace(",", "")), each) for each in _NUMBER.findall(folded) if len(each) < 40]
    return [(value, each) for value, each in found if isfinite(value)]


def _dates(folded: str) -> list[tuple[set[str], str]]:
    """Return each date in a text, as year-month-day (both if 4/7 may be April or July), and as it is written."""
    found = []
    for match in _DATE.finditer(folded):
        year, month, day = (next(g for g in (match[k] for k in keys if k in match.groupdict()) if g) for keys in (
            ("y", "y2", "y3", "y4"), ("m", "m2", "m3", "m4"), ("d", "d2", "d3", "d4")))  # fmt: skip
        number = int(month) if month.isdigit() else next(i for i, n in enumerate(_MONTHS, 1) if n.startswith(month[:3]))
        read = {f"{int(year):04}-{number:02}-{int(day):02}"}
        if match["m2"] and int(match["d2"]) <= 12:
            read.add(f"{int(year):04}-{int(match['d2']):02}-{int(match['m2']):02}")
        found.append((read, match[0]))
    return found
