"""The reply of the joiner of a compiled plan: a thought, then `Finish: answer` or `Replan: what is missing`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from msgspec import Struct

from plait.core import PieceKind, ToolSpec
from plait.loops import gbnf
from plait.loops.escape import LabelGuard
from plait.loops.format import Codec, Parts, Remark, Stream, Unreadable, show_value
from plait.loops.label_scan import cut, repair_remark, replace_halves

SHAPE = "Write `Thought: ...` and then either `Finish: the answer` or `Replan: what is missing`."

_HEAD = r"^[ \t>*_#`-]{0,12}"
_TAIL = r"(?:[ \t]{0,3}\$?\d{1,6})?[*_`]{0,3}[ \t]{0,3}"
_COLON = r"[:：](?:\*\*|__)?"
_FLAGS = re.M | re.I | re.A
_LABEL = re.compile(
    rf"{_HEAD}(?:action{_TAIL}{_COLON}[*_`]{{0,3}}[ \t]{{0,3}})?"
    rf"(?:(thought|action|final[ _]answer|answer){_TAIL}{_COLON}|(finish|replan){_TAIL}(?:{_COLON}|([(\[])|$))",
    _FLAGS,
)
_WORDS = r"thought|action|finish|replan|final[ _]answer|answer|results?(?:[ \t]{1,3}of)?"
# A word of the protocol before the sign that makes it a label, or alone on its line.
_LABELS = LabelGuard(rf"{_HEAD}(?:{_WORDS}){_TAIL}", r"(?=[:：(\[])", _FLAGS)
_ALONE = LabelGuard(rf"{_HEAD}(?:finish|replan){_TAIL}", "$", _FLAGS)
_MAYBE_GUARDED = re.compile(r"[:：(\[]|finish|replan", re.I | re.A)
_REPLAN_INSIDE = re.compile(r"\s*+replan[*_`]{0,3}[:：]", re.I)
_NOTHING = re.compile(r"(?:no(?:ne|thing)?|n/?a|not (?:needed|necessary|required)|-+|false)?[.! ]*", re.I)
_CLOSES = {"(": ")", "[": "]"}
# The start of a line that may become a label, or from the backslash on an escaped one.
_START = re.compile(
    rf"{_HEAD}(?:action{_TAIL}{_COLON}[*_`]{{0,3}}[ \t]{{0,3}})?(?:[a-z]{{0,7}}|final[ _][a-z]{{0,6}}"
    rf"|results?[ \t]{{1,3}}o|(?:{_WORDS})[ \t]{{0,3}}(?:\$?\d{{0,6}})[*_`]{{0,3}}[ \t]{{0,3}}(?:\\.*)?)",
    _FLAGS,
)
_LONGEST_START = 100
"""Characters after which a line whose start is not certain is held to its end."""


class Verdict(Struct, frozen=True):
    """The joiner's decision: `text` is the answer, or what a further plan should find out."""

    kind: Literal["finish", "replan"]
    text: str
    thought: str = ""
    remarks: tuple[Remark, ...] = ()


class JoinStream(Stream[Verdict]):
    """A decision that streams in. A reply without a label is an answer, but text before the first label is a thought,
    so text is shown as a thought until there is a label. Of a line, only the start that may become a label is held."""

    kind: PieceKind | None = "thought"
    over = False
    decision: list[str] | None = None
    """The text of the decision, if the part is one."""
    is_certain = False
    """Whether the start of the line is shown."""

    def split(self, text: str, *, last: bool) -> None:
        *lines, rest = text.split("\n")
        for part, whole in (*((f"{line}\n", True) for line in lines), (rest, last)):
            shown = part if self.is_certain else self._take_start(part, whole)
            if self.decision is not None:
                self.decision.append(shown)
            if self.kind is not None:
                self.put(self.kind, shown)
            self.is_certain = self.is_certain and not whole

    def _take_start(self, text: str, whole: bool) -> str:
        """Return what may be shown of the line whose start is not certain yet. Begins the part behind a label."""
        is_short = sum(map(len, self._held[:_LONGEST_START])) < _LONGEST_START
        self._held.append(text)
        line = "".join(self._held) if whole or is_short else ""
        label = _LABEL.match(line)
        rest = line[label.end() :] if label is not None else line
        # Two more characters may belong to a label (`Finish:**`).
        is_open = (label is not None and len(rest) < 2) or any(map(_START.fullmatch, (line, rest.lstrip())))
        if is_open and not whole:
            return ""
        self._held, self.is_certain = [], True
        if label is not None:
            # Of several decisions the first one with content counts. The end shows what is in brackets.
            is_over = self.decision is not None and not _NOTHING.fullmatch("".join(self.decision).strip())
            kind = _kind(label)
            if kind == "finish" and (other := _REPLAN_INSIDE.match(rest)) is not None:
                kind, rest = "replan", rest[other.end() :]
            shown: PieceKind = "answer" if kind == "finish" else "thought"
            self.over = self.over or is_over or bool(label[3])
            self.kind = None if self.over or kind == "action" else shown
            self.decision = [] if kind in ("finish", "replan") else None
            self.begin("\n" if shown == "thought" else "")
        return _unguard(rest)


@dataclass(frozen=True)
class Joiner(Codec[Verdict]):
    """The format of the joiner's replies. `last`: the grammar allows only to finish.

    The reader accepts labels in bold and in any case, `Action: Finish(answer)`, `Finish[answer]`, `Final Answer:`, and
    text without any label as the answer. The first decision with content counts; `Replan: none` has none, and a bare
    `Replan` means its thought. `write` drops blanks at the ends and raises ValueError for a decision without content.
    """

    last: bool = False

    name: ClassVar[str] = "joiner"
    stream_kind = JoinStream

    def read(self, text: str, n: int = 1, tools: Sequence[ToolSpec] = ()) -> Verdict:
        notes: list[Remark] = []
        text = replace_halves(text, notes)
        labels = list(_LABEL.finditer(text))
        if not text.strip():
            raise Unreadable(f"Your reply is empty. {SHAPE}")
        if not labels:
            notes.append(repair_remark("text without a label was taken for the answer"))
            return Verdict("finish", _unguard(text.strip()), remarks=tuple(notes))
        ends = [*(label.start() for label in labels[1:]), len(text)]
        parts = [(_kind(label), _said(text[label.end() : end], label)) for label, end in zip(labels, ends, strict=True)]
        before = text[: labels[0].start()].strip()
        decisive = [i for i, (kind, text) in enumerate(parts) if kind in ("finish", "replan") and text]
        clear = [i for i in decisive if not _NOTHING.fullmatch(parts[i][1])]
        # The first part with content decides, else an answer such as "no".
        at = next(iter([*clear, *(i for i in decisive if parts[i][0] == "finish")]), None)
        thoughts = [before, *(said for kind, said in parts[: at if at is not None else None] if kind == "thought")]
        thought = "\n".join(each for each in thoughts if each)
        if at is None:
            at = next((i for i, (kind, said) in enumerate(parts) if kind == "replan" and not said), None)
            if at is None or not thought:
                raise Unreadable(f"Your reply decides nothing. {SHAPE}")
            parts[at] = ("replan", thought)
            notes.append(repair_remark("the thought was taken for what is missing"))
        if before:
            notes.append(repair_remark("text without the label Thought: was taken for the thought"))
        if labels[at][3] or not labels[at][2] or labels[at][0].lstrip(" \t>*_#`-")[:6].lower() == "action":
            notes.append(repair_remark(f"the decision was written as {labels[at][0].strip()!r}"))
        if text[ends[at] :].strip():
            notes.append(cut("what followed the decision"))
        kind, said = parts[at]
        if kind == "finish" and (other := _REPLAN_INSIDE.match(text, labels[at].end())) is not None:
            kind, said = "replan", said[len(other[0].lstrip()) :].strip() or thought or said
            notes.append(repair_remark("the decision stood behind `Finish:`"))
        return Verdict("replan" if kind == "replan" else "finish", said, thought, tuple(notes))

    def write(self, verdict: Verdict, n: int = 1) -> str:
        said = verdict.text.strip()
        if not said or (verdict.kind == "replan" and _NOTHING.fullmatch(said)):
            raise ValueError("A decision that says nothing can't be written.")
        head = f"Thought: {_guard(verdict.thought.strip())}\n" if verdict.thought.strip() else ""
        return f"{head}{verdict.kind.title()}: {_guard(said)}"

    def write_answer(self, answer: Any, n: int = 1) -> str:
        return self.write(Verdict("finish", show_value(answer)))

    def grammar(self, tools: Sequence[ToolSpec] = (), n: int = 1, *, opened: bool = False) -> str:
        kinds = '"Finish: "' if self.last else '( "Finish: " | "Replan: " )'
        return f'root ::= "Thought: " thought "\\n" {kinds} line\n{gbnf.THOUGHT_RULE}\n{gbnf.LINE_RULE}'

    def escape(self, text: str, tools: Sequence[ToolSpec] = (), inline: bool = False) -> str:
        return _ALONE.escape(_LABELS.escape(text)) if _MAYBE_GUARDED.search(text) else text

    def parts(self, reading: Verdict) -> Parts:
        if reading.kind == "finish":
            return {"thought": reading.thought, "answer": reading.text}
        return {"thought": "\n".join(filter(None, (reading.thought, reading.text)))}


JOINER = Joiner()


def _guard(text: str) -> str:
    return _ALONE.add(_LABELS.add(text))


def _unguard(text: str) -> str:
    return _LABELS.remove(_ALONE.remove(text))


def _kind(label: re.Match[str]) -> str:
    word = (label[1] or label[2]).lower()
    return word if word in ("thought", "action", "replan") else "finish"


def _said(raw: str, label: re.Match[str]) -> str:
    """Return the text behind a label, without the brackets and quotes that belong to it."""
    text = raw.strip()
    if label[3]:
        text = text[: text.rfind(_CLOSES[label[3]])] if _CLOSES[label[3]] in text else text
        text = text.strip()
        if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
            text = text[1:-1]
    return _unguard(text).strip()
