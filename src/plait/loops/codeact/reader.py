"""Reads a turn of the code format.

Order of reading: the first action that holds code counts, as does a block marked as Python without a label; later text
is cut. An observation in the reply ends it. Then come the first unmarked block that is Python, a final answer, and bare
code. Anything else is `Unreadable`, with the format quoted.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable

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
from plait.loops.codeact.labels import FENCE, LABEL, cut_label, drop_surrogates, label_at, unguard
from plait.loops.format import CODE, Remark, Turn, Unreadable
from plait.loops.label_scan import Label, cut, repair_remark

_MAX_EMPTY = 50
"""Maximum number of empty actions to skip before the reply is rejected."""

Write = Callable[[Turn, int], str]


def read_turn(text: str, n: int, write: Write, *, whole: bool = True) -> Turn:
    """Read the turn in a reply. Raises only `Unreadable`."""
    notes: list[Remark] = []
    text = without_tags(drop_surrogates(text, notes), notes)
    labels: list[Label] = []
    answers: list[Label] = []
    loose: Block | None = None
    end, at, empty, cut_short = len(text), 0, 0, False
    ahead = Ahead(text)
    while empty <= _MAX_EMPTY:
        match = ahead.label(at)
        fence = ahead.fence(at)
        if fence is not None and (match is None or fence.start() < match.start()):
            found = read_fence(text, fence)
            if not holds_code(found, fence):
                at = end_of_skipped(found, fence)
                continue
            if loose is None and (fence["word"] or fence["word2"] or "").lower() in PYTHON:
                return _turn(text, labels, answers, found, None, n, notes, write, whole)
            loose = loose or found
            at = max(found.end, fence.end())
            continue
        if match is None:
            break
        label = label_at(match)
        if label.kind == "observation":
            end = label.start
            notes.append(cut_label(label, len(text)))
            cut_short = True
            break
        if label.kind == "action":
            block = code_after(text, label, ahead)
            if block is not None:
                # An unmarked block before it was only shown, not meant to run.
                return _turn(text, labels, answers, block, label, n, notes, write, whole)
            empty += 1
        (answers if label.kind == "answer" else labels).append(label)
        at = label.end
    if loose is not None and not answers:
        return _turn(text, labels, answers, loose, None, n, notes, write, whole)
    if answers:
        return _answered(text[:end], labels, answers, n, notes, write)
    if not labels and is_python(text[:end]):
        code = plain_code(text[:end], notes)
        block = Block(code, 0, end, True, (repair_remark("code without label and fence was taken for the action"),))
        return _turn(text[:end], [], [], block, None, n, notes, write, whole)
    raise Unreadable(f"{_why(text, labels, cut_short)} {shape(n)}")


def shape(n: int) -> str:
    """Describe the form of turn `n` for the model."""
    return (
        f"Write `THOUGHT {n}:` and on the next line what you think, then `ACTION {n}:` and below it your Python code "
        "between a line ```python and a line ```. Call stop() there when the task is done."
    )


def _turn(
    text: str,
    labels: list[Label],
    answers: list[Label],
    block: Block,
    label: Label | None,
    n: int,
    notes: list[Remark],
    write: Write,
    whole: bool,
) -> Turn:
    """Return the turn of the code that was found; `label` is its action's."""
    if not whole and not block.closed:
        raise Unreadable(f"Your reply was cut before its action ended: it was too long. Write less. {shape(n)}")
    notes += block.remarks
    start = label.start if label is not None else block.start
    if label is None and not any(remark.text.startswith("code without label") for remark in notes):
        notes.append(repair_remark("the action's label was missing"))
    elif label is not None:
        _as_written(text, label, "ACTION", n, notes)
    if answers:
        notes.append(cut("a final answer before the action: the action wins"))
        start = min(start, answers[0].start)
    thought = _thought(text, [one for one in labels if one.start < start], start, n, notes)
    rest = text[block.end :].strip("`~ \t\r\n")
    if rest:
        own = any(label_at(match).kind == "observation" for match in LABEL.finditer(rest))
        words = "with an observation of its own" if own else "not run"
        notes.append(cut(f"{len(rest)} characters after the action ({words})"))
    turn = Turn(thought, Call(CODE, block.code), remarks=tuple(notes))
    return _kept(turn, text[: block.end].strip(), n, notes, write)


def _answered(text: str, labels: list[Label], answers: list[Label], n: int, notes: list[Remark], write: Write) -> Turn:
    last = answers[-1]
    end = next((one.start for one in labels if one.start > last.start), len(text))
    answer = unguard(text[last.end : end].strip()).strip()
    if not answer:
        raise Unreadable(f"Your final answer is empty. {shape(n)}")
    if end < len(text):
        notes.append(cut("what followed the final answer"))
    if len(answers) > 1:
        notes.append(repair_remark(f"of {len(answers)} final answers the last one counts"))
    first = answers[0].start
    thought = _thought(text, [one for one in labels if one.start < first], first, n, notes, needed=False)
    turn = Turn(thought, answer=answer, answered=True, remarks=tuple(notes))
    return _kept(turn, text[:end].strip(), n, notes, write)


def _thought(text: str, labels: list[Label], upto: int, n: int, notes: list[Remark], *, needed: bool = True) -> str:
    """Return the text of the thought's labels before `upto`, and text before any label."""
    first = labels[0].start if labels else upto
    parts = [text[:first].strip()]
    if parts[0]:
        notes.append(repair_remark("text without the label THOUGHT was taken for the thought"))
    starts = [one.start for one in labels[1:]] + [upto]
    thoughts = [one for one in labels if one.kind == "thought"]
    parts += [text[one.end : end].strip() for one, end in zip(labels, starts, strict=False)]
    for one in thoughts[:1]:
        _as_written(text, one, "THOUGHT", n, notes)
    if len(labels) > 1:
        notes.append(repair_remark("several thoughts were joined"))
    thought = unguard("\n".join(part for part in parts if part)).strip()
    if not thought and needed:
        notes.append(repair_remark("the thought is missing"))
    return thought


def _as_written(text: str, label: Label, word: str, n: int, notes: list[Remark]) -> None:
    """Add a remark if a label differs from the format."""
    if label.number not in (0, n):
        notes.append(repair_remark(f"the {word.lower()} was numbered {label.number} in turn {n}"))
    elif text[label.start : label.end].strip() != f"{word} {n}:":
        notes.append(repair_remark(f"the label {word} {n}: was written otherwise"))


def _kept(turn: Turn, text: str, n: int, notes: list[Remark], write: Write) -> Turn:
    """Return the turn with the relevant part of the reply: as written, or in canonical form after a repair."""
    if any(remark.kind == "repaired" or "final answer" in remark.text for remark in notes):
        with contextlib.suppress(ValueError):
            text = write(turn, n)
    return Turn(turn.thought, turn.call, turn.answer, turn.answered, text, tuple(notes))


def _why(text: str, labels: list[Label], cut_short: bool) -> str:
    if not text.strip():
        return "Your reply is empty."
    if cut_short:
        return "You wrote an observation yourself. Observations come only from running your code, so it was cut."
    if any(label.kind == "action" for label in labels):
        return "There is no Python code below `ACTION`."
    return "There is no action in your reply."


# -- the steps into which a task is divided

MOST_STEPS = 10
_LONGEST_STEP = 300
"""Maximum number of characters of a step."""

_ITEM = re.compile(r"[ \t>*_-]{0,8}(?:step[ \t])?(?:(\d{1,3})[.):]|[-*•][ \t])[ \t*_]{0,4}(.*)", re.I)


def steps_of(text: str) -> tuple[str, ...]:
    """Return the steps in a reply, without numbers and full stops; the first may lack its number.

    A label or a fence ends them. If there are numbered steps, bullets do not count.
    """
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
