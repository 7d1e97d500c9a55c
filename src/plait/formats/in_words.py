"""Results that an input names in words: `population of Ghent / area of Ghent`, where earlier steps look both up.

Models plan so: they repeat what an earlier step asks for, where its reference (`$1`, `#E1`) should stand. It is read as
meant only where nothing else can be meant: the words stand in marks of a gap (`<mayor of Ghent>`, `$<...>`, `${...}`),
or what is left beside them is a formula of numbers and operators.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from plait.core import JSON
from plait.formats.references import References, mapped, texts

_FUNCTIONS = "round|sqrt|abs|min|max|sum|avg|mean"
_FORMULA = re.compile(rf"(?:[-+*/^%().,\s\d\0]|{_FUNCTIONS})*")  # one way only: linear
_OPERATOR = re.compile(rf"[-+*/^%]|\b(?:{_FUNCTIONS})\b")
_GAP = re.compile(r"\$?<([^\W\d][\w '’.-]{1,100})>|\$\{([^\W\d][\w '’.-]{1,100})\}")
_CUT = re.compile(rf"\s[-+*/^]\s|[*/+^,()]|(?<=[\d\0])-|-(?=[\d\0])|\b(?:{_FUNCTIONS})\s*(?=\()")
_VALUE = re.compile(r"[\d.]*%?|\0")
_PHRASE = re.compile(r"[^\W\d_]{3,}(?:[ '’-][\w\0'’-]+)*")
_SHORTEST = 4
"""Characters: shorter words may stand anywhere."""
_MOST = 500
"""Characters of a formula: what is longer is a text."""


def refer(value: JSON, earlier: Sequence[tuple[str, JSON]]) -> tuple[JSON, tuple[str, ...]]:
    """The input with references in place of words, and the references that were put there.

    `earlier` are the steps before: the reference of each, and its input.
    """
    named = [(text.strip(), mark) for mark, given in earlier for text in texts(given) if len(text.strip()) >= _SHORTEST]
    named.sort(key=lambda pair: -len(pair[0]))
    put: list[str] = []

    def filled(match: re.Match[str]) -> str:
        mark = _meant(match[1] or match[2], named)
        put.extend([mark] if mark else [])
        return mark or match[0]

    def change(text: str) -> JSON:
        if named and "</" not in text:  # a page is no form to be filled in
            text = _GAP.sub(filled, text)
        if not named or not _OPERATOR.search(text):
            return text
        used: list[str] = []

        def mark_of(match: re.Match[str]) -> str:
            words = next(group for group in match.groups() if group).casefold()
            mark = next((mark for name, mark in named if name.casefold() == words), None)
            if mark is None:  # letters that are alike to a pattern and differ when folded, such as the dotted capital I
                return match[0]
            used.append(mark)
            return "\0"

        either = "|".join(re.escape(name) for name, _ in named)
        pattern = rf"""<({either})>|["'`\[{{]({either})["'`\]}}]|(?<!\w)({either})(?!\w)"""
        left = re.sub(pattern, mark_of, text, flags=re.IGNORECASE)
        # What is nothing but an earlier input asks for the same once more.
        if not used or "\0" in text or not _OPERATOR.search(left) or not _FORMULA.fullmatch(left):
            return text
        put.extend(used)
        parts = left.split("\0")
        return "".join(part + mark for part, mark in zip(parts, [*used, ""], strict=True))

    return mapped(value, change), tuple(dict.fromkeys(put))


def in_formula(value: JSON, references: References) -> tuple[str, ...]:
    """The words that stand in a formula where a number or a reference should: `7 * price of a lamp`."""
    return tuple(phrase for text in texts(value) for phrase in _phrases(text, references))


def _phrases(text: str, references: References) -> list[str]:
    """Those of one text; none where it is no formula of values and words."""
    if len(text) > _MOST or "\0" in text or not _OPERATOR.search(text):
        return []
    marks = (match[0] for match in re.finditer(references.pattern, text, re.A))
    bare = re.sub(references.pattern, "\0", text, flags=re.A)
    terms = [term.strip() for term in _CUT.split(bare) if term.strip()]
    values = [term for term in terms if _VALUE.fullmatch(term)]
    phrases = [term for term in terms if _PHRASE.fullmatch(term)]
    if not values or not phrases or len(values) + len(phrases) < len(terms):
        return []
    whole = [re.sub("\0", lambda _: next(marks), term) for term in terms]
    return [said for said, term in zip(whole, terms, strict=True) if term in phrases]


def _meant(words: str, named: Sequence[tuple[str, str]]) -> str:
    """The one reference that words in a gap can mean: of the step with that input, or, where there is none, of the only
    one whose input has no other words, or all of them; "" for none."""
    wanted = _set(words)
    exact = {mark for name, mark in named if _set(name) == wanted}
    near = {mark for name, mark in named if _set(name) <= wanted or wanted <= _set(name)}
    found = exact or near
    return found.pop() if len(found) == 1 else ""


def _set(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"[^\W_]+", text.casefold()))
