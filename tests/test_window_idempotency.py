"""A request that is sent again with its `Idempotency-Key` gets the first answer, and starts nothing."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from lazily import skip_without

skip_without("server", "starlette", "uvicorn", "prometheus_client")

from plait.journal.store import Journal  # noqa: E402
from plait.server.idempotency import Idempotency  # noqa: E402
from window_server import serving  # noqa: E402
from window_support import answer, react  # noqa: E402

CHAT = {"model": "plait", "messages": [{"role": "user", "content": "How many?"}]}


async def test_a_stream_with_a_key_arrives_as_it_is_made() -> None:
    go_on = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"one", "more_body": True})
        await go_on.wait()
        await send({"type": "http.response.body", "body": b"two"})

    async def ask(got: list[bytes]) -> None:
        async def send(message: Any) -> None:
            got.append(message.get("body", b""))

        scope = {"type": "http", "method": "POST", "path": "/", "headers": [(b"idempotency-key", b"k")]}
        await keys.answer(scope, b"{}", asyncio.Event().wait, send, "")  # type: ignore[arg-type]

    keys = Idempotency(app)
    first, second = list[bytes](), list[bytes]()
    asking = [asyncio.create_task(ask(got)) for got in (first, second)]
    for _ in range(100):
        await asyncio.sleep(0)
    assert first == second == [b"", b"one"]
    go_on.set()
    await asyncio.gather(*asking)
    assert first == second == [b"", b"one", b"two"]


async def test_stored_answers_have_a_limit_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    made = list[str]()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        made.append(key)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x" * 100})

    async def send(message: Any) -> None: ...

    monkeypatch.setattr("plait.server.idempotency.MAX_STORED", 250)
    keys = Idempotency(app)
    for key in ("a", "b", "c", "c", "b", "d", "a"):  # the oldest are forgotten, the two newest are stored
        scope = {"type": "http", "method": "POST", "path": "/", "headers": [(b"idempotency-key", key.encode())]}
        await keys.answer(scope, b"{}", asyncio.Event().wait, send, "")  # type: ignore[arg-type]
    assert made == ["a", "b", "c", "d", "a"]


def runs(journal: Path) -> int:
    return len(Journal(journal).runs(100)) if journal.exists() else 0


def test_a_request_that_is_sent_again_starts_no_second_run(tmp_path: Path) -> None:
    journal = tmp_path / "j.db"
    with serving(react(journal, [answer("x")])) as server:
        name = next(iter(server.manager.agents))
        start, chat = {"agent": name, "question": "q"}, {**CHAT, "model": name}
        for path, body, key in (("/api/runs", start, "a"), ("/v1/chat/completions", chat, "b")):
            before = runs(journal)
            first, *others = (server.ask("POST", path, body, headers={"idempotency-key": key}) for _ in range(3))
            assert all((status, said) == (first[0], first[2]) for status, _, said in others)
            assert runs(journal) == before + 1
        assert server.ask("POST", "/v1/runs", start)[2] != server.ask("POST", "/v1/runs", start)[2]


def test_requests_with_one_key_at_the_same_time_start_one_run(tmp_path: Path) -> None:
    journal = tmp_path / "j.db"
    with serving(react(journal, [answer("x")])) as server, ThreadPoolExecutor(8) as pool:
        body = {"agent": next(iter(server.manager.agents)), "question": "q"}
        headers = {"idempotency-key": "same"}
        told = list(pool.map(lambda _: server.ask("POST", "/v1/runs", body, headers=headers), range(8)))
        assert {status for status, *_ in told} == {202} and len({said["run"] for *_, said in told}) == 1
        assert runs(journal) == 1


def test_a_key_is_for_one_session_and_one_query(tmp_path: Path) -> None:
    journal = tmp_path / "j.db"
    with serving(react(journal, [answer("x")] * 9)) as server:
        chat = {**CHAT, "model": next(iter(server.manager.agents))}

        def ask(path: str = "/v1/chat/completions", key: str = "k", **headers: str) -> int:
            return server.ask("POST", path, chat, headers={"idempotency-key": key, **headers})[0]

        assert [ask(**{"x-plait-session": "a"}) for _ in range(2)] == [200, 200] and runs(journal) == 1
        assert [ask(), ask(**{"x-plait-session": "b"}), ask("/v1/chat/completions?x=1")] == [422] * 3
        assert (ask(**{"x-plait-session": "b", "key": "l"}), runs(journal)) == (200, 2)


def test_a_key_is_for_one_request(tmp_path: Path) -> None:
    with serving(react(tmp_path / "j.db", [answer("x")])) as server:
        body = {"agent": next(iter(server.manager.agents)), "question": "q"}
        assert server.ask("POST", "/v1/runs", body, headers={"idempotency-key": "k"})[0] == 202
        status, _, said = server.ask("POST", "/v1/runs", {**body, "question": "?"}, headers={"idempotency-key": "k"})
        assert status == 422 and said["error"]["code"] == "idempotency_key_reused"
        assert server.ask("POST", "/v1/runs", body, headers={"idempotency-key": "k" * 300})[0] == 400
