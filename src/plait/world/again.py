"""Rebuilds the state of a recorded run by making its calls once more, in the order in which they ended."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from plait.core import Call, Event, Observation
from plait.core.errors import BadInput, ToolError
from plait.core.events import Executed, Noted, Observed
from plait.core.artifacts import ArtifactHandle
from plait.world.grades import RunEvidence
from plait.world.state import World


def replay(world: World, calls: Iterable[tuple[Call, Observation]]) -> World:
    """Makes the recorded calls in `world`, which should be fresh, and returns it.

    Calls of other tools and calls without a result are skipped. A thing that a call returned is found again by the id
    that it had in the run.
    """
    tools = {tool.name: tool for tool in world.tools}
    things: dict[str, Any] = {}
    for call, observation in calls:
        tool = tools.get(call.tool)
        if tool is None or not observation.ok:
            continue
        try:
            args, kwargs = tool.bind(_insert_things(call.input, things, tool.signature.takes_artifacts))
            result = tool.function(*args, **kwargs)
        except (BadInput, ToolError):
            # What the run was given came from elsewhere, such as an image of another tool's.
            continue
        handle = ArtifactHandle.read(observation.value)
        if handle is not None:
            things[handle.id] = result
    return world


def replayed(world: World, events: Iterable[Event]) -> World:
    """Makes the calls among a run's events, like `replay`."""
    return replay(world, [(event.call, event.observation) for event in events if isinstance(event, Observed)])


def told_of(answer: Any, events: Iterable[Event], clock: float | None = None) -> RunEvidence:
    """Collects what a grader needs to know of a run.

    That is its answer, all that its code printed, values that the check of arguments noted as made up (if the call was
    made all the same), and its code's clock (seconds since 1970, read in this machine's zone as code reads it).
    """
    printed: list[str] = []
    invented: list[tuple[int, str, str]] = []
    refused: set[tuple[int, str]] = set()
    for event in events:
        match event:
            case Executed(ran=ran):
                printed.append(ran.output)
            case Noted(step=step, kind="invented", text=text):
                tool, _, said = text.partition(": ")
                invented.append((step, tool, said.rpartition(": ")[2]))
            case Observed(step=step, call=call, observation=Observation(trouble="refused")):
                refused.add((step, call.tool))
    flagged = tuple(said for step, tool, said in invented if (step, tool) not in refused)
    day = datetime.fromtimestamp(clock).date() if clock is not None else None
    return RunEvidence(answer, "".join(printed), flagged, day)


def _insert_things(value: Any, things: dict[str, Any], by_name: bool) -> Any:
    """Replaces handles in an input by the things themselves; with `by_name`, ids as well."""
    if isinstance(value, str):
        return things.get(value.strip(), value) if by_name else value
    handle = ArtifactHandle.read(value)
    if handle is not None:
        return things.get(handle.id, value)
    if isinstance(value, dict):
        return {key: _insert_things(each, things, by_name) for key, each in value.items()}
    return [_insert_things(each, things, by_name) for each in value] if isinstance(value, list) else value
