"""Tools: a typed function made callable by a model, sets of them, and where they are loaded from."""

from plait.tools.load import anchor_word, load, toolkit_names, tools_from
from plait.tools.objects import toolset
from plait.tools.render import render
from plait.tools.tool import FunctionTool, Tool, tool
from plait.tools.toolset import Toolset

__all__ = [
    "FunctionTool",
    "Tool",
    "Toolset",
    "anchor_word",
    "load",
    "render",
    "tool",
    "toolkit_names",
    "tools_from",
    "toolset",
]
