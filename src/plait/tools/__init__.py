"""Tools: typed functions that a model can call, sets of them, and the words that load them."""

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
