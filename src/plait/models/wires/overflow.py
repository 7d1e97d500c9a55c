"""Prompts that are too long, in the words of each server."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from plait.models.presets import OVERFLOWS
from plait.models.wires.error_bodies import named_paths

# Every server words it differently; these wordings come from the public issue trackers of
# clients and servers. Those of one host are in the presets. With an unknown wording the error stays a `BadRequest`.
_OVERFLOW_CODES = {
    *("context_length_exceeded", "exceed_context_size_error", "string_above_max_length"),
    "request_too_large",  # Anthropic's body of more than 32 MB
}

_SAYS = re.compile(
    r"""
    maximum\ (?:context|model|prompt|sequence)\ length | max(?:imum)?\ length | model's\ context\ length
    | context[ _](?:length|window|size|limit)[ _]?(?:\w+\ ){0,3}(?:exceed|is\ full|overflow|of\ only)
    | exceeds?\ (?:the\ )?(?:available\ |model'?s?\ |max\ )?context | exceed(?:ed|s)?\ max\ context
    | prompt\ too\ long | input\ is\ too\ long
    | greater\ than\ the\ context\ length | longer\ than\ the\ (?:model'?s\ |maximum\ )?(?:context|model)
    | reduce\ the\ length\ of\ the\ (?:messages|prompt|input)
    | exceeded\ model\ token\ limit | too\ many\ tokens | token\ limit\ exceeded
    | exceed\ context\ window | input\ token\ length\ too\ long
    | max_tokens\ must\ be\ at\ least\ 1,\ got\ -  # vLLM: the prompt leaves less than no room
    | must\ be\ less\ than\ the\ context\ length
    """,
    re.X | re.I | re.S,
)
# What says that one field is too long, and how messages name the field: in quotes, or before a colon.
_TOO_LONG = re.compile(
    r"too[ _]long|above_max_length|max(?:imum)?(?:[ _]\w+)?[ _]length"
    r"|(?:at most|(?:more|longer) than|up to|exceeds?|maximum)\D{0,20}\d[\d,]* (?:unicode )?(?:char|item|element|entr)",
    re.I,
)
_OF_PROMPT = re.compile(r"\btokens\b|context[ _](?:length|window|size)", re.I)
_PATH = r"[A-Za-z_]\w*(?:\.\w+|\[\w*\])+"
_FIELDS = tuple(map(re.compile, (rf"['\"`]({_PATH})['\"`]", rf"(?:^|[^\w.])({_PATH}):", r"['`]([A-Za-z_]\w*)['`]")))
_CONTENT = {
    *("messages", "content", "contents", "parts", "text", "input", "output", "prompt", "instructions", "system"),
    *("system_instruction", "systemInstruction"),
}

_SAYS_HOST = re.compile(OVERFLOWS, re.I | re.S)
_NOT = re.compile(r"completion tokens|too many tokens per|tokens per (?:minute|day|hour)|per-minute", re.I)


# N# is the number. Patterns are compiled when they are needed, not at import.
_ROOM = (
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
_TOKENS = (
    r"resulted in N# tokens",
    r"has N# input tokens",
    r"passed N# input tokens",
    r"\(N# (?:in|of) (?:the |your )?(?:messages|prompt|text)",
    r"requested (?:a total of |about )?N# tokens",
    r"requested tokens \(N#",
    r"too long:? \(?N#",
    r"exceed context limit: N#",
    r"token count \(N#",
    r"request \(N# tokens",
    r"request contains N#",
    r"(?:input|prompt) \(N# tokens",
    r"prompt \(length N#",
    r"prompt contains N#",
    r"given: N#",
    r"Requested:? N#",
    r"input length \(N#",
)


def find_overflow(message: str, error: Mapping[str, Any]) -> tuple[int, int] | None:
    """Return (tokens of the prompt, room of the endpoint) if this error says that the prompt is too long; else None.
    `message` is the error's sentence, `error` its other fields. A missing number is 0."""
    if not {str(error.get("code")), str(error.get("type"))} & _OVERFLOW_CODES:
        # Groq answers 413 when one request alone is above the minute's allowance: waiting won't help.
        alone = re.search(r"request too large for model", message, re.I)
        says = _SAYS.search(message) or _SAYS_HOST.search(message)
        if not alone and (_NOT.search(message) or not says):
            return None
    tokens = _int(error.get("n_prompt_tokens")) or _find_number(_TOKENS, message)
    room = _int(error.get("n_ctx")) or _find_number(_ROOM, message)
    return tokens, room


def limits_field(message: str, error: Mapping[str, Any]) -> bool:
    """Return whether this error says that a field without content is too long: showing less does not help."""
    if _OF_PROMPT.search(message) or not _TOO_LONG.search(f"{error.get('code')} {error.get('type')} {message}"):
        return False
    found = next(filter(None, (pattern.search(message) for pattern in _FIELDS)), None)
    path = next(named_paths(error), found[1] if found else "")
    names = [name for name in re.findall(r"[A-Za-z_]\w*", path) if name != "str"]
    return bool(names) and names[-1] not in _CONTENT


def _find_number(patterns: tuple[str, ...], message: str) -> int:
    for pattern in patterns:
        if found := re.search(pattern.replace("N#", r"(\d[\d,_]*)"), message, re.I | re.S):
            return int(found[1].replace(",", "").replace("_", ""))
    return 0


def _int(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
