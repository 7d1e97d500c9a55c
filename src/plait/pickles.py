"""Keeps keys out of pickles: a pickle names the environment variable of a key, and never holds the key."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

_NAMES_CREDENTIAL = re.compile(r"auth|key|token|secret|passw|cookie", re.I)


def require_variable(holder: str, secret: str, variable: str) -> None:
    """Raise `TypeError` unless a pickle can name the environment variable of a secret in place of the secret."""
    if not variable:
        raise TypeError(
            f"{holder} cannot be pickled: it holds a key that was given as text, and a pickle must not hold a key. "
            "Put the key into an environment variable and name that variable."
        )
    if os.environ.get(variable, "").strip() not in ("", secret):
        raise TypeError(
            f"{holder} cannot be pickled: it was made with another value of {variable} than the environment has now, "
            "and a pickle holds only the name of the variable."
        )


def names_credential(header: str) -> bool:
    """Return whether the name of a header says that its value is a key or a password."""
    return _NAMES_CREDENTIAL.search(header) is not None


def require_no_credentials(holder: str, headers: Mapping[str, str]) -> None:
    """Raise `TypeError` if a header with a credential is given as text, because a pickle must not hold it."""
    for name, value in headers.items():
        if value and not value.startswith("$") and names_credential(name):
            require_variable(f"{holder} (header {name})", value, "")
