"""Whole reading and reading character by character give the same, for every format: recorded and fuzzed replies."""

from __future__ import annotations

import random
from itertools import chain
from typing import Any

import pytest

from codec_replies import FORMS, Form, fuzzed_reply, read_both_ways, recorded_replies
from conftest import CAMPAIGN, examples
from plait.loops.compiler.joiner import Joiner
from plait.loops.react.format import react_format

each = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)


@each
def test_recorded_replies_read_the_same_whole_and_character_by_character(form: Form) -> None:
    """All of them in the campaign."""
    if not (recorded := recorded_replies()):
        pytest.skip("NOT CHECKED: the development data is absent")
    texts = [text for replies in recorded.values() for text in replies[:: 1 if CAMPAIGN else len(replies) // 12 + 1]]
    for text in texts:
        read_both_ways(form, text[:4000])


@each
def test_fuzzed_replies_read_the_same_whole_and_character_by_character(form: Form) -> None:
    """40,000 for each format in the campaign."""
    chance = random.Random(20261126)
    replies = [text for text in chain(*recorded_replies().values()) if len(text) < 1500]
    total = examples(40_000)
    read = sum(read_both_ways(form, fuzzed_reply(chance, replies)) for _ in range(total))
    assert read > total // 400, "a format that reads none of them is not tested"


@pytest.mark.parametrize(
    "codec", [react_format("lines"), react_format("original"), Joiner()], ids=["lines", "original", "joiner"]
)
def test_thoughts_are_joined_by_a_line_also_if_one_between_is_empty(codec: Any) -> None:
    text = "Thought: a\nThought:\nThought: b\n" + codec.write(codec.read("Final Answer: x"))
    stream = codec.stream()
    pieces = [*stream.feed(text), *stream.close()]
    assert "".join(piece.text for piece in pieces if piece.kind == "thought") == codec.read(text).thought == "a\nb"
