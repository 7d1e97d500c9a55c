"""Keeps keys and passwords out of the journal: whatever form they take in JSON, `[secret]` stands instead."""

from __future__ import annotations

import json
from collections.abc import Iterable
from urllib.parse import quote

MASK = b"[secret]"

SHORTEST = 8
"""Characters a secret must have: shorter ones would be found in ordinary words."""


class Scrubber:
    """Replaces secrets in bytes. Without secrets it hands the bytes back untouched, unscanned."""

    __slots__ = ("_forms",)

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        forms: set[bytes] = set()
        for secret in secrets:
            if len(secret) < SHORTEST:
                continue
            texts = {secret}
            for _ in range(2):  # as JSON escapes it, and as JSON held as text in JSON does
                texts |= {json.dumps(each, ensure_ascii=way)[1:-1] for each in texts for way in (True, False)}
            texts |= {each.replace("/", "\\/") for each in texts}
            forms |= {each.encode("utf-8", "surrogatepass") for each in texts}
            forms.add(quote(secret.encode("utf-8", "surrogatepass"), safe="").encode())
        # The longest first: a secret that holds another must go as a whole.
        self._forms = tuple(sorted(forms, key=lambda form: (-len(form), form)))

    def __bool__(self) -> bool:
        return bool(self._forms)

    def __call__(self, data: bytes) -> bytes:
        """The bytes with every secret replaced by `[secret]`."""
        for form in self._forms:
            if form in data:
                data = data.replace(form, MASK)
        return data
