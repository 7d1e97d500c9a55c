"""The user's function that redacts each text before the journal stores it.

    plait.journal.redact_with(lambda text: EMAIL.sub("[email]", text))

It receives every string of a JSON record or body, and every other body as one text. It must give the same result for
the same text, and must not change its own output, because a replay applies it to the requests that it compares. A
resumed run reads the redacted texts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import TypeAlias

from plait.core.errors import JournalError
from plait.core.secrets import Scrubber, scrubber_of
from plait.user_functions import call_plain, require_plain

Redact: TypeAlias = Callable[[str], str]

_STRING = r'"(?:[^"\\]|\\.)*"'
_RECORD = rf'\A{{"type":\s*{_STRING},\s*"key":\s*{_STRING},\s*"step":\s*-?\d+(?:,\s*"work":\s*{_STRING})?'
"""The beginning of a record: what tells where it belongs, which no text of a user is part of."""
_STRINGS = re.compile(rf'{_RECORD}|"type"\s*:\s*{_STRING}|{_STRING}(?=\s*:)|(?P<value>{_STRING})')
"""The strings of a JSON text. Only strings that are values are in the group."""

_hook: Redact | None = None


def redact_with(function: Redact | None) -> None:
    """Use this function for everything that this process stores in journals from now on; None stops redaction."""
    global _hook
    if function is not None:
        require_plain(function, "of redact_with")
    _hook = function


def is_set() -> bool:
    return _hook is not None


def scrubber(secrets: Iterable[str]) -> Scrubber:
    """Return what is applied to everything that is stored: first secrets are replaced, then the user's function
    runs."""
    return scrubber_of(tuple(secrets)) if _hook is None else RedactingScrubber(secrets, _hook)


class RedactingScrubber(Scrubber):
    """Replace secrets, then redact each text with a function."""

    __slots__ = ("_redact",)

    def __init__(self, secrets: Iterable[str], redact: Redact) -> None:
        super().__init__(secrets)
        self._redact = redact

    def __bool__(self) -> bool:
        return True

    def __call__(self, data: bytes) -> bytes:
        """Return the bytes to store. Raises `JournalError` if the function fails."""
        data = super().__call__(data)
        try:
            text = data.decode()
        except UnicodeDecodeError:  # a picture or other binary data: it has no text
            return data
        try:
            json.loads(text)
        except (ValueError, RecursionError):
            return self._text(text).encode("utf-8", "surrogatepass")
        # Replace text by text and leave all other bytes unchanged, because a replay compares them.
        return _STRINGS.sub(self._replaced, text).encode("utf-8", "surrogatepass")

    def _replaced(self, found: re.Match[str]) -> str:
        if found["value"] is None:  # a field's name, or the beginning of a record
            return found[0]
        before = json.loads(found["value"])
        after = self._text(before)
        return found[0] if after == before else json.dumps(after, ensure_ascii=False)

    def _text(self, text: str) -> str:
        try:
            found = call_plain(self._redact, text)
        except Exception as error:
            raise JournalError(
                f"The redaction function failed, and nothing was stored: {type(error).__name__}: {error}.",
                hint="Correct the function, or remove it from the configuration.",
            ) from error
        if not isinstance(found, str):
            raise JournalError(
                f"The redaction function returned {type(found).__name__} and not text: nothing was stored.",
                hint="Return the text that is to be stored.",
            )
        return found
