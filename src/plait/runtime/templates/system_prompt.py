"""Warns of a user's system prompt that leaves out the tools or the format, because Plait adds nothing to it."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable

from plait.core import Loop, traits_of
from plait.runtime.templates.prompts import PromptBook, variables_of

_LISTS_TOOLS = {"tools", "described", "names"}
"""Variables by which a template lists the tools."""


def warn_of_gaps(system: str, loop: Loop, book: PromptBook, tools: Iterable[str]) -> None:
    """Warn if the model would learn nothing of the tools, or of the form of a reply. The user's own templates count.

    The loop's `reply_words` are those of which a description of its replies has at least one. A loop without them, such
    as one that uses native tool calls, needs neither.
    """
    words = traits_of(loop).reply_words
    names = tuple(tools)
    if not system or not words:
        return
    text = "\n".join((system, *book.own.values()))
    lists_tools = any(_LISTS_TOOLS & variables_of(own) for name, own in book.own.items() if name.endswith(".j2"))
    gaps = []
    if names and not lists_tools and not _has_one(text, names):
        gaps.append(f"names none of the tools ({', '.join(names[:3])}{', ...' if len(names) > 3 else ''})")
    if not _has_one(text, words):
        gaps.append(f"does not describe the replies of the loop '{loop.name}' ({', '.join(words)})")
    if gaps:
        warnings.warn(
            f"The system prompt {' and '.join(gaps)}. Plait sends it unchanged and adds nothing, so the model cannot "
            "know them.",
            stacklevel=2,
        )


def _has_one(text: str, words: Iterable[str]) -> bool:
    return re.search("|".join(rf"(?<!\w){re.escape(word)}" for word in words), text, re.I) is not None
