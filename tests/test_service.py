"""Runs as a service: /v1/runs at one server, and at several servers and workers behind one address."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from lazily import skip_without

skip_without("server", "starlette", "uvicorn", "prometheus_client")

import plait  # noqa: E402
from patience import patience  # noqa: E402
from plait.config import ServeTable  # noqa: E402
from plait.journal.store import Journal, open_store  # noqa: E402
from plait.models.scripted import Scripted  # noqa: E402
from plait.server.agents import serve_agent  # noqa: E402
from plait.server.auth import ANYONE  # noqa: E402
from plait.server.service import EventFollower  # noqa: E402
from plait.view.live import NOBODY, follow  # noqa: E402
from postgres_server import shared_server  # noqa: E402
from window_server import FULL, ONE, TWO, Here, Process, ask, serving  # noqa: E402
from window_support import action, answer, react  # noqa: E402

HERE = Path(__file__).parent


def read_events(port: int, run: str, after: int | None = None, *, token: str | None = None, path: str = "/v1") -> Any:
    """Yield the events of a run as (id, name, data) until the stream ends."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    headers = {} if after is None else {"last-event-id": str(after)}
    if token is not None:
        headers["authorization"] = f"Bearer {token}"
    connection.request("GET", f"{path}/runs/{run}/events", headers=headers)
    reply = connection.getresponse()
    assert reply.status == 200, reply.read()
    event: dict[str, str] = {}
    try:
        while raw := reply.readline():
            line = raw.decode().rstrip("\n")
            if line:
                name, _, value = line.partition(": ")
                event[name] = value
                continue
            if "data" in event:
                yield event.get("id"), event.get("event", "message"), json.loads(event["data"])
            event = {}
    finally:
        connection.close()


def wait_for(port: int, run: str, *statuses: str, seconds: float = 30) -> dict[str, Any]:
    until = time.monotonic() + seconds
    while True:
        _, _, found = ask(port, "GET", f"/v1/runs/{run}")
        if found["status"] in statuses:
            return dict(found)
        assert time.monotonic() < until, found
        time.sleep(0.02)


def start(port: int, **body: Any) -> str:
    status, headers, told = ask(port, "POST", "/v1/runs", {"question": "?", **body})
    assert (status, headers["location"]) == (202, f"/v1/runs/{told['run']}"), told
    return str(told["run"])


# -- one server


@pytest.fixture
def one(tmp_path: Path) -> Iterator[Here]:
    agent = react(tmp_path / "j.db", [action("send", {"text": "hi"}), answer("Sent.")], approve="effects")
    with serving(agent) as server:
        yield server


def test_a_run_is_started_followed_answered_and_listed(one: Here) -> None:
    run = start(one.port, agent="plait", user="ada", tags=["a"], metadata={"order": 7}, session="trip")
    waits = wait_for(one.port, run, "waiting")
    (asked,) = waits["questions"]
    assert (asked["kind"], asked["tool"], asked["run"]) == ("approval", "send", run)
    assert (waits["user"], waits["tags"], waits["metadata"], waits["session"]) == ("ada", ["a"], {"order": 7}, "trip")
    assert waits["queued"] is None
    said = {"answer": "yes", "question": asked["question"]}
    assert ask(one.port, "POST", f"/v1/runs/{run}/answer", said)[0] == 202
    assert wait_for(one.port, run, "answered")["answer"] == "Sent."
    assert ask(one.port, "POST", f"/v1/runs/{run}/answer", said)[0] == 409
    told = list(read_events(one.port, run))
    names = [name for _, name, _ in told]
    assert [name for name in names if name in ("called", "observed")] == ["called", "observed"]
    assert names[-1] == "answered" and told[-1][2]["answer"] == "Sent."
    ids = [int(id) for id, _, _ in told if id is not None]
    assert ids == sorted(set(ids))
    for after in (ids[0], ids[len(ids) // 2], ids[-1]):  # nothing is missing, and nothing comes twice
        place = next(i for i, (id, _, _) in enumerate(told) if id == str(after))
        assert list(read_events(one.port, run, after)) == told[place + 1 :]
    status, _, told = ask(one.port, "GET", "/v1/runs?usr=bob")  # would list the runs of all users
    assert status == 400 and "no filter 'usr'" in told["error"]["message"]
    for filters, found in (("user=ada", 1), ("tag=a&status=answered", 1), ("user=bob", 0), ("since=1h", 1)):
        assert len(ask(one.port, "GET", f"/v1/runs?{filters}")[2]["runs"]) == found


def test_a_run_is_cancelled_while_it_goes_on_and_while_it_waits(tmp_path: Path, one: Here) -> None:
    run = start(one.port, agent="plait")
    wait_for(one.port, run, "waiting")
    for _ in range(2):
        assert ask(one.port, "POST", f"/v1/runs/{run}/cancel", {})[0] == 202
    cancelled = wait_for(one.port, run, "cancelled")
    assert cancelled["reason"] == "Cancelled by a client." and cancelled["questions"] == []
    with serving(react(tmp_path / "k.db", model=Scripted([answer("x")], delay=30))) as slow:
        run = start(slow.port, agent="plait")
        assert ask(slow.port, "POST", f"/v1/runs/{run}/cancel", {})[0] == 202
        assert wait_for(slow.port, run, "cancelled")["reason"] == "Cancelled by a client."


async def test_the_events_of_a_run_that_is_deleted_end(tmp_path: Path) -> None:
    waits = await react(tmp_path / "j.db", [action("send", {"text": "hi"})], approve="effects").arun("?")
    store = open_store(tmp_path / "j.db")
    follower = EventFollower(store, await store.find_run(waits.id), ANYONE, True)
    events = follow(follower.read_events, lambda: False, NOBODY)
    assert b"waiting" in [await anext(events) for _ in range(2)][1]
    await store.delete([waits.id])
    assert [each async for each in events] == []


def test_what_cannot_be_started_is_said(one: Here) -> None:
    for body, status, said in (
        ({"agent": "nobody"}, 404, "does not exist"),
        ({"agent": "plait", "question": ""}, 400, "question"),
        ({"agent": "plait", "tools": ["evil.py"]}, 400, "tools"),
        ({"agent": "plait", "queue": "default"}, 400, "has no queue"),
        ({"agent": "plait", "priority": 3}, 400, "Name the queue"),
        ({"agent": "plait", "tags": "a"}, 400, "tags"),
    ):
        found, _, told = ask(one.port, "POST", "/v1/runs", {"question": "?", **body})
        assert (found, said in told["error"]["message"]) == (status, True), (body, told)
    for path in ("/v1/runs/none", "/v1/runs/none/events", "/v1/runs/last/../x"):
        assert ask(one.port, "GET", path)[0] in (400, 404)
    assert ask(one.port, "GET", "/v1/runs?limit=x")[0] == 400
    assert ask(one.port, "GET", "/v1/runs?status=odd")[0] == 400
    assert ask(one.port, "POST", "/v1/runs/none/cancel", {})[0] == 404


def test_a_client_sees_and_changes_only_runs_of_its_own_token(tmp_path: Path) -> None:
    agent = react(tmp_path / "j.db", [action("send", {"text": "hi"}), answer("Sent.")], approve="effects")
    with serving(agent, tokens=(FULL,), clients=(ONE, TWO)) as server:

        def do(token: str, method: str, path: str, body: Any = None) -> tuple[int, Any]:
            status, _, told = ask(server.port, method, path, body, token=token)
            return status, told

        body = {"agent": "plait", "question": "?", "user": "ada", "session": "trip"}
        run, other = (do(token, "POST", "/v1/runs", body)[1]["run"] for token in (ONE, TWO))
        until = time.monotonic() + 30
        while do(ONE, "GET", f"/v1/runs/{run}")[1]["status"] != "waiting" and time.monotonic() < until:
            time.sleep(0.02)
        (asked,) = do(ONE, "GET", f"/v1/runs/{run}")[1]["questions"]
        for method, path, sent in (
            ("GET", f"/v1/runs/{run}", None),
            ("GET", f"/v1/runs/{run[:-1]}", None),
            ("GET", f"/v1/runs/{run}/events", None),
            ("POST", f"/v1/runs/{run}/answer", {"answer": "yes", "question": asked["question"]}),
            ("POST", f"/v1/runs/{run}/resume", {}),
            ("POST", f"/v1/runs/{run}/cancel", {}),
        ):
            assert do(TWO, method, path, sent)[0] == 404, path
        assert [each["run"] for each in do(ONE, "GET", "/v1/runs?user=ada&session=trip")[1]["runs"]] == [run]
        assert [each["run"] for each in do(TWO, "GET", "/v1/runs")[1]["runs"]] == [other]
        assert len(do(FULL, "GET", "/v1/runs")[1]["runs"]) == 2
        assert do(ONE, "GET", f"/v1/runs/{run}")[1]["user"] == "ada"  # without the token's name
        status, refused = do(ONE, "POST", "/v1/runs", body)
        said = refused["error"]["message"]
        assert status == 409 and "In session 'trip'" in said and str(tmp_path) not in said and "@" not in said
        assert do("wrong-token-of-nobody", "GET", "/v1/runs")[0] == 401


class Watching(plait.Hook):
    """Changes nothing."""


@pytest.mark.parametrize("thoughts", [False, True])
def test_a_client_sees_thoughts_only_of_an_agent_that_shows_them_and_has_no_hooks(
    tmp_path: Path, thoughts: bool
) -> None:
    script = [action("population", {"town": "Lyon"}, "SECRET THOUGHT"), answer("522250")]
    plain = react(tmp_path / "j.db", script)
    hooked = react(tmp_path / "j.db", script, hooks=[Watching()])
    settings = ServeTable()
    made = {"plain": plain, "hooked": hooked}
    agents = [serve_agent(name, each, settings, thoughts=thoughts) for name, each in made.items()]
    with serving(*agents, tokens=(FULL,), clients=(ONE,)) as server:
        for name in ("plain", "hooked"):
            body = {"agent": name, "question": "?"}
            run = ask(server.port, "POST", "/v1/runs", body, token=ONE)[2]["run"]
            told = list(read_events(server.port, run, token=ONE))
            assert told[-1][2]["answer"] == "522250"
            is_shown = "SECRET THOUGHT" in json.dumps(told)
            assert is_shown == (thoughts and name == "plain")
            assert "SECRET THOUGHT" in json.dumps(list(read_events(server.port, run, token=FULL)))


# -- several servers and workers, one address


class Fleet:
    """Servers, workers and a proxy that sends each connection to the next server."""

    def __init__(self, folder: Path, journal: str, *, servers: int = 2, workers: int = 3) -> None:
        self.folder, self.journal = folder, journal
        self.ledger = folder / "ledger"
        self.ledger.touch()
        self.stack = ExitStack()
        self.env = {"LEDGER": str(self.ledger), "PLAIT_JOURNAL": journal}
        words = [word for name in ("clock", "payer") for word in ("-a", f"service_agents:{name}")]
        shutil.copy(HERE / "service_agents.py", folder)
        self.servers = [Process(*words, cwd=folder, env=self.env) for _ in range(servers)]
        for each in self.servers:
            self.stack.push(each)
        self.workers = [self.start_worker(words) for _ in range(workers)]
        for each in self.servers:
            each.__enter__()
        self.port = self.stack.enter_context(proxying([each.port for each in self.servers]))

    def start_worker(self, words: list[str]) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "plait", "worker", *words, "--concurrency", "4"]
        with (self.folder / "log").open("ab") as log:
            process = subprocess.Popen(command, cwd=self.folder, env={**os.environ, **self.env}, stderr=log)
        self.stack.callback(process.wait)
        self.stack.callback(process.kill)
        return process


@contextmanager
def proxying(ports: list[int]) -> Iterator[int]:
    """A port whose connections go to the other ports in turn."""
    loop, found, turn = asyncio.new_event_loop(), list[int](), count()
    servers: list[asyncio.Server] = []

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", ports[next(turn) % len(ports)])
        await asyncio.gather(copy(reader, back), copy(there, writer))

    async def serve() -> None:
        servers.append(await asyncio.start_server(connect, "127.0.0.1", 0))
        found.append(servers[0].sockets[0].getsockname()[1])

    async def stop() -> None:
        servers[0].close()
        going = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in going:
            task.cancel()
        await asyncio.gather(*going, return_exceptions=True)
        await asyncio.sleep(0.05)  # transports close in the next turns of the loop

    loop.run_until_complete(serve())
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield found[0]
    finally:
        asyncio.run_coroutine_threadsafe(stop(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    made = Fleet(tmp_path_factory.mktemp("fleet"), shared_server().new_journal())
    with made.stack:
        yield made


def test_an_approval_at_one_server_goes_on_in_a_worker_and_its_events_at_the_other_server(fleet: Fleet) -> None:
    first, second = (each.port for each in fleet.servers)
    run = start(first, agent="payer", queue="default", user="ada")
    told = []
    for each in read_events(first, run):
        told.append(each)
        if each[1] == "waiting":
            break
    (asked,) = told[-1][2]["questions"]
    said = {"answer": "yes", "question": asked["question"]}
    assert ask(second, "POST", f"/v1/runs/{run}/answer", said)[0] == 202
    last = [id for id, _, _ in told if id is not None][-1]
    rest = list(read_events(second, run, int(last)))
    assert rest[-1][1] == "answered" and rest[-1][2]["answer"] == "Paid."
    whole = list(read_events(fleet.port, run))
    recorded = [each for each in whole if each[0] is not None or each[1] in ("called", "observed")]
    assert [each for each in (*told, *rest) if each[0] is not None] == [
        each for each in recorded if each[0] is not None
    ]
    assert fleet.ledger.read_text().splitlines().count("5") >= 1
    assert ask(first, "POST", f"/v1/runs/{run}/answer", said)[0] == 409


def test_what_a_model_writes_in_a_worker_is_seen_at_each_server_within_300_ms(fleet: Fleet) -> None:
    run = start(fleet.port, agent="clock", queue="default")
    late: dict[int, list[float]] = {}

    def watch(port: int) -> None:
        for _, name, data in read_events(port, run):
            if name == "writing" and data["steps"] and data["steps"][0]["parts"]:
                now = time.time()
                late.setdefault(port, []).append(now - float(data["steps"][0]["parts"][-1][1].split()[-1]))

    ports = [each.port for each in fleet.servers]
    with ThreadPoolExecutor() as pool:
        list(pool.map(watch, ports))
    assert set(late) == set(ports) and min(map(len, late.values())) >= 5, late
    assert max(map(statistics.median, late.values())) < patience(0.3), late


def test_a_run_in_a_worker_is_cancelled_at_any_server(fleet: Fleet) -> None:
    run = start(fleet.servers[0].port, agent="clock", queue="default")
    wait_for(fleet.port, run, "running")
    begun = time.monotonic()
    assert ask(fleet.servers[1].port, "POST", f"/v1/runs/{run}/cancel", {})[0] == 202
    assert wait_for(fleet.port, run, "cancelled")["reason"] == "Cancelled by a client."
    assert time.monotonic() - begun < patience(1.5)


def test_one_key_begins_one_run_whatever_the_server(fleet: Fleet) -> None:
    ports = [each.port for each in fleet.servers] * 5
    before = len(Journal.at(fleet.journal).runs(1000))

    def begin(port: int, key: str, **more: Any) -> tuple[int, Any]:
        body = {"agent": "payer", "question": "?", **more}
        status, _, told = ask(port, "POST", "/v1/runs", body, {"idempotency-key": key})
        return status, told

    with ThreadPoolExecutor(10) as pool:
        for key, more in (("queued", {"queue": "default"}), ("here", {})):
            told = list(pool.map(lambda port, k=key, m=more: begin(port, k, **m), ports))  # type: ignore[misc]
            assert {status for status, _ in told} == {202} and len({each["run"] for _, each in told}) == 1
    assert len(Journal.at(fleet.journal).runs(1000)) == before + 2
    assert begin(ports[1], "here", question="else")[0] == 422


def test_the_turns_of_a_session_at_two_servers_come_one_after_another(fleet: Fleet) -> None:
    ports = [each.port for each in fleet.servers] * 3

    def say(port: int) -> int:
        body = {"model": "clock", "messages": [{"role": "user", "content": "?"}], "session": "talk"}
        return ask(port, "POST", "/v1/chat/completions", body)[0]

    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(say, ports[:4])) == [200] * 4
    store = Journal.at(fleet.journal)
    turns = store.turns("talk")
    assert [len(store.head(each.run).history) for each in turns] == [0, 1, 2, 3]


def test_openai_client_at_one_address(fleet: Fleet) -> None:
    openai = pytest.importorskip("openai")
    client = openai.OpenAI(base_url=f"http://127.0.0.1:{fleet.port}/v1", api_key="none")
    messages: list[Any] = [{"role": "user", "content": "Pay."}]
    for reply in ("yes", "Thanks."):
        asked = client.chat.completions.create(model="payer", messages=messages).choices[0].message.content
        messages += [{"role": "assistant", "content": asked}, {"role": "user", "content": reply}]
    assert asked == "Paid."
    whole = "".join(
        piece.choices[0].delta.content or ""
        for piece in client.chat.completions.create(model="clock", messages=messages[:1], stream=True)
    )
    assert whole.endswith("It is late.")
    run = start(fleet.port, agent="clock", queue="default")  # the viewer of another process is live
    names = [name for _, name, _ in read_events(fleet.servers[1].port, run, path="/api")]
    assert "writing" in names and names[-1] == "over"


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_an_mcp_client_at_one_address_is_asked_and_answers(fleet: Fleet, mode: str) -> None:
    mcp = pytest.importorskip("mcp")
    from mcp.client.streamable_http import streamable_http_client

    async with mcp.Client(streamable_http_client(f"http://127.0.0.1:{fleet.port}/mcp"), mode=mode) as client:
        assert {tool.name for tool in (await client.list_tools()).tools} == {"clock", "payer"}
        asked = (await client.call_tool("payer", {"question": "Pay."})).structured_content
        assert asked["status"] == "waiting"
        for _ in range(2):  # the second answer is too late, whichever server gets it
            said = {"question": "yes", "run": asked["run"], "reply_to": asked["reply_to"]}
            result = await client.call_tool("payer", said)
            assert result.is_error or result.content[0].text == "Paid."
        assert result.is_error
