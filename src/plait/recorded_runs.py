"""Recorded runs as data: `plait.open_journal`."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta
from functools import lru_cache
from typing import Any, Literal

from msgspec import Struct, structs

from plait.core import Usage
from plait.core.errors import ConfigError, JournalError
from plait.journal.open_questions import find_open_questions
from plait.journal.records import RunRow, RunTotals
from plait.journal.results import Results
from plait.journal.run_query import make_query
from plait.journal.served_runs import RunLabel
from plait.journal.store import Journal, NoJournal, Store, read_timeline, wait_for
from plait.journal.timeline import Timeline
from plait.runtime.approvals import waiting_with
from plait.runtime.recorded_events import recorded_loop
from plait.runtime.run import Run, id_of_run
from plait.runtime.runs import cancel_run, read_finished_run
from plait.runtime.spent import Spent, read_spent, spent_in, sum_record

PERIODS = ("day", "week", "month")
GROUPS = (*PERIODS, "user", "tag", "agent", "model")


class OpenQuestion(Struct, frozen=True):
    """A question that a waiting run asks the user.

    `agent.resume(each.run, answer, question=each.question)` answers it. `question` is its id, `run` the run to resume,
    `asked_by` that run or the child run that asks. `kind` is "question", "approval" or "plan", `tool` and `input` the
    call to approve ("" and None for another question).
    """

    question: str
    run: str
    asked_by: str
    kind: Literal["question", "approval", "plan"]
    text: str
    tool: str = ""
    input: Any = None


class CostGroup(Struct, frozen=True):
    """What the runs of one day, week, month, user, tag, agent or model used, with their child runs.

    `key` is the day in local time (2026-11-20), the Monday of the week or the month (2026-11); or the user, tag, agent
    or model, "" for runs without one. `cost_usd` is the sum of the known costs, and `unpriced` the number of runs with
    an unknown price, which it lacks. `succeeded` counts runs that were answered, and are neither graded as no success
    nor rated as bad; `answered`, `failed`, `stopped` and `waiting` those with this status. `period` is the day, week or
    month of sums over time.
    """

    key: str
    runs: int
    calls: int
    input_tokens: int
    output_tokens: int
    cost_usd: float
    unpriced: int
    succeeded: int = 0
    answered: int = 0
    failed: int = 0
    stopped: int = 0
    waiting: int = 0
    period: str = ""


class RecordedRuns:
    """The runs of a journal: lists, loads and rates them, and returns their open questions and costs.

    `list`, `questions` and `costs` take filters: `status`, `grade`, `rated`, `user`, `tags`, `agent`, `loop`, `model`,
    `session`, `words`, `since`, `until`, `min_cost`, `max_cost`, `children`, `limit`; `list` also takes `sort`. A time
    is a `datetime`, seconds since 1970, ISO 8601 or an age such as "7d". Each method has an asynchronous form with the
    same arguments, such as `alist`. A journal that does not exist yet has no runs.
    """

    def __init__(self, store: Store, label: str = "") -> None:
        """Read the runs of a store. `label`: only those whose label begins like this (see `RunQuery`) are listed."""
        self._store, self._label = store, label

    def __repr__(self) -> str:
        return f"RecordedRuns({self._store.place!r})"

    def list(self, **filters: Any) -> Sequence[RunRow]:
        """Return the runs that match, the newest first; all without `limit`. Raises `ConfigError`.

        `sort` "cost", "tokens", "seconds" or "steps": the greatest first; "-cost": the smallest first.
        `row.id` is its id. `row.head` has the question, user, tags and metadata, `row.outcome` how the run ended,
        `row.totals` what it used. `load` returns the whole run.
        """
        return wait_for(self.alist(**filters))

    async def alist(self, **filters: Any) -> Sequence[RunRow]:
        try:
            return await self._store.list_runs(structs.replace(make_query(**filters), label=self._label))
        except NoJournal:
            return []

    def load(self, run: str) -> Run[Any]:
        """Return a run that has ended or waits, with its `timeline`, `messages()`, `events` and child runs.

        Raises `UnknownRun`, and `JournalError` for a run that has not ended: `timeline` reads what it did so far.
        """
        return wait_for(self.aload(run))

    async def aload(self, run: str) -> Run[Any]:
        row = await self._store.find_run(id_of_run(run))
        return read_finished_run(row, self._store, recorded_loop(row.head))

    def timeline(self, run: str) -> Timeline:
        """Return the record of a run so far as typed values, of running and interrupted runs, too."""
        return wait_for(self.atimeline(run))

    async def atimeline(self, run: str) -> Timeline:
        return await read_timeline(self._store, id_of_run(run))

    def questions(self, run: str | None = None, **filters: Any) -> Sequence[OpenQuestion]:
        """Return the open questions of a run, or of all waiting runs that match, those of child runs included."""
        return wait_for(self.aquestions(run, **filters))

    async def aquestions(self, run: str | None = None, **filters: Any) -> Sequence[OpenQuestion]:
        waiting = {**filters, "status": "waiting"}
        rows = await self.alist(**waiting) if run is None else [await self._store.find_run(id_of_run(run))]
        return [each for row in rows for each in await read_open_questions(self._store, row)]

    def rate(self, run: str | Run[Any], *, good: bool, why: str = "") -> None:
        """Rate a run, in place of an earlier rating. Raises `UnknownRun`."""
        wait_for(self.arate(run, good=good, why=why))

    async def arate(self, run: str | Run[Any], *, good: bool, why: str = "") -> None:
        await Results(self._store).rate(id_of_run(run), good, why)

    def cancel(self, run: str | Run[Any], reason: str = "Cancelled by the user.") -> None:
        """Cancel a run that waits, was interrupted or is in a queue. With a journal in PostgreSQL, also one that any
        process performs: it stops soon after. Raises `UnknownRun`, and `JournalError` for a run that has ended."""
        wait_for(self.acancel(run, reason))

    async def acancel(self, run: str | Run[Any], reason: str = "Cancelled by the user.") -> None:
        await cancel_run(self._store, id_of_run(run), reason)

    def costs(self, by: str, *, over: str = "", **filters: Any) -> Sequence[CostGroup]:
        """Return what the runs that match used "by" day, week, month, user, tag, agent or model.

        The largest cost comes first; days, weeks and months are in order. With `over` (day, week or month), each group
        has sums for each of these.

        A run counts with its child runs, on the day it began. A run with two tags or two models counts for both. A fork
        counts what it did itself, not the steps that it took over.
        """
        return wait_for(self.acosts(by, over=over, **filters))

    async def acosts(self, by: str, *, over: str = "", **filters: Any) -> Sequence[CostGroup]:
        if by not in GROUPS:
            raise ConfigError(f"Costs can't be grouped by {by!r}.", hint=f"Use one of: {', '.join(GROUPS)}.")
        if over not in ("", *PERIODS):
            raise ConfigError(f"Costs can't be summed over {over!r}.", hint=f"Use one of: {', '.join(PERIODS)}.")
        query = structs.replace(make_query(**{**filters, "children": False}), label=self._label)
        rows = await self._store.list_totals(query, models=by == "model")
        sums: dict[tuple[str, str], list[Any]] = {}  # the values of `CostGroup` after the key, but for the period
        for row in rows:
            calls, tokens_in, tokens_out, cost = await self._read_used(row)
            ends = (row.status == each for each in ("answered", "failed", "stopped", "waiting"))
            used = (1, calls, tokens_in, tokens_out, cost or 0.0, cost is None, row.has_succeeded, *ends)
            quarter = row.started // 900
            period = _name_period(over, quarter) if over else ""
            for key in (_name_period(by, quarter),) if by in PERIODS else _KEYS[by](row):
                group = sums.setdefault((period, key), [0] * len(used))
                for i, each in enumerate(used):
                    group[i] += each
        groups = [CostGroup(*(key, *each, period)) for (period, key), each in sums.items()]
        groups = [structs.replace(each, cost_usd=round(each.cost_usd, 9)) for each in groups]
        return sorted(groups, key=lambda each: (each.period, each.key if by in PERIODS else -each.cost_usd))

    async def _read_used(self, row: RunTotals) -> tuple[int, int, int, float | None]:
        """Return the calls, the tokens in and out, and the USD (None: unknown) of a run with its child runs."""
        if row.totals and not row.fork_at:
            whole = row.totals.get("tree") or row.totals
            counts = (whole.get(name) or 0 for name in ("calls", "input_tokens", "output_tokens"))
            return *counts, whole.get("cost_usd", 0.0)
        try:
            before, found = Spent(), await self._store.find_run(row.run)
            spent = spent_in(row.totals) if row.totals else await read_spent(self._store, found)
            if row.fork_at:
                # It may have done a part of an earlier step again, so its steps do not tell what it took over.
                kept = (await self._store.read_rows(row.run, bodies=False))[: found.head.taken]
                timeline = Timeline(kept, run=row.run)
                ends = [each.end for each in timeline.children if not each.closed]
                before = sum((spent_in(end.totals) for end in ends if end is not None), sum_record(timeline))
        except JournalError:  # its record is damaged
            spent, before = Spent(cost_usd=None), Spent()
        now, then = spent.usage, before.usage
        tokens = now.input_tokens - then.input_tokens, now.output_tokens - then.output_tokens
        is_known = spent.cost_usd is not None and before.cost_usd is not None
        return spent.calls - before.calls, *tokens, (spent.cost_usd or 0) - (before.cost_usd or 0) if is_known else None


@lru_cache(100_000)
def _name_period(period: str, quarter: float) -> str:
    # Takes quarters of an hour, as all time zones differ by these: a day's name is made once for each.
    day = date.fromtimestamp(quarter * 900)
    if period == "month":
        return day.isoformat()[:7]
    return (day - timedelta(day.weekday() if period == "week" else 0)).isoformat()


_KEYS: dict[str, Callable[[RunTotals], tuple[str, ...]]] = {
    "user": lambda row: (row.user,),
    "tag": lambda row: row.tags or ("",),
    "agent": lambda row: (name_agent(row.agent, row.label),),
    "model": lambda row: row.models or ("",),
}


def open_journal(path: str | os.PathLike[str] | None = None) -> RecordedRuns:
    """Open the runs of a journal: a file, or the default journal. Opens no file before it is asked."""
    return RecordedRuns(Journal.at(path).store)


async def read_open_questions(store: Store, row: RunRow) -> list[OpenQuestion]:
    """Return the open questions of a run that waits, and of its child runs; none of other runs."""
    found = []
    for each in await find_open_questions(store, row.head.run) if row.status == "waiting" else ():
        asked = waiting_with(each)
        found.append(OpenQuestion(each.question, row.head.run, each.run, each.kind, each.text, asked.tool, asked.input))
    return found


def describe_run(row: RunRow) -> dict[str, Any]:
    """Return a run as `plait runs --json` lists it: times in ISO 8601, null for what is not there."""
    head, totals, outcome = row.head, row.totals, row.outcome or {}
    return {
        "run": head.run,
        "status": row.status,
        "grade": row.grade,
        "rating": row.rating or None,
        "question": head.question,
        "answer": outcome.get("answer"),
        "reason": outcome.get("reason"),
        "loop": head.loop["name"],
        "models": {phase: str(model["spec"]) for phase, model in head.models.items()},
        "steps": totals.get("steps"),
        "calls": totals.get("calls"),
        "usage": {name: totals.get(name) for name in Usage.__struct_fields__},
        "cost_usd": totals.get("cost_usd"),
        "tree": totals.get("tree"),
        "seconds": totals.get("seconds"),
        "started": format_time(row.started),
        "updated": format_time(row.updated),
        "parent": head.parent or None,
        "caller": head.caller.run if head.caller is not None else None,
        "session": head.session or None,
        "user": head.user or None,
        "tags": head.tags,
        "metadata": head.metadata,
        "agent": name_agent(head.agent, head.label) or None,
        "label": head.label or None,
    }


def format_time(seconds: float) -> str:
    """Return a time as ISO 8601 in the local zone, to the second."""
    return datetime.fromtimestamp(seconds).astimezone().isoformat(timespec="seconds")


def name_agent(agent: str, label: str) -> str:
    """Return the name of the agent that made a run, or under which a server served it."""
    served = RunLabel.parse(label)
    return agent or (served.agent if served is not None else "")
