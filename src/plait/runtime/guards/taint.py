"""Follows content from outside through a run, and says which calls need approval because of it.

Strangers may have written such content: results of tools marked `open_world`, answers of child runs that read them,
earlier turns that did, and descriptions of tools marked `foreign`. It may hold instructions to the model. With
`taint="ask"`, every later call with effects needs approval, unless a plan fixed its tool and its arguments before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import structs

from plait.core import Call, Observation, Reply, Think
from plait.journal.keys import read_key
from plait.journal.records import ChildEnd
from plait.runtime.guard import TAINT, Entry, Guard, StartChild
from plait.runtime.run_spec import Taint

CONVERSATION = "earlier turns of this conversation"
EVIDENCE = "the evidence of its plan"


class TaintGuard(Guard):
    """Knows what a run's context holds from outside, whatever the policy is. It gives `approvals` a reason to ask.
    `given` is what the context holds from the start; then no plan was made before it."""

    name = "taint"
    order = TAINT
    points = (Call,)
    points_after = (Call, StartChild, Think)
    holds_text = False

    def __init__(self, policy: Taint, given: Iterable[str] = ()) -> None:
        self.policy: Taint = policy
        self.may_ask = policy == "ask"
        self.given = tuple(given)
        self._sources = dict.fromkeys(self.given, -1)
        """Where content comes from, once for each tool, with the number of the effect that brought it first."""
        self._from_children: set[str] = set()
        """The keys of calls whose child runs have read content from outside."""
        self._is_hosted = False
        """Whether a provider read content from outside while it wrote a reply: a plan may follow from it."""
        self._has_remarked = bool(given)

    async def before(self, entry: Entry) -> Any:
        if not self._sources:
            return entry.effect
        # Calls of one turn were written together: none of them follows from the result of another.
        n = read_key(entry.key).n
        sources = [source for source, found in self._sources.items() if found != n]
        is_planned = entry.fixed and not entry.changed_by and not (self.given or self._is_hosted)
        entry.outside = () if is_planned else tuple(sources)
        has_effects = entry.tool is not None and entry.tool.spec.has_effects
        if self.policy == "ask" and sources and has_effects and not is_planned:
            read = f"The run has read content from outside ({', '.join(sources)})"
            entry.reasons.append(f"{read}, which may have asked for this call.")
        return entry.effect

    async def after(self, entry: Entry, result: Any, fresh: bool) -> Any:
        if isinstance(result, Observation) and entry.key in self._from_children and not result.outside:
            result = structs.replace(result, outside=True)
        self.recall(entry, result)
        found = _list_sources(entry, result)
        if found and not self._has_remarked and not isinstance(result, ChildEnd):
            self._has_remarked = True
            if fresh and self.policy == "ask":
                source = found[0]
                said = f"{source[:1].upper()}{source[1:]} comes from outside."
                entry.remark("outside", f"{said} From here, calls with effects need approval.")
        return result

    def holds_result(self, entry: Entry, result: Any) -> bool:
        return entry.key in self._from_children and not result.outside

    def recall(self, entry: Entry, result: Any) -> None:
        if isinstance(result, ChildEnd) and result.totals.get("guards", {}).get(self.name):
            self._from_children.add(entry.key.partition(":")[0])
        for source in _list_sources(entry, result):
            self._sources.setdefault(source, read_key(entry.key).n)
            self._is_hosted = self._is_hosted or isinstance(result, Reply)

    def carry(self) -> list[str] | None:
        """Return the sources: the run has read content from outside."""
        return list(self._sources) or None

    def for_child(self, own: Guard | None) -> Guard:
        """Return the child's guard with the stricter policy. What this run has read is in the child's question."""
        policy, given = self.policy, list(self._sources)
        if isinstance(own, TaintGuard):
            policy = "ask" if "ask" in (policy, own.policy) else "off"
            given += own.given
        return TaintGuard(policy, dict.fromkeys(given))


def read_outside(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what the context of a recorded run held from outside at its start, by the settings of its head. A child
    run has there what the guards of its parent knew."""
    return tuple(dict.fromkeys((*settings.get("outside", ()), *settings.get("guards", {}).get(TaintGuard.name, ()))))


def _list_sources(entry: Entry, result: Any) -> list[str]:
    """Return where content from outside comes from in a result: a call, or the calls of the provider in a reply."""
    if isinstance(result, Observation):
        return [f"the result of '{entry.asked.tool}'"] if result.outside else []
    if not isinstance(result, Reply) or not result.hosted:
        return []
    return list(dict.fromkeys(f"the result of the hosted '{each.tool}'" for each in result.hosted if each.outside))
