"""Asks a tool's `verify` whether an earlier call took effect.

Theory of operation. A "yes" is final. A "no" is true when it is said, but the earlier call may still be under way. It
counts only if the call can't take effect later: its process is dead on this machine, `verify` has closed its key, or
the tool accepts the risk. A fork has its calls from another run, which may go on: the death of a process proves nothing
there. Whatever goes wrong means that nothing is known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct, structs

from plait.core import Observation
from plait.journal.records import CallHolder
from plait.runtime.calls.call_services import ToolServices
from plait.tools.end_run import EndRun
from plait.tools.tool import NoEffect, TookEffect

if TYPE_CHECKING:
    from plait.runtime.engine import Engine
    from plait.runtime.guard import Entry


class VerifyVerdict(Struct, frozen=True):
    """What is known of a call in doubt: its `result` if it took effect; `is_over` if it had no effect, and can't have
    one later; `closed` if its key was closed. `text` says so; it is empty if nobody was asked."""

    result: Observation | None = None
    is_over: bool = False
    closed: bool = False
    text: str = ""


async def verify_call(engine: Engine, entry: Entry) -> VerifyVerdict:
    """Ask whether a call took effect of which an intent is on record, and note the answer."""
    tool, bound = entry.tool, entry.bound
    holder = engine.journal.find(entry.key).holder
    is_copied = entry.step < engine.run_spec.trust_until if holder is None else holder.run != engine.run_id
    if tool is None or tool.verifier is None or bound is None or (holder is None and is_copied):
        return VerifyVerdict()
    if not bound.values.keys() >= bound.call.input.keys():  # the tool no longer takes this input
        return VerifyVerdict()
    known = tool.verifier.signature.schema["properties"]
    asked = structs.replace(bound, values={name: value for name, value in bound.values.items() if name in known})
    services = ToolServices(engine, entry, holder or CallHolder(engine.run_id, ""))
    with engine.clock.counted(working=1):
        made = await services.call_tool(tool.verifier, engine.run_spec.agent.limits.tool_seconds, asked)
    answer, result, is_over = services.verified if made.ok else None, None, False
    said = "may have taken effect" + (f": {made.text.removesuffix('.')}" if not made.ok else "")
    if isinstance(answer, TookEffect) and (not made.ends or isinstance(answer.result, EndRun)):
        said, result = "took effect", structs.replace(made, outside=tool.open_world)
    elif isinstance(answer, NoEffect):
        is_over = answer.closed is True or tool.accepts_late_calls
        if not is_over and not is_copied and holder and engine.store is not None and not engine.run_spec.past.lost:
            is_over = await engine.store.is_holder_gone(holder.process) is True
        said = "has had no effect" + ("" if is_over else " so far, but may still be under way")
    text = f"The earlier call of '{tool.name}' {said}."
    engine.remark("verify", text, entry.step, entry.key)
    return VerifyVerdict(result, is_over, isinstance(answer, NoEffect) and answer.closed is True, text)
