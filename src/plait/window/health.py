"""Whether the server lives and takes runs, and its numbers for Prometheus."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from plait.core.errors import JournalError
from plait.journal.reader import NoJournal
from plait.window.answers import json_answer
from plait.window.desk import Desk


def routes(desk: Desk) -> list[Route]:
    """/health (it lives), /health/ready (it takes runs) and /metrics."""

    async def live(request: Request) -> Response:
        return json_answer({"status": "ok"})

    async def ready(request: Request) -> Response:
        why = "stopping" if desk.stopping else await asyncio.to_thread(_journal, desk)
        return json_answer({"status": why or "ok"}, 503 if why else 200)

    async def metrics(request: Request) -> Response:
        from prometheus_client.exposition import choose_encoder

        desk.counts.running.set(desk.running)
        desk.counts.queued.set(desk.waiting)
        encode, kind = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(desk.counts.registry), media_type=None, headers={"content-type": kind})

    return [Route("/health", live), Route("/health/ready", ready), Route("/metrics", metrics)]


def _journal(desk: Desk) -> str:
    """What keeps the journal from being read; "" where nothing does. One that is not there yet is made by a run."""
    try:
        desk.journal.runs(1)
    except NoJournal:
        return ""
    except JournalError:
        return "the journal can't be read"
    return ""
