"""Regression: recorded runs, asked again of an agent as it is now.

`check_requests` replays each run and says which requests would change. Nothing is sent. `run_again` makes new runs of
their questions and compares them with the recorded ones. Calls with effects are not made: they get the results that
equal calls had in the recorded runs, so that a regression over a support agent refunds nobody. Therefore nobody is
asked to approve them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, wraps
from typing import Any

import msgspec
from msgspec import Struct, structs

from plait.agent import Agent
from plait.core import Call, Observation, ToolSpec
from plait.core.errors import ConfigError, PlaitError, ReplayDiffers
from plait.core.text import format_count
from plait.journal.records import RunRow
from plait.journal.run_query import make_query
from plait.journal.store import ENDED, Journal, Store, list_descendants, read_timeline
from plait.lab.cells import current_task
from plait.lab.comparison import Comparison, Contender
from plait.lab.graders import is_function, load_grader
from plait.lab.results import make_result
from plait.lab.run_comparison import acompare
from plait.lab.tasks import Suite, SuiteTask, digest
from plait.runtime import runs
from plait.runtime.calls.artifacts import ArtifactStore, find_artifacts, read_artifacts
from plait.runtime.guard import Entry, Guard, Refuse
from plait.runtime.recorded_events import recorded_loop
from plait.tools import Tool
from plait.tools.call_context import call_services
from plait.tools.signature import Signature

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
        requests, step, problem = 0, 0, ""
        try:
            requests = (await agent._areplay(row.head.run)).requests
        except PlaitError as why:
            step, problem = why.at if isinstance(why, ReplayDiffers) else 0, str(why)
        about: dict[str, Any] = {"requests": requests, "step": step, "problem": problem}
        found.append(RequestCheck(run=row.head.run, question=row.head.question, same=not problem, **about))
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
    """Ask the question of each recorded run again, and return the comparison with them and what changed.

    The comparison has a row `recorded`. A task is a question: runs with equal questions are its repeats. A grader
    compares with all answers recorded for the question, without those of runs rated bad; if there is none, only a
    function can grade it. `effects`: calls with effects are made. `options` are those of `plait.acompare`. Raises
    `ConfigError` if none of the runs can be asked again: those that ended with an answer, without files, and are no
    later turns of a conversation.
    """
    answers: dict[Any, dict[bytes, Any]] = {}
    for row in rows:
        if is_usable(row) and row.rating != "bad":
            key = msgspec.json.encode(answer := answer_of(row), order="deterministic")
            answers.setdefault(_asked(row), {})[key] = answer
    usable = [row for row in rows if is_usable(row) and (_asked(row) in answers or is_function(grader))]
    if not usable:
        hint = "Name runs that ended with an answer, without files, that are no later turns of a conversation"
        raise ConfigError("None of these runs can be asked again.", hint=f"{hint}, and are not rated bad.")
    tasks = []
    for row in usable:
        question, now = asked = _asked(row)
        known = [answer for _, answer in sorted(answers.get(asked, {}).items())]
        # A list has several right answers; an answer that is a list is one of them.
        right = known[0] if len(known) == 1 and not isinstance(known[0], list) else known or None
        tasks.append(SuiteTask(id=row.id, question=question, answer=right, now=now))
    suite = Suite(word=format_count(len(tasks), "recorded run"), about="", tasks=tuple(tasks), grader=grader)
    if not effects:
        recorded = RecordedResults()
        await recorded.read(usable, store)
        changed = {}
        for name, agent in agents.items():
            tools = [each if each.read_only else _answer_from(each, recorded) for each in agent._parts.toolset]
            hooks = (*agent.hooks, RecordedEffects(recorded))
            changed[name] = agent.using(tools=tools, hooks=hooks, approve="never")  # nothing is done
        agents = changed
    judge = load_grader(grader, journal=store.place)
    made = await acompare(suite, agents=agents, journal=store.place, **options)
    before = []
    for row, task in zip(usable, tasks, strict=True):
        run = runs.read_finished_run(row, store, recorded_loop(row.head))
        before.append(make_result(run, await judge(task, run), cell="", variant=RECORDED, task=task.id, repeat=0))
    specs = ", ".join(sorted({str(model["spec"]) for row in usable for model in row.head.models.values()}))
    first = Contender(RECORDED, RECORDED, specs, {"": specs}, RECORDED)
    whole = structs.replace(made, contenders=(first, *made.contenders), results=(*before, *made.results))
    calls = {}
    for each in whole.results:
        timeline = await read_timeline(store, each.run, bodies=False)
        calls[each.run] = tuple(f"{call.call.tool}({call.call.input!r})" for call in timeline.tool_calls)
    old = {each.run: (task.question, each.answer) for task, each in zip(tasks, before, strict=True)}
    return whole, [
        RunChange(
            run=each.task,
            variant=each.variant,
            again=each.run,
            question=old[each.task][0],
            answers=(old[each.task][1], each.answer),
            calls=(calls[each.task], calls[each.run]),
        )
        for each in made.results
    ]


def is_usable(row: RunRow) -> bool:
    """Return whether the question of a run can be asked again alone, and the answer compared."""
    head = row.head
    return answer_of(row) is not None and not (head.history or head.given or head.files or head.caller)


def _asked(row: RunRow) -> tuple[str, float | None]:
    now = row.head.settings.get("now")  # a journal from elsewhere may have anything there
    return row.head.question, float(now) if isinstance(now, int | float) else None


def answer_of(row: RunRow) -> Any:
    return (row.outcome or {}).get("answer") if row.status in ENDED else None


def find_runs(journal: Journal, names: Iterable[str], last: int, **filters: Any) -> list[RunRow]:
    """Return the `last` newest runs that agents of these names ("" for all) made, and that match. Runs of comparisons
    are not among them, unless a grade is a filter: else a check would check its own runs."""
    found: dict[str, RunRow] = {}
    for name in dict.fromkeys(names):
        mine: list[RunRow] = []
        rows = journal.find(make_query(**filters, agent=name, limit=last))
        while rows and len(mine) < last:
            mine += [row for row in rows if filters.get("grade") or not _CELL.fullmatch(row.head.label)]
            rows = journal.find(make_query(**filters, agent=name, limit=last, before=rows[-1].n))
        found |= {row.head.run: row for row in mine}
    return sorted(found.values(), key=lambda row: -row.n)[:last]


_CELL = re.compile("[0-9a-f]{16}")
"""The label of a run of a comparison: the digest of its cell."""


class RecordedResults:
    """The results of calls in recorded runs and in their child runs, by tool and input."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], dict[str, tuple[Observation, Any]]] = {}

    async def read(self, rows: Iterable[RunRow], store: Store) -> None:
        """Read the results of all calls in runs."""
        for row in rows:
            for each in (row, *await list_descendants(store, row.head.run)):
                timeline = await read_timeline(store, each.head.run)
                artifacts = ArtifactStore(read_artifacts(timeline))
                for made, seen in timeline.results:
                    trouble = "raised" if seen.trouble == "in_doubt" else seen.trouble  # this time nothing is in doubt
                    shown = Observation(seen.text, trouble, value=seen.value, exact=seen.exact, ends=seen.ends)
                    value = artifacts.fill(seen.value) if find_artifacts(seen.value) else None
                    same = self._found.setdefault((made.call.tool, digest(made.call.input)), {})
                    same.setdefault(row.head.run, (shown, value))

    def find(self, call: Call) -> tuple[Observation, Any]:
        """Return the result of an equal call, of the run that is asked again if it made one."""
        found = self._found.get((call.tool, digest(call.input)), {})
        said = f"Error: {call.tool} was not called: it has effects, and no recorded run made this call."
        missing = Observation(said, "raised"), None
        return found.get(current_task.get()) or next(iter(found.values()), missing)


class AnsweredTool(Tool, frozen=True, dict=True, kw_only=True):
    """A tool that answers from recorded runs. `original`: the tool itself, which is never called."""

    original: Tool

    @cached_property
    def signature(self) -> Signature:
        return self.original.signature

    @cached_property
    def spec(self) -> ToolSpec:
        return self.original.spec


class RecordedEffects(Guard[Any]):
    """Refuses calls with effects, and puts the results of equal recorded calls in their place: those of child runs,
    whose tools are their own."""

    points = (Call,)
    may_ask = False
    name = "recorded effects"

    def __init__(self, recorded: RecordedResults) -> None:
        self._recorded = recorded

    async def before(self, entry: Entry) -> Any:
        if entry.tool is None or entry.tool.read_only or isinstance(entry.tool, AnsweredTool):
            return entry.effect
        return Refuse("it has effects")

    async def after(self, entry: Entry, result: Any, fresh: bool) -> Any:
        return self._recorded.find(entry.effect)[0] if fresh and self.name in entry.decided else result


def _answer_from(tool: Tool, recorded: RecordedResults) -> Tool:
    @wraps(tool.function)
    def answer(*_: Any, **__: Any) -> Any:
        services: Any = call_services()
        observation, artifacts = recorded.find(services.entry.effect)
        return observation if artifacts is None else artifacts

    real = ("function", "owner", "source", "verify", "accepts_late_calls", "requires_approval", "person")
    kept = {name: getattr(tool, name) for name in Tool.__struct_fields__ if name not in real}
    return AnsweredTool(answer, original=tool, **kept)
