"""The tools that ship. `calculator` is a tool, `lookup(source)` makes one; the others make a tuple of tools each:

    agent = plait.Agent("react", tools=["calculator", "weather", *toolkits.slack(key=...)])

Settings are arguments, or environment variables that are read when a tool is called: see docs/toolkits.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

# The parser, the tables and the index are imported when a tool is first made or called.
from plait.toolkits.calculator import calculator
from plait.toolkits.lookup import lookup

if TYPE_CHECKING:
    from plait.toolkits.alpha_vantage import stocks
    from plait.toolkits.apod import nasa
    from plait.toolkits.discord_webhook import discord
    from plait.toolkits.frame import Column, Table
    from plait.toolkits.image import Image
    from plait.toolkits.ip_location import location
    from plait.toolkits.mediawiki import wikipedia
    from plait.toolkits.open_meteo import weather
    from plait.toolkits.person import ask_user
    from plait.toolkits.pictures import images
    from plait.toolkits.second_model import ask_model
    from plait.toolkits.serp import websearch
    from plait.toolkits.shipped import everything
    from plait.toolkits.slack_api import slack
    from plait.toolkits.table_tools import tables
    from plait.toolkits.today import date

__all__ = [
    "Column",
    "Image",
    "Table",
    "ask_model",
    "ask_user",
    "calculator",
    "date",
    "discord",
    "everything",
    "images",
    "location",
    "lookup",
    "nasa",
    "slack",
    "stocks",
    "tables",
    "weather",
    "websearch",
    "wikipedia",
]

_HOME = {
    "Column": "frame",
    "Image": "image",
    "Table": "frame",
    "ask_model": "second_model",
    "ask_user": "person",
    "date": "today",
    "discord": "discord_webhook",
    "everything": "shipped",
    "images": "pictures",
    "location": "ip_location",
    "nasa": "apod",
    "slack": "slack_api",
    "stocks": "alpha_vantage",
    "tables": "table_tools",
    "weather": "open_meteo",
    "websearch": "serp",
    "wikipedia": "mediawiki",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"plait.toolkits.{_HOME[name]}"), name)
    globals()[name] = value
    return value
