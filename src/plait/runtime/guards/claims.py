"""Looks for claims in answers that no call supports (see `runtime/claims.py`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from plait.core import Call, CheckAnswer, Observation, ToolSpec
from plait.journal.records import ChildEnd
from plait.runtime.claims import find_claims, list_unsupported
from plait.runtime.guard import OUTPUT, AskApproval, Entry, Finish, Guard, Refuse, StartChild
from plait.runtime.run_spec import Claims


class ClaimsGuard(Guard):
    """Notes an answer that claims what no call did, refuses it, or asks the user. `tools` are all tools of the agent,
    `made` those that earlier turns called. `is_near`: a limit is near, so claims are only noted. A call whose end is
    not known supports a claim, and so does each child run."""

    name = "claims"
    order = OUTPUT - 1
    points = ()
    points_after = (Call, StartChild, CheckAnswer, Finish)
    holds_for_children = False

    def __init__(
        self, policy: Claims, tools: Iterable[ToolSpec], made: Iterable[str], is_near: Callable[[], bool]
    ) -> None:
        self._policy, self._tools, self._is_near = policy, tuple(tools), is_near
        self._effects = {tool.name for tool in self._tools if tool.has_effects}
        self._made = self._effects & {*made}
        self.may_ask = policy == "ask"

    async def after(self, entry: Entry, result: Any, fresh: bool) -> Any:
        self.recall(entry, result)
        is_check = isinstance(entry.effect, CheckAnswer)
        if not fresh or (is_check and (result or self._policy == "note" or self._is_near())):
            return result
        answer = entry.effect.answer if is_check else getattr(result, "answer", None)
        if isinstance(result, Observation | ChildEnd) or not isinstance(answer, str):
            return result
        found = list_unsupported(find_claims(answer, self._tools), self._made)
        if not found:
            return result
        said = "The answer says that something was done, and no call did it: " + "; ".join(found)
        if not is_check:  # what could not be refused, or was approved
            entry.remark("claims", said)
        elif self._policy == "ask":
            return AskApproval("May this answer be given?", (f"{said}.",))
        else:
            return Refuse(f"{said}. Make the call, or say what was not done.")
        return result

    def recall(self, entry: Entry, result: Any) -> None:
        if isinstance(result, ChildEnd):
            self._made = set(self._effects)
        elif isinstance(result, Observation) and (result.ok or result.trouble == "in_doubt"):
            self._made |= self._effects & {entry.effect.tool}

    def holds_result(self, entry: Entry, result: Any) -> bool:
        return False


class ClaimsNote(ClaimsGuard):
    """Only notes claims, so nobody waits for it to see a part of an answer."""

    holds_text = False
