"""The requests and responses of a run, exactly as sent and received, and what each request changes.

The journal has no headers. A body that is not UTF-8 is shown with its odd bytes as `\\xNN` and marked; `exact_body`
returns it byte for byte.

A request is compared with the one before it of the same phase. Marks build it from that one: ["=", n] takes n
characters, ["-", n] skips n, ["+", text] adds text. Characters are counted in UTF-16, as JavaScript does.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from typing import TypeAlias

from msgspec import Struct

from plait.core.text import count_shared
from plait.journal.entries import ModelAttempt
from plait.journal.records import Row, RunHead
from plait.journal.timeline import Timeline

ChangeMark: TypeAlias = tuple[str, int | str]

FINE = 4_000
"""Words and signs of a changed part that are compared one by one. A longer part is marked as removed and added."""
_WORDS = re.compile(r"\w+|\s+|[^\w\s]")
_WORD_BEFORE, _WORD_AFTER = re.compile(r"\w*\Z"), re.compile(r"\w*")


class HttpExchange(Struct, frozen=True):
    """A request and its response, if one came, as the page reads it.

    `seq` and `answered` are their rows. `before` is the row of the request that it is compared with, None for a phase's
    first. `bytes` are the lengths of both bodies. `odd`: a body is not UTF-8, so its text is not byte for byte.
    """

    seq: int
    step: int
    phase: str
    model: str
    attempt: int
    path: str
    request: str
    before: int | None
    marks: tuple[ChangeMark, ...]
    response: str | None
    answered: int | None
    status: int | None
    seconds: float | None
    error: str
    cut: bool
    bytes: tuple[int, int]
    odd: bool


def read_exchanges(head: RunHead, timeline: Timeline, *, steps: frozenset[int] | None = None) -> Iterator[HttpExchange]:
    """Read the exchanges of a run in the order of their requests; `steps`: only those."""
    last: dict[str, ModelAttempt] = {}
    for call, attempt in timeline.attempts:
        before, last[attempt.phase] = last.get(attempt.phase), attempt
        if steps is not None and call.step not in steps:
            continue
        response = attempt.response
        answer = response.body if response is not None else None
        request, odd_request = body_text(attempt.request)
        answered, odd_response = body_text(answer)
        yield HttpExchange(
            seq=attempt.seq,
            step=call.step,
            phase=attempt.phase,
            model=attempt.model,
            attempt=attempt.number + 1,
            path=head.address(attempt.phase, attempt.path, attempt.model),
            request=request,
            before=before.seq if before is not None else None,
            marks=mark_changes(body_text(before.request)[0], request) if before is not None else (),
            response=answered if answer is not None else None,
            answered=response.seq if response is not None else None,
            status=(response.status or None) if response is not None else None,
            seconds=response.seconds if response is not None else None,
            error=response.error if response is not None else "",
            cut=response.cut if response is not None else False,
            bytes=(len(attempt.request), len(answer or b"")),
            odd=odd_request or odd_response,
        )


def exact_body(rows: Iterable[Row], seq: int) -> bytes | None:
    """Return the request or response of one row byte for byte; None if that row has neither."""
    timeline = Timeline()
    for row in rows:
        changes = {moment.change for moment in timeline.add(row, keep_body=False)}
        if row.seq == seq:
            return row.body if changes & {"asked", "responded"} else None
    return None


def mark_changes(before: str, after: str) -> tuple[ChangeMark, ...]:
    """Return the marks that make `after` from `before`. Short changed parts are compared word by word."""
    head = count_shared(before, after)
    tail = count_shared(before[head:][::-1], after[head:][::-1])
    if head + tail < min(len(before), len(after)):  # something was replaced: whole words make a readable mark
        head -= len(_WORD_BEFORE.search(before[max(0, head - 40) : head])[0])  # type: ignore[index]
        tail -= len(_WORD_AFTER.match(before[len(before) - tail :][:40])[0])  # type: ignore[index]
    old, new = before[head : len(before) - tail], after[head : len(after) - tail]
    marks: list[ChangeMark] = [("=", utf16_length(before[:head]))] if head else []
    words, others = (_WORDS.findall(text) if old and new else () for text in (old, new))
    if words and max(len(words), len(others)) <= FINE:
        for kind, a, b, c, d in difflib.SequenceMatcher(None, words, others, autojunk=False).get_opcodes():
            if kind == "equal":
                marks.append(("=", utf16_length("".join(words[a:b]))))
                continue
            marks += [("-", utf16_length("".join(words[a:b])))] if b > a else []
            marks += [("+", "".join(others[c:d]))] if d > c else []
    else:
        marks += [("-", utf16_length(old))] if old else []
        marks += [("+", new)] if new else []
    if tail:
        marks.append(("=", utf16_length(before[len(before) - tail :])))
    return tuple(marks)


def utf16_length(text: str) -> int:
    """Return the length of a text in JavaScript."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def body_text(body: bytes | None) -> tuple[str, bool]:
    """Return a body as text, and whether that is not byte for byte."""
    try:
        return (body or b"").decode(), False
    except UnicodeDecodeError:
        return (body or b"").decode(errors="backslashreplace"), True
