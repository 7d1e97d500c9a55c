"""Escapes random texts made of the readers' pieces, and reads parts of them; counts what it changes in real results."""

from __future__ import annotations

import gzip
import json
import random
import re
from collections.abc import Iterator
from pathlib import Path

from figures import Figures, line_of

from conftest import DATA
from escape_pieces import forms, random_text, what_reads

MOST_CHANGED = 0.01
"""The share of the characters of recorded results that the escape may change."""


def observations() -> Iterator[str]:
    """Results of tools in recorded runs, where the development data is beside the checkout."""
    for name, key in (("react-hotpotqa", "trajectory"), ("react-fever", "text"), ("code-gsm8k", "response")):
        for path in DATA.glob(f"{name}/*.jsonl.gz"):
            with gzip.open(path, "rt") as lines:
                for line in lines:
                    held = json.loads(line)[key]
                    text = held if isinstance(held, str) else "\n".join(each["content"] for each in held)
                    yield from (match[1] or match[2] for match in _SHOWN.finditer(text))
    for path in DATA.glob("repl-logs/*.txt"):
        yield from (match[1] for match in _PRINTED.finditer(path.read_text()))


_SHOWN = re.compile(r"^Observation[ \d]*: (.*)$|^```output\n((?:(?!```).*\n)*)", re.M)
_PRINTED = re.compile(r"^OBSERVATION \d+:\n((?:(?!THOUGHT \d).*\n)*)", re.M)


def run(count: int, seed: int, folder: Path) -> Figures:
    """Escape so many texts, each for one reader."""
    chance = random.Random(seed)
    every = list(forms().items())
    failures: list[str] = []
    changed_again = read = 0
    for number in range(count):
        name, form = every[number % len(every)]
        text = random_text(chance, form.own)
        shown = form.escape(text)
        if form.escape(shown) != shown:
            changed_again += 1
            failures.append(f"{name}: the second escape changed {shown!r}")
        if found := what_reads(form, shown, chance):
            read += 1
            failures.append(f"{name}: {text!r}: {found}")
    real = list(observations())
    line = f"escapes: {line_of(texts=count, read_as_protocol=read, changed_again=changed_again)}"
    if not real:
        return Figures(f"{line} recorded results NOT CHECKED: the development data {DATA} is absent", failures)
    some = chance.sample(real, min(len(real), count // 10))
    size = sum(map(len, some))
    shares = {name: sum(len(form.escape(text)) - len(text) for text in some) / size for name, form in every}
    failures += [
        f"{name} changes {share:.1%} of recorded results" for name, share in shares.items() if share > MOST_CHANGED
    ]
    most = max(shares, key=lambda name: shares[name])
    return Figures(f"{line} recorded results {len(some)}, changed at most {shares[most]:.2%} ({most})", failures)
