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
    from plait import hooks as hooks
    from plait import telemetry as telemetry
    from plait import testing as testing
    from plait import toolkits as toolkits
    from plait.agent import Agent as Agent
    from plait.config import use_config as use_config
    from plait.core.artifacts import Artifact as Artifact
    from plait.core.attachments import File as File
    from plait.core.code import CodeLimits as CodeLimits
    from plait.core.errors import ConfigError as ConfigError
    from plait.core.errors import OutputError as OutputError
    from plait.core.errors import PlaitError as PlaitError
    from plait.core.errors import ReplayDiffers as ReplayDiffers
    from plait.core.errors import ToolError as ToolError
    from plait.core.plans import Plan as Plan
    from plait.core.plans import Step as Step
    from plait.lab.recommend import Demand as Demand
    from plait.lab.recommend import Recommendation as Recommendation
    from plait.lab.recommend import recommend as recommend
    from plait.lab.run_comparison import acompare as acompare
    from plait.lab.run_comparison import compare as compare
    from plait.loops import CodeAct as CodeAct
    from plait.loops import JsonReAct as JsonReAct
    from plait.loops import LLMCompiler as LLMCompiler
    from plait.loops import Phased as Phased
    from plait.loops import ReAct as ReAct
    from plait.loops import ReWOO as ReWOO
    from plait.loops import ToolCalling as ToolCalling
    from plait.models.config import Endpoint as Endpoint
    from plait.models.fallback import FallbackModels as FallbackModels
    from plait.models.prices import Price as Price
    from plait.models.recorded import Recorded as Recorded
    from plait.models.resolve import Chat as Chat
    from plait.models.scripted import Scripted as Scripted
    from plait.models.settings import ModelSettings as ModelSettings
    from plait.recorded_runs import open_journal as open_journal
    from plait.runtime.agents.output import OutputType as OutputType
    from plait.runtime.background import EventStream as EventStream
    from plait.runtime.calls.context import Context as Context
    from plait.runtime.conversations.attachments import attach as attach
    from plait.runtime.conversations.sessions import History as History
    from plait.runtime.guard import AskApproval as AskApproval
    from plait.runtime.guard import Entry as Entry
    from plait.runtime.guard import Guard as Guard
    from plait.runtime.guard import Refuse as Refuse
    from plait.runtime.hooks import Hook as Hook
    from plait.runtime.limits import Limits as Limits
    from plait.runtime.reviewer import Reviewer as Reviewer
    from plait.runtime.run import Run as Run
    from plait.runtime.spend_limits import SpendLimit as SpendLimit
    from plait.sandbox.process import Process as Process
    from plait.tools import Tool as Tool
    from plait.tools import tool as tool
    from plait.tools import toolset as toolset
    from plait.tools.call_context import cancelled as cancelled
    from plait.tools.end_run import EndRun as EndRun
    from plait.tools.mcp.tools import mcp as mcp
    from plait.tools.mcp.tools import mcp_login as mcp_login
    from plait.tools.mcp.tools import mcp_prompt as mcp_prompt
    from plait.tools.mcp.tools import mcp_prompts as mcp_prompts
    from plait.tools.tool import NoEffect as NoEffect
    from plait.tools.tool import TookEffect as TookEffect

# Names are imported when they are first used, so that `import plait` costs next to nothing.
_NAMES = {
    "plait.hooks": "hooks",
    "plait.telemetry": "telemetry",
    "plait.testing": "testing",
    "plait.toolkits": "toolkits",
    "plait.agent": "Agent",
    "plait.config": "use_config",
    "plait.core.artifacts": "Artifact",
    "plait.core.attachments": "File",
    "plait.core.code": "CodeLimits",
    "plait.core.errors": "ConfigError OutputError PlaitError ReplayDiffers ToolError",
    "plait.core.plans": "Plan Step",
    "plait.lab.recommend": "Demand Recommendation recommend",
    "plait.lab.run_comparison": "acompare compare",
    "plait.loops": "CodeAct JsonReAct LLMCompiler Phased ReAct ReWOO ToolCalling",
    "plait.models.config": "Endpoint",
    "plait.models.fallback": "FallbackModels",
    "plait.models.prices": "Price",
    "plait.models.recorded": "Recorded",
    "plait.models.resolve": "Chat",
    "plait.models.scripted": "Scripted",
    "plait.models.settings": "ModelSettings",
    "plait.recorded_runs": "open_journal",
    "plait.runtime.background": "EventStream",
    "plait.runtime.conversations.attachments": "attach",
    "plait.runtime.calls.context": "Context",
    "plait.runtime.guard": "AskApproval Entry Guard Refuse",
    "plait.runtime.reviewer": "Reviewer",
    "plait.runtime.hooks": "Hook",
    "plait.runtime.limits": "Limits",
    "plait.runtime.spend_limits": "SpendLimit",
    "plait.runtime.agents.output": "OutputType",
    "plait.runtime.run": "Run",
    "plait.sandbox.process": "Process",
    "plait.runtime.conversations.sessions": "History",
    "plait.tools": "Tool tool toolset",
    "plait.tools.call_context": "cancelled",
    "plait.tools.end_run": "EndRun",
    "plait.tools.mcp.tools": "mcp mcp_login mcp_prompt mcp_prompts",
    "plait.tools.tool": "NoEffect TookEffect",
}
_PLACES = {name: module for module, names in _NAMES.items() for name in names.split()}


if not TYPE_CHECKING:  # a type checker reports a name that does not exist
    __all__ = ["__version__", *_PLACES]

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
    return ["__version__", *_PLACES]
