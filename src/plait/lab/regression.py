"""Regression: recorded runs, asked again of an agent as it is now.

`check_requests` replays each run and says which requests would change. Nothing is sent. `run_again` makes new runs of
their questions and compares them with the recorded ones. Calls with effects are not made: they get the results that
equal calls had in the recorded runs, so that a regression over a support agent refunds nobody.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import wraps
from typing import Any

from msgspec import Struct, structs

from plait.agent import Agent
from plait.core import Observation
from plait.core.errors import ConfigError, PlaitError, ReplayDiffers, ToolError
from plait.journal.records import RunRow
from plait.journal.store import ENDED, Store, read_timeline
from plait.lab.comparison import Comparison, Contender
from plait.lab.graders import load_grader
from plait.lab.results import make_result
from plait.lab.run_comparison import acompare
from plait.lab.tasks import Suite, SuiteTask, digest
from plait.runtime import runs
from plait.runtime.calls.recorded_tools import repeat_result
from plait.runtime.recorded_events import recorded_loop
from plait.tools import Tool
from plait.tools.input_json import to_json

RECORDED = "recorded"
"""The name of the row of the recorded runs."""


class RequestCheck(Struct, frozen=True, kw_only=True):
    """Whether an agent would send the requests of a recorded run. `step` is the first step that differs, 0 for none.
    `problem` says what differs, or why the run cannot be replayed with this agent."""

    run: str
    question: str
    same: bool
    requests: int = 0
    step: int = 0
    problem: str = ""


class RunChange(Struct, frozen=True, kw_only=True):
    """A recorded run and its new one, by their ids; the answers, and the calls of tools as `tool(input)`."""

    run: str
    variant: str
    again: str
    question: str
    answers: tuple[Any, Any]
    calls: tuple[tuple[str, ...], tuple[str, ...]]

    @property
    def same_answer(self) -> bool:
        return bool(self.answers[0] == self.answers[1])

    @property
    def same_calls(self) -> bool:
        return self.calls[0] == self.calls[1]


async def check_requests(agent: Agent[Any, Any], rows: Iterable[RunRow]) -> list[RequestCheck]:
    """Replay runs with an agent, and return what differs. Performs nothing."""
    found = []
    for row in rows:
        check = RequestCheck(run=row.head.run, question=row.head.question, same=False)
        try:
            same = await agent._areplay(row.head.run)
            check = structs.replace(check, same=True, requests=same.requests)
        except PlaitError as why:
            at = why.at if isinstance(why, ReplayDiffers) else 0
            check = structs.replace(check, step=at, problem=str(why))
        found.append(check)
    return found


async def run_again(
    agents: Mapping[str, Agent[Any, Any]],
    rows: Sequence[RunRow],
    store: Store,
    *,
    grader: str = "exact",
    effects: bool = False,
    **options: Any,
) -> tuple[Comparison, list[RunChange]]:
    """Ask the questions of recorded runs again, and return the comparison with them and what changed.

    The comparison has a row `recorded`. A grader compares with the recorded answer. `effects`: calls with effects are
    made. `options` are those of `plait.acompare`. Raises `ConfigError` if none of the runs can be asked again: those
    that ended, without files, and are no later turns of a conversation.
    """
    asked = {row.head.run: row for row in rows if row.status in ENDED and not row.head.caller}
    asked = {run: row for run, row in asked.items() if not (row.head.history or row.head.given or row.head.files)}
    if not asked:
        hint = "Name runs that ended, without files, and that are no later turns of a conversation."
        raise ConfigError("None of these runs can be asked again.", hint=hint)
    tasks = [
        SuiteTask(
            id=row.head.run,
            question=row.head.question,
            answer=(row.outcome or {}).get("answer"),
            now=row.head.settings.get("now"),
        )
        for row in asked.values()
    ]
    suite = Suite(word=f"{len(tasks)} recorded runs", about="", tasks=tuple(tasks), grader=grader)
    # Without the agent's name, the next regression does not take these for runs of users.
    agents = {name: agent.using(name="") for name, agent in agents.items()}
    if not effects:
        recorded: dict[str, list[Any]] = {}
        for run in asked:
            for call, observation in (await read_timeline(store, run, bodies=False)).results:
                recorded.setdefault(call.call.tool, []).append((call.call.input, observation))
        agents = {
            name: agent.using(
                tools=[each if each.read_only else answer_from(each, recorded) for each in agent._parts.toolset],
                approve="never",  # no call is made
            )
            for name, agent in agents.items()
        }
    made = await acompare(suite, agents=agents, **options)
    judge = load_grader(grader, journal=made.journal)
    before = []
    for task in tasks:
        old = runs.read_finished_run(asked[task.id], store, recorded_loop(asked[task.id].head))
        before.append(make_result(old, await judge(task, old), cell="", variant=RECORDED, task=task.id, repeat=0))
    specs = ", ".join(sorted({str(model["spec"]) for row in asked.values() for model in row.head.models.values()}))
    first = Contender(RECORDED, RECORDED, specs, {"": specs}, RECORDED)
    whole = structs.replace(made, contenders=(first, *made.contenders), results=(*before, *made.results))
    calls = {}
    for each in whole.results:
        timeline = await read_timeline(store, each.run, bodies=False)
        calls[each.run] = tuple(f"{call.call.tool}({call.call.input!r})" for call, _ in timeline.results)
    answers = {each.run: each.answer for each in whole.results}
    return whole, [
        RunChange(
            run=each.task,
            variant=each.variant,
            again=each.run,
            question=asked[each.task].head.question,
            answers=(answers[each.task], each.answer),
            calls=(calls[each.task], calls[each.run]),
        )
        for each in made.results
    ]


def answer_from(tool: Tool, recorded: Mapping[str, list[Any]]) -> Tool:
    """Return a tool that gives the recorded result of an equal call, and an error for another call."""
    names, has_context = tool.signature.names, tool.signature.context is not None
    results: dict[str, Observation] = {}
    for input, observation in recorded.get(tool.name, ()):
        try:
            key = _digest_input(tool.bind_values(input))
        except PlaitError:
            continue  # it did not fit the tool, so the tool never saw it
        results.setdefault(key, observation)

    def answer(*args: Any, **kwargs: Any) -> Any:
        given = args[1:] if has_context else args
        key = _digest_input({**dict(zip(names, given, strict=False)), **kwargs})
        if (observation := results.get(key)) is None:
            raise ToolError(f"{tool.name} was not called: it has effects, and no recorded run made this call.")
        return repeat_result(observation)

    @wraps(tool.function)
    async def answer_later(*args: Any, **kwargs: Any) -> Any:
        return answer(*args, **kwargs)

    made = answer_later if tool.is_async else wraps(tool.function)(answer)
    return structs.replace(tool, function=made, owner=None, requires_approval=False)


def _digest_input(values: Mapping[str, Any]) -> str:
    return digest({name: to_json(value, None, repr(value)) for name, value in values.items()})
