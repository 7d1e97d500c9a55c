"""Reads and compares answers for graders: text, yes or no, labels, numbers."""

from __future__ import annotations

import json
import re
import string
import unicodedata
from collections import Counter
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

from msgspec import Struct

LABELS = ("SUPPORTS", "REFUTES", "NOT ENOUGH INFO")
"""The labels of FEVER."""

_LABEL_FORMS = {
    "SUPPORTS": r"support(?:s|ed)?",
    "REFUTES": r"refute[sd]?",
    "NOT ENOUGH INFO": r"not enough info(?:rmation)?|nei",
}
_YES = re.compile(r"\b(yes|no|true|false)\b", re.IGNORECASE)
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_OUT = str.maketrans("", "", string.punctuation)


def answer_text(value: Any) -> str:
    """Return an answer as text: text unchanged, true and false as yes and no, other values as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return json.dumps(value, ensure_ascii=False)


def list_golds(answer: Any) -> list[Any]:
    """Return the right answers: the entries of a list, else the value itself."""
    return list(answer) if isinstance(answer, (list, tuple)) else [answer]


def normalize(text: str) -> str:
    """Return text in the form that the papers compare: lower case, single blanks, no ASCII punctuation or articles."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_OUT)).split())


def is_exact_match(answer: str, gold: str) -> bool:
    """Return whether two answers match exactly, as HotpotQA and SQuAD compute it."""
    return normalize(answer) == normalize(gold)


def f1_score(answer: str, gold: str) -> float:
    """Return F1 over the words, as HotpotQA computes it: yes, no and noanswer count only when equal."""
    answer, gold = normalize(answer), normalize(gold)
    if answer != gold and {answer, gold} & {"yes", "no", "noanswer"}:
        return 0.0
    ours, theirs = answer.split(), gold.split()
    same = sum((Counter(ours) & Counter(theirs)).values())
    if not same:
        return 0.0
    precision, recall = same / len(ours), same / len(theirs)
    return 2 * precision * recall / (precision + recall)


def parse_yes_no(text: str) -> bool | None:
    """Read yes or no from the words yes, no, true and false; None if there is none. A first word that stands alone
    (`No, because ...`) counts, else the last of them: `No one denies it: yes`."""
    found = list(_YES.finditer(text))
    if not found:
        return None
    first = found[0]
    alone = not re.search(r"\w", text[: first.start()]) and re.match(r"[\W_]*?(?:[^\w\s]|\n|$)", text[first.end() :])
    return (first if alone else found[-1])[1].lower() in ("yes", "true")


def find_label(text: str, labels: Iterable[str]) -> str:
    """Return the one label in an answer; "" if there is none, or more than one.

    A label inside another (`true` in `mostly true`) does not count. FEVER's labels have other forms: supported,
    refuted, not enough information.
    """
    spans: dict[str, list[tuple[int, int]]] = {}
    for label in labels:
        form = _LABEL_FORMS.get(label.upper()) or r"\s+".join(map(re.escape, label.split()))
        matches = [match.span() for match in re.finditer(rf"(?<!\w)(?:{form})(?!\w)", text, re.IGNORECASE)]
        if matches:
            spans[label] = matches
    every = [span for label in spans for span in spans[label]]

    def within(span: tuple[int, int]) -> bool:
        return any(a <= span[0] and span[1] <= b and (a, b) != span for a, b in every)

    said = [label for label, found in spans.items() if not all(map(within, found))]
    return said[0] if len(said) == 1 else ""


def contains_text(gold: str, text: str) -> bool:
    """Return whether the answer contains the gold text as whole words, ignoring case, spacing and kinds of quotes."""
    wanted = _fold(gold)
    if not wanted:
        return False
    before = r"(?<!\w)" if wanted[0].isalnum() else ""
    after = r"(?!\w)" if wanted[-1].isalnum() else ""
    return re.search(before + re.escape(wanted) + after, _fold(text)) is not None


def _fold(text: str) -> str:
    text = unicodedata.normalize("NFKC", text).casefold().translate({0x2019: "'", 0x201C: '"', 0x201D: '"'})
    return " ".join(text.split())


# -- numbers: commas, currency signs, percent signs, fractions and powers of ten are read exactly

CLOSE = Fraction(5, 100_000)
"""The default tolerance, relative to the gold number: half a ten-thousandth."""

_NUMBER = re.compile(
    r"""(?P<sign>(?<![\w)\]])[-−])?
    (?:[$€£¥₹]\s?)?
    (?P<digits>\d{1,3}(?:,\d{2,3})*,\d{3}(?![\d])(?:\.\d+)?|\d+(?:\.\d+)?|(?<![\d.])\.\d+)
    (?P<power>[eE][-+]?\d{1,3}(?!\w))?
    (?:\ ?/\ ?(?P<under>\d{1,15})(?![\d/]|\.\d))?
    (?P<share>\s?(?:%|percent\b|per\ cent\b))?""",
    re.VERBOSE,
)
_MIXED = re.compile(r"(?<![\d.,/])(\d{1,9}) (\d{1,9})/(\d{1,9})(?![\d/]|\.\d)")
_BOX = re.compile(r"\\boxed\{((?:[^{}]|\{[^{}]*\})*)\}")
_LATEX = ((r"\\d?frac\{(-?[\d.]+)\}\{(-?[\d.]+)\}", r" \1/\2"), (r"\{,\}", ","), (r"\\([$%,])", r"\1"))

_SUPERSCRIPT = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺", "0123456789-+")
_POWER_OF_TEN = re.compile(
    r"""(?<![\w.])(?:(?P<factor>\d[\d,]*(?:\.\d+)?)\s?(?:[×xX*·⋅]|\\times|\\cdot)\s?)?
    10(?:\s?(?:\^|\*\*)\s?(?P<brace>\{)?\(?(?P<exponent>[-−+]?\d{1,3})\)?(?(brace)\})|(?P<raised>[⁻⁺]?[⁰¹²³⁴⁵⁶⁷⁸⁹]{1,3}))
    (?![\d⁰¹²³⁴⁵⁶⁷⁸⁹]|\.\d)""",
    re.VERBOSE,
)
"""A power of ten as people write it: 1.9 × 10^27, 1.9×10²⁷, 1.9*10**27, 10^27 and their LaTeX."""


class ReadNumber(Struct, frozen=True):
    """A number in an answer; `share`: a percent sign followed it."""

    value: Fraction
    share: bool = False

    @property
    def values(self) -> tuple[Fraction, ...]:
        """Its possible values: 20 % is 20, and 0.2."""
        return (self.value, self.value / 100) if self.share else (self.value,)


def last_number(value: Any) -> Fraction | None:
    """Return the number that an answer ends with; None if it has none."""
    read = read_last_number(value)
    return read.value if read is not None else None


def read_last_number(value: Any) -> ReadNumber | None:
    """Read the number that an answer ends with, as the evaluators of GSM8K do. A marked result takes precedence: the
    first number after `####`, the last in a LaTeX box."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return read_exactly(value)
    text = answer_text(value)
    _, mark, behind = text.rpartition("####")
    if mark and (found := read_numbers(behind)):
        return found[0]
    boxes = _BOX.findall(text)
    found = (read_numbers(boxes[-1]) if boxes else []) or read_numbers(text)
    return found[-1] if found else None


def read_exactly(value: int | float) -> ReadNumber | None:
    """Read a JSON number as it is written; None if it is infinite or not a number."""
    try:
        return ReadNumber(Fraction(repr(value)))
    except ValueError:
        return None


def is_close(read: ReadNumber, gold: ReadNumber, tolerance: Fraction = CLOSE) -> bool:
    """Return whether a number equals the gold number, within `tolerance` times the size of the gold number."""
    return any(abs(a - b) <= tolerance * abs(b) for a in read.values for b in gold.values)


def read_numbers(text: str) -> list[ReadNumber]:
    found: list[ReadNumber] = []
    for pattern, instead in _LATEX:
        text = re.sub(pattern, instead, text)
    text = _MIXED.sub(_one, _POWER_OF_TEN.sub(_with_exponent, text))
    at = 0
    while match := _NUMBER.search(text, at):
        at = match.end()
        if len(match["digits"]) > 400:  # more digits than any answer has, and too slow to convert
            continue
        value = Fraction(match["digits"].replace(",", "") + (match["power"] or ""))
        if match["under"] is not None and int(match["under"]) and text[match.start() - 1 : match.start()] != "/":
            value /= int(match["under"])
        elif match["under"] is not None:
            at = match.start("under")  # not a fraction: 3/4/2024 are three numbers
            found.append(ReadNumber(-value if match["sign"] else value))
            continue
        found.append(ReadNumber(-value if match["sign"] else value, match["share"] is not None))
    return found


def _with_exponent(match: re.Match[str]) -> str:
    """Write 1.9 × 10^27 as 1.9e27."""
    exponent = match["exponent"] or match["raised"].translate(_SUPERSCRIPT)
    return f"{match['factor'] or 1}e{exponent.replace('−', '-')}"


def _one(match: re.Match[str]) -> str:
    """Write 1 1/2 as 3/2, if the fraction is less than one."""
    whole, over, under = map(int, match.groups())
    return f"{whole * under + over}/{under}" if 0 < over < under else match[0]
