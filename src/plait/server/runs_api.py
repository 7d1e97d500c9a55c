"""The routes under /api/ with which the pages read runs."""

from __future__ import annotations

import time
from datetime import date, timedelta
from urllib.parse import quote
from weakref import WeakValueDictionary

from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from plait import loops
from plait.core.attachments import IMAGE_TYPES
from plait.journal.records import RunRow
from plait.journal.results import Results
from plait.journal.run_query import ALL, make_query
from plait.journal.store import wait_for
from plait.recorded_runs import RecordedRuns
from plait.runtime.conversations.attachments import restore_request
from plait.runtime.run_files import read_files
from plait.server.agents import ServedAgent
from plait.server.auth import ANY, ROLES, VIEW
from plait.server.errors import RequestRejected, json_response, missing_role
from plait.server.openapi import ApiRoute, RoleRoute
from plait.server.runs import RunManager
from plait.server.service import FILTERS, parse_number, read_filters, run_id, stream_events
from plait.view import live, run_search
from plait.view.http_exchanges import body_text, exact_body, read_exchanges
from plait.view.run_diff import equal_steps, first_difference, load_compared
from plait.view.run_view import list_entry
from plait.view.waterfall import read_waterfall

PIECE = 400_000
"""Characters of a text in one answer."""


def viewer_routes(manager: RunManager) -> list[Route]:
    """Return the routes of runs and comparisons."""
    api = ViewerApi(manager)
    return [
        ApiRoute("/api/me", api.me, role=ANY),
        ApiRoute("/api/about", api.about, role=ANY),
        ApiRoute("/api/runs", api.runs, query=FILTERS, role=ANY),
        ApiRoute("/api/events", api.events, role=ANY),
        ApiRoute("/api/questions", api.questions, query=FILTERS, role=ANY),
        ApiRoute("/api/costs", api.costs, query=("by", "over", "days", *FILTERS), role=ANY),
        ApiRoute("/api/sides", api.sides, query=("a", "b"), role=ANY),
        ApiRoute("/api/comparisons", api.comparisons, role=VIEW),
        RoleRoute("/comparison", api.comparison, role=VIEW),
        ApiRoute("/api/runs/{id}", api.run, role=ANY),
        ApiRoute("/api/runs/{id}/events", api.run_events, query=("after", "answers"), role=ANY),
        ApiRoute("/api/runs/{id}/waterfall", api.waterfall, query=("since",), role=ANY),
        ApiRoute("/api/runs/{id}/search", api.search, query=("words",), role=ANY),
        ApiRoute("/api/runs/{id}/text", api.text, query=("item", "field", "from"), role=ANY),
        ApiRoute("/api/runs/{id}/files/{file}", api.file, role=ANY),
        ApiRoute("/api/runs/{id}/wire", api.wire, query=("step",), role=ANY),
        ApiRoute("/api/runs/{id}/wire/{seq}", api.body, role=ANY),
    ]


class ViewerApi:
    """The routes of the viewer. Those that read the journal are plain functions: Starlette runs them in threads. A user
    without the role `view` sees only the user's own runs (`Caller.label`, `RunManager.find_run`)."""

    def __init__(self, manager: RunManager) -> None:
        self._manager, self._journal = manager, manager.journal
        # One for all lists with a label, while one of them is open.
        self._watches = WeakValueDictionary[str, run_search.ListWatch]()

    # -- reading

    def me(self, request: Request) -> Response:
        """Return who asks: the name of a user, the roles, and whether the caller may do everything, or logged in."""
        caller, login = request.state.caller, request.state.login
        roles = [role for role in ROLES if caller.may(role)]
        return json_response({"name": caller.name, "roles": roles, "full": caller.full, "login": login})

    def about(self, request: Request) -> Response:
        """Return the agents and loops to start with, and the choices of the filters."""
        agents = [describe_agent(each) for each in self._manager.agents.values()]
        choices = run_search.list_choices(self._journal, request.state.caller.label)
        return json_response({"agents": agents, "loops": list(loops.names()), "choices": choices})

    def runs(self, request: Request) -> Response:
        """Return a page of the list. The first one without a filter also has the unfinished runs."""
        wanted, label = make_query(**{"limit": run_search.PAGE, **read_filters(request)}), request.state.caller.label
        found, more = run_search.find_runs(self._journal, replace(wanted, label=label))
        is_first = replace(wanted, limit=-1) == ALL
        unfinished = run_search.find_unfinished(self._journal, label) if is_first else []
        lists = {"live": [list_entry(row) for row in unfinished], "runs": [list_entry(row) for row in found]}
        return json_response({**lists, "more": more})

    def questions(self, request: Request) -> Response:
        """Return the open questions of all waiting runs that match."""
        return json_response({"questions": self._list(request).questions(**read_filters(request))})

    def costs(self, request: Request) -> Response:
        """Return what all runs that match used by day, week, month, user, tag, agent or model, also `over` time.
        `days`: those of so many whole days, today included."""
        by, over, days = (request.query_params.get(name, "") for name in ("by", "over", "days"))
        filters, today = read_filters(request), date.today()
        if days:
            filters["since"] = str(today - timedelta(min(parse_number("days", days), 99_999) - 1))
        about = {"by": by or "day", "over": over, "since": filters.get("since"), "today": str(today)}
        return json_response({**about, "groups": self._list(request).costs(by or "day", over=over, **filters)})

    def run(self, request: Request) -> Response:
        """Return all facts about a run, its steps, and what the caller may do with it."""
        row, shows_steps = self._find(request)
        caller = request.state.caller
        found = live.run_document(self._journal, row.head.run, label=caller.label, shows_steps=shows_steps)
        return json_response({**found, "may": wait_for(self._manager.list_rights(row, caller))})

    def waterfall(self, request: Request) -> Response:
        """Return a run and its child runs over time; with `since`, only the rows that changed since that second."""
        rows = read_waterfall(self._journal, self._find_shown(request).head.run)
        since = parse_number("since", request.query_params.get("since") or "0")
        changed = [row for row in rows if row["end"] is None or row["end"] >= since]
        return json_response({"rows": changed, "now": time.time()})

    def search(self, request: Request) -> Response:
        """Return where words occur in the texts of a run."""
        timeline = live.full_timeline(self._journal, self._find_shown(request).head.run)
        return json_response(timeline.search(request.query_params.get("words", "")))

    def text(self, request: Request) -> Response:
        """Return a piece of a text that was cut in the run's document."""
        query = request.query_params
        start = parse_number("from", query.get("from", "0"))
        timeline = live.full_timeline(self._journal, self._find_shown(request).head.run)
        whole = timeline.text(query.get("item", ""), query.get("field", ""))
        if whole is None:
            raise RequestRejected(404, "There is no such text.")
        end = start + PIECE
        return json_response({"text": whole[start:end], "more": max(0, len(whole) - end)})

    def wire(self, request: Request) -> Response:
        """Return the requests and responses of one step, and the requests that they are compared with."""
        step = parse_number("step", request.query_params.get("step", ""))
        row = self._find_shown(request)
        timeline = self._journal.timeline(row.head.run)
        found = list(read_exchanges(row.head, timeline, steps=frozenset({step})))
        before = {each.before for each in found}
        bodies = {each.seq: body_text(each.request)[0] for _, each in timeline.attempts if each.seq in before}
        steps = sorted({each.step for each in timeline.model_calls})
        return json_response({"exchanges": found, "before": bodies, "steps": steps})

    def body(self, request: Request) -> Response:
        """Return the body of a row, byte for byte."""
        run, seq = self._find_shown(request).head.run, parse_number("seq", request.path_params["seq"])
        body = exact_body(self._journal.iter_rows(run), seq)
        if body is None:
            raise RequestRejected(404, "That row has no body.")
        if any(each.seq == seq for _, each in self._journal.timeline(run, bodies=False).attempts):
            body = wait_for(restore_request(body, self._journal.head(run), self._journal.store))
        headers = {"Content-Disposition": f'attachment; filename="{seq}.txt"'}
        return Response(body, media_type="application/octet-stream", headers=headers)

    def file(self, request: Request) -> Response:
        """Return a file that a tool returned."""
        files = read_files(self._journal.timeline(self._find_shown(request).head.run))
        found = next((each for each in files if each.id == request.path_params["file"]), None)
        if found is None:
            raise RequestRejected(404, "The run has no such file.")
        return file_response(found.data, found.name, found.media_type)

    def sides(self, request: Request) -> Response:
        """Return two runs, where they first differ, and which steps are equal."""
        rows = [self._find_shown(request, request.query_params.get(name, "")) for name in ("a", "b")]
        a, b = (load_compared(row, self._journal.iter_rows(row.head.run)) for row in rows)
        label = request.state.caller.label
        one, other = (live.run_document(self._journal, row.head.run, label=label) for row in rows)
        return json_response({"a": one, "b": other, "first": first_difference(a, b), "same": equal_steps(a, b)})

    def run_events(self, request: Request) -> Response:
        """Send what changes in a run, as server-sent events. With `answers`, an answer being written comes as HTML."""
        after = live.last_seen_row(request.headers.get("last-event-id"), request.query_params.get("after"))
        row, shows_steps = self._find(request)
        texts, run = self._manager.texts, row.head.run
        watch = texts.watch_answers if "answers" in request.query_params else texts.watch
        writing = watch(run) if shows_steps else live.NOBODY
        label, is_over = request.state.caller.label, lambda: self._manager.stopping
        follow = live.follow_run(self._journal, run, after, is_over, writing, label=label, shows_steps=shows_steps)
        return stream_events(follow)

    async def events(self, request: Request) -> Response:
        """Send each new or changed run, as server-sent events."""
        label = request.state.caller.label
        watch = self._watches.setdefault(label, run_search.ListWatch(self._journal, label))
        return stream_events(live.follow_list(watch, lambda: self._manager.stopping))

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

    # -- who may see what

    def _list(self, request: Request) -> RecordedRuns:
        return RecordedRuns(self._journal.store, request.state.caller.label)

    def _find(self, request: Request, run: str | None = None) -> tuple[RunRow, bool]:
        """Return a run that the caller may see, the one of the address, and whether its steps are shown."""
        caller = request.state.caller
        row = wait_for(self._manager.find_run(run_id(request) if run is None else run, caller))
        return row, wait_for(self._manager.shows_steps(row, caller))

    def _find_shown(self, request: Request, run: str | None = None) -> RunRow:
        """Return a run whose steps the caller may see. Raises `UnknownRun` and `RequestRejected`."""
        row, shows_steps = self._find(request, run)
        if not shows_steps:
            raise missing_role(VIEW)
        return row


def file_response(content: bytes, name: str, media_type: str = "") -> Response:
    """Return a file. A browser shows pictures and saves all else; it runs nothing."""
    how = "inline" if media_type in IMAGE_TYPES else "attachment"
    headers = {
        "Content-Disposition": f"{how}; filename*=UTF-8''{quote(name)}",
        "Content-Security-Policy": "default-src 'none'; sandbox; frame-ancestors 'none'",
    }
    media_type = media_type if how == "inline" else "application/octet-stream"
    return Response(content, media_type=media_type, headers=headers)


def describe_agent(served: ServedAgent) -> dict[str, str]:
    agent = served.agent
    named = [("", agent.model), *((f"{phase}=", model) for phase, model in agent.models.items())]
    specs = [(start, each if isinstance(each, str) else getattr(each, "spec", "")) for start, each in named]
    models = ", ".join(f"{start}{spec}" for start, spec in specs if start or spec)
    return {"name": served.name, "description": served.description, "loop": agent._loop.name, "model": models}
