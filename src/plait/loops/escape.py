"""Escapes data, so that no part of it reads as the protocol of the loop that shows it.

Data is text that tools, users and models wrote: observations, evidence, earlier turns, errors, quoted questions,
descriptions of tools. A run creates one `Escape`. It puts one backslash into

- the syntax of the loop's reader (`escape` of its codec): actions, calls of the run's tools, plan steps, fences;
- each label that the prompts in use print at the beginning of a line (`core/labels.py`), such as `Question:`;
- markers of reasoning (`core/reasoning.py`), which would hide or move parts of a reply that quotes them;
- the special tokens of the run's models, such as `<|im_end|>`.

No part of escaped text that begins at the start of a line reads as a call or an answer. Other text stays unchanged, and
escaping twice changes nothing more. Escaped text remains readable: `Question\\: x`, `<\\|im_end|>`. Tools and the
journal get the text without backslashes. Each pattern is linear in the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from operator import attrgetter
from typing import Any, TypeAlias

from plait.core import Exchange, LoopContext, PastCall, Task, ToolSpec
from plait.core.labels import HOLE, labels_in
from plait.core.reasoning import reasoning_marks

_FENCE = "```"
EscapeSyntax: TypeAlias = Callable[[str, Sequence[ToolSpec], bool], str]
"""Escapes the syntax of one reader in a text, for the tools that may be called; the bool is `inline`."""

# A line may begin behind any character that a model reads as a line break.
_START = r"(?:^|(?<=[\r\v\f\x1c-\x1e\x85\u2028\u2029]))"
_DECORATION = r"[ \t>*_#`-]{0,12}"
_NUMBER = r"(?:[ \t]{0,3}#?\d{1,9})?"
_AFTER = r"[*_`]{0,3}[ \t]{0,4}"
_SIGN = r"(?=[:：])"
# A value in a label, and one right before its colon. Both stop at an escaped sign, so escaping twice is safe.
_VALUE = r"(?:(?!\\(?:[:：]|->))[^\n])"
_LAST_VALUE = r"(?:(?!\\(?:[:：]|->)|->)[^\n:：])"
_FLAGS = re.M | re.I
# Marks of reasoning in a text would hide the text after them.
_REASONING_MARKS = reasoning_marks()
_REASONING = re.compile("|".join(map(re.escape, _REASONING_MARKS)), re.IGNORECASE)
_LINE_END = re.compile(r"[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")
_ANY_SIGN = re.compile(r"[:：]|->")
_FILE_END, _OPENED = re.compile(r"<(?=/file)", re.IGNORECASE), r"<\\"


class LabelGuard:
    """Puts a backslash before the sign that makes words a label. `words` and `sign` are patterns without groups.

    `add` inserts one backslash and `remove` deletes one, so any text survives being written and read. `escape` escapes
    data for good; a second time changes nothing.
    """

    def __init__(self, words: str, sign: str, flags: int = 0) -> None:
        self.armed = re.compile(rf"({words})(\\*+)({sign})", flags)
        self._guarded = re.compile(rf"({words})\\(\\*+)({sign})", flags)

    def add(self, text: str) -> str:
        return self.armed.sub(r"\1\2\\\3", text)

    def remove(self, text: str) -> str:
        return self._guarded.sub(r"\1\2\3", text) if "\\" in text else text

    def escape(self, text: str) -> str:
        return self.armed.sub(lambda match: match[0] if match[2] else f"{match[1]}\\{match[3]}", text)


class Escape:
    """The escape of one run. `labels` are those of the prompts in use, `tokens` the models'. `tools` may be called.
    `syntaxes` put backslashes into the syntax of the loop's readers."""

    def __init__(
        self,
        *syntaxes: EscapeSyntax,
        labels: Sequence[str] = (),
        tools: Sequence[ToolSpec] = (),
        tokens: Sequence[str] = (),
    ) -> None:
        self._syntaxes, self._tools = syntaxes, tools
        self._patterns = _patterns(tuple(labels), tuple(map(attrgetter("name"), tools)))
        self._tokens = tuple(tokens)

    def __call__(self, text: str, *, inline: bool = False) -> str:
        """Return the escaped text. `inline`: the prompt shows its first line behind a label, where no line begins."""
        for escape_syntax in self._syntaxes:
            text = escape_syntax(text, self._tools, inline)
        if self._patterns:
            text = from_line_start(partial(_without_labels, patterns=self._patterns), text, inline)
        if "<" in text or "[" in text or "◁" in text or "assistantfinal" in text.lower():
            low = text.lower()
            if any(map(low.__contains__, _REASONING_MARKS)):
                text = _REASONING.sub(lambda mark: f"{mark[0][0]}\\{mark[0][1:]}", text)
        return without_tokens(text, self._tokens)

    def labels(self, text: str) -> str:
        """Return the text with only the labels of the prompts escaped."""
        return _without_labels(text, self._patterns)

    def tokens(self, text: str) -> str:
        """Return the text with only its special tokens escaped."""
        return without_tokens(text, self._tokens)

    def question(self, text: str) -> str:
        """Escape a user's question that a prompt shows behind a label: special tokens, and labels below its first line.
        Code and JSON in it are the user's own and stay unchanged."""
        labels = tuple(each for each in self._patterns if each[0] != _FENCE)
        return without_tokens(from_line_start(partial(_without_labels, patterns=labels), text, True), self._tokens)


def escape_of(context: LoopContext, *syntaxes: EscapeSyntax) -> Escape:
    """Return the escape for a run, with the labels of the loop's prompts and of the user's own system prompt."""
    own = labels_in(context.system) if context.system is not None else ()
    labels = (*context.prompts.labels, *own)
    return Escape(*syntaxes, labels=labels, tools=context.known_tools, tokens=context.special_tokens)


def escape_history(task: Task, escape: Escape) -> tuple[Exchange, ...]:
    """Return the earlier turns of a conversation, escaped."""

    def escape_call(call: PastCall) -> PastCall:
        return PastCall(escape(call.tool, inline=True), call.input, escape(call.result, inline=True))

    return tuple(
        Exchange(escape(turn.question), escape(turn.answer), tuple(map(escape_call, turn.calls)))
        for turn in task.history
    )


def escape_task(task: Task, escape: Escape) -> dict[str, Any]:
    """Return the escaped question and earlier turns, as the templates take them."""
    return {"question": escape_question(task, escape), "history": escape_history(task, escape)}


def escape_question(task: Task, escape: Escape) -> str:
    """Return the escaped question, with the task's text files below it."""
    return show_texts(escape.question(task.question), task, escape)


def show_texts(text: str, task: Task, escape: Callable[[str], str]) -> str:
    """Return a text with the task's text files below it, each in an element `<file>`, which it cannot close."""
    parts = [text]
    for name, content in task.texts:
        parts.append(f'<file name="{escape(name)}">\n{_FILE_END.sub(_OPENED, escape(content))}\n</file>')
    return "\n\n".join(parts)


def begins_line(prompt: str) -> bool:
    """Return whether a prompt that was filled with `HOLE` shows this value at the beginning of a line."""
    befores = [line.partition(HOLE)[0] for line in prompt.split("\n") if HOLE in line]
    return not all(map(str.strip, befores)) or not befores


def without_tokens(text: str, tokens: Sequence[str]) -> str:
    """Put a backslash behind the first character of each special token."""
    pattern = _tokens(tuple(tokens)) if tokens else None
    if pattern is None or pattern.search(text) is None:
        return text
    for _ in range(8):  # tokens may overlap: `<a>b>` holds two
        text, count = pattern.subn(lambda match: f"{match[0][0]}\\{match[0][1:]}", text)
        if not count:
            break
    return text


def _without_labels(text: str, patterns: tuple[tuple[str, re.Pattern[str]], ...]) -> str:
    folded = text.casefold()
    has_sign = _ANY_SIGN.search(text) is not None
    for hint, pattern in patterns:
        if hint in folded if hint else has_sign:
            text = pattern.sub(r"\1\\", text)
    return text


def from_line_start(escape: Callable[[str], str], text: str, inline: bool) -> str:
    """Escape a text; if it is `inline`, only below its first line."""
    if not inline:
        return escape(text)
    end = _LINE_END.search(text)
    return text[: end.end()] + escape(text[end.end() :]) if end else text


@lru_cache(maxsize=64)
def _tokens(tokens: tuple[str, ...]) -> re.Pattern[str] | None:
    long = sorted({token for token in tokens if len(token) > 1}, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, long))) if long else None


@lru_cache(maxsize=256)
def _patterns(labels: tuple[str, ...], names: tuple[str, ...]) -> tuple[tuple[str, re.Pattern[str]], ...]:
    """Each pattern with a text that must stand in what it matches; "" for one that only needs the sign of a label.

    A backslash goes in behind its first group.
    """
    words: dict[str, None] = {}
    found: dict[str, str] = {}
    for label in labels:
        if len(set(label)) == 1:
            sign = re.escape(label[0])
            found[rf"{_START}([ \t]{{0,12}}{sign})(?={sign}{{2,}}[ \t\r]*$)"] = label.casefold()
        elif label.startswith("<"):
            found[rf"(<)(?=/?{re.escape(label[1:-1])}[\s/>])"] = label[:-1].casefold()[1:]
        elif HOLE not in label and label.endswith(":"):
            words[_literal(label[:-1])] = None
        else:
            pattern, hint = _with_values(label, names)
            if pattern:
                found[pattern] = hint
    if words:
        found[rf"{_START}({_DECORATION}(?:{'|'.join(words)}){_NUMBER}{_AFTER}){_SIGN}"] = ""
    return tuple((hint, re.compile(pattern, _FLAGS)) for pattern, hint in found.items())


def _with_values(label: str, names: tuple[str, ...]) -> tuple[str, str]:
    """Return the pattern of a label that holds values, and a text that every match contains. A label without a word of
    its own, such as `- lookup: x`, counts only with a tool's name in it."""
    arrow = label.endswith("->")
    body, sign = (label[:-2], r"(?=->)") if arrow else (label[:-1], _SIGN)
    first, *rest = body.split(HOLE)
    said = [part for part in (first, *rest) if any(map(str.isalpha, part))]
    if not said:
        if not names:
            return "", ""
        named = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
        value = _VALUE if arrow else _LAST_VALUE
        return rf"{_START}([ \t>*-]{{0,12}}{_literal(first)}(?:{named})(?!\w){value}{{0,300}}?){sign}", ""
    hint = max((part.split()[-1] for part in said), key=len).casefold()
    inside = ""
    for place, part in enumerate(rest):
        value = _VALUE if part.strip() else _LAST_VALUE
        inside += f"{value}{{1,40}}?" if not first and not place else f"{value}{{0,300}}?"
        inside += _literal(part)
    return rf"{_START}({_DECORATION}{_literal(first)}{inside}{_NUMBER}{_AFTER}){sign}", hint


def _literal(text: str) -> str:
    """Return a label's words as a pattern: any blanks between them, any number for a number."""
    parts = re.findall(r"\s+|\d+|[^\s\d]+", text)
    return "".join(
        r"[ \t_]{1,4}" if part.isspace() else r"\d{1,9}" if part.isdigit() else re.escape(part) for part in parts
    )
