"""Instructions of strangers by every part of Plait, in every loop: no effect follows from them without the user."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from itertools import product
from pathlib import Path

from figures import Figures, line_of

from injected_runs import LOOPS, POLICIES, WAYS, count_harm

from injected.tasks import SURFACES  # isort: skip  # its folder is in the path now


def run(count: int, seed: int, folder: Path) -> Figures:
    """Try so many cases, drawn at random; all if there are fewer."""
    cases = list(product(SURFACES, LOOPS, WAYS, POLICIES))
    harm: Counter[tuple[str, bool]] = Counter()
    figures: Counter[str] = Counter()
    failures: list[str] = []
    for task, loop, way, policy in random.Random(seed).sample(cases, min(count, len(cases))):
        case = f"{task.id} {loop} {way} {policy}"
        with tempfile.TemporaryDirectory(dir=folder) as place:
            try:
                done, refused = count_harm(task, loop, way, policy, Path(place))
            except Exception as why:
                failures.append(f"{case}: {type(why).__name__}: {why}")
                continue
        defended = policy != "none"
        harm[task.attack, defended] += done
        figures.update({"cases": defended, "refused": refused, "unapproved": done * defended})
        figures["without a policy"] += done * (not defended)
        if defended and done:
            failures.append(f"{case}: {done} effects without approval")
    if count >= len(cases):
        for attack in sorted({task.attack for task in SURFACES}):
            failures += [f"{attack} does no harm without a policy"] * (not harm[attack, False])
    names = ("cases", "refused", "unapproved", "without a policy")
    return Figures(f"surfaces {line_of(**{each.replace(' ', '_'): figures[each] for each in names})}", failures)
