"""Refuses requests in which a provider could make calls by itself that somebody would have to decide about first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from plait.core.hosted import HostedTool
from plait.journal.records import ResponseRecord
from plait.runtime.guard import APPROVALS, Attempt, EndedByRefusal, Entry, Guard
from plait.runtime.guards.approvals import ApprovalsGuard
from plait.runtime.guards.taint import TaintGuard

MCP = "mcp"
"""The hosted tool that may have effects outside the provider."""


class HostedCallsGuard(Guard):
    """Nobody can be asked about a hosted call, which the provider makes within a reply, or repeat it safely.

    A run has it if its models have hosted tools. `guards` are those of the run, which have the policies of the runs
    above it, too. `repeats`: what may have had an effect is made again.
    """

    name = "hosted"
    order = APPROVALS
    holds_text = may_ask = holds_for_children = False
    points = (Attempt,)

    def __init__(self, guards: Sequence[Guard], *, repeats: bool) -> None:
        self._policies = [each for guard in guards if isinstance(guard, ApprovalsGuard) for each in guard.policies]
        self._asks_after_outside = any(isinstance(each, TaintGuard) and each.policy == "ask" for each in guards)
        self._repeats = repeats
        self._lost: set[tuple[str, str]] = set()
        """The model calls with an attempt whose calls may have been made, and whose reply is lost."""

    async def before(self, entry: Entry) -> Any:
        for tool in _tools_of(entry):
            effects = tool.name == MCP
            asks = any(each not in ("never", "plan", *(() if effects else ("effects",))) for each in self._policies)
            if asks or (effects and self._asks_after_outside):
                said = f"The provider makes calls of {tool.word} by itself, so nobody can be asked before them."
                hint = "Use a local tool, such as websearch or mcp:ADDRESS, or allow such calls (approve, taint)."
                raise EndedByRefusal(f"{said} {hint}")
            if effects and not self._repeats and _call_of(entry) in self._lost:
                said = f"A reply was lost, and the provider may have made calls of {tool.word} for it."
                raise EndedByRefusal(f"{said} They are not repeated. To repeat them: on_interrupted_call='repeat'.")
        return entry.effect

    async def after(self, entry: Entry, result: Any, fresh: bool) -> Any:
        self.recall(entry, result)
        return result

    def recall(self, entry: Entry, result: Any) -> None:
        was_taken = isinstance(result, ResponseRecord) and bool(result.error) and result.usage is not None
        if was_taken and any(tool.name == MCP for tool in _tools_of(entry)):
            self._lost.add(_call_of(entry))


def _tools_of(entry: Entry) -> tuple[HostedTool, ...]:
    return getattr(entry.effect.model, "hosted", ())


def _call_of(entry: Entry) -> tuple[str, str]:
    return entry.run, entry.key.rpartition("a")[0]
