"""`todo`: a plan that a model keeps while it works. Each change is on the record, and shown live."""

from __future__ import annotations

from typing import Any, Literal

from typing_extensions import TypedDict

from plait.core.errors import ToolError
from plait.core.text import one_line
from plait.runtime.calls.context import Context
from plait.tools.tool import Tool, tool

MAX_TASKS, MAX_TASK = 50, 300
"""Maximum number of tasks, and of the characters of one."""
SIGNS = {"pending": "[ ]", "in_progress": "[>]", "completed": "[x]"}


class TodoTask(TypedDict):
    """A task of the plan and its state."""

    task: str
    state: Literal["pending", "in_progress", "completed"]


def todo() -> tuple[Tool, ...]:
    """Makes the tool `write_todos`. A run has one plan, and so has each child run."""

    @tool(read_only=True)
    async def write_todos(ctx: Context[Any], tasks: list[TodoTask]) -> str:
        """Sets the plan of your work, which the user sees: all tasks in order, with their states.

        Call it at the beginning of work with several parts, and again whenever a task begins or ends.

        Args:
            tasks: The whole plan. A state is pending, in_progress or completed.
        """
        plan = [(one_line(each["task"]), each["state"]) for each in tasks]
        if not 1 <= len(plan) <= MAX_TASKS:
            raise ToolError(f"A plan has 1 to {MAX_TASKS} tasks, and this one {len(plan)}.")
        if wrong := [name for name, _ in plan if not 1 <= len(name) <= MAX_TASK]:
            raise ToolError(f"A task has 1 to {MAX_TASK} characters, and this one not: {wrong[0][:80]!r}.")
        count = sum(state == "completed" for _, state in plan)
        now = next((f", now: {name}" for name, state in plan if state == "in_progress"), "")
        lines = [f"{count} of {len(plan)} done{now}", *(f"{SIGNS[state]} {name}" for name, state in plan)]
        if ctx.services is not None:
            ctx.services.record_todos("\n".join(lines), [{"task": name, "state": state} for name, state in plan])
        return f"The plan is kept: {count} of {len(plan)} done."

    return (write_todos,)
