"""Asks a tool's `verify` whether an earlier call took effect.

Theory of operation. A "yes" is final. A "no" is true when it is said, but the earlier call may still be under way. It
counts only if the call can't take effect later: its process is dead on this machine, `verify` has closed its key, or
the tool accepts the risk. A fork has its calls from another run, which may go on: the death of a process proves nothing
there. Whatever goes wrong means that nothing is known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct, structs

from plait.core import Observation
from plait.journal.records import CallHolder
from plait.runtime.calls.call_services import ToolServices, name_call
from plait.runtime.calls.context import Context
from plait.tools.end_run import EndRun
from plait.tools.verify import NoEffect, TookEffect

if TYPE_CHECKING:
    from plait.runtime.engine import Engine
    from plait.runtime.guard import Entry


class Verdict(Struct, frozen=True):
    """What is known of a call in doubt: its `result` if it took effect; `is_over` if it had no effect, and can't have
    one later; `closed` if its key was closed."""

    result: Observation | None = None
    is_over: bool = False
    closed: bool = False
    text: str = ""


class VerifyServices(ToolServices):
    """Serves one question to `verify`: its context has the key of the earlier call. It cannot run agents or ask
    models: they would be recorded as the call's own."""

    def __init__(self, engine: Engine, entry: Entry, holder: CallHolder) -> None:
        super().__init__(engine, entry)
        self._holder = holder

    @property
    def key(self) -> str:
        return name_call(self._holder.run, self.entry.key, self._holder.closed)

    def make_context(self) -> Context[object]:
        context = super().make_context()
        return Context(context.deps, context.run_id, context.step, context.session, self.key, context.logger)


async def verify_call(engine: Engine, entry: Entry, holder: CallHolder | None) -> Verdict:
    """Ask whether a call took effect that `holder` began; None if the record does not name who it was."""
    tool, bound, agent = entry.tool, entry.bound, engine.run_spec.agent
    is_copied = entry.step < engine.run_spec.trust_until if holder is None else holder.run != engine.run_id
    if tool is None or tool.verifier is None or bound is None or (holder is None and is_copied):
        return Verdict()
    if not bound.values.keys() >= bound.call.input.keys():  # the tool no longer takes this input
        return Verdict()
    known = tool.verifier.signature.schema["properties"]
    asked = structs.replace(bound, values={name: value for name, value in bound.values.items() if name in known})
    services = VerifyServices(engine, entry, holder or CallHolder(engine.run_id, ""))
    with engine.clock.counted(working=1):
        made = await services.call_tool(tool.verifier, agent.limits.tool_seconds, asked)
    answer = services.verified if made.ok else None
    if isinstance(answer, TookEffect) and (not made.ends or isinstance(answer.result, EndRun)):
        return Verdict(structs.replace(made, outside=tool.open_world), text="took effect")
    if not isinstance(answer, NoEffect):
        why = f": {made.text}" if not made.ok else ""
        return Verdict(text=f"may have taken effect{why}")
    is_gone = holder is not None and not is_copied and not engine.run_spec.past.lost and engine.store is not None
    if is_gone:
        is_gone = await cast(Any, engine.store).is_holder_gone(cast(CallHolder, holder).process) is True
    closed = answer.closed is True
    is_over = closed or is_gone or tool.accepts_late_calls
    return Verdict(
        None, is_over, closed, f"has had no effect{'' if is_over else ' so far, but may still be under way'}"
    )
