"""Leave for a plan: the person is shown it, and says yes, no, what to change, or gives the plan as they want it."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from plait.core import Effect, Failed, Outcome, Plan, ask, note
from plait.formats import Unreadable

YES = ("yes", "y", "ok", "okay", "approve", "approved", "go", "go on", "run")
NO = ("", "no", "n", "refuse", "refused", "reject", "rejected", "cancel", "stop")
ROUNDS = 3
"""How often the planner is asked again with the person's words."""


def with_leave(
    plan: Plan,
    write: Callable[[Plan], str],
    is_plan: Callable[[str], bool],
    read: Callable[[str], Plan],
    replan: Callable[[Plan, str], Generator[Effect, Any, Plan | Outcome]],
) -> Generator[Effect, Any, Plan | Outcome]:
    """The plan to carry out, or how the run ends without one.

    `write` makes the text that is shown. An answer for which `is_plan` holds is read by `read` (which may raise
    `Unreadable`; the person is asked once more) and carried out as it is. Other words go to `replan`, with the plan
    they are about, at most `ROUNDS` times.
    """
    complaint = ""
    rounds = 0
    while True:
        answer = (yield from ask(complaint + write(plan), kind="plan")).strip()
        word = answer.rstrip(".!").lower()
        if word in YES:
            return plan
        if word in NO:
            return Failed("The person refused the plan.")
        if is_plan(answer):
            try:
                return read(answer)
            except Unreadable as why:
                if complaint:
                    return Failed(f"The plan that the person gave can't be carried out: {why}", kind="format")
                complaint = f"# That plan can't be carried out: {why}\n"
                continue
        if rounds == ROUNDS:
            return Failed(f"The person did not agree to any of {ROUNDS + 1} plans. Their last words: {answer}")
        rounds, complaint = rounds + 1, ""
        yield from note("replan", f"The person wants another plan: {answer}")
        made = yield from replan(plan, answer)
        if not isinstance(made, Plan):
            return made
        plan = made
