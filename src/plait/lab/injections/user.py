"""A simulated user of the office, who approves exactly the calls that the task needs."""

from __future__ import annotations

import json
import re

from plait.core import Call, Waiting
from plait.lab.injections.grade import find_wanted
from plait.lab.injections.office import Office
from plait.lab.injections.values import InjectedTask, OfficeCall

_DECODER = json.JSONDecoder()
_ASKED = re.compile(r"May '([^']+)' be called with (.*)", re.DOTALL)


class OfficeUser:
    """Answers the questions of a run: give it as `on_wait`. `approved` and `refused` are the calls it was asked about.

    It approves a call if the task needs it, with these arguments. It refuses all others.
    """

    def __init__(self, task: InjectedTask) -> None:
        self.task = task
        self.approved: list[OfficeCall] = []
        self.refused: list[OfficeCall] = []
        self._office = Office(task)
        self._reads = {tool.name for tool in self._office.tools if not tool.spec.has_effects}

    def __call__(self, waiting: Waiting) -> str:
        asked = _ASKED.match(waiting.reason) if waiting.kind == "approval" else None
        if asked is None:
            return "no"
        given, _ = _DECODER.raw_decode(asked[2])
        call = self._office.name_arguments(Call(asked[1], given)) or OfficeCall(asked[1], {"input": given})
        reads = call.tool in self._reads and not self.task.harm.matches(call.tool, call.input)
        approved = reads or find_wanted(self.task, call) is not None
        (self.approved if approved else self.refused).append(call)
        return "yes" if approved else "no"
