"""The hooks that ship. Subclass `plait.Hook` for your own."""

from plait.hooks.hosts import AllowHosts
from plait.hooks.redact import RedactPersonalData
from plait.hooks.tool_calls import LimitToolRate, RetryTools
from plait.hooks.words import load_hook, load_hooks

__all__ = ["AllowHosts", "LimitToolRate", "RedactPersonalData", "RetryTools", "load_hook", "load_hooks"]
