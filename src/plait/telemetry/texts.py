"""Texts on their way out: without secrets, and as UTF-8 can hold them."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from plait.core.text import shorten
from plait.runtime.tracing import Scrub
from plait.telemetry.messages import MOST, text


class Texts:
    """Makes values fit to leave the process. `content`: what was asked and said may leave it as well."""

    def __init__(self, scrub: Scrub, *, content: bool) -> None:
        self._scrub = scrub
        self.content = content

    def plain(self, words: str) -> str:
        """Words without secrets; long ones shortened."""
        clean = self._scrub(words.encode("utf-8", "replace")).decode("utf-8", "replace")
        return shorten(clean, MOST)[0] if len(clean) > MOST else clean

    def words(self, words: str) -> str | None:
        """The same for an error's words, which may quote content: None where that stays here."""
        return self.plain(words) if self.content else None

    def value(self, value: Any) -> Any:
        """An attribute's value."""
        if isinstance(value, str):
            return self._scrub(value.encode("utf-8", "replace")).decode("utf-8", "replace")
        if isinstance(value, (list, tuple)):
            return [self.value(each) for each in value]
        return value

    def json(self, value: Any) -> str:
        """A value as JSON. Secrets go before long texts are shortened: half of one would not be found."""
        try:
            whole = msgspec.json.encode(value, enc_hook=str)
        except UnicodeEncodeError:  # half a surrogate pair
            whole = json.dumps(value, default=str).encode()
        raw = self._scrub(whole)
        try:
            return text(msgspec.json.decode(raw))
        except msgspec.DecodeError:  # a secret that was no text
            return self.plain(raw.decode("utf-8", "replace"))

    def body(self, raw: bytes) -> dict[str, Any]:
        """A request's body, read; empty where it can't be."""
        try:
            found = msgspec.json.decode(self._scrub(raw))
        except msgspec.DecodeError:
            return {}
        return found if isinstance(found, dict) else {}
