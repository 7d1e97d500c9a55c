"""Cuts replies with one call anywhere in the call's input, in every format, and runs loops whose replies are cut."""

from __future__ import annotations

import random
import traceback
from pathlib import Path
from typing import Any

from figures import Figures, line_of

from half_inputs import calls_made, closed_calls, forms
from plait.core import Reply
from test_half_inputs import LOOPS, STATEMENT, run_loop

CUTS = 12
"""Places at which each reply is cut."""
RUNS = 3
"""Whole runs for each reply of all formats."""


def run(count: int, seed: int, folder: Path) -> Figures:
    """Cut replies at so many places: no cut reply makes another call than the whole one, which makes its one call."""
    chance, every = random.Random(seed), forms()
    cuts = closed = runs = made_whole = 0
    failures: list[str] = []
    while cuts < count:
        for name, form in every.items():
            text, start, _, _ = closed_calls(chance, form)
            try:
                whole = calls_made(form, text)
                closed += 1
                if len(whole) != 1 or not whole[0][0]:
                    failures.append(f"{name}: a closed call gives {whole}: {text!r}")
                    continue
                places = range(start + 1, len(text))
                for at in sorted(chance.sample(places, min(CUTS, len(places)))):
                    cuts += 1
                    made = calls_made(form, text[:at])
                    made_whole += made == whole
                    if made not in ([], whole):
                        failures.append(f"{name}: half an input gives {made}: {text[:at]!r}")
            except Exception:
                failures.append(f"{name}: {text!r}\n{traceback.format_exc(limit=-3)}")
        for _ in range(RUNS):
            runs += 1
            failures += _run_cut(chance)
    figures = line_of(cuts=cuts, closed=closed, nothing_lacked=made_whole, runs=runs, failed=len(failures))
    return Figures(figures, failures)


def _run_cut(chance: random.Random) -> list[str]:
    """Run a loop whose reply is cut within its statement, and return what went wrong."""
    name = chance.choice([*LOOPS])
    whole = LOOPS[name][2]
    begin = whole.index("DELETE")
    half = whole[: chance.randrange(begin + 1, whole.index("id = 3") + 5)]
    ways: list[list[Any]] = [
        [Reply(half, "length"), whole[len(half) :]],
        [Reply(half, "length"), Reply(" x", "length"), whole],
        [half, whole],
    ]
    replies = chance.choice(ways[:2] if name == "lines" else ways)
    ran, ended, _ = run_loop(name, replies, journal=False)
    if (ran, ended.status) == ([STATEMENT], "answered"):
        return []
    return [f"{name} with {replies} ran {ran} and is {ended.status}: {ended.reason}"]
