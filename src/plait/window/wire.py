"""The wire of a run: each request and response as it was sent and received, and what a request has that the one before
had not.

Headers are not on record, and so nowhere here. A body that is no UTF-8 is told with its odd bytes as `\\xNN`, and says
so; byte for byte it can be had by `exact`.

A request is compared with the one before it of the same phase. The comparison is kept as marks, from which the request
can be made again: ["=", n] is n characters as before, ["-", n] n characters that are gone, ["+", text] what is new.
Characters are counted as JavaScript does, in UTF-16.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from msgspec import Struct

from plait.journal.records import Got, Row, RunHead, Thinking

Mark: TypeAlias = tuple[str, int | str]

FINE = 4_000
"""Words and signs of a changed part that are compared one by one; a longer part is told as gone and new."""
_WORDS = re.compile(r"\w+|\s+|[^\w\s]")
_WORD_BEFORE, _WORD_AFTER = re.compile(r"\w*\Z"), re.compile(r"\w*")


class Exchange(Struct, frozen=True):
    """A request and, when one came, its response. `seq` is the request's row, `before` that of the request it is
    compared with, None for a phase's first; `marks` say what changed. `bytes` are the lengths of both bodies."""

    seq: int
    n: int
    step: int
    phase: str
    model: str
    attempt: int
    path: str
    request: str
    before: int | None
    marks: tuple[Mark, ...]
    response: str | None
    answered: int | None
    status: int | None
    seconds: float | None
    error: str
    cut: bool
    bytes: tuple[int, int]
    odd: bool
    """A body is no UTF-8: what is shown of it is not byte for byte."""


def exchanges(head: RunHead, rows: Iterable[Row], *, steps: frozenset[int] | None = None) -> Iterator[Exchange]:
    """The exchanges of a run in order of their requests; `steps`: of those alone."""
    last: dict[str, tuple[int, str]] = {}
    open_: dict[tuple[int, int], tuple[Row, Thinking, tuple[int, str] | None]] = {}
    ready: list[tuple[int, Exchange]] = []
    for row in rows:
        record = row.record
        if isinstance(record, Thinking):
            if steps is None or record.step in steps:
                open_[record.n, record.attempt] = (row, record, last.get(record.phase))
            last[record.phase] = (row.seq, text_of(row.body)[0])
        elif isinstance(record, Got) and (record.n, record.attempt) in open_:
            asked, thinking, before = open_.pop((record.n, record.attempt))
            ready.append((asked.seq, _exchange(head, asked, thinking, before, row, record)))
    ready += [(asked.seq, _exchange(head, asked, thinking, before)) for asked, thinking, before in open_.values()]
    for _, each in sorted(ready, key=lambda pair: pair[0]):
        yield each


def exact(rows: Iterable[Row], seq: int) -> bytes | None:
    """The body of one row, byte for byte; None where that row has none."""
    for row in rows:
        if row.seq == seq:
            return row.body if isinstance(row.record, Thinking | Got) else None
    return None


def difference(before: str, after: str) -> tuple[Mark, ...]:
    """What makes `after` of `before`. Long changed parts are told whole, short ones word by word."""
    head, tail = _shared(before, after)
    gone, new = before[head : len(before) - tail], after[head : len(after) - tail]
    marks: list[Mark] = [("=", units(before[:head]))] if head else []
    if gone and new:
        marks += _fine(gone, new)
    else:
        marks += [("-", units(gone))] if gone else []
        marks += [("+", new)] if new else []
    if tail:
        marks.append(("=", units(before[len(before) - tail :])))
    return tuple(marks)


def restored(before: str, marks: Sequence[Mark]) -> str:
    """What the marks make of a text: what the page does, said once more in Python."""
    coded, at, parts = before.encode("utf-16-le", "surrogatepass"), 0, []
    for sign, what in marks:
        if isinstance(what, str):
            parts.append(what)
            continue
        if sign == "=":
            parts.append(coded[2 * at : 2 * (at + what)].decode("utf-16-le", "surrogatepass"))
        at += what
    return "".join(parts)


def units(text: str) -> int:
    """How long a text is in JavaScript."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def text_of(body: bytes | None) -> tuple[str, bool]:
    """A body as text, and whether that is not byte for byte."""
    try:
        return (body or b"").decode(), False
    except UnicodeDecodeError:
        return (body or b"").decode(errors="backslashreplace"), True


def _exchange(
    head: RunHead,
    asked: Row,
    thinking: Thinking,
    before: tuple[int, str] | None,
    answered: Row | None = None,
    got: Got | None = None,
) -> Exchange:
    request, odd = text_of(asked.body)
    response, odd_too = text_of(answered.body) if answered is not None else ("", False)
    return Exchange(
        seq=asked.seq,
        n=thinking.n,
        step=thinking.step,
        phase=thinking.phase,
        model=thinking.model,
        attempt=thinking.attempt + 1,
        path=head.address(thinking),
        request=request,
        before=before[0] if before else None,
        marks=difference(before[1], request) if before else (),
        response=response if answered is not None and answered.body is not None else None,
        answered=answered.seq if answered is not None else None,
        status=(got.status or None) if got is not None else None,
        seconds=got.seconds if got is not None else None,
        error=got.error if got is not None else "",
        cut=got.cut if got is not None else False,
        bytes=(len(asked.body or b""), len((answered.body if answered else b"") or b"")),
        odd=odd or odd_too,
    )


def _shared(before: str, after: str) -> tuple[int, int]:
    """How many characters the two share at the start and, of the rest, at the end."""
    most = min(len(before), len(after))
    head = _same(before, after, most)
    tail = _same(before[head:][::-1], after[head:][::-1], most - head)
    if head + tail < most:  # something was put in the place of something: let whole words stand for it
        head -= len(_WORD_BEFORE.search(before[max(0, head - 40) : head])[0])  # type: ignore[index]
        tail -= len(_WORD_AFTER.match(before[len(before) - tail :][:40])[0])  # type: ignore[index]
    return head, tail


def _same(one: str, two: str, most: int) -> int:
    """How many characters both begin with: by halves, for Python compares slices faster than letters."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == two[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _fine(gone: str, new: str) -> list[Mark]:
    old_words, new_words = _WORDS.findall(gone), _WORDS.findall(new)
    if max(len(old_words), len(new_words)) > FINE:
        return [("-", units(gone)), ("+", new)]
    marks: list[Mark] = []
    matcher = difflib.SequenceMatcher(None, old_words, new_words, autojunk=False)
    for kind, a, b, c, d in matcher.get_opcodes():
        if kind == "equal":
            marks.append(("=", units("".join(old_words[a:b]))))
            continue
        marks += [("-", units("".join(old_words[a:b])))] if b > a else []
        marks += [("+", "".join(new_words[c:d]))] if d > c else []
    return marks
