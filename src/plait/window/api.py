"""The window: its pages, and what they ask for under /api/. Only full tokens come here (`guard.NEEDS`)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from importlib import resources
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from plait import loops
from plait.core.errors import UsageError
from plait.journal.records import Thinking
from plait.window import doing, finding, live
from plait.window.answers import json_answer
from plait.window.desk import Desk
from plait.window.document import listed
from plait.window.doing import Answer, id_of
from plait.window.errors import Rejected
from plait.window.file import as_json
from plait.window.sides import first_difference, same_steps, side
from plait.window.wire import exact, exchanges, text_of
from plait.window.writing import Writing

KINDS = {"js": "text/javascript", "css": "text/css", "svg": "image/svg+xml", "html": "text/html"}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""What the pages may do: run their own scripts, ask this server, and nothing else."""
PIECE = 400_000
"""Characters of a text that are sent at once."""


def routes(desk: Desk) -> list[Route]:
    """The pages at / and /page/, and /api/."""
    pages = [
        Route("/", _index(desk)),
        Route("/page/{name}", _asset),
        Route("/login", doing.login(desk), methods=["POST"]),
    ]
    return [*pages, *_reading(desk), *doing.routes(desk)]


# -- pages


def _index(desk: Desk) -> Answer:
    async def index(request: Request) -> Response:
        caller = request.state.caller
        known = caller is not None and caller.full and "login" not in request.query_params
        name = "index.html" if known else "login.html"
        return _page(name)

    return index


async def _asset(request: Request) -> Response:
    name = request.path_params["name"]
    if name.rpartition(".")[2] not in ("js", "css", "svg") or not name.replace(".", "").replace("-", "").isalnum():
        raise Rejected(404, f"There is no page {name!r}.")
    return _page(name)


def _page(name: str) -> Response:
    found = resources.files("plait.window.page").joinpath(name)
    if not found.is_file():
        raise Rejected(404, f"There is no page {name!r}.")
    headers = {"Content-Security-Policy": POLICY, "Cache-Control": "no-cache"}
    return Response(found.read_bytes(), media_type=KINDS[name.rpartition(".")[2]], headers=headers)


# -- reading


def _reading(desk: Desk) -> list[Route]:
    journal = desk.journal

    async def about(request: Request) -> Response:
        agents = [
            {
                "name": each.name,
                "description": each.description,
                "loop": each.agent._loop.name,
                "model": _model(each.agent),
            }
            for each in desk.agents.values()
        ]
        choices = await asyncio.to_thread(finding.choices, journal)
        return json_answer({"agents": agents, "loops": list(loops.names()), "choices": choices})

    async def runs(request: Request) -> Response:
        wanted = _wanted(request)
        found, more = await asyncio.to_thread(finding.find, journal, wanted)
        plain = not any((wanted.words, wanted.status, wanted.loop, wanted.agent, wanted.session, wanted.model))
        going = await asyncio.to_thread(finding.live, journal) if plain and not wanted.before else []
        told = {
            "live": [listed(each.row, n=each.n) for each in going],
            "runs": [listed(each.row, n=each.n) for each in found],
        }
        return json_answer({**told, "more": more})

    async def run(request: Request) -> Response:
        return json_answer(await asyncio.to_thread(live.document, journal, id_of(request)))

    async def text(request: Request) -> Response:
        query = request.query_params
        at = _number("from", query.get("from", "0"))
        teller = await asyncio.to_thread(live.whole, journal, id_of(request))
        whole = teller.text(query.get("item", ""), query.get("field", ""))
        if whole is None:
            raise Rejected(404, "There is no such text.")
        return json_answer({"text": whole[at : at + PIECE], "more": max(0, len(whole) - at - PIECE)})

    async def wire(request: Request) -> Response:
        step = _number("step", request.query_params.get("step", ""))

        def work() -> dict[str, Any]:
            row = journal.run(id_of(request))
            rows = journal.rows(row.head.run)
            found = [as_json(each) for each in exchanges(row.head, rows, steps=frozenset({step}))]
            earlier = {each["before"] for each in found}
            bodies = {each.seq: text_of(each.body)[0] for each in rows if each.seq in earlier}
            steps = sorted({each.record.step for each in rows if isinstance(each.record, Thinking)})
            return {"exchanges": found, "before": bodies, "steps": steps}

        return json_answer(await asyncio.to_thread(work))

    async def body(request: Request) -> Response:
        seq = _number("seq", request.path_params["seq"])
        found = await asyncio.to_thread(lambda: exact(journal.iter_rows(id_of(request)), seq))
        if found is None:
            raise Rejected(404, "That row has no body.")
        headers = {"Content-Disposition": f'attachment; filename="{seq}.txt"'}
        return Response(found, media_type="application/octet-stream", headers=headers)

    async def sides(request: Request) -> Response:
        def work() -> dict[str, Any]:
            names = [request.query_params.get(name, "") for name in ("a", "b")]
            rows = [journal.run(name) for name in names]
            both = [side(row, journal.iter_rows(row.head.run)) for row in rows]
            found = first_difference(*both)
            first = None if found is None else {name: getattr(found, name) for name in found.__struct_fields__}
            documents = [live.document(journal, row.head.run) for row in rows]
            return {"a": documents[0], "b": documents[1], "first": first, "same": same_steps(*both)}

        return json_answer(await asyncio.to_thread(work))

    async def run_events(request: Request) -> Response:
        after = live.after_of(request.headers.get("last-event-id"), request.query_params.get("after"))
        row = await asyncio.to_thread(journal.run, id_of(request))
        name = row.head.run

        def writing() -> Writing | None:
            performing = desk.performing.get(name)
            return performing.writing if performing is not None else None

        return _stream(live.events_of(journal, name, after, lambda: desk.stopping, writing))

    async def events(request: Request) -> Response:
        return _stream(live.events(journal, lambda: desk.stopping))

    async def comparisons(request: Request) -> Response:
        from plait.window.comparisons import listed_comparisons

        return json_answer(await asyncio.to_thread(listed_comparisons, journal))

    async def comparison(request: Request) -> Response:
        from plait.window.comparisons import comparison_page

        text = await asyncio.to_thread(comparison_page, journal, request.query_params.get("name", ""))
        # What its scripts may do stands in the page, which names them by their hashes.
        return Response(text, media_type="text/html", headers={"Content-Security-Policy": "frame-ancestors 'none'"})

    return [
        Route("/api/about", about),
        Route("/api/runs", runs, methods=["GET"]),
        Route("/api/events", events),
        Route("/api/sides", sides),
        Route("/api/comparisons", comparisons),
        Route("/comparison", comparison),
        Route("/api/runs/{id}", run),
        Route("/api/runs/{id}/events", run_events),
        Route("/api/runs/{id}/text", text),
        Route("/api/runs/{id}/wire", wire),
        Route("/api/runs/{id}/wire/{seq}", body),
    ]


# -- within


def _stream(events: AsyncIterator[bytes]) -> Response:
    return StreamingResponse(events, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})


def _wanted(request: Request) -> finding.Wanted:
    query = dict(request.query_params)
    known = finding.Wanted.__struct_fields__
    given: dict[str, Any] = {name: query[name] for name in known if name in query}
    given.update({name: _number(name, query[name]) for name in ("before", "limit") if name in query})
    try:
        return finding.Wanted(**given)
    except UsageError as why:
        raise Rejected(400, why.message, hint=why.hint) from None


def _number(name: str, said: str) -> int:
    """A number of the address. One that SQLite can't hold is none."""
    if not said.isdecimal() or len(said) > 18:
        raise Rejected(400, f"{name} is a number.", param=name)
    return int(said)


def _model(agent: Any) -> str:
    model = agent.model if isinstance(agent.model, str) else getattr(agent.model, "spec", "")
    phases = {
        phase: each if isinstance(each, str) else getattr(each, "spec", "") for phase, each in agent.models.items()
    }
    return ", ".join([*({model} if model else ()), *(f"{phase}={each}" for phase, each in phases.items())])
