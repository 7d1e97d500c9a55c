"""Removes keys and passwords from endpoints' and services' responses, and from stored data: `[secret]` replaces them.

Reading and storing share one rule, so a resumed run reads exactly what the original run read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from functools import lru_cache

from msgspec import Struct

MASK = "[secret]"

SHORTEST = 8
"""Minimum number of characters of a secret. A shorter one would match ordinary words, so it is not replaced."""

_RESERVED = re.compile(rb"[^A-Za-z0-9._~-]")
"""Bytes that a percent sign and two digits replace in an address."""


class Scrubber:
    """Replaces secrets in bytes and text, in every form of JSON or an address. Without secrets, nothing is scanned."""

    __slots__ = ("_forms", "_texts")

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        texts = {secret for secret in secrets if len(secret) >= SHORTEST}
        forms: set[bytes] = set()
        for secret in texts:
            found = {secret}
            for _ in range(2):  # as JSON escapes it, and as JSON held as text in JSON does
                found |= {json.dumps(each, ensure_ascii=way)[1:-1] for each in found for way in (True, False)}
            found |= {each.replace("/", "\\/") for each in found}
            forms |= {each.encode("utf-8", "surrogatepass") for each in found}
            encoded = _RESERVED.sub(lambda byte: b"%%%02X" % byte[0][0], secret.encode("utf-8", "surrogatepass"))
            forms |= {encoded, encoded.replace(b"%2F", b"/")}
        # The longest first: a secret that contains another must be replaced as a whole.
        self._forms = tuple(sorted(forms, key=lambda form: (-len(form), form)))
        self._texts = tuple(sorted(texts, key=lambda text: (-len(text), text)))

    def __bool__(self) -> bool:
        return bool(self._forms)

    def __call__(self, data: bytes) -> bytes:
        """Return the bytes with every secret replaced by `[secret]`."""
        for form in self._forms:
            if form in data:
                data = data.replace(form, MASK.encode())
        if b"\\u" in data:
            for text in self._texts:
                for depth in (1, 2):
                    data = _json_pattern(text, depth).sub(MASK.encode(), data)
        return data

    def text(self, text: str) -> str:
        """Return the text with every secret replaced by `[secret]`."""
        return self(text.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass") if self._forms else text

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Return the places of secrets in a text, as (start, end) in characters, in order, without overlap."""
        found: list[tuple[int, int]] = []
        for secret in self._texts:
            at = text.find(secret)
            while at >= 0:
                end = at + len(secret)
                if all(end <= start or at >= stop for start, stop in found):
                    found.append((at, end))
                at = text.find(secret, end)
        return sorted(found)

    def held(self, text: str) -> int:
        """Return how many characters at the end of a text may be the beginning of a secret."""
        longest = 0
        for secret in self._texts:
            for size in range(min(len(secret) - 1, len(text)), longest, -1):
                if text.endswith(secret[:size]):
                    longest = size
                    break
        return longest


class StreamScrubber(Struct):
    """Replaces secrets in a text that arrives in pieces: holds back a possible beginning of one."""

    scrubber: Scrubber
    _rest: str = ""

    def feed(self, text: str) -> str:
        """Return the text that is certain by now."""
        if not self.scrubber:
            return text
        whole = self.scrubber.text(self._rest + text)
        held = self.scrubber.held(whole)
        self._rest = whole[len(whole) - held :]
        return whole[: len(whole) - held]


@lru_cache(maxsize=256)
def scrubber_of(secrets: tuple[str, ...]) -> Scrubber:
    """Return the scrubber of these secrets, which is cached."""
    return Scrubber(secrets)


@lru_cache(maxsize=256)
def _json_pattern(secret: str, depth: int) -> re.Pattern[bytes]:
    """Return a pattern of a secret in JSON (depth 1), or in JSON that is text in JSON (2): some programs escape `+` or
    `=`, and any character may be escaped. No form of a character begins another one, so matching takes linear time."""
    pattern, slashes = "", rf"\\{{1,{2**depth - 1}}}"
    for char in secret:
        plain, units = char, char.encode("utf-16-be", "surrogatepass").hex()
        for _ in range(depth):
            plain = json.dumps(plain, ensure_ascii=False)[1:-1]
        escaped = "".join(rf"{slashes}(?i:u{units[at : at + 4]})" for at in range(0, len(units), 4))
        pattern += f"(?:{re.escape(plain)}|{escaped}" + (f"|{slashes}/)" if char == "/" else ")")
    return re.compile(pattern.encode("utf-8", "surrogatepass"))
