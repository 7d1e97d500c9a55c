"""A plan as a value: steps that name each other's results. It can be printed, priced, edited and run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from graphlib import CycleError, TopologicalSorter

from msgspec import Struct

from plait.core.call_check import IsOpen, find_call_problem
from plait.core.messages import JSON
from plait.core.notebook import render_html, repr_short
from plait.core.tools import ToolSpec


class Step(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One step of a plan.

    `id` is the name of its result in other steps ("E1", "2"). `tool` is "" for a step that is only a thought. `input`
    is any JSON value, with references to other results; `needs` are their ids. `why` is the purpose of the step.
    `written` is the input as the planner wrote it, if the loop would write it otherwise.
    """

    id: str
    tool: str = ""
    input: JSON = None
    why: str = ""
    needs: tuple[str, ...] = ()
    written: str = ""


class Plan(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Steps in the order they were planned. `evidence` maps the ids of steps that need not run to their results."""

    steps: tuple[Step, ...] = ()
    evidence: dict[str, str] = {}

    def __repr__(self) -> str:
        shown = [
            f"{each.id} = {each.tool}({repr_short(each.input)})" if each.tool else f"{each.id}: {repr_short(each.why)}"
            for each in self.steps
        ]
        evidence = f", evidence of {', '.join(self.evidence)}" if self.evidence else ""
        return f"Plan({'; '.join(shown)}{evidence})"

    def _repr_html_(self) -> str:
        rows = [
            (step.id, step.tool, repr_short(step.input, 200), ", ".join(step.needs), step.why) for step in self.steps
        ]
        return render_html(f"Plan of {len(self.steps)} steps", (), ("step", "tool", "input", "needs", "why"), rows)

    @property
    def calls(self) -> tuple[Step, ...]:
        """The steps that call something."""
        return tuple([step for step in self.steps if step.tool])

    def problems(self, tools: Iterable[ToolSpec], is_open: IsOpen | None = None) -> list[str]:
        """Return the errors because of which this plan cannot run, in words for its author; empty if it can.

        `is_open` says whether a text names a result; with it, inputs are checked as well as names.
        """
        known, calls = {tool.name: tool for tool in tools}, self.calls
        times = Counter([step.id for step in calls])
        found = [f"Step {id} is given twice." for id, count in times.items() if count > 1]
        is_twice, is_early = bool(found), False
        before: set[str] = set()
        for step in calls:
            if (step.tool not in known or is_open is not None) and (
                problem := find_call_problem(step.tool, step.input, known, is_open or bool)
            ):
                found.append(f"Step {step.id} {problem}")
            for need in step.needs:
                if need not in times:
                    found.append(f"Step {step.id} names {need}, which no step gives.")
                elif need not in before:
                    found.append(f"Step {step.id} names {need}, which comes only later.")
                    is_early = True
            before.add(step.id)
        if is_early and not is_twice:
            try:
                TopologicalSorter({step.id: step.needs for step in calls}).prepare()
            except CycleError as why:
                found.insert(0, f"These steps wait for each other: {' -> '.join(reversed(why.args[1]))}.")
        found += [f"Evidence is given for {id}, which is no step." for id in self.evidence if id not in times]
        return found
