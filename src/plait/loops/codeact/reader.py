"""Reads a turn of the code format.

Order of reading: the first action that holds code counts, as does a block marked as Python without a label; later text
is cut. An observation in the reply ends it. Then come the first unmarked block that is Python, a final answer, and bare
code. Anything else is `Unreadable`, with the format quoted.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable

from msgspec import structs

from plait.core import Call
from plait.loops.codeact.blocks import (
    PYTHON,
    Ahead,
    Block,
    code_after,
    end_of_skipped,
    holds_code,
    is_python,
    plain_code,
    read_fence,
    without_tags,
)
from plait.loops.codeact.labels import FENCE, LABEL, WORDS
from plait.loops.format import CODE, Remark, Turn, Unreadable
from plait.loops.label_scan import Label, cut, cut_at, repair_remark, replace_halves

_MAX_EMPTY = 50
"""Maximum number of empty actions to skip before the reply is rejected."""

Write = Callable[[Turn, int], str]


def shape(n: int) -> str:
    """Describe the form of turn `n` for the model."""
    return (
        f"Write `THOUGHT {n}:` and on the next line what you think, then `ACTION {n}:` and below it your Python code "
        "between a line ```python and a line ```. Call stop() there when the task is done."
    )


class TurnReader:
    """Reads turn `n` in one reply. `write` writes a turn in the canonical form; `whole`: the reply was not cut."""

    def __init__(self, text: str, n: int, write: Write, whole: bool) -> None:
        self._n, self._write, self._whole = n, write, whole
        self._remarks: list[Remark] = []
        self._text = without_tags(replace_halves(text, self._remarks), self._remarks)
        self._labels: list[Label] = []
        self._answers: list[Label] = []

    def read(self) -> Turn:
        """Return the turn. Raises only `Unreadable`."""
        text, ahead = self._text, Ahead(self._text)
        loose: Block | None = None
        end, at, empty = len(text), 0, 0
        while empty <= _MAX_EMPTY:
            match = ahead.label(at)
            fence = ahead.fence(at)
            if fence is not None and (match is None or fence.start() < match.start()):
                found = read_fence(text, fence)
                if not holds_code(found, fence):
                    at = end_of_skipped(found, fence)
                    continue
                if loose is None and (fence["word"] or fence["word2"] or "").lower() in PYTHON:
                    return self._act(found)
                loose = loose or found
                at = max(found.end, fence.end())
                continue
            if match is None:
                break
            label = WORDS.label_at(match)
            if label.kind == "observation":
                end = label.start
                self._remarks.append(cut_at(label.start, len(text)))
                break
            if label.kind == "action":
                block = code_after(text, label, ahead)
                if block is not None:
                    # An unmarked block before it was only shown, not meant to run.
                    return self._act(block, label)
                empty += 1
            (self._answers if label.kind == "answer" else self._labels).append(label)
            at = label.end
        if loose is not None and not self._answers:
            return self._act(loose)
        self._text = text[:end]
        if self._answers:
            return self._answer()
        if not self._labels and is_python(self._text):
            code = plain_code(self._text, self._remarks)
            remark = repair_remark("code without label and fence was taken for the action")
            return self._act(Block(code, 0, end, True, (remark,)))
        raise self._unreadable(self._why(text, end))

    def _act(self, block: Block, label: Label | None = None) -> Turn:
        """Return the turn of the code that was found; `label` is its action's."""
        if not self._whole and not block.closed:
            raise self._unreadable("Your reply was cut before its action ended: it was too long. Write less.")
        self._remarks += block.remarks
        start = label.start if label is not None else block.start
        if label is not None:
            self._check_label(label, "ACTION")
        elif not any(remark.text.startswith("code without label") for remark in self._remarks):
            self._remarks.append(repair_remark("the action's label was missing"))
        if self._answers:
            self._remarks.append(cut("a final answer before the action: the action wins"))
            start = min(start, self._answers[0].start)
        thought = self._thought(start)
        rest = self._text[block.end :].strip("`~ \t\r\n")
        if rest:
            own = any(WORDS.label_at(match).kind == "observation" for match in LABEL.finditer(rest))
            words = "with an observation of its own" if own else "not run"
            self._remarks.append(cut(f"{len(rest)} characters after the action ({words})"))
        return self._keep(Turn(thought, Call(CODE, block.code)), block.end)

    def _answer(self) -> Turn:
        first, last = self._answers[0], self._answers[-1]
        end = next((one.start for one in self._labels if one.start > last.start), len(self._text))
        answer = WORDS.unguard(self._text[last.end : end].strip()).strip()
        if not answer:
            raise self._unreadable("Your final answer is empty.")
        if end < len(self._text):
            self._remarks.append(cut("what followed the final answer"))
        if len(self._answers) > 1:
            self._remarks.append(repair_remark(f"of {len(self._answers)} final answers the last one counts"))
        return self._keep(Turn(self._thought(first.start, needed=False), answer=answer, answered=True), end)

    def _thought(self, upto: int, *, needed: bool = True) -> str:
        """Return the text of the thought's labels before `upto`, and text before any label."""
        labels = [one for one in self._labels if one.start < upto]
        first = labels[0].start if labels else upto
        parts = [self._text[:first].strip()]
        if parts[0]:
            self._remarks.append(repair_remark("text without the label THOUGHT was taken for the thought"))
        starts = [one.start for one in labels[1:]] + [upto]
        parts += [self._text[one.end : end].strip() for one, end in zip(labels, starts, strict=False)]
        for one in [one for one in labels if one.kind == "thought"][:1]:
            self._check_label(one, "THOUGHT")
        if len(labels) > 1:
            self._remarks.append(repair_remark("several thoughts were joined"))
        thought = WORDS.unguard("\n".join(part for part in parts if part)).strip()
        if not thought and needed:
            self._remarks.append(repair_remark("the thought is missing"))
        return thought

    def _check_label(self, label: Label, word: str) -> None:
        if label.number not in (0, self._n):
            said = f"the {word.lower()} was numbered {label.number} in turn {self._n}"
            self._remarks.append(repair_remark(said))
        elif self._text[label.start : label.end].strip() != f"{word} {self._n}:":
            self._remarks.append(repair_remark(f"the label {word} {self._n}: was written otherwise"))

    def _keep(self, turn: Turn, end: int) -> Turn:
        """Return the turn with the relevant part of the reply: as written, or in canonical form after a repair."""
        text = self._text[:end].strip()
        if any(remark.kind == "repaired" or "final answer" in remark.text for remark in self._remarks):
            with contextlib.suppress(ValueError):
                text = self._write(turn, self._n)
        return structs.replace(turn, kept=text, remarks=tuple(self._remarks))

    def _why(self, text: str, end: int) -> str:
        if not text.strip():
            return "Your reply is empty."
        if end < len(text):
            return "You wrote an observation yourself. Observations come only from running your code, so it was cut."
        if any(label.kind == "action" for label in self._labels):
            return "There is no Python code below `ACTION`."
        return "There is no action in your reply."

    def _unreadable(self, why: str) -> Unreadable:
        return Unreadable(f"{why} {shape(self._n)}")


# -- the steps into which a task is divided

MOST_STEPS = 10
_LONGEST_STEP = 300
"""Maximum number of characters of a step."""

_ITEM = re.compile(r"[ \t>*_-]{0,8}(?:step[ \t])?(?:(\d{1,3})[.):]|[-*•][ \t])[ \t*_]{0,4}(.*)", re.I)


def steps_of(text: str) -> tuple[str, ...]:
    """Return the steps in a reply, without numbers and full stops; the first may lack its number. A label or a fence
    ends them. If there are numbered steps, bullets do not count."""
    ends = [match.start() for pattern in (LABEL, FENCE) for match in [pattern.search(text.lstrip(), 1)] if match]
    lines = text.lstrip()[: min(ends, default=len(text))].split("\n")
    items = [match for line in lines if (match := _ITEM.match(line))]
    if not items:
        # The opening held the number: the text that follows is the step.
        return tuple(_plain_step(line) for line in lines[:1] if _plain_step(line))
    if any(match[1] for match in items):
        items = [match for match in items if match[1]]
    numbered = [_plain_step(match[2]) for match in items]
    head = lines[0]
    opened = not _ITEM.match(head) and bool(head.strip()) and items[0][0].lstrip(" *_-").startswith("2")
    steps = [_plain_step(head), *numbered] if opened else numbered
    return tuple(step for step in steps if step)[:MOST_STEPS]


def _plain_step(step: str) -> str:
    words = " ".join(step.replace("**", "").replace("`", "").split())[:_LONGEST_STEP].strip()
    return words.removesuffix(".").removesuffix(";").strip()
