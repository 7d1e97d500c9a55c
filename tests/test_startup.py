"""Loading a model and reading its first prompt are shown while they last, and start-up is charged to no phase."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from rich.console import Console

import plait
from journal_rows import is_request
from models_server import Server, whole_stream
from plait.cli.drawing import ModelStatus
from plait.core import LimitNear, Reply, Think, user
from plait.models import embedded
from plait.models.base import OnText, Request, Response
from plait.models.local import local_model
from plait.models.prices import Rate
from plait.runtime.clock import RunClock
from plait.runtime.costs import spending
from plait.runtime.guard import Entry
from plait.runtime.guards.limits import LimitGuard
from plait.runtime.limits import Limits
from plait.runtime.tally import Tally


def test_the_terminal_says_loading_model_and_reading_prompt_with_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    now, loading = [0.0], [True]
    monkeypatch.setattr(embedded, "is_loading", lambda name: loading[0])
    waiting = ModelStatus("act · local", "local:m", clock=lambda: now[0])

    def shown() -> str:
        out = io.StringIO()
        Console(file=out, width=80).print(waiting)
        return out.getvalue().strip()

    assert shown() == "act · local · loading model · 0 s"
    now[0] = 12.0
    assert shown() == "act · local · loading model · 12 s"
    loading[0] = False
    assert shown() == "act · local · reading prompt · 0 s"
    now[0] = 15.0
    assert shown() == "act · local · reading prompt · 3 s"
    assert ModelStatus("act · openai:m", "openai:m", clock=lambda: 0.0).__rich__().plain == "act · openai:m · 0 s"


class Loading(plait.Scripted):
    """A model that says it had to be loaded for an hour."""

    async def send(self, request: Request, think: Think, on_text: OnText | None = None) -> Response:
        return structs.replace(await super().send(request, think, on_text), startup=3600.0)


def test_start_up_is_charged_to_no_phase() -> None:
    model = Loading(["Final Answer: 42"], rate=Rate("watts", watts=100.0, tariff=1.0))
    run = plait.Agent("react", model=model).run("6*7?")
    (row,) = spending(run.timeline)
    assert row.seconds < 0 and (run.cost_usd or 0.0) < 0  # what remains of a moment without that hour
    assert run.seconds < 0  # nor to the run


async def test_the_embedded_model_says_how_long_it_took_to_start(monkeypatch: pytest.MonkeyPatch) -> None:
    think = Think("act", (user("q"),))
    async with Server(lambda asked: asked.stream(whole_stream("so"))) as server:

        async def start_server(*_: Any) -> embedded.ServerAddress:
            await asyncio.sleep(0.05)
            return embedded.ServerAddress(server.url, "key")

        monkeypatch.setattr(embedded, "start_server", start_server)
        model = local_model()
        response = await model.send(model.encode(think), think)
    assert response.startup >= 0.05


async def test_one_slow_first_call_is_not_the_duration_of_the_next() -> None:
    now = [0.0]
    model = plait.Scripted([])
    guard = LimitGuard(Limits(seconds=300), Tally(), RunClock(300, now=lambda: now[0]), lambda phase: model)

    async def call(n: int, seconds: float) -> None:
        think = Think("act")
        entry = Entry("run", str(n), n + 1, think, think)
        await guard.before(entry)
        now[0] += seconds
        await guard.after(entry, Reply("so", seconds=seconds), True)

    await call(0, 102.0)
    for n in range(1, 9):
        await call(n, 20.0)
    with pytest.raises(LimitNear, match=r"^262\.0 of 300 seconds are used, and a model call takes about 20\.0 s$"):
        await call(9, 20.0)


def test_a_refused_connection_on_this_machine_is_not_tried_again(tmp_path: Path) -> None:
    from plait.models.chat import ChatModel

    gone = ChatModel(spec="ollama:m", name="m", endpoint="http://127.0.0.1:9/v1", base_env="OLLAMA_BASE_URL")
    run = plait.Agent("react", model=gone).run("6*7?")
    assert run.status == "crashed" and "connection refused" in str(run.reason)
    assert "Is the server running?" in run.outcome.hint  # type: ignore[union-attr]
    assert len([row for row in run.trace if is_request(row.record)]) == 1
    assert run.cost_usd == 0.0 and run.usage.tokens == 0
