"""The built-in tools. `calculator` is a tool, `lookup(source)` makes one, the others make a tuple of tools each.

    agent = plait.Agent("react", tools=["calculator", "weather", *toolkits.slack(key=...)])

Settings are arguments, or environment variables that are read when a tool is called: see docs/toolkits.md.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

# The parser, the tables and the index are imported when a tool is first made or called.
from plait.toolkits.calculator import calculator
from plait.toolkits.lookup import lookup
from plait.tools.load import SHIPPED
from plait.tools.tool import Tool

if TYPE_CHECKING:
    from plait.toolkits.alpha_vantage import stocks
    from plait.toolkits.documents import docs
    from plait.toolkits.folder_tools import files, shell
    from plait.toolkits.frame import Column, Table, tables
    from plait.toolkits.image import Image, images, nasa
    from plait.toolkits.messages import discord, slack
    from plait.toolkits.notes import memory
    from plait.toolkits.place_and_weather import date, location, weather
    from plait.toolkits.questions import ask_model, ask_user
    from plait.toolkits.skill_folders import skills
    from plait.toolkits.todo_list import todo
    from plait.toolkits.web_page import fetch
    from plait.toolkits.web_search import websearch, wikipedia

__all__ = [
    "Column",
    "Image",
    "Table",
    "ask_model",
    "ask_user",
    "calculator",
    "date",
    "discord",
    "docs",
    "everything",
    "fetch",
    "files",
    "images",
    "location",
    "lookup",
    "memory",
    "nasa",
    "shell",
    "skills",
    "slack",
    "stocks",
    "tables",
    "todo",
    "weather",
    "websearch",
    "wikipedia",
]

_VALUES = {"Column": "plait.toolkits.frame", "Image": "plait.toolkits.image", "Table": "plait.toolkits.frame"}


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
