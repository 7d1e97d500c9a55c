"""The routes under /api/ with which users improve agents: forks, changes over runs, ratings, the review, data sets."""

from __future__ import annotations

import json
import shlex
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, structs, to_builtins
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from plait.core.errors import UnknownRun
from plait.journal.records import RunRow
from plait.journal.results import Rating, Results
from plait.journal.run_query import RunQuery, make_query
from plait.journal.store import NoJournal, is_default, read_timeline, wait_for
from plait.lab.dataset_files import GRADERS, DataSets, GraderWord
from plait.server.auth import ANY, CHANGE, VIEW, Caller
from plait.server.changes import MOST_RUNS, OVER, ChangeBody, ChangeRunner, ForkBody, changed_agent, describe_changeable
from plait.server.errors import RequestRejected, json_response, missing_role
from plait.server.openapi import ApiRoute
from plait.server.runs import RunManager
from plait.server.service import FILTERS, parse_body, parse_number, read_filters, run_id
from plait.view.http_exchanges import body_text, mark_changes
from plait.view.run_view import format_answer, list_entry

Comment = Annotated[str, Meta(max_length=4_000)]
LongText = Annotated[str, Meta(max_length=400_000)]
MOST_REVIEWED = 1_000
"""Runs among which the review looks for those without a rating."""


class RatingBody(msgspec.Struct, forbid_unknown_fields=True):
    """Whether a run is good, and a comment; `good` null takes the rating back. `only_unrated`: refused with 409 if
    somebody has rated the run."""

    good: bool | None
    why: Comment = ""
    only_unrated: bool = False


class SelectionBody(msgspec.Struct, forbid_unknown_fields=True):
    """Runs by their ids; none for those that match the filters in the address, which are those of the list."""

    runs: Annotated[list[str], Meta(max_length=MOST_RUNS)] = []


class TaskBody(msgspec.Struct, forbid_unknown_fields=True):
    """A task for a data set, with the run that it comes from."""

    question: LongText
    answer: LongText
    grader: GraderWord = "exact"
    note: Comment = ""
    run: Annotated[str, Meta(max_length=200)] = ""


class TaskChangeBody(msgspec.Struct, forbid_unknown_fields=True):
    """The task in a line, known by its digest, gets another expected answer, grader or note, or (`remove`) goes."""

    line: int
    digest: str
    remove: bool = False
    answer: LongText | None = None
    grader: GraderWord | None = None
    note: Comment | None = None


def improve_routes(manager: RunManager) -> list[ApiRoute]:
    """Return the routes of forks, changes, ratings, the review and data sets."""
    api = ImproveApi(manager)
    one, changes, data = "/api/runs/{id}", "/api/changes", "/api/datasets/{name}"
    change = f"{changes}/{{name}}"
    return [
        ApiRoute(f"{one}/change", api.changeable, role=CHANGE),
        ApiRoute(f"{one}/fork", api.fork, methods=["POST"], body=ForkBody, role=CHANGE),
        ApiRoute(f"{one}/rating", api.rating, role=ANY),
        ApiRoute(f"{one}/rating", api.rate, methods=["POST"], body=RatingBody, role=ANY),
        ApiRoute("/api/sides/differences", api.differences, query=("a", "b", "step"), role=ANY),
        ApiRoute(changes, api.changes, role=CHANGE),
        ApiRoute(changes, api.begin_change, methods=["POST"], body=ChangeBody, role=CHANGE),
        ApiRoute(
            "/api/changes/estimate", api.estimate, methods=["POST"], query=FILTERS, body=SelectionBody, role=CHANGE
        ),
        ApiRoute(change, api.change, role=CHANGE),
        ApiRoute(f"{change}/cancel", api.cancel_change, methods=["POST"], role=CHANGE),
        ApiRoute(f"{change}/resume", api.resume_change, methods=["POST"], role=CHANGE),
        ApiRoute("/api/review", api.review, query=FILTERS, role=CHANGE),
        ApiRoute("/api/datasets", api.list_datasets, role=CHANGE),
        ApiRoute(data, api.dataset, role=CHANGE),
        ApiRoute(data, api.add_task, methods=["POST"], body=TaskBody, role=CHANGE),
        ApiRoute(f"{data}/task", api.change_task, methods=["POST"], body=TaskChangeBody, role=CHANGE),
        ApiRoute(f"{data}/file", api.dataset_file, role=CHANGE),
    ]


class ImproveApi:
    """The routes with which users change and judge runs."""

    def __init__(self, manager: RunManager) -> None:
        self._manager, self._store = manager, manager.journal.store
        self._results, self._runner = Results(self._store), ChangeRunner(manager)
        manager.resume_more = self._runner.resume_open
        self._datasets = DataSets(Path(manager.table.datasets))

    # -- forks

    async def changeable(self, request: Request) -> Response:
        """Return what a fork of a run can change, as the run has it."""
        row = await self._find_shown(run_id(request), request.state.caller)
        return json_response(await describe_changeable(self._manager, row, request.state.caller))

    async def fork(self, request: Request) -> Response:
        """Start a run that takes over the steps of another one, with changes."""
        given, caller = await parse_body(request, ForkBody), request.state.caller
        head = (await self._find_shown(run_id(request), caller)).head
        agent = changed_agent(self._manager, head, given, caller)
        more: dict[str, Any] = {"question": given.question, "results": given.results, "unchanged": given.kept_limits}
        more |= self._manager.annotate_fork(head, caller)
        active = await self._manager.fork_with(agent, head, given.at, **more)
        return json_response({"run": active.run}, 201)

    async def differences(self, request: Request) -> Response:
        """Return what differs in the answers and agents of the runs `a` and `b`, and in the requests of a `step`:
        texts with marks, as those of the wire."""
        query, caller = request.query_params, request.state.caller
        rows = [await self._find_shown(query.get(name, ""), caller) for name in ("a", "b")]
        answers = [format_answer((row.outcome or {}).get("answer")) for row in rows]
        requests = []
        if "step" in query:
            step, of = parse_number("step", query["step"]), list[list[tuple[str, str]]]()
            for row in rows:
                calls = (await read_timeline(self._store, row.head.run)).model_calls
                asked = [call for call in calls if call.step == step and call.i < 0]
                of.append([(call.phase, indent_body(call.request)) for call in asked])
            for (_, old), (phase, new) in zip(*of, strict=False):
                requests.append({"phase": phase, "before": old, "after": new, "marks": mark_changes(old, new)})
        found: dict[str, Any] = {"answer": mark_texts(*answers)}
        changes = self._runner.list_differences(rows[0].head, rows[1].head)
        found["changes"] = [(*each, mark_texts(*each[1:])) for each in changes]
        found["change"] = next((each[7:] for each in rows[1].head.tags if each.startswith("change:")), "")
        return json_response({**found, "requests": requests})

    async def _find_shown(self, run: str, caller: Caller) -> RunRow:
        """Return a run whose steps the caller may see. Raises `UnknownRun` and `RequestRejected`."""
        row = await self._manager.find_run(run, caller)
        if not await self._manager.shows_steps(row, caller):
            raise missing_role(VIEW)
        return row

    # -- changes over runs

    async def estimate(self, request: Request) -> Response:
        """Return the runs of a selection that a change can be run over, with their ids and recorded costs."""
        given, caller = await parse_body(request, SelectionBody), request.state.caller
        if given.runs:
            rows = [await self._manager.find_run(run, caller) for run in given.runs]
        else:
            rows = await self._list(make_query(**{**read_filters(request), "limit": MOST_RUNS + 1}), caller)
        if len(rows) > MOST_RUNS:
            hint = "Set more filters, or select runs."
            raise RequestRejected(400, f"More than {MOST_RUNS} runs match.", hint=hint, param="runs")
        return json_response(self._runner.estimate(rows))

    async def begin_change(self, request: Request) -> Response:
        """Begin a change: one fork from step 1 for each of the runs."""
        given, caller = await parse_body(request, ChangeBody), request.state.caller
        rows = [await self._manager.find_run(run, caller) for run in dict.fromkeys(given.runs)]
        return json_response({"name": await self._runner.begin(given.change, rows, caller)}, 201)

    async def changes(self, request: Request) -> Response:
        """Return the changes that were run over runs, the newest first."""
        found, names = await self._runner.list(request.state.caller), ("name", "title", "started", "by")
        return json_response([{n: getattr(each, n) for n in names} | {"runs": len(each.runs)} for each in found])

    async def change(self, request: Request) -> Response:
        """Return how far a change is, and what it made better and worse."""
        from plait.lab.changed_runs import compare_pairs, judge_pair  # heavy: statistics

        caller = request.state.caller
        kept = await self._runner.find(request.path_params["name"], caller)
        is_active = self._runner.is_active(kept.name)  # before the forks are read, which end before it does
        forks, expected = await self._runner.find_forks(kept), await run_in_threadpool(self._datasets.find_expected)
        rows, pairs, first = list[dict[str, Any]](), [], None
        for run in kept.runs:
            try:
                before = await self._manager.find_run(run, caller)
            except UnknownRun as why:  # deleted meanwhile
                rows.append({"run": run, "missing": str(why)})
                continue
            first, after = first or before.head, forks.get(run)
            row: dict[str, Any] = {"run": run, "before": list_entry(before), "after": after and list_entry(after)}
            row["is_test"] = before.head.question.strip() in expected
            row["problem"] = self._runner.problems.get(kept.fork_of(run), "")
            if after is not None and after.outcome is not None and after.status != "waiting":
                pair = await judge_pair(before, after, expected.get(before.head.question), self._store)
                pairs.append(pair)
                row["difference"] = mark_texts(row["before"]["answer"], row["after"]["answer"])
                row |= {"sign": pair.sign, "grades": [each and (each.mark, each.success) for each in pair.grades]}
                row["used"] = {name: pair.measure(name) for name in ("tokens", "cost")}
            rows.append(row)
        about = {name: getattr(kept, name) for name in ("name", "started", "by", "is_cancelled", "title")}
        changed = self._runner.list_changes(first, kept.change) if first is not None else []
        about["changes"] = [(*each, mark_texts(*each[1:])) for each in changed]
        summary = compare_pairs(pairs) if pairs else None
        return json_response({**about, "is_active": is_active, "rows": rows, "summary": summary})

    async def cancel_change(self, request: Request) -> Response:
        """Begin no more forks of a change, and cancel those that go on."""
        await self._runner.cancel(request.path_params["name"], request.state.caller)
        return json_response({})

    async def resume_change(self, request: Request) -> Response:
        """Go on with a change that was cancelled or interrupted."""
        await self._runner.resume(request.path_params["name"], request.state.caller)
        return json_response({})

    # -- ratings and the review

    async def rating(self, request: Request) -> Response:
        """Return the rating of a run, null for none."""
        row = await self._manager.find_run(run_id(request), request.state.caller)
        return json_response(await self._find_rating(row.head.run))

    async def rate(self, request: Request) -> Response:
        """Rate a run in place of an earlier rating: one's own run, or with the role 'change' any that one sees."""
        row = await self._manager.find_run_to_change(run_id(request), request.state.caller)
        given, run = await parse_body(request, RatingBody), row.head.run
        if given.only_unrated and row.rating:
            found = await self._find_rating(run)
            by = f" by {found.by}" if found and found.by else ""
            raise RequestRejected(409, f"This run has been rated {row.rating}{by} meanwhile.", code="rated")
        if given.good is None:
            await self._store.forget("rating", [run])
        else:
            await self._results.rate(run, given.good, given.why.strip(), by=request.state.caller.name)
        return json_response(await self._find_rating(run))

    async def _find_rating(self, run: str) -> Rating | None:
        return (await self._results.list_ratings([run])).get(run)

    async def review(self, request: Request) -> Response:
        """Return the runs that match and that nobody has rated, the newest first, and how many are rated."""
        query = make_query(**{**read_filters(request), "limit": MOST_REVIEWED})
        rows = [row for row in await self._list(query, request.state.caller) if row.status in OVER]
        left = [row.head.run for row in rows if not row.rating]
        return json_response({"runs": left[:100], "left": len(left), "rated": len(rows) - len(left)})

    async def _list(self, query: RunQuery, caller: Caller) -> list[RunRow]:
        with suppress(NoJournal):  # before the first run
            return await self._store.list_runs(structs.replace(query, label=caller.label))
        return []

    # -- data sets; they are files, so plain functions that run in threads read them

    def list_datasets(self, request: Request) -> Response:
        """Return the data sets with their numbers of tasks."""
        return json_response({"datasets": self._datasets.list(), "graders": GRADERS})

    def dataset(self, request: Request) -> Response:
        """Return the tasks of a data set, what is wrong with other lines, how to compare agents on it, and the
        comparisons that did."""
        return json_response(self._describe(request.path_params["name"], request.state.caller))

    def _describe(self, name: str, caller: Caller) -> dict[str, Any]:
        found, place, agents = self._datasets.read(name), self._store.place, self._manager.agents.values()
        words = [each for served in agents if served.word for each in ("-a", served.word)]
        words = words or ["--loops", ",".join(sorted({each.agent._loop.name for each in agents}))]
        words = ["plait", "compare", found["file"], *words, *([] if is_default(place) else ["--journal", place])]
        more = {"comparisons": wait_for(self._results.list_progress(found["file"]))} if caller.may(VIEW) else {}
        return {**found, "command": shlex.join(words), **more}

    def dataset_file(self, request: Request) -> Response:
        """Return a data set as a file."""
        name, data = request.path_params["name"], self._datasets.read_file(request.path_params["name"])
        headers = {"Content-Disposition": f'attachment; filename="{name}.jsonl"'}
        return Response(data, media_type="application/octet-stream", headers=headers)

    async def add_task(self, request: Request) -> Response:
        """Add a task to a data set, which is made if it is not there. Returns how many tasks asked the same before."""
        given = await parse_body(request, TaskBody)
        if not given.question.strip() or not given.answer.strip():
            raise RequestRejected(400, "A task has a question and an expected answer.", param="answer")
        name = request.path_params["name"]
        same = await run_in_threadpool(self._datasets.add, name, to_builtins(given))
        return json_response({"same": same}, 201)

    async def change_task(self, request: Request) -> Response:
        """Change or remove a task of a data set."""
        given = await parse_body(request, TaskChangeBody)
        fields = {each: value for each in ("answer", "grader", "note") if (value := getattr(given, each)) is not None}
        name, change = request.path_params["name"], None if given.remove else fields
        if not await run_in_threadpool(self._datasets.change, name, given.line, given.digest, change):
            said = f"{name}.jsonl, line {given.line} has changed meanwhile."
            raise RequestRejected(409, said, hint="Load the data set again.", code="changed")
        return json_response(await run_in_threadpool(self._describe, name, request.state.caller))


def mark_texts(before: str, after: str) -> tuple[str, str, Any] | None:
    """Return the second text, the first, and the marks that make one of the other; None if they are equal or one is
    empty."""
    is_changed = before and after and before != after
    return (after, before, mark_changes(before, after)) if is_changed else None


def indent_body(body: bytes) -> str:
    """Return a request as indented JSON, which is easier to compare; as it is if it is no JSON."""
    text = body_text(body)[0]
    with suppress(ValueError, RecursionError):
        return json.dumps(json.loads(text), ensure_ascii=False, indent=1)
    return text
