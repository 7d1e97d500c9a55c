"""The loops, one package each, and the registry that finds a loop by its word."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plait.loops.registry import OURS as OURS
from plait.loops.registry import choose_loop as choose_loop
from plait.loops.registry import fallback_of as fallback_of
from plait.loops.registry import loop_from as loop_from
from plait.loops.registry import make as make
from plait.loops.registry import names as names
from plait.loops.registry import options_of as options_of
from plait.loops.registry import parse_loops as parse_loops
from plait.loops.registry import parts_of as parts_of
from plait.loops.registry import phases_of as phases_of
from plait.loops.registry import prompts_of as prompts_of
from plait.loops.registry import shared_prompts_of as shared_prompts_of
from plait.loops.registry import splitter_of as splitter_of
from plait.loops.registry import word_of as word_of

if TYPE_CHECKING:
    from plait.loops.codeact.loop import CodeAct as CodeAct
    from plait.loops.compiler.loop import LLMCompiler as LLMCompiler
    from plait.loops.json.loop import JsonReAct as JsonReAct
    from plait.loops.phased.loop import Phased as Phased
    from plait.loops.react.loop import ReAct as ReAct
    from plait.loops.rewoo.loop import ReWOO as ReWOO
    from plait.loops.tool_calling.loop import ToolCalling as ToolCalling


def __getattr__(name: str) -> Any:
    for module, kind in OURS.values():
        if kind == name:
            from importlib import import_module

            return getattr(import_module(f"plait.loops.{module}.loop"), kind)
    raise AttributeError(f"module 'plait.loops' has no attribute '{name}'")
