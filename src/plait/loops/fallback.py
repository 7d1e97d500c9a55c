"""Continues a run as another loop, with a remark in the journal and phases of its own (`react.act`)."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from plait.core import Failed, LoopContext, LoopRun, Start, Task, Think, note
from plait.loops.pass_effects import pass_effects
from plait.loops.registry import make


def fall_back(name: str, task: Task, context: LoopContext, why: str) -> LoopRun:
    """Restart the task as the loop `name`. `why` is a sentence for the journal. If the user must approve a plan, a loop
    that has no plan is refused: it would call tools without approval."""
    loop = make(name)
    if context.approve_plan and (context.tools or context.others) and "plan" not in loop.phases:
        unseen = f"The loop '{name}' was not begun: it shows no plan, and a plan needs the user's approval."
        return Failed(f"{why} {unseen}", kind="format")
    yield from note("fallback", f"{why} Going on with the loop '{name}'.")
    # The loop's phases get its name, apart from those of the loop that fell back.
    return (yield from pass_effects(loop.run(task, context.of(name)), change=lambda effect: _with_phase(effect, name)))


def _with_phase(effect: Any, name: str) -> Any:
    match effect:
        case Think(phase=phase):
            return structs.replace(effect, phase=f"{name}.{phase}")
        case Start(effects=effects):
            return Start(tuple(_with_phase(each, name) for each in effects))
        case _:
            return effect
