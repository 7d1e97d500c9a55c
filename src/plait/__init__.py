"""Plait: every reasoning-and-acting loop in one library, with every call on the record.

import plait

@plait.tool
def population(city: str) -> int:
    "People living in a city."

run = plait.Agent("react", model="local", tools=[population, "calculator"]).run("...")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from plait import toolkits
    from plait.agent import Agent
    from plait.core.errors import PlaitError, ReplayDiffers, ToolError, UsageError
    from plait.models.recorded import Recorded
    from plait.models.scripted import Scripted
    from plait.runtime.limits import Limits
    from plait.runtime.run import Run
    from plait.strategies import JsonReact, React
    from plait.tools import Tool, tool
    from plait.tools.cancel import cancelled

# Names are imported when they are first used, so that `import plait` costs next to nothing.
_PLACES = {
    "Agent": "plait.agent",
    "JsonReact": "plait.strategies",
    "Limits": "plait.runtime.limits",
    "PlaitError": "plait.core.errors",
    "React": "plait.strategies",
    "Recorded": "plait.models.recorded",
    "ReplayDiffers": "plait.core.errors",
    "Run": "plait.runtime.run",
    "Scripted": "plait.models.scripted",
    "Tool": "plait.tools",
    "ToolError": "plait.core.errors",
    "UsageError": "plait.core.errors",
    "cancelled": "plait.tools.cancel",
    "tool": "plait.tools",
    "toolkits": "plait.toolkits",
}

__all__ = [
    "Agent",
    "JsonReact",
    "Limits",
    "PlaitError",
    "React",
    "Recorded",
    "ReplayDiffers",
    "Run",
    "Scripted",
    "Tool",
    "ToolError",
    "UsageError",
    "__version__",
    "cancelled",
    "tool",
    "toolkits",
]


def __getattr__(name: str) -> Any:
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module 'plait' has no attribute '{name}'")
    from importlib import import_module

    module = import_module(place)
    value = module if place == f"plait.{name}" else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
