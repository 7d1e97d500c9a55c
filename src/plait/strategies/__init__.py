"""The loops, one file each, and how one is found by its word."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plait.strategies.registry import OURS, fallback_of, make, names, options_of, phases_of, prompts_of, splitter_of
from plait.strategies.words import loop_from, parse_loops, parts_of, word_of

if TYPE_CHECKING:
    from plait.strategies.codeact import CodeAct
    from plait.strategies.compiler import Compiler
    from plait.strategies.json_react import JsonReact
    from plait.strategies.native import Native
    from plait.strategies.phased import Phased
    from plait.strategies.react import React
    from plait.strategies.rewoo import Rewoo

__all__ = [
    "OURS",
    "CodeAct",
    "Compiler",
    "JsonReact",
    "Native",
    "Phased",
    "React",
    "Rewoo",
    "fallback_of",
    "loop_from",
    "make",
    "names",
    "options_of",
    "parse_loops",
    "parts_of",
    "phases_of",
    "prompts_of",
    "splitter_of",
    "word_of",
]


def __getattr__(name: str) -> Any:
    for module, kind in OURS.values():
        if kind == name:
            from importlib import import_module

            return getattr(import_module(f"plait.strategies.{module}"), kind)
    raise AttributeError(f"module 'plait.strategies' has no attribute '{name}'")
