"""Telling that a prompt was too long from what endpoints say, and the numbers in it.

Every server words it in its own way; the wordings below were collected from the public issue trackers of
clients and servers. Where a wording is not known, the error stays a plain `BadRequest`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_CODES = {"context_length_exceeded", "exceed_context_size_error", "string_above_max_length"}

_SAYS = re.compile(
    r"""
    maximum\ (?:context|model|prompt|sequence)\ length | max(?:imum)?\ length | model's\ context\ length
    | context[ _](?:length|window|size|limit)[ _]?(?:\w+\ )?(?:exceed|is\ full|overflow|of\ only)
    | exceeds?\ (?:the\ )?(?:available\ |model'?s?\ |max\ )?context | exceed(?:ed|s)?\ max\ context
    | prompt\ (?:is\ )?too\ long | prompt\ contains\ \d+\ tokens | input\ is\ too\ long
    | input\ token\ count.*exceeds | input\ length\ and\ .max_tokens.\ exceed
    | greater\ than\ the\ context\ length | longer\ than\ the\ (?:model'?s\ |maximum\ )?(?:context|model)
    | context\ the\ overflows | reduce\ the\ length\ of\ the\ (?:messages|prompt|input)
    | exceeded\ model\ token\ limit | tokens?.*\ must\ be\ <= | too\ many\ tokens | token\ limit\ exceeded
    | exceed\ context\ window
    """,
    re.X | re.I | re.S,
)
_NOT = re.compile(r"completion tokens|too many tokens per|tokens per (?:minute|day|hour)|per-minute", re.I)

_N = r"(\d[\d,_]*)"
_ROOM = tuple(
    re.compile(pattern.replace("N#", _N), re.I | re.S)
    for pattern in (
        r"context length (?:is|of)(?: only)? N#",
        r"(?:maximum|max) (?:context|model|prompt|sequence) length(?: is|:| of)? ?N#",
        r"N# maximum",
        r"tokens > N#",
        r"exceed context limit: \d+ \+ \d+ > N#",
        r"maximum number of tokens allowed \(N#",
        r"available context size \(N#",
        r"context length \(N#",
        r"context window (?:of|is) N#",
        r"context size (?:of|is) N#",
        r"token limit:? N#",
        r"must be <= N#",
        r"\(TPM\): Limit N#",
        r"at most N# tokens",
    )
)
_TOKENS = tuple(
    re.compile(pattern.replace("N#", _N), re.I | re.S)
    for pattern in (
        r"resulted in N# tokens",
        r"has N# input tokens",
        r"passed N# input tokens",
        r"\(N# (?:in|of) (?:the |your )?(?:messages|prompt|text)",
        r"requested (?:a total of |about )?N# tokens",
        r"requested tokens \(N#",
        r"too long:? \(?N#",
        r"exceed context limit: N#",
        r"token count \(N#",
        r"request (?:\(N# tokens|contains N#)",
        r"(?:input|prompt) \(N# tokens",
        r"prompt \(length N#",
        r"prompt contains N#",
        r"given: N#",
        r"Requested N#",
    )
)


def overflow(message: str, error: Mapping[str, Any]) -> tuple[int, int] | None:
    """(tokens of the prompt, room of the endpoint) if this error says the prompt was too long, else None.

    `message` is the error's sentence, `error` its other fields; a number that is not said is 0.
    """
    told = {str(error.get("code")), str(error.get("type"))}
    if not told & _CODES:
        # Groq answers 413 when one request alone is above the minute's allowance: waiting won't help.
        alone = re.search(r"request too large for model", message, re.I)
        if not alone and (_NOT.search(message) or not _SAYS.search(message)):
            return None
    tokens = _int(error.get("n_prompt_tokens")) or _first(_TOKENS, message)
    room = _int(error.get("n_ctx")) or _first(_ROOM, message)
    return tokens, room


def _first(patterns: tuple[re.Pattern[str], ...], message: str) -> int:
    for pattern in patterns:
        if found := pattern.search(message):
            return int(next(group for group in found.groups() if group).replace(",", "").replace("_", ""))
    return 0


def _int(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
