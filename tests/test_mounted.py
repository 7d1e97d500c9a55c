"""An agent inside another application: its pages and endpoints below a prefix, for the users of that application."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

import plait
from browser import Browser
from lazily import skip_without
from plait.config import ServeTable
from plait.core.errors import ConfigError
from plait.journal.open_questions import read_questions
from plait.journal.store import Journal

skip_without("server", "starlette", "uvicorn", "prometheus_client", "fastapi")

import uvicorn  # noqa: E402
from fastapi import FastAPI, HTTPException  # noqa: E402

import plait.server.mounted  # noqa: E402  # it is imported before pytest's own frames are deep
from plait.server.agents import serve_agent  # noqa: E402
from plait.server.app import build_app  # noqa: E402
from plait.server.auth import ROLES, AccessTokens  # noqa: E402
from plait.server.runs import RunManager  # noqa: E402
from test_ag_ui import booking, talk, texts  # noqa: E402
from test_run_files import FILES, make_agent  # noqa: E402
from window_server import FULL, ask, asked  # noqa: E402
from window_support import action, answer  # noqa: E402

TOKENS = ("PLAIT_SERVE_TOKEN", "PLAIT_SERVE_CLIENT_TOKENS", "PLAIT_SERVE_USER_TOKENS")


@pytest.fixture(autouse=True)
def _no_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in TOKENS:
        monkeypatch.delenv(name, raising=False)


def find_user(scope: MutableMapping[str, Any]) -> str | None:
    """The user in the first part of the Host header; nobody for an address."""
    host = dict(scope["headers"]).get(b"host", b"").decode()
    return host.partition(".")[0] if host.endswith(".example") else None


@contextmanager
def listening(app: Any) -> Iterator[int]:
    """Serve an application with uvicorn in a thread; gives the port."""
    sock = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, ws="none"))
    thread = threading.Thread(target=asyncio.run, args=(server.serve([sock]),), daemon=True)
    thread.start()
    try:
        yield sock.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(60)
        sock.close()


def mounted(agent: plait.Agent, **given: Any) -> FastAPI:
    app = FastAPI()
    app.mount("/assistant", agent.to_asgi(**given))

    @app.get("/own")
    def own() -> str:
        return "the application's own"

    return app


def client_of(app: Any, host: str, *, peer: Any = ("127.0.0.1", 1)) -> httpx2.AsyncClient:
    transport = httpx2.ASGITransport(app=app, client=peer)
    return httpx2.AsyncClient(transport=transport, base_url=f"http://{host}")


async def test_each_user_of_the_application_has_pages_endpoints_and_conversations_of_their_own(journal: Path) -> None:
    app = mounted(booking(journal), user=find_user)
    async with client_of(app, "ada.example") as ada, client_of(app, "eve.example") as eve:
        said = await ada.post("/assistant/v1/chat/completions", json=asked("A table.", session="trip"))
        run = said.headers["x-plait-run"]
        for page in ("/assistant/", "/assistant/page/main.js", "/assistant/api/about", f"/assistant/api/runs/{run}"):
            assert (await ada.get(page)).status_code == 200, page
        started = await ada.post("/assistant/v1/runs", json={"agent": "plait", "question": "A table.", "session": "x"})
        assert (await ada.get(started.headers["location"])).json()["run"] == started.json()["run"] != run
        assert [each["run"] for each in (await ada.get("/assistant/v1/runs")).json()["runs"]] == [
            started.json()["run"],
            run,
        ]
        assert (await eve.get("/assistant/v1/runs")).json()["runs"] == []
        for path in ("", "/events", "/wire?step=1"):
            assert (await eve.get(f"/assistant/api/runs/{run}{path}")).status_code == 404, path
        yes = {"threadId": "trip", "runId": "r", "messages": [{"id": "1", "role": "user", "content": "yes"}]}
        assert "stale_answer" not in (await eve.post("/assistant/ag-ui", json=yes)).text  # a thread of her own
        assert (await ada.get(f"/assistant/v1/runs/{run}")).json()["status"] == "waiting"
        question = (await ada.get(f"/assistant/v1/runs/{run}")).json()["questions"][0]["question"]
        answer = {"answer": "yes", "question": question}
        assert (await eve.post(f"/assistant/v1/runs/{run}/answer", json=answer)).status_code == 404
        assert (await ada.post(f"/assistant/v1/runs/{run}/answer", json=answer)).status_code == 202
        assert (await ada.get("/own")).json() == "the application's own"
        assert (await ada.get("/assistant/metrics")).status_code == 403
    async with client_of(app, "127.0.0.1") as nobody:
        for path in ("/assistant/", "/assistant/page/main.js", "/assistant/v1/models", f"/assistant/api/runs/{run}"):
            assert (await nobody.get(path)).status_code == 401, path


async def test_roles_are_those_that_the_application_gives(journal: Path) -> None:
    roles = {"*": ["use"], "boss": ["view", "approve"]}
    app = mounted(booking(journal), user=find_user, roles=roles)
    async with client_of(app, "ada.example") as ada, client_of(app, "boss.example") as boss:
        run = (await ada.post("/assistant/v1/chat/completions", json=asked("A table."))).headers["x-plait-run"]
        question = (await ada.get(f"/assistant/v1/runs/{run}")).json()["questions"][0]["question"]
        answer = {"answer": "yes", "question": question}
        assert (await ada.post(f"/assistant/v1/runs/{run}/answer", json=answer)).status_code == 403
        assert (await boss.get(f"/assistant/api/runs/{run}")).status_code == 200
        assert (await boss.post("/assistant/v1/chat/completions", json=asked("A table."))).status_code == 403
    with pytest.raises(ConfigError, match="the role 'fly'"):
        booking(journal).to_asgi(roles={"*": ["fly"]})


async def test_users_of_the_application_keep_notes_of_their_own_also_by_child_runs(journal: Path) -> None:
    keeps = plait.Agent(
        "react",
        model=plait.Scripted([action("write_note", {"text": "I like tea."}), answer("Kept.")], by_turn=False),
        tools=["memory"],
        journal=journal,
    )
    asks = [action("ask_agent", "Remember."), answer("Done.")] * 2
    agent = plait.Agent("react", model=plait.Scripted(asks, by_turn=False), tools=[keeps.as_tool()], journal=journal)
    roles = {"*": ["use"], "boss": ["view"]}
    app = mounted(agent, user=find_user, roles=roles)
    async with (
        client_of(app, "ada.example") as ada,
        client_of(app, "eve.example") as eve,
        client_of(app, "boss.example") as boss,
    ):
        said = await ada.post("/assistant/v1/chat/completions", json=asked("I like tea."))
        assert said.json()["choices"][0]["message"]["content"] == "Done."
        found = (await ada.get("/assistant/api/notes")).json()
        assert [(each["name"], each["owner"]) for each in found["memories"]] == [("notes", "ada")] and not found["all"]
        (note,) = found["memories"][0]["notes"]
        change = {"memory": "notes", "id": note["id"], "was": note["text"], "text": None, "owner": "ada"}
        for other in (eve, boss):  # who may see all runs sees no notes of others
            assert (await other.get("/assistant/api/notes")).json()["memories"] == []
            assert (await other.post("/assistant/api/notes", json=change)).status_code == 404
        assert (await ada.post("/assistant/api/notes", json=change)).json()["memories"] == []


async def test_the_address_of_a_file_is_that_of_the_client(journal: Path) -> None:
    """Below the application's path, and below that of a proxy around it; only a known proxy can say so."""
    draws = make_agent(journal, "chart")

    async def ask(client: httpx2.AsyncClient, prefix: str = "", root: str = "") -> str:
        headers = {"x-forwarded-prefix": prefix}
        said = await client.post(f"{root}/v1/chat/completions", json=asked("Draw."), headers=headers)
        (file,) = said.json()["choices"][0]["message"]["files"]
        below = file["url"].removeprefix(prefix.rstrip("/"))
        assert (await client.get(below, headers=headers)).content == FILES["chart"].data
        assert await find_root(client, prefix, root) == file["url"].partition("/api/")[0]
        return str(file["url"].partition("/api/")[0])

    async def find_root(client: httpx2.AsyncClient, prefix: str, root: str = "") -> str:
        headers = {b"x-forwarded-prefix": prefix.encode("latin-1")}
        said = await client.post(f"{root}/v1/runs", json={"agent": "plait", "question": "?"}, headers=headers)
        return str(said.headers["location"].rpartition("/v1/")[0])

    async with client_of(mounted(draws, user=find_user, roles={"*": ["use"]}), "ada.example") as ada:
        assert await ask(ada, root="/assistant") == "/assistant"
    table = ServeTable(user_header="X-User", proxies=["10.0.0.1"], roles={"*": list(ROLES)}, hosts=["all.example"])
    app = build_app(RunManager([serve_agent("plait", draws, table)], table, AccessTokens((FULL,))))
    async with client_of(app, "all.example", peer=("10.0.0.1", 1)) as proxy:
        proxy.headers["x-user"] = "ada"
        assert await ask(proxy) == ""
        assert await ask(proxy, "/studio/a/") == "/studio/a"
        assert await ask(proxy, "/v1") == "/v1"
        for wrong in ("//evil.example", "/a/../b", "/a?b", "/ä", "a"):
            assert await find_root(proxy, wrong) == "", wrong
    async with client_of(app, "all.example", peer=("10.0.0.2", 1)) as other:
        other.headers["authorization"] = f"Bearer {FULL}"
        assert await find_root(other, "/studio") == ""


@pytest.mark.parametrize("name", ["", "*", "a,b", "@x", " ada", "a\nb", 7])
async def test_a_name_that_is_none_lets_nobody_in(name: Any, journal: Path) -> None:
    async def find(scope: MutableMapping[str, Any]) -> Any:
        return name

    async with client_of(mounted(booking(journal), user=find), "any.example") as client:
        said = await client.get("/assistant/v1/models")
    assert said.status_code == 400 and "to_asgi(user=...) returned" in said.text


async def test_an_error_of_the_application_is_not_one_of_the_agent(journal: Path) -> None:
    def find(scope: MutableMapping[str, Any]) -> str | None:
        raise HTTPException(418, "first the tea")

    async with client_of(mounted(booking(journal), user=find), "any.example") as client:
        said = await client.get("/assistant/v1/models")
    assert (said.status_code, said.json()) == (418, {"detail": "first the tea"})


TRICKS = [
    "/assistant//api/runs",
    "/assistant/page/..%2f..%2fapi/runs",
    "/assistant/page/../api/runs",
    "/assistant/./api/runs",
    "/assistant%2fapi%2fruns",
    "/assistant/%61pi/runs",
    "/assistant/api/%2e%2e/metrics",
    "/assistant/v1/../metrics",
    "/assistant/v1/%2e%2e/metrics",
    "/assistant/assistant/api/runs",
    "//assistant/api/runs",
    "/assistant\\api\\runs",
    "/assistant/health/../api/runs",
    "/assistantapi/runs",
    "/page/../assistant/api/runs",
    "/assistant/page/%00main.js",
    "http://127.0.0.1/assistant/api/runs",
]


def test_a_path_means_the_same_to_the_guard_and_the_routes_below_a_prefix(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLAIT_SERVE_TOKEN", FULL)
    with listening(mounted(booking(journal))) as port:
        for path in TRICKS:
            status, _, said = ask(port, "GET", path)
            assert status in (307, 400, 401, 404), (path, status, said)
        assert ask(port, "GET", "/assistant/v1//models/", token=FULL)[0] == 200
        status, headers, said = ask(port, "POST", "/assistant/login", {"token": FULL})
        cookie = headers["set-cookie"]
        assert status == 200 and "Path=/assistant/" in cookie and "HttpOnly" in cookie
        login = {"cookie": cookie.partition(";")[0], "x-plait-page": said["page"]}
        assert ask(port, "GET", "/assistant/api/runs", headers=login)[0] == 200
        assert ask(port, "GET", "/assistant/api/runs", headers={"cookie": login["cookie"]})[0] == 401
        assert ask(port, "GET", "/assistant/api/runs", headers={**login, "origin": "http://evil.example"})[0] == 403
        assert ask(port, "GET", "/assistant/")[2] != ask(port, "GET", "/assistant/", headers=login)[2]


async def test_without_users_and_tokens_only_this_machine_is_served(journal: Path) -> None:
    app = mounted(booking(journal))
    for host, peer, status in (
        ("127.0.0.1", ("127.0.0.1", 1), 200),
        ("localhost:8000", ("::1", 1), 200),
        ("evil.example", ("127.0.0.1", 1), 421),
        ("127.0.0.1", ("10.0.0.9", 1), 403),
        ("127.0.0.1", ("localhost.evil.example", 1), 403),
        ("127.0.0.1", None, 403),
    ):
        async with client_of(app, host, peer=peer) as client:
            assert (await client.get("/assistant/v1/models")).status_code == status, (host, peer)


async def test_the_pages_work_below_a_prefix_in_a_browser_and_ag_ui_with_its_client(journal: Path) -> None:
    with listening(mounted(booking(journal), user=lambda scope: "ada")) as port:
        address = f"http://127.0.0.1:{port}/assistant"
        _, done = await asyncio.to_thread(talk, f"{address}/ag-ui", {"say": "A table."}, {"resume": True})
        assert texts(done)[-1] == "Your table is booked."
        store = Journal.at(journal).store
        assert [each.by for each in await read_questions(store, Journal.at(journal).run("last").head.run)] == ["ada"]
        async with Browser.shared() as browser:
            page = await browser.page()
            await page.goto(f"{address}/")
            await page.wait_for("document.body.innerText.includes('A table.')")
            assert page.problems == []


async def test_runs_end_with_the_application_if_it_says_so(journal: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = journal.with_name("own.toml")
    settings.write_text("[serve]\ngrace = 0\n")
    monkeypatch.setenv("PLAIT_CONFIG", str(settings))
    agent = plait.Agent("tool_calling", model=plait.Scripted(["Late."], delay=60), journal=journal)
    app, inbox, outbox = agent.to_asgi(), asyncio.Queue[Any](), asyncio.Queue[Any]()
    living = asyncio.ensure_future(app({"type": "lifespan"}, inbox.get, outbox.put))
    await inbox.put({"type": "lifespan.startup"})
    assert (await outbox.get())["type"] == "lifespan.startup.complete"
    async with client_of(app, "localhost") as client:
        run = (await client.post("/v1/runs", json={"agent": "plait", "question": "Wait."})).json()["run"]
        await inbox.put({"type": "lifespan.shutdown"})
        assert (await outbox.get())["type"] == "lifespan.shutdown.complete"
        assert (await client.get(f"/v1/runs/{run}")).json()["status"] == "cancelled"
    await living
