"""Rebuilds the state of a recorded run by making its calls again, in the order in which they ended."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from plait.core import Event, Observation
from plait.core.artifacts import ArtifactHandle, replace_handles
from plait.core.errors import BadInput, ToolError
from plait.core.events import Executed, Noted, Observed
from plait.lab.world.state import World
from plait.lab.world.tasks import RunEvidence


def replay_events(world: World, events: Iterable[Event]) -> World:
    """Make the calls among a run's events in `world`, which should be fresh, and return it. Calls of other tools and
    calls without a result are skipped. An artifact that a call returned is found by its id in the run."""
    tools = {tool.name: tool for tool in world.tools}
    artifacts: dict[str, Any] = {}
    for event in events:
        if not isinstance(event, Observed):
            continue
        call, observation = event.call, event.observation
        tool = tools.get(call.tool)
        if tool is None or not observation.ok:
            continue
        try:
            # Where the tool takes artifacts, a text may be the id of one.
            named = (lambda text: artifacts.get(text.strip(), text)) if tool.signature.takes_artifacts else str
            given = replace_handles(call.input, lambda handle, itself: artifacts.get(handle.id, itself), named)
            args, kwargs = tool.bind(given)
            result = tool.function(*args, **kwargs)
        except (BadInput, ToolError):
            # The input came from elsewhere, such as another tool's image.
            continue
        handle = ArtifactHandle.read(observation.value)
        if handle is not None:
            artifacts[handle.id] = result
    return world


def collect_evidence(answer: Any, events: Iterable[Event], clock: float | None = None) -> RunEvidence:
    """Return the facts about a run that a grader needs.

    These are its answer, all output of its code, values that the check of arguments noted as invented (if the call was
    made anyway), and its code's clock (seconds since 1970, read in this machine's zone as code reads it).
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
