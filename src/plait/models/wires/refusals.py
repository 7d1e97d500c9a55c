"""The meaning of an endpoint's refusal as an error, with what to do about it.

`failure` reads status, headers and body. It recognizes that the endpoint lacks an ability (`Unsupported`), the prompt
is too long (`ContextOverflow`), the key was refused (`AuthenticationError`), the endpoint asks to wait (`RateLimited`)
or the server failed (`ServerFailed`). All other refusals are a `BadRequest`. No message ever holds a secret.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from plait.core.errors import (
    AuthenticationError,
    BadRequest,
    BadResponse,
    ContentFiltered,
    ContextOverflow,
    ModelError,
    RateLimited,
    ServerFailed,
    Unsupported,
)
from plait.core.secrets import Scrubber, scrubber_of
from plait.models.base import Response
from plait.models.presets import OVERFLOWS
from plait.models.wires.stream import scrub_pieces


class Target(Struct, frozen=True):
    """The endpoint and the model of a request, and the variables of its key and address. For messages."""

    endpoint: str
    name: str
    key_env: str = ""
    base_env: str = ""
    secrets: tuple[str, ...] = ()

    def clean(self, text: str) -> str:
        """Return the text without any secret."""
        return self.scrubber.text(text)

    def clean_bytes(self, body: bytes) -> bytes:
        """Return the body without any secret, even one that a stream carries in pieces."""
        return scrub_pieces(self.scrubber(body), self.scrubber)

    @property
    def scrubber(self) -> Scrubber:
        """Return what removes the endpoint's secrets."""
        return scrubber_of(self.secrets)


# A part of the request, the ability behind it, and its name in messages.
_PARTS = (
    ("stop", "stop", r"stop(?:_?sequences)?"),
    ("stop_sequences", "stop", r"stop_sequences"),
    ("stopSequences", "stop", r"stop_?sequences"),
    ("temperature", "temperature", r"temperature"),
    ("max_tokens", "max_tokens", r"max_tokens"),
    ("response_format", "schema", r"response_format|json_schema|structured outputs?"),
    ("json_schema", "schema", r"json_schema"),
    ("text.format", "schema", r"text\.format|json_schema|structured outputs?"),
    ("output_config", "schema", r"output[_. ](?:config|format)|structured outputs?|json_schema"),
    ("responseJsonSchema", "schema", r"response_?(?:json_?)?(?:schema|mime_?type)|response mime type|json mode"),
    ("grammar", "grammar", r"grammar"),
    ("structured_outputs", "grammar", r"structured_outputs|grammar"),
    ("tools", "tools", r"tools?|tool[_ ](?:choice|use|calling)|function calling"),
    ("stream_options", "stream_usage", r"stream_options|include_usage"),
    ("stream", "stream", r"stream(?:ing)?"),
    ("continue_final_message", "prefill", r"continue_final_message|add_generation_prompt"),
)
_REFUSES = re.compile(
    r"unsupported|not (?:currently )?support|n't support|unrecogni[sz]ed|unknown|unexpected|not permitted"
    r"|not allowed|extra (?:inputs|fields)|not available|not enabled|not implemented|no endpoints found"
    r"|requires -|must be verified|failed to (?:parse|initialize)|invalid (?:schema|parameter|field)"
    r"|remove it|deprecated for this model",
    re.I,
)
_PREFILL = re.compile(
    r"prefill|must end with a user|last (?:message|role).{0,40}(?:user|assistant)|last role|\bprefix\b",
    re.I,
)
# A failing server sends many texts; only these of a 5xx concern the request.
_REFUSES_5XX = re.compile(r"requires -|not support|n't support|not implemented|failed to parse grammar", re.I)
_FILTERED = re.compile(
    r"content[_ ](?:filter|policy|management)|responsible_?ai|data_inspection_failed|invalid_prompt"
    r"|unsafe or sensitive content|requires moderation",
    re.I,
)
"""How Azure, OpenAI, DashScope, Z.AI and OpenRouter describe a prompt that their content filter refused."""
_QUOTA = re.compile(r"insufficient[ _](?:quota|balance|credit)|your current quota|out of credit", re.I)
_NO_CREDIT = re.compile(r"credit balance is too low", re.I)
"""How Anthropic says so, with 400."""
_BAD_KEY = re.compile(r"API key (?:not valid|not found|expired)|API_KEY_(?:INVALID|EXPIRED)", re.I)
"""How Google refuses a key, with 400."""

_REFUSES_MODEL = re.compile(
    r"model[_ ](?:not[_ ](?:found|exist)|decommissioned|unavailable)|\bno such model|unknown model|unsupported_model"
    r"|not a valid model|\bmodel\b[^.]{0,80}(?:does not exist|not (?:found|exist)|has been (?:deprecated|decommissioned"
    r"|retired|removed)|is not available|no longer (?:available|supported))|invalid model (?:name|id)",
    re.I,
)
"""How hosts refuse the model itself with 400: they do not know it, or they have retired it."""


def failure(
    status: int,
    body: bytes,
    target: Target,
    *,
    asked: bytes = b"",
    path: str = "",
    headers: Mapping[str, str] | None = None,
    response: Response | None = None,
) -> ModelError:
    """Return the error for an answer of `status` with `body`, with `response` set on it.

    `asked` is the request's body: an ability can only be missing if the request used it.
    """
    error = error_of(body)
    made = _classify(status, error, _sentence(error, body), target, asked, path, headers or {})
    made.response = response
    return made


def failure_in_stream(error: Any, target: Target, *, asked: bytes, response: Response | None) -> ModelError:
    """Return the error for an error object inside a body of status 200."""
    fields = error if isinstance(error, dict) else {"message": str(error)}
    code = str(fields.get("code"))
    kind = f"{fields.get('type')} {code}".lower()
    if code.isdecimal() and 400 <= int(code) < 600:
        status = int(code)
    else:
        kinds = {
            "rate_limit": 429,
            "invalid": 400,
            "context": 400,
            "auth": 401,
            "permission": 401,
            "billing": 402,
            "not_found": 404,
            "too_large": 413,
            "timeout": 504,
            "overloaded": 529,
        }
        status = next((status for word, status in kinds.items() if word in kind), 500)
    body = msgspec.json.encode({"error": fields})
    return failure(status, body, target, asked=asked, response=response)


def _classify(
    status: int,
    error: Mapping[str, Any],
    said: str,
    target: Target,
    asked: bytes,
    path: str,
    headers: Mapping[str, str],
) -> ModelError:
    where = f"{target.endpoint} ({target.name})"
    shown = target.clean(said)
    end = "" if shown.endswith((".", "!", "?")) else "."
    quoted = f": {shown}{end}" if shown else "."
    code = str(error.get("code") or error.get("type") or "")
    after = retry_after(headers) if status != 429 else retry_after(headers) or _delay_in(error)
    # Google says "current quota" of the limit of a minute, too; then it says how long to wait.
    spent = status in (403, 429) and not _delay_in(error) and _QUOTA.search(f"{code} {said}")
    if status == 402 or spent or (status == 400 and _NO_CREDIT.search(said)):
        hint = "Top it up or use another model."
        return AuthenticationError(f"{where} says that the account has no credit left{quoted}", hint=hint)
    if status == 400 and _BAD_KEY.search(f"{said} {error.get('details')}"):
        hint = f"Check the key in {target.key_env or 'the environment'}."
        return AuthenticationError(f"{where} refused the key ({status}){quoted}", hint=hint)
    if status in (401, 403) and not _FILTERED.search(f"{code} {said}"):
        if status == 401 and not target.secrets:
            hint = f"No key was sent; set {target.key_env or 'the key'} in the environment."
        else:
            hint = f"Check the key in {target.key_env or 'the environment'}."
        return AuthenticationError(f"{where} refused the key ({status}){quoted}", hint=hint)
    if status in (400, 413, 422, 500) and (found := _find_overflow(said, error)):
        tokens, room = found
        numbers = f" ({tokens or '?'} tokens, room for {room or '?'})" if tokens or room else ""
        hint = "Show less, or use a model with a longer context."
        return ContextOverflow(
            f"The prompt is too long for {where}{numbers}{quoted}", hint=hint, tokens=tokens, room=room
        )
    if status == 429:
        wait = f", asks to wait {after:g} s" if after is not None else ""
        return RateLimited(f"{where} asks to slow down (429){wait}{quoted}", after=after)
    if status in (400, 403, 422) and _FILTERED.search(f"{code} {said}"):
        return ContentFiltered(f"The content filter of {where} refused the request ({status}){quoted}")
    if status not in (408, 409, 425) and (ability := _find_missing_ability(status, error, said, asked, path)):
        return Unsupported(f"{where} can't do {ability!r}{quoted}", ability)
    if status >= 500 or status in (408, 409, 425):
        made = ServerFailed(f"{where} failed ({status}){quoted}")
        made.after = after
        return made
    if 300 <= status < 400:
        location = target.clean(headers.get("Location", "")) or "another address"
        hint = f"Set that address{_name_setting(target)} if you trust it."
        return BadRequest(f"{where} redirects to {location} ({status}).", hint=hint)
    if status == 404:
        if "model" in said.lower():
            hint = f"Check the name {target.name!r}; a local server must have that model loaded."
        else:
            hint = f"Check the address{_name_setting(target)}: /{path or 'chat/completions'} is put behind it."
            if path == "responses":
                hint += ' For a server without it, set wire = "chat" in plait.toml.'
        unknown = BadRequest(f"{where} does not know what was asked for (404){quoted}", hint=hint)
        unknown.allows_fallback = True
        return unknown
    refused = BadRequest(f"{where} refused the request ({status}){quoted}")
    refused.allows_fallback = _REFUSES_MODEL.search(f"{code} {said}") is not None
    return refused


def _find_missing_ability(status: int, error: Mapping[str, Any], said: str, asked: bytes, path: str) -> str:
    """Return the ability that the endpoint turns out to lack; "" for none."""
    if status in (404, 405, 501) and path == "completions" and "model" not in said.lower():
        return "completion"
    try:
        sent = msgspec.json.decode(asked)
    except msgspec.DecodeError:
        return ""
    if not isinstance(sent, dict):
        return ""
    param = str(error.get("param") or "")
    pattern = _REFUSES_5XX if status >= 500 else _REFUSES
    refuses = pattern.search(f"{error.get('code')} {said}") is not None
    if isinstance(text := sent.get("text"), dict):
        sent = {**sent, **{f"text.{key}": value for key, value in text.items()}}
    for key, ability, _ in _PARTS:
        named = param == key or param.startswith((f"{key}.", f"{key}["))
        if key in sent and named and (refuses or ability == "schema"):
            return ability
    if isinstance(config := sent.get("generationConfig"), dict):
        sent = {**sent, **config}
    if isinstance(config := sent.get("output_config"), dict) and "format" not in config:
        del sent["output_config"]  # it holds no schema
    last = (sent.get("messages") or sent.get("contents") or [{}])[-1]
    if isinstance(last, dict) and last.get("role") in ("assistant", "model") and _PREFILL.search(said):
        return "prefill"
    if not refuses:
        return ""
    for key, ability, words in _PARTS:
        if key in sent and re.search(rf"(?<![a-z_])(?:{words})(?![a-z_])", said, re.I):
            return ability
    return ""


def _delay_in(error: Mapping[str, Any]) -> float | None:
    """Return how many seconds Google's `RetryInfo` asks to wait; None if it is absent."""
    details = error.get("details")
    for each in details if isinstance(details, list) else ():
        delay = each.get("retryDelay") if isinstance(each, dict) else None
        if isinstance(delay, str) and re.fullmatch(r"\d+(\.\d+)?s", delay):
            return float(delay[:-1])
    return None


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return how many seconds the headers ask to wait: given as seconds, as milliseconds, or as an HTTP date."""
    try:
        if "retry-after-ms" in headers:
            return max(0.0, float(headers["retry-after-ms"]) / 1000)
        text = headers.get("Retry-After", "").strip()
        if not text:
            return None
        if re.fullmatch(r"\d+(\.\d+)?", text):
            return float(text)
        from email.utils import parsedate_to_datetime

        return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    except ValueError:
        return None


def bad_response(message: str, body: bytes, target: Target, response: Response | None) -> BadResponse:
    """Return a `BadResponse` that shows the beginning of the body."""
    start = target.clean(" ".join(body[:2000].decode("utf-8", "replace").split()))[:200]
    shown = f" It begins: {start}" if start else " Nothing came."
    hint = ""
    if start.startswith("<"):
        hint = f"That is a web page; check the address{_name_setting(target)}."
    made = BadResponse(f"{target.endpoint} ({target.name}) {message}{shown}", hint=hint)
    made.response = response
    return made


def _name_setting(target: Target) -> str:
    return f" ({target.base_env})" if target.base_env else " (base_url)"


def error_of(body: bytes) -> dict[str, Any]:
    """Return the error object of a body in any of the usual shapes; {} for none."""
    try:
        value = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return {}
    if isinstance(value, list) and value:  # Gemini wraps it in a list
        value = value[0]
    if not isinstance(value, dict):
        return {}
    for key in ("error", "detail", "errors"):
        inner = value.get(key)
        if isinstance(inner, list) and inner and isinstance(inner[0], dict):
            return {"message": _details(inner), **inner[0]}
        if isinstance(inner, dict):
            return inner
        if isinstance(inner, str):
            return {**value, "message": inner}
    return value


def _details(found: list[Any]) -> str:
    # FastAPI's shape: [{"loc": ["body", "stop"], "msg": "Extra inputs are not permitted"}]
    return "; ".join(
        f"{'.'.join(map(str, item.get('loc', ())))}: {item.get('msg', '')}" for item in found if isinstance(item, dict)
    )


def _sentence(error: Mapping[str, Any], body: bytes) -> str:
    message = error.get("message")
    if isinstance(message, dict | list):
        message = msgspec.json.encode(message).decode()
    if not message and "loc" in error:
        message = f"{error.get('loc')}: {error.get('msg')}"
    # OpenRouter passes on the upstream's own words in a field beside its own.
    meta = error.get("metadata")
    if isinstance(meta, dict) and isinstance(meta.get("raw"), str):
        message = f"{message} {meta['raw']}"
    text = str(message) if message else body[:2000].decode("utf-8", "replace")
    return " ".join(text.split())[:600]


# A prompt that is too long. Every server words it differently; these wordings come from the public issue trackers of
# clients and servers. Those of one host are in the presets. With an unknown wording the error stays a `BadRequest`.
_OVERFLOW_CODES = {
    *("context_length_exceeded", "exceed_context_size_error", "string_above_max_length"),
    "request_too_large",  # Anthropic's body of more than 32 MB
}

_SAYS = re.compile(
    r"""
    maximum\ (?:context|model|prompt|sequence)\ length | max(?:imum)?\ length | model's\ context\ length
    | context[ _](?:length|window|size|limit)[ _]?(?:\w+\ )?(?:exceed|is\ full|overflow|of\ only)
    | exceeds?\ (?:the\ )?(?:available\ |model'?s?\ |max\ )?context | exceed(?:ed|s)?\ max\ context
    | prompt\ too\ long | input\ is\ too\ long
    | greater\ than\ the\ context\ length | longer\ than\ the\ (?:model'?s\ |maximum\ )?(?:context|model)
    | reduce\ the\ length\ of\ the\ (?:messages|prompt|input)
    | exceeded\ model\ token\ limit | too\ many\ tokens | token\ limit\ exceeded
    | exceed\ context\ window
    """,
    re.X | re.I | re.S,
)
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
    r"Requested N#",
)


def _find_overflow(message: str, error: Mapping[str, Any]) -> tuple[int, int] | None:
    """Return (tokens of the prompt, room of the endpoint) if this error says that the prompt is too long; else None.

    `message` is the error's sentence, `error` its other fields. A missing number is 0.
    """
    if not {str(error.get("code")), str(error.get("type"))} & _OVERFLOW_CODES:
        # Groq answers 413 when one request alone is above the minute's allowance: waiting won't help.
        alone = re.search(r"request too large for model", message, re.I)
        says = _SAYS.search(message) or _SAYS_HOST.search(message)
        if not alone and (_NOT.search(message) or not says):
            return None
    tokens = _int(error.get("n_prompt_tokens")) or _find_number(_TOKENS, message)
    room = _int(error.get("n_ctx")) or _find_number(_ROOM, message)
    return tokens, room


def _find_number(patterns: tuple[str, ...], message: str) -> int:
    for pattern in patterns:
        if found := re.search(pattern.replace("N#", r"(\d[\d,_]*)"), message, re.I | re.S):
            return int(found[1].replace(",", "").replace("_", ""))
    return 0


def _int(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
