"""Answers as texts, and how the papers compare them."""

from __future__ import annotations

import json
import re
import string
import unicodedata
from collections import Counter
from collections.abc import Iterable
from typing import Any

LABELS = ("SUPPORTS", "REFUTES", "NOT ENOUGH INFO")
"""FEVER's."""

_LABEL_FORMS = {
    "SUPPORTS": r"support(?:s|ed)?",
    "REFUTES": r"refute[sd]?",
    "NOT ENOUGH INFO": r"not enough info(?:rmation)?|nei",
}
_YES = re.compile(r"\b(yes|no|true|false)\b", re.IGNORECASE)
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_OUT = str.maketrans("", "", string.punctuation)


def text_of(value: Any) -> str:
    """An answer as text: a text as it is, true and false as yes and no, another value as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return json.dumps(value, ensure_ascii=False)


def golds_of(answer: Any) -> list[Any]:
    """The right answers: a list's entries, else the one."""
    return list(answer) if isinstance(answer, (list, tuple)) else [answer]


def normalized(text: str) -> str:
    """An answer as the papers compare it: lower case, no (ASCII) punctuation, no articles, single blanks."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_OUT)).split())


def em(answer: str, gold: str) -> bool:
    """Exact match, as HotpotQA and SQuAD compute it."""
    return normalized(answer) == normalized(gold)


def f1(answer: str, gold: str) -> float:
    """F1 over the words, as HotpotQA computes it: yes, no and noanswer count only when equal."""
    answer, gold = normalized(answer), normalized(gold)
    if answer != gold and {answer, gold} & {"yes", "no", "noanswer"}:
        return 0.0
    ours, theirs = answer.split(), gold.split()
    same = sum((Counter(ours) & Counter(theirs)).values())
    if not same:
        return 0.0
    precision, recall = same / len(ours), same / len(theirs)
    return 2 * precision * recall / (precision + recall)


def yes_or_no(text: str) -> bool | None:
    """What an answer says, by the words yes, no, true and false; None where it has none of them.

    A first word that stands for itself (`No, because ...`) counts; else the last of them: `No one denies it: yes`.
    """
    found = list(_YES.finditer(text))
    if not found:
        return None
    first = found[0]
    alone = not re.search(r"\w", text[: first.start()]) and re.match(r"[\W_]*?(?:[^\w\s]|\n|$)", text[first.end() :])
    return (first if alone else found[-1])[1].lower() in ("yes", "true")


def label_in(text: str, labels: Iterable[str]) -> str:
    """The one label that stands in an answer; "" when none does, or more than one.

    One label within another (`true`, `mostly true`) is not counted beside it. FEVER's may be said otherwise: supported,
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


def stands_in(gold: str, text: str) -> bool:
    """The gold text stands in the answer, in whole words; case, spacing and kinds of quotes do not matter."""
    wanted = _folded(gold)
    if not wanted:
        return False
    before = r"(?<!\w)" if wanted[0].isalnum() else ""
    after = r"(?!\w)" if wanted[-1].isalnum() else ""
    return re.search(before + re.escape(wanted) + after, _folded(text)) is not None


def _folded(text: str) -> str:
    text = unicodedata.normalize("NFKC", text).casefold().translate({0x2019: "'", 0x201C: '"', 0x201D: '"'})
    return " ".join(text.split())
