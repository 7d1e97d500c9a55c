"""The built-in tools. `calculator` is a tool, `lookup(source)` makes one, the others make a tuple of tools each.

    agent = plait.Agent("react", tools=["calculator", "weather", *toolkits.slack(key=...)])

Settings are arguments, or environment variables that are read when a tool is called: see docs/toolkits.md.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

# The parser, the tables and the index are imported when a tool is first made or called.
from plait.toolkits.calculator import calculator as calculator
from plait.toolkits.lookup import lookup as lookup
from plait.tools.load import SHIPPED
from plait.tools.tool import Tool

if TYPE_CHECKING:
    from plait.toolkits.alpha_vantage import stocks as stocks
    from plait.toolkits.documents import docs as docs
    from plait.toolkits.folder_tools import files as files
    from plait.toolkits.folder_tools import shell as shell
    from plait.toolkits.frame import Column as Column
    from plait.toolkits.frame import Table as Table
    from plait.toolkits.frame import tables as tables
    from plait.toolkits.image import Image as Image
    from plait.toolkits.image import images as images
    from plait.toolkits.image import nasa as nasa
    from plait.toolkits.messages import discord as discord
    from plait.toolkits.messages import slack as slack
    from plait.toolkits.notes import memory as memory
    from plait.toolkits.place_and_weather import date as date
    from plait.toolkits.place_and_weather import location as location
    from plait.toolkits.place_and_weather import weather as weather
    from plait.toolkits.questions import ask_model as ask_model
    from plait.toolkits.questions import ask_user as ask_user
    from plait.toolkits.skill_folders import skills as skills
    from plait.toolkits.todo_list import todo as todo
    from plait.toolkits.web_page import fetch as fetch
    from plait.toolkits.web_search import websearch as websearch
    from plait.toolkits.web_search import wikipedia as wikipedia

_VALUES = {"Column": "plait.toolkits.frame", "Image": "plait.toolkits.image", "Table": "plait.toolkits.frame"}

if not TYPE_CHECKING:  # a type checker sees the names above; `run_python` is the name of its module
    _MAKERS = (name.replace("-", "_") for name in SHIPPED if name not in ("all", "run-python"))
    __all__ = ["everything", *_VALUES, *_MAKERS]


def everything() -> tuple[Tool, ...]:
    """Makes the tools of all toolkits that need no argument: no file, folder or model."""
    names = "date location weather wikipedia websearch fetch stocks tables nasa images discord slack"
    return (calculator, *(tool for name in names.split() for tool in __getattr__(name)()))


def __getattr__(name: str) -> Any:
    module = _VALUES.get(name) or SHIPPED.get(name.replace("_", "-"), "").partition(":")[0]
    if not module:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value = getattr(import_module(module), name)
    return value
