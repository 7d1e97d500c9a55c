"""Fuzzes all readers with replies made of labels, with mutated replies (written by the formats, or recorded), and with
calls in the shapes in which models write them."""

from __future__ import annotations

import random
import traceback
from pathlib import Path

from figures import Figures, line_of

from call_shapes import READERS, lost, replies
from codec_replies import FORMS, WRITTEN, fuzzed_reply, read_both_ways, recorded_replies
from codec_replies import PROTOCOL as MORE
from plait.loops.format import Unreadable
from test_formats_properties import PROTOCOL, mutated

REPLIES = [
    *WRITTEN,
    '[{"get_weather": {"city": "Paris"}}]',
    'I look.\n<tool_call>\n{"name": "search", "arguments": {"query": "a"}}\n</tool_call>',
]


def run(count: int, seed: int, folder: Path) -> Figures:
    """Read so many replies: two of three whole, the third one character at a time as well."""
    chance = random.Random(seed)
    real = [text[-3000:] for texts in recorded_replies().values() for text in texts]
    reads = read = refused = streamed = 0
    failures: list[str] = []
    while reads < count:
        kind = chance.random()
        if kind < 0.25:
            text = "".join(chance.choices(PROTOCOL + MORE, k=chance.randint(0, 25)))
        elif kind < 0.5:
            text = fuzzed_reply(chance, real)
        elif kind < 0.52:
            text = "".join(chr(chance.randrange(0xFFFF)) for _ in range(40))
        else:
            text = mutated(chance, chance.choice(real if real and kind < 0.75 else REPLIES))
        for name, form in FORMS.items():
            reads += 1
            try:
                try:
                    form.codec.read(text, 2, form.tools)
                    read += 1
                except Unreadable as why:
                    refused += 1
                    assert str(why), "a refusal without a text"
                if reads % 3 == 0 and len(text) < 1500:
                    reads, streamed = reads + 1, streamed + 1
                    read_both_ways(form, text)
            except Exception:
                failures.append(f"{name}: {text!r}\n{traceback.format_exc(limit=-3)}")
    each_reader = count // 150  # 2,000 in the full campaign
    missed = [said for reader in READERS for shape in replies(chance, each_reader) if (said := lost(reader, shape))]
    errors = len(failures)
    failures += missed
    figures = line_of(
        reads=reads,
        read=read,
        refused=refused,
        streamed=streamed,
        untyped_errors=errors,
        calls_in_shapes=len(READERS) * each_reader,
        lost_calls=len(missed),
    )
    return Figures(figures, failures)
