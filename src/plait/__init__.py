"""Plait: every reasoning-and-acting loop in one library, with every call on the record.

import plait

@plait.tool
def population(city: str) -> int:
    "People living in a city."

run = plait.Agent("react", model="local", tools=[population, "calculator"]).run("...")
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from plait import hooks, telemetry, toolkits
    from plait.agent import Agent
    from plait.config import use_config
    from plait.core.artifacts import Artifact
    from plait.core.attachments import File
    from plait.core.code import CodeLimits
    from plait.core.errors import ConfigError, OutputError, PlaitError, ReplayDiffers, ToolError
    from plait.core.plans import Plan, Step
    from plait.lab.recommend import Demand, Recommendation, recommend
    from plait.lab.run_comparison import acompare, compare
    from plait.loops import CodeAct, JsonReAct, LLMCompiler, Phased, ReAct, ReWOO, ToolCalling
    from plait.models.fallback import FallbackModels
    from plait.models.recorded import Recorded
    from plait.models.scripted import Scripted
    from plait.models.settings import ModelSettings
    from plait.runtime.attachments import attach
    from plait.runtime.context import Context
    from plait.runtime.guard import AskApproval, Entry, Guard, Refuse
    from plait.runtime.hooks import Hook
    from plait.runtime.limits import Limits
    from plait.runtime.output import OutputType
    from plait.runtime.run import Run
    from plait.runtime.sessions import History
    from plait.tools import Tool, tool, toolset
    from plait.tools.call_context import cancelled
    from plait.tools.end_run import EndRun
    from plait.tools.mcp.tools import mcp

# Names are imported when they are first used, so that `import plait` costs next to nothing.
_PLACES = {
    "Agent": "plait.agent",
    "AskApproval": "plait.runtime.guard",
    "CodeAct": "plait.loops",
    "CodeLimits": "plait.core.code",
    "Context": "plait.runtime.context",
    "LLMCompiler": "plait.loops",
    "Demand": "plait.lab.recommend",
    "Recommendation": "plait.lab.recommend",
    "recommend": "plait.lab.recommend",
    "FallbackModels": "plait.models.fallback",
    "JsonReAct": "plait.loops",
    "Entry": "plait.runtime.guard",
    "Guard": "plait.runtime.guard",
    "Hook": "plait.runtime.hooks",
    "Limits": "plait.runtime.limits",
    "ModelSettings": "plait.models.settings",
    "ToolCalling": "plait.loops",
    "OutputError": "plait.core.errors",
    "OutputType": "plait.runtime.output",
    "Phased": "plait.loops",
    "PlaitError": "plait.core.errors",
    "Plan": "plait.core.plans",
    "ReAct": "plait.loops",
    "Recorded": "plait.models.recorded",
    "ReplayDiffers": "plait.core.errors",
    "ReWOO": "plait.loops",
    "Refuse": "plait.runtime.guard",
    "Run": "plait.runtime.run",
    "Scripted": "plait.models.scripted",
    "EndRun": "plait.tools.end_run",
    "Step": "plait.core.plans",
    "Artifact": "plait.core.artifacts",
    "File": "plait.core.attachments",
    "Tool": "plait.tools",
    "ToolError": "plait.core.errors",
    "ConfigError": "plait.core.errors",
    "History": "plait.runtime.sessions",
    "acompare": "plait.lab.run_comparison",
    "attach": "plait.runtime.attachments",
    "cancelled": "plait.tools.call_context",
    "compare": "plait.lab.run_comparison",
    "hooks": "plait.hooks",
    "mcp": "plait.tools.mcp.tools",
    "telemetry": "plait.telemetry",
    "tool": "plait.tools",
    "toolset": "plait.tools",
    "toolkits": "plait.toolkits",
    "use_config": "plait.config",
}

__all__ = [
    "Agent",
    "Artifact",
    "AskApproval",
    "CodeAct",
    "CodeLimits",
    "ConfigError",
    "Context",
    "Demand",
    "EndRun",
    "Entry",
    "FallbackModels",
    "File",
    "Guard",
    "History",
    "Hook",
    "JsonReAct",
    "LLMCompiler",
    "Limits",
    "ModelSettings",
    "OutputError",
    "OutputType",
    "Phased",
    "PlaitError",
    "Plan",
    "ReAct",
    "ReWOO",
    "Recommendation",
    "Recorded",
    "Refuse",
    "ReplayDiffers",
    "Run",
    "Scripted",
    "Step",
    "Tool",
    "ToolCalling",
    "ToolError",
    "__version__",
    "acompare",
    "attach",
    "cancelled",
    "compare",
    "hooks",
    "mcp",
    "recommend",
    "telemetry",
    "tool",
    "toolkits",
    "toolset",
    "use_config",
]


if not TYPE_CHECKING:  # a type checker reports a name that does not exist

    def __getattr__(name: str) -> object:
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
