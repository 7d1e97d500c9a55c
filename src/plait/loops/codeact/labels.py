"""Labels and fences of the code format: finding them in a text, and escaping them in data.

A label is at the start of a line: `THOUGHT 3:`, in any case, with or without a number, with Markdown around it. A fence
is three or more backticks, or tildes at the start of a line. `guard` puts one backslash into anything that could be
read as either, and `unguard` removes one; `disarm` escapes data for good. Each pattern is linear in the text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache, partial
from keyword import kwlist

from plait.core.loose_json import without_halves
from plait.loops.escape import LabelGuard, from_line_start
from plait.loops.format import Remark
from plait.loops.label_scan import Label, LabelKind, cut, repair_remark

_HEAD = r"[ \t>*_#`-]{0,12}"
_WORDS = r"thought|action|observation|final[ _]answer"
_NUMBER = r"(?:[ \t]{0,3}#?\d{1,9})?"
_AFTER = r"[*_`]{0,3}[ \t]{0,4}"
_FLAGS = re.M | re.I | re.A

LABEL = re.compile(rf"^{_HEAD}({_WORDS})({_NUMBER}){_AFTER}[:：](?:\*\*|__)?", _FLAGS)
IN_CODE = re.compile(r"^(?:THOUGHT|ACTION|OBSERVATION)[ \t]{0,3}\d{1,9}[ \t]{0,4}[:：]", re.M | re.A)
"""The end of an action with an unclosed fence: in code, only labels in the exact format count."""

FENCE = re.compile(
    r"(?<![`\\])(?P<ticks>`{3,}+)(?P<word>[A-Za-z][A-Za-z0-9_.+-]{0,20})?[ \t\r]*(?P<line>\n|\Z)?"
    r"|^[ \t]{0,12}(?P<tildes>~{3,}+)(?P<word2>[A-Za-z][A-Za-z0-9_.+-]{0,20})?[ \t\r]*(?:\n|\Z)",
    re.M | re.A,
)
"""An opening fence, with its language's word if it has one."""

_LABELS = LabelGuard(rf"^{_HEAD}(?:{_WORDS}){_NUMBER}{_AFTER}", "[:：]", _FLAGS)
_FENCES = re.compile(r"(?<!\\)(\\*+)((?<!`)`{3,}+)|^([ \t]{0,12})(\\*+)(~{3,}+)", re.M)
_FENCES_OFF = re.compile(r"(?<!\\)\\(\\*+)(`{3,}+)|^([ \t]{0,12})\\(\\*+)(~{3,}+)", re.M)
_TAGS = re.compile(r"<(?=/?code>)", re.I)
_KEYWORD = rf"(?:{'|'.join([*kwlist, 'match', 'case', 'type'])})\b"
_TICKS_OFF = re.compile(r"(?<!\\)\\(\\*+)(`{3,}+)")

_KINDS: dict[str, LabelKind] = {
    "thought": "thought",
    "action": "action",
    "observation": "observation",
    "final answer": "answer",
}


def drop_surrogates(text: str, remarks: list[Remark]) -> str:
    """Remove lone surrogates from the text, because later steps cannot hold them."""
    whole, halved = without_halves(text)
    if halved:
        remarks.append(repair_remark("a broken character was replaced"))
    return str(whole)


def label_at(match: re.Match[str]) -> Label:
    """Return the label of a match of `LABEL`."""
    kind = _KINDS[match[1].lower().replace("_", " ")]
    return Label(kind, int(match[2].strip().lstrip("#") or 0), match.start(), match.end())


def is_label(text: str) -> bool:
    return LABEL.match(text.lstrip()) is not None


def guard(text: str) -> str:
    """Escape labels and fences in a text; `unguard` undoes it exactly."""
    return _FENCES.sub(_add, _LABELS.add(text))


def unguard(text: str) -> str:
    """Undo `guard`."""
    return _LABELS.remove(_FENCES_OFF.sub(_same, text))


def unguard_rest(text: str) -> str:
    """Undo `guard` except at the start of a line."""
    return _TICKS_OFF.sub(r"\1\2", text)


def disarm(text: str, names: Sequence[str] = (), inline: bool = False) -> str:
    """Escape labels, fences, tags of code, and lines of Python that name one of `names`, in data.

    `ACTION 3:` becomes `ACTION 3\\:`, and a line `x = send(1)` becomes `x = \\send(1)`. Escaping twice changes nothing
    more.
    """
    text = _FENCES.sub(lambda m: m[0] if m[1] or m[4] else _add(m), _LABELS.disarm(text))
    text = _TAGS.sub(r"<\\", text)
    if not any(name in text for name in names):
        return text
    return from_line_start(partial(_lines_of_code(tuple(names)).sub, r"\g<0>\\"), text, inline)


@lru_cache(maxsize=64)
def _lines_of_code(names: tuple[str, ...]) -> re.Pattern[str]:
    """Return the pattern of the text before a function's name, if that text and the name can be Python.

    They cannot if two words stand side by side. A string may end at any quotation mark, so code may begin there.
    """
    name = rf"(?:{'|'.join(map(re.escape, names)) or '(?!)'})\b"
    beside = rf"[ \t]*+(?:(?!{_KEYWORD})[\w\"'\\]|->)"
    before = rf"(?!{name})(?:{_KEYWORD}|\w++(?!{beside}))|[ \t.,:;=+*/%@&|^~<>!()\[\]{{}}-]"
    return re.compile(rf"(?:^|[\"'])(?:{before})*+(?={name}(?!{beside}))", re.M)


def cut_label(label: Label, size: int) -> Remark:
    """Return a remark about text behind an observation in the reply."""
    return cut(f"an observation the model wrote itself, and what followed ({size - label.start} characters)")


def _add(match: re.Match[str]) -> str:
    if match[5]:
        return f"{match[3]}\\{match[4]}{match[5]}"
    return f"\\{match[1]}{match[2]}"


def _same(match: re.Match[str]) -> str:
    return f"{match[3]}{match[4]}{match[5]}" if match[5] else f"{match[1]}{match[2]}"
