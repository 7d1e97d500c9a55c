"""The hook `redact`: removes personal data from what models are sent."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from msgspec import structs

from plait.core import Message, Think
from plait.core.errors import ConfigError
from plait.core.messages import map_texts
from plait.core.text import suggest
from plait.runtime.calls.context import Context
from plait.runtime.hooks import Hook

_PATTERNS = {
    "email": r"(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+",
    "iban": r"(?<!\w)[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?(?!\w)",
    "card": r"(?<![\w.])(?:\d[ -]?){12,18}\d(?![\w.]*\d)",
    "phone": r"(?<![\w.])\+\d{1,3}[ ./-]?(?:\(\d{1,5}\)|\d{1,5})(?:[ ./-]?\d{2,5}){2,5}(?!\w)",
    "ip": r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w.]*\d)",
}
KINDS = tuple(_PATTERNS)


class RedactPersonalData(Hook):
    """Replaces personal data in each request to a model by a placeholder, such as `[email 1]`.

    The same value gets the same placeholder in all requests of a run. A run that goes on in another process numbers
    anew, in the order of its next request. `kinds`: "email", "iban" (with valid check digits), "card" (payment cards,
    with a valid check digit), "phone" (international form, with `+`) and "ip"; none for all. `patterns` maps further
    kinds to regular expressions. Names of people are not found. The model cannot use the values; the journal has the
    tools' results as they are, and the request as it was sent. Raises `ConfigError` for an unknown kind or an invalid
    expression.
    """

    def __init__(self, *kinds: str, patterns: Mapping[str, str] | None = None) -> None:
        for kind in kinds:
            if kind not in _PATTERNS:
                hint = suggest(kind, KINDS, f"Kinds: {', '.join(KINDS)}.")
                raise ConfigError(f"{kind!r} is not a kind of personal data.", hint=hint)
        if not isinstance(patterns, Mapping | None) or not all(
            isinstance(each, str) for each in (patterns or {}).values()
        ):
            hint = 'Give names and regular expressions, such as {"customer": r"C-\\d{5}"}.'
            raise ConfigError(f"RedactPersonalData(patterns={patterns!r}) is invalid.", hint=hint)
        own = dict(patterns or {})
        self._kinds, self._own = kinds or KINDS, own
        known = {**{kind: each for kind, each in _PATTERNS.items() if kind in self._kinds}, **own}
        try:
            self._expressions = {kind: re.compile(each) for kind, each in known.items()}
        except re.error as why:
            raise ConfigError(f"RedactPersonalData(patterns={own!r}) is invalid: {why}.") from why

    @property
    def name(self) -> str:
        own = [f"{kind}={pattern}" for kind, pattern in self._own.items()]
        return f"redact:{','.join([*self._kinds, *own])}"

    def before_model(self, context: Context[Any], request: Think) -> Think | None:
        redact = _placeholders_of(self, context.run_id).redact
        messages = tuple(_redact_message(each, redact) for each in request.messages)
        prompt, prefill = redact(request.prompt), redact(request.prefill)
        return structs.replace(request, messages=messages, prompt=prompt, prefill=prefill)


class _Placeholders:
    """The placeholders of one run: numbered by kind, in the order in which the values come."""

    def __init__(self, expressions: Mapping[str, re.Pattern[str]]) -> None:
        self._expressions = expressions
        self._known: dict[str, dict[str, str]] = {kind: {} for kind in expressions}

    def redact(self, text: str) -> str:
        for kind, expression in self._expressions.items():
            text = expression.sub(lambda found, kind=kind: self._replace(kind, found[0]), text)  # type: ignore[misc]
        return text

    def _replace(self, kind: str, value: str) -> str:
        if not _CHECKS.get(kind, bool)(value):
            return value
        known = self._known[kind]
        return known.setdefault(value, f"[{kind} {len(known) + 1}]")


@lru_cache(maxsize=1000)
def _placeholders_of(hook: RedactPersonalData, run_id: str) -> _Placeholders:
    return _Placeholders(hook._expressions)


def _redact_message(message: Message, redact: Callable[[str], str]) -> Message:
    content = redact(message.content)
    calls = tuple(structs.replace(call, input=map_texts(call.input, redact, keys=True)) for call in message.calls)
    if content == message.content and calls == message.calls:
        return message
    # State that a provider wants back unchanged may hold the same data.
    return structs.replace(message, content=content, calls=calls, state=None)


def _is_card(value: str) -> bool:
    """Return whether a number has the check digit of payment cards (Luhn)."""
    digits = [int(each) for each in value if each.isdigit()][::-1]
    doubled = (sum(divmod(2 * digit, 10)) for digit in digits[1::2])
    return (sum(digits[::2]) + sum(doubled)) % 10 == 0 and len(set(digits)) > 1


def _is_iban(value: str) -> bool:
    """Return whether an account number has the right check digits (ISO 13616)."""
    plain = value.replace(" ", "")
    return int("".join(str(int(each, 36)) for each in plain[4:] + plain[:4])) % 97 == 1


_CHECKS: dict[str, Callable[[str], bool]] = {
    "card": _is_card,
    "iban": _is_iban,
    "ip": lambda value: all(int(part) < 256 for part in value.split(".")),
}
