"""Tells calls that a model makes from calls that an answer in prose or code only mentions."""

from __future__ import annotations

import re
from collections.abc import Sequence

from plait.core import ToolSpec
from plait.core.arguments import brings_result
from plait.loops.call_notations import LANGUAGE, TAG, TOKEN, FoundCall, calls_in

_MARKED = re.compile(rf"(?:{TAG}|{TOKEN}|```(?:tool|function)\w{{0,20}})[\s\[(\\]*\Z")
_FENCE = re.compile(rf"[ \t]*(?:(py\w*)|{LANGUAGE})?[ \t]*(?:\n|\Z)", re.I)
# A line that may stand beside calls in a fence: brackets, a comment, a variable, something printed.
_HARMLESS = re.compile(
    r"[^\w#/]*+(?:(?:#|//|print\().*|\d{1,3}[.)])?[^\w#/]*+|(?:\w{1,40}\s?=\s?)?(?:print|await|list)?[\s\[(]*"
)
_CODE = re.compile(
    r"^[ \t]*(?:File|import|from [\w.]+ import|async|def|class|for \w.* in|const|let|var) [\w{(\"]", re.M
)
_MENTION = re.compile(
    r"\b(?:for (?:example|instance)|examples?(?= ?:| calls?\b| usage\b| of (?:a|the|how|such)\b)|e\.g\.|how to|usage"
    r"|like (?:this|so|that|these)|look(?:s|ed)? like|such as|syntax|suppose|instead of|would (?:be|look|return)"
    r"|you (?:can|could|may|might|would|should|must|simply|just|call|use|write|type)|your (?:code|program|script)"
    r"|(?:was|were|been) (?:called|made|used|run)|(?:was|were)(?=:)|(?:not|never) (?:make|call|use|run)"
    r"|(?:i|we|she|he|they|it) (?:called|used|ran|made|wrote|typed|did))\b",
    re.I,
)
_INTENDS = re.compile(r"\b(?:I'll|I will|I am|I'm|I need|I have to|I should|let me|let us|let's|going to)\b", re.I)
_GOES_ON = re.compile(
    r"[a-z][\w']*,? [a-z]|(?:This|Which) (?:(?:is|was) (?:the|an?|how|what)|would|returns?|tells?|prints?|gives?)\b"
)


def made_calls(text: str, tools: Sequence[ToolSpec]) -> list[FoundCall]:
    """Return the first group of consecutive calls that the model makes; empty if there is none."""
    start = 0
    for _ in range(8):
        group = calls_in(text, tools, start)
        if not group or not _is_mentioned(text, group[0].start, group[-1].end, any(call.certain for call in group)):
            return group
        start = group[-1].end
    return []


def _is_mentioned(text: str, start: int, end: int, certain: bool) -> bool:
    """Return whether the calls at text[start:end] are only mentioned. `certain`: only calls are written so.

    They are mentioned if they stand among other code. In a notation that prose and code share, they also are if the
    sentence before them speaks of examples, of the reader or of the past, or goes on behind them. Markup of calls right
    before them makes them calls.
    """
    before, after = text[:start], text[end:]
    if _MARKED.search(before[-100:]) is not None:
        return False
    if before.count("```") % 2:
        before, _, above = before.rpartition("```")
        below, _, after = after.partition("```")
        opening = _FENCE.match(above)
        code = opening is None or not all(map(_HARMLESS.fullmatch, f"{above[opening.end() :]}\n{below}".split("\n")))
        if code and not (certain and opening is not None and not opening[1]):
            return "\n" in above
    if certain:
        return False
    if _CODE.search(before) is not None or _CODE.search(after) is not None:
        return True
    said = re.split(r"\n\s*\n|[.!?]\s", before.strip()[-300:])[-1]
    if re.search(r"[a-z],\Z", said) is not None or (
        _MENTION.search(said) is not None and _INTENDS.search(said) is None
    ):
        return True
    rest = after.lstrip(" \t\n`.;,)]}\"'")
    return _GOES_ON.match(rest) is not None and not brings_result(rest.partition("\n")[0])
