"""The requests and responses of a run as text, and as Markdown.

In text each line has its mark in the margin: `=` was sent before, `+` is new, `<` was received.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from plait.core.text import clean
from plait.lab.seeds.wiring import Answered, Exchange, Piece, Sent

OLD, NEW, BACK = "=", "+", "<"


def text_of(question: str, exchanged: Sequence[Exchange], *, full: bool = False) -> str:
    """For a terminal. What was sent before is told in one line, or with `full` written out."""
    lines = [f"Question: {clean(question)}"]
    for each in exchanged:
        lines += ["", f"--- {_title(each.sent)}", *_settings(each.sent)]
        if not full and (before := _before(each.sent)):
            lines.append(f"{OLD} {before}")
        for piece in each.sent.pieces:
            if not piece.new and not full:
                continue
            if not piece.goes_on or not full:
                lines.append(f"[{clean(piece.role)}]" + " goes on" * piece.goes_on)
            lines += _marked(NEW if piece.new else OLD, piece.text)
        lines += ["", f"--- response {each.sent.number}{_how(each.answered)}"]
        if each.answered is not None:
            lines += _marked(BACK, _said(each.answered))
    return "\n".join(lines)


def markdown_of(question: str, exchanged: Sequence[Exchange], *, full: bool = False) -> str:
    """In Markdown: each part in a block of its own."""
    parts = [f"**Question:** {' '.join(clean(question).split())}"]
    for each in exchanged:
        parts.append(f"### {_title(each.sent)[0].upper()}{_title(each.sent)[1:]}")
        if settings := list(_settings(each.sent)):
            parts.append("\n".join(f"- {setting}" for setting in settings))
        if before := _before(each.sent):
            parts.append(f"Sent before: {before}.")
        parts += [f"{_named(piece)}\n\n{_block(piece.text)}" for piece in each.sent.pieces if full or piece.new]
        parts.append(f"### Response {each.sent.number}{_how(each.answered)}")
        if each.answered is not None:
            parts.append(_block(_said(each.answered)))
    return "\n\n".join(parts)


def _title(sent: Sent) -> str:
    again = f" · attempt {sent.attempt}" if sent.attempt > 1 else ""
    return f"request {sent.number} · step {sent.step} · {clean(sent.phase)} · {clean(sent.model)} · {sent.path}{again}"


def _settings(sent: Sent) -> Iterator[str]:
    if sent.stop:
        yield "stop: " + "  ".join(_quoted(each) for each in sent.stop)
    if sent.tools:
        yield f"tools: {clean(', '.join(sent.tools))}"
    for name, value in sent.other.items():
        yield f"{clean(name)}: {_short(value)}"


def _short(value: object, most: int = 100) -> str:
    text = _quoted(value)
    return text if len(text) <= most else f"{text[:most]}… ({len(text):,} characters)"


def _quoted(value: object) -> str:
    import json

    return clean(json.dumps(value, ensure_ascii=False))


def _before(sent: Sent) -> str:
    """`2 messages, 1,962 characters`; "" where all is new."""
    if not sent.letters_before:
        return ""
    messages, some = sent.messages_before, any(piece.goes_on for piece in sent.pieces)
    counted = f"{messages:,} message{'s' * (messages != 1)}"
    if not messages:
        counted = "the beginning"
    elif some:
        counted += " and the beginning of one"
    return f"{counted} as before, {sent.letters_before:,} characters"


def _how(answered: Answered | None) -> str:
    if answered is None:
        return " · none is on record"
    status = str(answered.status) if answered.status else "none came"
    return f" · {status} · {answered.seconds:.3f} s"


def _said(answered: Answered) -> str:
    error = f"error: {answered.error}" if answered.error else ""
    thought = f"(reasoning) {answered.reasoning}" if answered.reasoning else ""
    return "\n".join(filter(None, (error, thought, answered.text, *answered.calls)))


def _marked(mark: str, text: str) -> list[str]:
    return [f"{mark} {each}".rstrip() for each in clean(text).split("\n")]


def _named(piece: Piece) -> str:
    role = f"`{clean(piece.role)}`"
    return f"{role}{', sent before' * (not piece.new)}{', goes on' * piece.goes_on}:"


def _block(text: str) -> str:
    """A fence that is longer than any in the text."""
    inner = clean(text)
    longest = max((len(found) for found in re.findall(r"`{3,}", inner)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}text\n{inner}{'' if inner.endswith(chr(10)) else chr(10)}{fence}"
