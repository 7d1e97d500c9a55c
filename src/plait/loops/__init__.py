"""The loops, one package each, and the registry that finds a loop by its word."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plait.loops.registry import (
    OURS,
    choose_loop,
    fallback_of,
    has_compaction,
    loop_from,
    make,
    names,
    options_of,
    parse_loops,
    parts_of,
    phases_of,
    prompts_of,
    splitter_of,
    word_of,
)

if TYPE_CHECKING:
    from plait.loops.codeact.loop import CodeAct
    from plait.loops.compiler.loop import LLMCompiler
    from plait.loops.json.loop import JsonReAct
    from plait.loops.phased.loop import Phased
    from plait.loops.react.loop import ReAct
    from plait.loops.rewoo.loop import ReWOO
    from plait.loops.tool_calling.loop import ToolCalling

__all__ = [
    "OURS",
    "CodeAct",
    "JsonReAct",
    "LLMCompiler",
    "Phased",
    "ReAct",
    "ReWOO",
    "ToolCalling",
    "choose_loop",
    "fallback_of",
    "has_compaction",
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

            return getattr(import_module(f"plait.loops.{module}.loop"), kind)
    raise AttributeError(f"module 'plait.loops' has no attribute '{name}'")
