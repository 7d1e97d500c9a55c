"""An agent that is made from the record of a run, for tests: its tools return the recorded results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import convert

from plait.agent import Agent
from plait.core import Observation, ToolSpec
from plait.core.errors import ToolError
from plait.journal.records import RunHead
from plait.models.scripted import Scripted
from plait.runtime.agents.agent_description import fields_in
from plait.runtime.calls.recorded_tools import RecordedTool
from plait.toolkits.questions import ask_user
from plait.tools import Tool
from plait.tools.end_run import EndRun


def recorded_agent(record: Mapping[str, Any]) -> Agent[Any]:
    """Return the agent of a file that `plait export RUN --test FILE` wrote. It has no model and no journal.

    A call gets the result that the same call had in the run, or else the next one of that tool. The user is asked about
    the calls that the run asked about.
    """
    head = RunHead("", "", record["loop"], {}, tuple(record["tools"]), ("",) * len(record["tools"]), record["settings"])
    fields = fields_in(head, tools_given=True, load_code=False)
    results = [(str(tool), given, convert(seen, Observation)) for tool, given, seen in record["results"]]
    asked = [(str(tool), given) for tool, given in record["asked"]]
    if fields.get("approve") != "plan":
        fields["approve"] = lambda call: (call.tool, call.input) in asked
    fields |= {"hooks": (), "grounding": "off", "taint": "off", "model": Scripted([]), "models": {}, "journal": False}
    return Agent(**{**fields, "tools": [_make_tool(each, results) for each in record["tools"]]})


def _make_tool(spec: dict[str, Any], results: list[tuple[str, Any, Observation]]) -> Tool:
    recorded = convert(spec, ToolSpec)
    if recorded.name == ask_user.name and recorded.parameters == ask_user.spec.parameters:
        return ask_user

    def give_result(**given: Any) -> Any:
        own = [each for each in results if each[0] == recorded.name]
        same = [each for each in own if each[1] == given] or own
        if not same:
            raise ToolError(f"The recorded run has no further result of {recorded.name}.")
        results.remove(same[0])
        seen = same[0][2]
        if seen.ends:
            raise EndRun(seen.value) if seen.ends == "answer" else EndRun(failure=seen.text)
        if not seen.ok:
            raise ToolError(seen.text.removeprefix("Error: "))
        return seen.text if seen.value is None else seen.value

    return RecordedTool(give_result, recorded.name, recorded=recorded, hand_off=recorded.hand_off)


def answer_in_order(*answers: str) -> Callable[[Any], str | None]:
    """Return a function for `on_wait` that gives these answers, one after another; then the run waits."""
    left = iter(answers)
    return lambda waiting: next(left, None)
