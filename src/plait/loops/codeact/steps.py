"""The steps that a model takes a task apart into, read out of its reply."""

from __future__ import annotations

import re

from plait.loops.codeact.labels import FENCE, LABEL

MOST_STEPS = 10
_LONGEST = 300
"""Characters of a step: what is longer is no step."""

_ITEM = re.compile(r"[ \t>*_-]{0,8}(?:step[ \t])?(?:(\d{1,3})[.):]|[-*•][ \t])[ \t*_]{0,4}(.*)", re.I)


def steps_of(text: str) -> tuple[str, ...]:
    """The steps in a reply, without numbers and full stops; the first one may stand there without its number.

    A label or a fence ends them. Where there are numbered ones, bullets are no steps.
    """
    ends = [match.start() for pattern in (LABEL, FENCE) for match in [pattern.search(text.lstrip(), 1)] if match]
    lines = text.lstrip()[: min(ends, default=len(text))].split("\n")
    items = [match for line in lines if (match := _ITEM.match(line))]
    if not items:
        # The number stood in the opening: what follows it is the step.
        return tuple(_plain(line) for line in lines[:1] if _plain(line))
    if any(match[1] for match in items):
        items = [match for match in items if match[1]]
    numbered = [_plain(match[2]) for match in items]
    head = lines[0]
    opened = not _ITEM.match(head) and bool(head.strip()) and items[0][0].lstrip(" *_-").startswith("2")
    steps = [_plain(head), *numbered] if opened else numbered
    return tuple(step for step in steps if step)[:MOST_STEPS]


def _plain(step: str) -> str:
    words = " ".join(step.replace("**", "").replace("`", "").split())[:_LONGEST].strip()
    return words.removesuffix(".").removesuffix(";").strip()
