"""Labels and fences of the code format: finding them in a text, and escaping them in data.

A label is at the start of a line: `THOUGHT 3:`, in any case, with or without a number, with Markdown around it. A fence
is three or more backticks, or tildes at the start of a line. `guard` puts one backslash into anything that could be
read as either, and `unguard` removes one; `escape` escapes data for good. Each pattern is linear in the text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from keyword import kwlist

from plait.core import ToolSpec
from plait.loops.escape import LabelGuard, from_line_start
from plait.loops.label_scan import LabelWords
from plait.loops.vocabulary import either

IN_CODE = re.compile(r"^(?:THOUGHT|ACTION|OBSERVATION)[ \t]{0,3}\d{1,9}[ \t]{0,4}[:：]", re.M | re.A)
"""The end of an action with an unclosed fence: in code, only labels in the exact format count."""

FENCE = re.compile(
    r"(?<![`\\])(?P<ticks>`{3,}+)(?P<word>[A-Za-z][A-Za-z0-9_.+-]{0,20})?[ \t\r]*(?P<line>\n|\Z)?"
    r"|^[ \t]{0,12}(?P<tildes>~{3,}+)(?P<word2>[A-Za-z][A-Za-z0-9_.+-]{0,20})?[ \t\r]*(?:\n|\Z)",
    re.M | re.A,
)
"""An opening fence, with its language's word if it has one."""

_TICKS = LabelGuard(r"(?<!\\)", "(?<!`)`{3,}+")
_TILDES = LabelGuard(r"^[ \t]{0,12}", "~{3,}+", re.M)
_TAGS = re.compile(r"<(?=/?code>)", re.I)
_KEYWORD = rf"(?:{'|'.join([*kwlist, 'match', 'case', 'type'])})\b"

STOP = "stop"
"""The function by which code ends the run."""
SEARCH = "method_search"
"""The name of the search tool in code, whatever its own name."""
_OWN_NAMES = (STOP, SEARCH, "answer", "final_answer")
"""Names that make a line of Python an action or an answer, beside those of the tools."""


@dataclass(frozen=True)
class CodeWords(LabelWords):
    """The labels of the code format, with its fences."""

    thought: str = "THOUGHT"
    action: str = "ACTION"
    input: str = ""
    observation: str = "OBSERVATION"
    answer: str = "FINAL ANSWER"
    inside: bool = False

    def guard(self, text: str) -> str:
        """Escape labels and fences in a text; `unguard` undoes it exactly."""
        return _TILDES.add(_TICKS.add(self._labels.add(text)))

    def unguard(self, text: str) -> str:
        return self._labels.remove(_TICKS.remove(_TILDES.remove(text)))

    def escape(self, text: str, tools: Sequence[ToolSpec] = (), inline: bool = False) -> str:
        """Escape labels, fences, tags of code, and lines of Python that name a function of the run, in data.

        `ACTION 3:` becomes `ACTION 3\\:`, and a line `x = send(1)` becomes `x = \\send(1)`.
        """
        text = _TAGS.sub(r"<\\", _TILDES.escape(_TICKS.escape(self._labels.escape(text))))
        names = (*_OWN_NAMES, *(tool.name for tool in tools))
        if not any(name in text for name in names):
            return text
        return from_line_start(partial(_lines_of_code(names).sub, r"\g<0>\\"), text, inline)


WORDS = CodeWords()
LABEL = WORDS.pattern


@lru_cache(maxsize=64)
def _lines_of_code(names: tuple[str, ...]) -> re.Pattern[str]:
    """Return the pattern of the text before a function's name, if that text and the name can be Python. They cannot if
    two words stand side by side. A string may end at any quotation mark, so code may begin there."""
    name = rf"(?:{either(names) or '(?!)'})\b"
    beside = rf"[ \t]*+(?:(?!{_KEYWORD})[\w\"'\\]|->)"
    before = rf"(?!{name})(?:{_KEYWORD}|\w++(?!{beside}))|[ \t.,:;=+*/%@&|^~<>!()\[\]{{}}-]"
    return re.compile(rf"(?:^|[\"'])(?:{before})*+(?={name}(?!{beside}))", re.M)
