"""Logins at MCP servers: OAuth with a browser or by a pasted address, refreshed, never in a journal."""

from __future__ import annotations

import asyncio
import json
import re
import webbrowser
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.error import HTTPError
from urllib.request import HTTPRedirectHandler, build_opener, urlopen

import httpx2
import pytest

import plait
from mcp_auth import AuthServer
from mcp_talker import act, done
from plait import Agent, ConfigError
from plait.tools.mcp import connection
from plait.tools.mcp.login import LoginFile, StoredLogin
from window_server import script


class NoRedirect(HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


@pytest.fixture(autouse=True)
def at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    yield
    connection.close()
    connection._connections.clear()


@pytest.fixture
def server() -> Iterator[AuthServer]:
    made = AuthServer()
    yield made
    made.close()


def visit(url: str) -> str:
    """Log in as a user does, and return the address to which the browser is sent."""
    with pytest.raises(HTTPError) as found:
        build_opener(NoRedirect).open(url)
    with found.value as response:
        return str(response.headers["location"])


def stored(folder: Path) -> list[Path]:
    return list((folder / "state/plait/mcp-logins").glob("*.json"))


def test_a_browser_logs_in_and_the_run_uses_and_refreshes_the_login(
    server: AuthServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[str] = []

    def browse(url: str) -> bool:
        def go() -> None:
            back = visit(url)
            with pytest.raises(HTTPError, match="400") as found:  # another page of this machine guesses
                urlopen(re.sub("state=[^&]*", "state=guess", back))
            found.value.close()
            with urlopen(back) as response:
                answers.append(response.read().decode())

        Thread(target=go).start()
        return True

    monkeypatch.setattr(webbrowser, "open", browse)
    plait.mcp_login(f"{server.url}/mcp")
    assert server.clients[0]["redirect_uris"][0].startswith("http://127.0.0.1:") and len(server.clients) == 1
    [file] = stored(tmp_path)
    assert file.stat().st_mode & 0o777 == 0o600 and file.parent.stat().st_mode & 0o777 == 0o700
    journal = tmp_path / "runs.db"
    replies = script(tmp_path, act("echo"), act("echo"), done("ok"))
    made = Agent("react", model=replies, tools=[f"mcp:{server.url}/mcp"], journal=journal)
    server.valid = set()  # the token has ended, though it should be valid
    assert made.run("Go.").status == "answered"
    assert len(server.refreshes) == 2 and server.spent == server.refreshes[:1], "the refresh goes to its own endpoint"
    found = json.loads(file.read_text())
    assert found["tokens"]["access_token"] == server.tokens[-1]
    file.write_text(json.dumps({**found, "until": 1}))  # it ends by the clock
    assert made.run("Again.").status == "answered" and len(server.refreshes) == 3
    kept = b"".join(each.read_bytes() for each in tmp_path.glob("runs.db*"))
    assert b"your token is [secret]" in kept
    assert not any(each.encode() in kept for each in (*server.tokens, *server.refreshes)), "no token in the journal"
    assert answers == ["The login has ended. You can close this page."]


def test_two_processes_do_not_spend_the_same_refresh_token(server: AuthServer, tmp_path: Path) -> None:
    plait.mcp_login(f"{server.url}/mcp", paste=visit)
    [file] = stored(tmp_path)
    file.write_text(json.dumps({**json.loads(file.read_text()), "until": 1}))

    async def ping() -> int:
        auth = StoredLogin(LoginFile(f"{server.url}/mcp"))
        async with httpx2.AsyncClient(auth=auth) as http:
            return (
                await http.post(f"{server.url}/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "ping"})
            ).status_code

    async def both() -> list[int]:
        return await asyncio.gather(ping(), ping())

    assert asyncio.run(both()) == [200, 200]
    assert len(server.spent) == 1


def test_without_a_login_the_error_names_the_command(server: AuthServer) -> None:
    with pytest.raises(ConfigError, match=f"Or log in.*: plait mcp login {server.url}/mcp"):
        plait.mcp(f"{server.url}/mcp")
    assert not server.clients, "a run never begins a login"


def test_an_address_is_pasted_and_deleted_again(server: AuthServer, tmp_path: Path) -> None:
    plait.mcp_login(f"{server.url}/mcp", paste=visit)
    assert [tool.name for tool in plait.mcp(f"{server.url}/mcp")] == ["echo"]
    assert [tool.name for tool in plait.mcp(f"{server.url}/mcp?team=7")] == ["echo"], "errors name it without the query"
    with pytest.raises(ConfigError, match="not the address to which the login leads"):
        plait.mcp_login(f"{server.url}/mcp", paste=lambda _: "http://127.0.0.1:1/callback?code=stolen&state=guess")
    assert [tool.name for tool in plait.mcp(f"{server.url}/mcp")] == ["echo"], "the old login is still there"
    used: list[str] = []

    def again(url: str) -> str:
        used.append(visit(url))
        return used[0]

    with pytest.raises(ConfigError):  # a code of an earlier login, with its state
        plait.mcp_login(f"{server.url}/mcp", paste=lambda url: again(url) if not used else used[0])
        plait.mcp_login(f"{server.url}/mcp", paste=again)


@pytest.mark.parametrize(
    ("fault", "said"), [("state", "not the address"), ("issuer", "issuer"), ("redirect", "not encrypted")]
)
def test_hostile_authorization_servers_get_nothing(fault: str, said: str, tmp_path: Path) -> None:
    server = AuthServer(fault)
    with pytest.raises(ConfigError, match=f"(?i){said}"):
        plait.mcp_login(f"{server.url}/mcp", paste=visit)
    assert not server.tokens and "tokens" not in json.loads(stored(tmp_path)[0].read_text())
    server.close()
