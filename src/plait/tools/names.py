"""Names of tools that a loop or an endpoint can use.

A tool may be called `get-weather`, `3D_Services` or `天気`. Code needs a Python name. Endpoints with native tools allow
ASCII letters, digits, `_` and `-`. A loop states its needs (`tool_names`). Only names that do not fit are changed.
"""

from __future__ import annotations

import builtins
import hashlib
import keyword
import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Mapping

LONGEST = 64
VALID = re.compile(r"\w[\w.-]{0,63}")
"""The names that a tool may have."""

_WIRE = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_CALL = re.compile(r"[^\W\d][\w.-]{0,63}")
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")


def is_free_in_python(name: str) -> bool:
    """Return whether code can call the name: it is not a keyword or a built-in function of Python."""
    return _WORD.fullmatch(name) is not None and not keyword.iskeyword(name) and not hasattr(builtins, name)


NEEDS: Mapping[str, Callable[[str], object]] = {
    "": VALID.fullmatch,
    "wire": _WIRE.fullmatch,
    "call": _CALL.fullmatch,
    "python": is_free_in_python,
}
"""Checks of a name, by the needs in `tool_names`."""


def make_safe_name(name: str) -> str:
    """Return a name that all models, loops and Python accept."""
    plain = name if name.isascii() else unicodedata.normalize("NFKD", name)
    plain = "".join(sign for sign in plain if not unicodedata.combining(sign))
    plain = re.sub(r"\W+", "_", plain, flags=re.ASCII).strip("_")
    if not plain:
        plain = "tool_" + hashlib.sha256(name.encode()).hexdigest()[:6]
    if not plain[0].isalpha() or keyword.iskeyword(plain):
        plain = f"tool_{plain}"
    if len(plain) > LONGEST:
        plain = f"{plain[: LONGEST - 7]}_{hashlib.sha256(plain.encode()).hexdigest()[:6]}"
    return plain


def make_python_name(name: str) -> str:
    """Return such a name that is not a built-in function of Python: `print` becomes `print_tool`."""
    plain = make_safe_name(name)
    return plain if is_free_in_python(plain) else f"{plain}_tool"


def fit_names(names: Iterable[str], needs: Collection[str], is_reserved: Callable[[str], bool]) -> dict[str, str]:
    """Map each name to one that fits all needs: itself, or a safe and unique name."""
    fits = [NEEDS.get(need, VALID.fullmatch) for need in needs]
    found = {name: name if all(fit(name) for fit in fits) else "" for name in names}
    taken = {name for name in found.values() if name}
    for name in found:
        if found[name]:
            continue
        wanted = make_python_name(name)
        made, number = wanted, 2
        while made in taken or is_reserved(made):
            made, number = f"{wanted[: LONGEST - 4]}_{number}", number + 1
        found[name] = made
        taken.add(made)
    return found
