"""The meaning of an endpoint's refusal as an error, with what to do about it.

`failure` reads status, headers and body. It recognizes that the endpoint lacks an ability (`Unsupported`), the prompt
is too long (`ContextOverflow`), the key was refused (`AuthenticationError`), the endpoint asks to wait (`RateLimited`)
or the server failed (`ServerFailed`). All other refusals are a `BadRequest`. No message ever holds a secret.
"""

from __future__ import annotations

import re
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
from plait.models.wires.error_bodies import error_of, named_paths, read_retry_after, read_retry_delay, read_sentence
from plait.models.wires.overflow import find_overflow, limits_field
from plait.models.wires.rejected_fields import OMITTABLE, find_missing_ability
from plait.models.wires.stream import scrub_pieces


class Target(Struct, frozen=True):
    """The endpoint and the model of a request, and the variables of its key and address. For messages.

    `user_set` are the abilities whose fields the user set. Plait never leaves these out. `proxy` is the proxy that may
    have answered in the endpoint's place.
    """

    endpoint: str
    name: str
    key_env: str = ""
    base_env: str = ""
    secrets: tuple[str, ...] = ()
    user_set: frozenset[str] = frozenset()
    proxy: str = ""

    @property
    def where(self) -> str:
        """Return the endpoint and the model, with the proxy."""
        return f"{self.endpoint} ({self.name}){f' through the proxy {self.proxy}' if self.proxy else ''}"

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


_FILTERED = re.compile(
    r"content[_ ](?:filter|policy|management)|responsible_?ai|data_inspection_failed|invalid_prompt"
    r"|unsafe or sensitive content|requires moderation|was flagged|considered high risk|content exists risk",
    re.I,
)
"""How Azure, OpenAI, DashScope, Z.AI, OpenRouter, Moonshot and DeepSeek say that a content filter refused a prompt."""
_QUOTA = re.compile(
    r"insufficient[ _](?:quota|balance|credit)|your current (?:token )?quota|exceeded_current_quota|out of credit"
    r"|reached your usage limit|used all available credits",
    re.I,
)
_NO_CREDIT = re.compile(r"credit balance is too low", re.I)
"""How Anthropic says so, with 400."""
_BAD_KEY = re.compile(r"API key (?:not valid|not found|expired)|API_KEY_(?:INVALID|EXPIRED)|incorrect API key", re.I)
"""How Google and xAI refuse a key, with 400."""
_UNREADABLE = ("tool_use_failed", "json_validate_failed")
"""Groq's codes, if it cannot read the model's call or JSON."""

_REFUSES_MODEL = re.compile(
    r"model[_ ](?:not[_ ](?:found|exist)|decommissioned|unavailable)|\bno such model|unknown model|unsupported_model"
    r"|not a valid model|\bmodel\b[^.]{0,80}(?:does not exist|not (?:found|exist)|has been (?:deprecated|decommissioned"
    r"|retired|removed)|is not available|no longer (?:available|supported))|invalid[_ ]model",
    re.I,
)
"""How hosts refuse the model itself with 400: they do not know it, or they have retired it."""


MOST_TOOLS = 128
"""How many tools OpenAI takes in a request, and most gateways."""
_TOO_MANY_TOOLS = re.compile(
    r"'tools': array too long|(?:too many|number of|(?:more than|maximum of|at most) \d+) tools\b"
    r"|tools? (?:count|limit) exceed",
    re.I,
)
_FEWER_TOOLS = f"Show the most relevant tools, and a search that finds the others: --max-tools {MOST_TOOLS}."

_RETRIED = frozenset({408, 409, 425, 498})
"""Statuses below 500 of a request that may succeed later. Groq says with 498 that its flex tier has no capacity."""


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
    """Return the error for an answer of `status` with `body`, with `response` set on it. `asked` is the request's body:
    an ability can only be missing if the request used it."""
    error = error_of(body)
    refusal = _Refusal(status, error, read_sentence(error, body), target, asked, path, headers or {})
    made = next(filter(None, (read(refusal) for read in _RULES)), None) or _as_bad_request(refusal)
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
        said = read_sentence(fields, b"")
        stated = 402 if _QUOTA.search(said) else 404 if _REFUSES_MODEL.search(said) else 500
        status = next((status for word, status in kinds.items() if word in kind), stated)
    body = msgspec.json.encode({"error": fields})
    return failure(status, body, target, asked=asked, response=response)


class _Refusal(Struct, frozen=True):
    """An endpoint's refusal. `said` is its sentence, `code` its code or type, `after` the seconds it asks to wait."""

    status: int
    error: Mapping[str, Any]
    said: str
    target: Target
    asked: bytes
    path: str
    headers: Mapping[str, str]

    @property
    def code(self) -> str:
        return str(self.error.get("code") or self.error.get("type") or "")

    @property
    def after(self) -> float | None:
        asked = read_retry_after(self.headers)
        return read_retry_delay(self.error) if asked is None else asked

    @property
    def where(self) -> str:
        return self.target.where

    @property
    def clean_sentence(self) -> str:
        return self.target.clean(self.said)

    @property
    def message_end(self) -> str:
        """Return the end of a message: the endpoint's words, if it sent any."""
        end = "" if self.clean_sentence.endswith((".", "!", "?")) else "."
        return f": {self.clean_sentence}{end}" if self.clean_sentence else "."

    @property
    def rejected_ability(self) -> str:
        """Return the ability that the endpoint rejects, "" for none."""
        if self.status in _RETRIED:
            return ""
        found = find_missing_ability(self.status, self.error, self.said, self.asked, self.path)
        return found if found in OMITTABLE or not limits_field(self.said, self.error) else ""

    def says(self, pattern: re.Pattern[str]) -> bool:
        return pattern.search(f"{self.code} {self.said}") is not None


def _as_account_error(refusal: _Refusal) -> ModelError | None:
    """The account has no credit, or its key is refused."""
    status, target = refusal.status, refusal.target
    of_key = f" in {target.key_env}" if target.key_env else " of the endpoint"
    meta = refusal.error.get("metadata")
    if status == 402 and isinstance(meta, dict) and "in_flight" in str(meta.get("limit_source")):
        return _as_rate_limit(refusal)  # of OpenRouter, for the price of what runs at once
    # Google says "current quota" of the limit of a minute, too; then it says how long to wait.
    is_spent = status in (403, 429) and read_retry_delay(refusal.error) is None and refusal.says(_QUOTA)
    if status == 402 or is_spent or (status == 400 and refusal.says(_NO_CREDIT)):
        hint = "Top it up or use another model."
        return AuthenticationError(
            f"{refusal.where} says that the account has no credit left{refusal.message_end}", hint=hint
        )
    if status == 401 or (status == 400 and (refusal.says(_BAD_KEY) or _BAD_KEY.search(str(refusal.error)))):
        hint = f"Check the key{of_key}."
        if not target.secrets:
            hint = "No key was sent; set key or key_env of the endpoint."
            hint = f"No key was sent; set {target.key_env} in the environment." if target.key_env else hint
        return AuthenticationError(f"{refusal.where} refused the key ({status}){refusal.message_end}", hint=hint)
    if status == 403 and not refusal.says(_FILTERED) and find_overflow(refusal.said, refusal.error) is None:
        hint = f"Check what the key{of_key} may use: its permissions, the model, your region."
        return AuthenticationError(f"{refusal.where} refused access (403){refusal.message_end}", hint=hint)
    return None


def _as_overflow(refusal: _Refusal) -> ModelError | None:
    """The prompt is too long. Any 413 says so: showing less is what helps. A stop string may be too long as well."""
    if refusal.status not in (400, 403, 413, 422, 500) or refusal.rejected_ability in OMITTABLE:
        return None
    if refusal.status != 413 and limits_field(refusal.said, refusal.error):
        return None
    found = find_overflow(refusal.said, refusal.error) or ((0, 0) if refusal.status == 413 else None)
    if found is None:
        return None
    tokens, room = found
    numbers = f" ({tokens or '?'} tokens, room for {room or '?'})" if tokens or room else ""
    return ContextOverflow(
        f"The prompt is too long for {refusal.where}{numbers}{refusal.message_end}",
        hint="Show less, or use a model with a longer context.",
        tokens=tokens,
        room=room,
    )


def _as_too_many_tools(refusal: _Refusal) -> ModelError | None:
    """Some gateways say so with 429: waiting does not help."""
    if refusal.status not in (400, 422, 429) or not refusal.says(_TOO_MANY_TOOLS):
        return None
    return BadRequest(f"{refusal.where} takes fewer tools{refusal.message_end}", hint=_FEWER_TOOLS)


def _as_rate_limit(refusal: _Refusal) -> ModelError | None:
    if refusal.status not in (402, 429):
        return None
    wait = f", asks to wait {refusal.after:g} s" if refusal.after is not None else ""
    return RateLimited(
        f"{refusal.where} asks to slow down ({refusal.status}){wait}{refusal.message_end}",
        hint="Limit the requests per minute in plait.toml, or name a fallback model: a|b.",
        after=refusal.after,
    )


def _as_filtered(refusal: _Refusal) -> ModelError | None:
    if refusal.status not in (400, 403, 422) or not refusal.says(_FILTERED):
        return None
    return ContentFiltered(
        f"The content filter of {refusal.where} refused the request ({refusal.status}){refusal.message_end}",
        hint="Ask in other words, or use another model.",
    )


def _as_failed_generation(refusal: _Refusal) -> ModelError | None:
    """The model wrote something that the endpoint could not read. Asking again may help."""
    if refusal.code not in _UNREADABLE:
        return None
    return BadResponse(f"{refusal.where} could not read what the model wrote ({refusal.status}){refusal.message_end}")


def _as_missing_ability(refusal: _Refusal) -> ModelError | None:
    """The endpoint rejects a part of the request: `Unsupported` if Plait can do without it, else the error."""
    ability = refusal.rejected_ability
    message = f"{refusal.where} rejects {ability!r} ({refusal.status}){refusal.message_end}"
    if ability in refusal.target.user_set:
        return BadRequest(message, hint=f"Plait never leaves out what you set. Change or remove your {ability!r}.")
    if ability == "schema":
        hint = "Do without it (--set constrain=false), or say in plait.toml that the model takes none: "
        return BadRequest(message, hint=f'{hint}[abilities."{refusal.target.name}"] schema = false.')
    return Unsupported(message, ability, refusal.clean_sentence) if ability else None


def _as_server_error(refusal: _Refusal) -> ModelError | None:
    if refusal.status < 500 and refusal.status not in _RETRIED:
        return None
    hint = "Try again later, or name a fallback model: a|b."
    if refusal.asked.count(b'"description":') > MOST_TOOLS and len(_tools_of(refusal.asked)) > MOST_TOOLS:
        hint += f" The request shows more than {MOST_TOOLS} tools. {_FEWER_TOOLS}"
    made = ServerFailed(f"{refusal.where} failed ({refusal.status}){refusal.message_end}", hint=hint)
    made.after = refusal.after
    return made


def _tools_of(asked: bytes) -> list[Any]:
    try:
        sent = msgspec.json.decode(asked)
    except msgspec.DecodeError:
        return []
    tools = sent.get("tools") if isinstance(sent, dict) else None
    return tools if isinstance(tools, list) else []


def _as_redirect(refusal: _Refusal) -> ModelError | None:
    if not 300 <= refusal.status < 400:
        return None
    target = refusal.target
    location = target.clean(refusal.headers.get("Location", "")) or "another address"
    hint = f"Set that address{_name_setting(target)} if you trust it."
    return BadRequest(f"{refusal.where} redirects to {location} ({refusal.status}).", hint=hint)


def _as_unknown(refusal: _Refusal) -> ModelError | None:
    """The endpoint does not know the model or the address."""
    target, path = refusal.target, refusal.path or "chat/completions"
    is_model = refusal.says(_REFUSES_MODEL) or (refusal.status == 404 and "model" in refusal.said.lower())
    if not is_model and refusal.status != 404:
        return None
    if is_model:
        hint = f"Check the name {target.name!r}; a local server must have that model loaded."
    else:
        hint = f"Check the address{_name_setting(target)}: /{path} is put behind it."
        if path == "responses":
            hint += ' For a server without it, set wire = "chat" in plait.toml.'
    if refusal.status != 404:
        what = "refused the request"
    else:
        what = f"has no model {target.name!r}" if is_model else f"has nothing at /{path}"
    unknown = BadRequest(f"{refusal.where} {what} ({refusal.status}){refusal.message_end}", hint=hint)
    unknown.allows_fallback = True
    return unknown


_RULES = (
    _as_account_error,
    _as_overflow,
    _as_too_many_tools,
    _as_rate_limit,
    _as_filtered,
    _as_failed_generation,
    _as_missing_ability,
    _as_server_error,
    _as_redirect,
    _as_unknown,
)
"""The meanings of a refusal, in the order in which they are tried."""


def _as_bad_request(refusal: _Refusal) -> ModelError:
    hint = "`plait show RUN --wire` shows the request." if refusal.asked else ""
    field = next(named_paths(refusal.error), "")
    named = f" It names the field {refusal.target.clean(field)}." if field and field not in refusal.said else ""
    return BadRequest(f"{refusal.where} refused the request ({refusal.status}){refusal.message_end}{named}", hint=hint)


def bad_response(message: str, body: bytes, target: Target, response: Response | None) -> BadResponse:
    """Return a `BadResponse` that shows the beginning of the body."""
    start = target.clean(" ".join(body[:2000].decode("utf-8", "replace").split()))[:200]
    shown = f" It begins: {start}" if start else " Nothing came."
    hint = ""
    if start.startswith("<"):
        hint = f"That is a web page; check the address{_name_setting(target)}."
    made = BadResponse(f"{target.where} {message}{shown}", hint=hint)
    made.response = response
    return made


def _name_setting(target: Target) -> str:
    return f" ({target.base_env})" if target.base_env else " (base_url)"
