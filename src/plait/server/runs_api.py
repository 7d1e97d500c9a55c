"""The routes under /api/ with which the pages read runs, and fork them."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from plait import loops
from plait.journal.results import Results
from plait.journal.run_query import make_query
from plait.journal.store import wait_for
from plait.recorded_runs import RecordedRuns
from plait.runtime.conversations.attachments import restore_request
from plait.runtime.run_files import read_files
from plait.server.agents import ServedAgent
from plait.server.errors import RequestRejected, json_response
from plait.server.openapi import ApiRoute
from plait.server.runs import RunManager
from plait.server.service import FILTERS, parse_body, parse_number, read_filters, run_id, stream_events
from plait.view import live, run_search
from plait.view.http_exchanges import body_text, exact_body, read_exchanges
from plait.view.run_diff import equal_steps, first_difference, load_compared
from plait.view.run_view import list_entry

PIECE = 400_000
"""Characters of a text in one answer."""


class ForkBody(msgspec.Struct, forbid_unknown_fields=True):
    """The step from which to fork, and what changes. Nothing here may name a file or load code."""

    at: int
    model: str | None = None
    models: dict[str, str] | None = None
    loop: str | None = None
    options: dict[str, Any] | None = None


def viewer_routes(manager: RunManager) -> list[Route]:
    """Return the routes of runs and comparisons."""
    api = ViewerApi(manager)
    return [
        ApiRoute("/api/about", api.about),
        ApiRoute("/api/runs", api.runs, query=FILTERS),
        ApiRoute("/api/events", api.events),
        ApiRoute("/api/questions", api.questions, query=FILTERS),
        ApiRoute("/api/costs", api.costs, query=("by", *FILTERS)),
        ApiRoute("/api/sides", api.sides, query=("a", "b")),
        ApiRoute("/api/comparisons", api.comparisons),
        Route("/comparison", api.comparison),
        ApiRoute("/api/runs/{id}", api.run),
        ApiRoute("/api/runs/{id}/events", api.run_events, query=("after",)),
        ApiRoute("/api/runs/{id}/text", api.text, query=("item", "field", "from")),
        ApiRoute("/api/runs/{id}/files/{file}", api.file),
        ApiRoute("/api/runs/{id}/wire", api.wire, query=("step",)),
        ApiRoute("/api/runs/{id}/wire/{seq}", api.body),
        ApiRoute("/api/runs/{id}/fork", api.fork, methods=["POST"], body=ForkBody),
    ]


class ViewerApi:
    """The routes of the viewer. Those that read the journal are plain functions: Starlette runs them in threads."""

    def __init__(self, manager: RunManager) -> None:
        self._manager, self._journal, self._runs = manager, manager.journal, RecordedRuns(manager.journal.store)

    # -- reading

    def about(self, request: Request) -> Response:
        """Return the agents and loops to start with, and the choices of the filters."""
        agents = [_describe_agent(each) for each in self._manager.agents.values()]
        choices = run_search.list_choices(self._journal)
        return json_response({"agents": agents, "loops": list(loops.names()), "choices": choices})

    def runs(self, request: Request) -> Response:
        """Return a page of the list. The first one without a filter also has the unfinished runs."""
        wanted = make_query(**{"limit": run_search.PAGE, **read_filters(request)})
        found, more = run_search.find_runs(self._journal, wanted)
        unfinished = [] if run_search.is_filtered(wanted) else run_search.find_unfinished(self._journal)
        lists = {name: [list_entry(row) for row in runs] for name, runs in (("live", unfinished), ("runs", found))}
        return json_response({**lists, "more": more})

    def questions(self, request: Request) -> Response:
        """Return the open questions of all waiting runs that match."""
        return json_response({"questions": self._runs.questions(**read_filters(request))})

    def costs(self, request: Request) -> Response:
        """Return what all runs that match used by day, user, tag or agent."""
        by = request.query_params.get("by", "day")
        return json_response({"by": by, "groups": self._runs.costs(by, **read_filters(request))})

    def run(self, request: Request) -> Response:
        """Return all facts about a run, and its steps."""
        return json_response(live.run_document(self._journal, run_id(request)))

    def text(self, request: Request) -> Response:
        """Return a piece of a text that was cut in the run's document."""
        query = request.query_params
        start = parse_number("from", query.get("from", "0"))
        timeline = live.full_timeline(self._journal, run_id(request))
        whole = timeline.text(query.get("item", ""), query.get("field", ""))
        if whole is None:
            raise RequestRejected(404, "There is no such text.")
        end = start + PIECE
        return json_response({"text": whole[start:end], "more": max(0, len(whole) - end)})

    def wire(self, request: Request) -> Response:
        """Return the requests and responses of one step, and the requests that they are compared with."""
        step = parse_number("step", request.query_params.get("step", ""))
        row = self._journal.run(run_id(request))
        timeline = self._journal.timeline(row.head.run)
        found = list(read_exchanges(row.head, timeline, steps=frozenset({step})))
        before = {each.before for each in found}
        bodies = {each.seq: body_text(each.request)[0] for _, each in timeline.attempts if each.seq in before}
        steps = sorted({each.step for each in timeline.model_calls})
        return json_response({"exchanges": found, "before": bodies, "steps": steps})

    def body(self, request: Request) -> Response:
        """Return the body of a row, byte for byte."""
        run, seq = run_id(request), parse_number("seq", request.path_params["seq"])
        body = exact_body(self._journal.iter_rows(run), seq)
        if body is None:
            raise RequestRejected(404, "That row has no body.")
        if any(each.seq == seq for _, each in self._journal.timeline(run, bodies=False).attempts):
            body = wait_for(restore_request(body, self._journal.head(run), self._journal.store))
        headers = {"Content-Disposition": f'attachment; filename="{seq}.txt"'}
        return Response(body, media_type="application/octet-stream", headers=headers)

    def file(self, request: Request) -> Response:
        """Return a file that a tool returned. A browser shows pictures and saves all else; it runs nothing."""
        files = read_files(self._journal.timeline(self._journal.run(run_id(request)).head.run))
        found = next((each for each in files if each.id == request.path_params["file"]), None)
        if found is None:
            raise RequestRejected(404, "The run has no such file.")
        how = "inline" if found.is_picture else "attachment"
        headers = {
            "Content-Disposition": f"{how}; filename*=UTF-8''{quote(found.name)}",
            "Content-Security-Policy": "default-src 'none'; sandbox; frame-ancestors 'none'",
        }
        media_type = found.media_type if found.is_picture else "application/octet-stream"
        return Response(found.data, media_type=media_type, headers=headers)

    def sides(self, request: Request) -> Response:
        """Return two runs, where they first differ, and which steps are equal."""
        rows = [self._journal.run(request.query_params.get(name, "")) for name in ("a", "b")]
        a, b = (load_compared(row, self._journal.iter_rows(row.head.run)) for row in rows)
        documents = [live.run_document(self._journal, row.head.run) for row in rows]
        return json_response(
            {"a": documents[0], "b": documents[1], "first": first_difference(a, b), "same": equal_steps(a, b)}
        )

    def run_events(self, request: Request) -> Response:
        """Send what changes in a run, as server-sent events."""
        after = live.last_seen_row(request.headers.get("last-event-id"), request.query_params.get("after"))
        name = self._journal.run(run_id(request)).head.run
        texts = self._manager.texts.watch(name)
        return stream_events(live.follow_run(self._journal, name, after, lambda: self._manager.stopping, texts))

    async def events(self, request: Request) -> Response:
        """Send each new or changed run, as server-sent events."""
        return stream_events(live.follow_list(self._journal, lambda: self._manager.stopping))

    def comparisons(self, request: Request) -> Response:
        """Return the comparisons and how far they are."""
        return json_response(wait_for(Results(self._journal.store).list_progress()))

    def comparison(self, request: Request) -> Response:
        """Return the page of a comparison, as `plait compare --html` writes it, with links to its runs."""
        from plait.lab import page, run_comparison  # heavy: statistics and charts

        found = run_comparison.load_comparison(request.query_params.get("name", ""), self._journal.place)
        text = page.render_served_page(found, "./#/runs/")
        # The page itself restricts its scripts by their hashes.
        return Response(text, media_type="text/html", headers={"Content-Security-Policy": "frame-ancestors 'none'"})

    # -- actions

    async def fork(self, request: Request) -> Response:
        """Start a run that takes over the steps of another one."""
        given = msgspec.structs.asdict(await parse_body(request, ForkBody))
        at = given.pop("at")
        changes = {name: value for name, value in given.items() if value not in (None, {}, "")}
        active = await self._manager.fork(run_id(request), at, changes, caller=request.state.caller)
        return json_response({"run": active.run}, 201)


def _describe_agent(served: ServedAgent) -> dict[str, str]:
    agent = served.agent
    named = [("", agent.model), *((f"{phase}=", model) for phase, model in agent.models.items())]
    specs = [(start, each if isinstance(each, str) else getattr(each, "spec", "")) for start, each in named]
    models = ", ".join(f"{start}{spec}" for start, spec in specs if start or spec)
    return {"name": served.name, "description": served.description, "loop": agent._loop.name, "model": models}
