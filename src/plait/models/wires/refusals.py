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
from plait.models.wires.error_bodies import error_of, read_retry_delay, read_sentence
from plait.models.wires.overflow import find_overflow
from plait.models.wires.rejected_fields import find_missing_ability
from plait.models.wires.stream import scrub_pieces


class Target(Struct, frozen=True):
    """The endpoint and the model of a request, and the variables of its key and address. For messages.

    `user_set` are the abilities whose fields the user set. Plait never leaves these out.
    """

    endpoint: str
    name: str
    key_env: str = ""
    base_env: str = ""
    secrets: tuple[str, ...] = ()
    user_set: frozenset[str] = frozenset()

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
    """Return the error for an answer of `status` with `body`, with `response` set on it.

    `asked` is the request's body: an ability can only be missing if the request used it.
    """
    error = error_of(body)
    made = _classify(status, error, read_sentence(error, body), target, asked, path, headers or {})
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
    after = retry_after(headers) if status != 429 else retry_after(headers) or read_retry_delay(error)
    # Google says "current quota" of the limit of a minute, too; then it says how long to wait.
    spent = status in (403, 429) and not read_retry_delay(error) and _QUOTA.search(f"{code} {said}")
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
    if status in (400, 413, 422, 500) and (found := find_overflow(said, error)):
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
    is_retried = status in _RETRIED
    if not is_retried and (ability := find_missing_ability(status, error, said, asked, path)):
        return _lacks(ability, f"{where} rejects {ability!r} ({status}){quoted}", shown, target)
    if status >= 500 or is_retried:
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


def _lacks(ability: str, message: str, said: str, target: Target) -> ModelError:
    """Return `Unsupported` for what Plait can leave out or write in another way, an error for all else."""
    if ability in target.user_set:
        return BadRequest(message, hint=f"Plait never leaves out what you set. Change or remove your {ability!r}.")
    if ability == "schema":
        hint = "Do without it (--set constrain=false), or say in plait.toml that the model takes none: "
        return BadRequest(message, hint=f'{hint}[abilities."{target.name}"] schema = false.')
    return Unsupported(message, ability, said)


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
