"""Modules that take long to import are imported when a test first uses them, as each test process reads all files."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

import pytest


class Lazy:
    """A module that is imported when a public name of it is first asked for (pytest asks for private ones)."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(importlib.import_module(self._name), name)


def skip_without(extra: str, *modules: str) -> None:
    """Skips the file, loudly, where the modules of an extra are absent; imports none of them."""
    if any(importlib.util.find_spec(name) is None for name in modules):
        pytest.skip(f"NOT CHECKED: plait[{extra}] is not installed", allow_module_level=True)
