"""Reading numbered calls while they are written takes time in proportion to their length, on one long line as well."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from plait.loops.compiler.format import FORM, NumberedCallStream
from plait.loops.compiler.reader import CallReader

SHAPES: dict[str, Callable[[int], str]] = {
    "one line of thought": lambda size: "x" * size,
    "one line of words": lambda size: "word " * (size // 5),
    "one long text": lambda size: '1. f("' + "a" * size + '")',
    "a line of code": lambda size: "ACTION " + "a" * size,
    "behind a call": lambda size: "1. f(1) so " + "a" * size,
}


def seconds(make: Callable[[], CallReader | NumberedCallStream], text: str) -> float:
    """The least time of three attempts to read a text one character at a time."""
    found = []
    for _ in range(3):
        reader = make()
        begun = time.process_time()
        for character in text:
            reader.feed(character)
        reader.close()
        found.append(time.process_time() - begun)
    return min(found)


@pytest.mark.parametrize("make", [CallReader, FORM.stream])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_line_of_ten_times_the_length_takes_about_ten_times_as_long(
    shape: str, make: Callable[[], CallReader | NumberedCallStream]
) -> None:
    short, long = (SHAPES[shape](size) for size in (3_000, 30_000))
    for _ in range(4):
        ratio = seconds(make, long) / max(seconds(make, short), 1e-6)
        if ratio < 22:  # a quadratic reader comes to 30 and more
            return
    pytest.fail(f"ten times the text took {ratio:.0f} times as long")


def test_what_is_read_does_not_depend_on_the_pieces() -> None:
    text = 'Thought: a\nb\n1. f("x, \'y\' (z", [1, 2])  tail\nmore\n2. g(a=1,\n b="q")\njoin() and the rest'
    whole = FORM.stream()
    expected = "".join(piece.text for piece in [*whole.feed(text), *whole.close()])
    for size in (1, 2, 3, 7):
        reader, splitter = CallReader(), FORM.stream()
        calls, pieces = [], []
        for start in range(0, len(text), size):
            calls += reader.feed(text[start : start + size])
            pieces += splitter.feed(text[start : start + size])
        calls += reader.close()
        pieces += splitter.close()
        assert [(call.step.id, call.step.tool) for call in calls] == [("1", "f"), ("2", "g")]
        assert "".join(piece.text for piece in pieces) == expected
