"""A function of the user's that sees each text before the journal stores it.

    plait.journal.redact_with(lambda text: EMAIL.sub("[email]", text))

It is given every string of a record, a head, an outcome and a request or response in JSON, and every other body as one
text. It must give the same result for the same text, and leave a text that it has changed as it is: a replay applies it
to the requests that it compares. A resumed run reads the changed texts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import TypeAlias

from plait.core.errors import JournalError
from plait.core.secrets import Scrubber

Redact: TypeAlias = Callable[[str], str]

_STRING = r'"(?:[^"\\]|\\.)*"'
_STRINGS = re.compile(rf'"type"\s*:\s*{_STRING}|{_STRING}(?=\s*:)|(?P<value>{_STRING})')
"""The strings of a JSON text; only those that are values of their own are in the group."""

_hook: Redact | None = None


def redact_with(function: Redact | None) -> None:
    """Use this function for all that this process stores in journals from now on; None stores texts as they are."""
    global _hook
    _hook = function


def is_set() -> bool:
    """Is a function in use?"""
    return _hook is not None


def scrubber(secrets: Iterable[str]) -> Scrubber:
    """What is applied to all that is stored: secrets replaced, then the user's function."""
    return Scrubber(secrets) if _hook is None else RedactingScrubber(secrets, _hook)


class RedactingScrubber(Scrubber):
    """Replaces secrets, and then gives each text to a function."""

    __slots__ = ("_redact",)

    def __init__(self, secrets: Iterable[str], redact: Redact) -> None:
        super().__init__(secrets)
        self._redact = redact

    def __bool__(self) -> bool:
        return True

    def __call__(self, data: bytes) -> bytes:
        """The bytes as they are stored. Raises `JournalError` where the function fails."""
        data = super().__call__(data)
        try:
            text = data.decode()
        except UnicodeDecodeError:  # a picture, or the like: it has no text
            return data
        try:
            json.loads(text)
        except (ValueError, RecursionError):
            return self._text(text).encode("utf-8", "surrogatepass")
        # Text by text, so that all else stays as it was, byte for byte: a replay compares it.
        return _STRINGS.sub(self._replaced, text).encode("utf-8", "surrogatepass")

    def _replaced(self, found: re.Match[str]) -> str:
        if found["value"] is None:  # a name, or what kind of record it is
            return found[0]
        before = json.loads(found["value"])
        after = self._text(before)
        return found[0] if after == before else json.dumps(after, ensure_ascii=False)

    def _text(self, text: str) -> str:
        try:
            found = self._redact(text)
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
