"""What an attacker tries on the server, each refused."""

from __future__ import annotations

import asyncio
import hmac
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import plait
from conftest import some_of
from patience import patience
from plait.core.errors import ConfigError, UnknownRun
from plait.server import auth
from plait.server.auth import LOGGED_IN, AccessTokens, Caller, load_tokens
from plait.server.runs import RunManager
from window_server import FULL, ONE, TWO, Here, asked, serving

CHAT = "/v1/chat/completions"


def agent(journal: Path, **options: Any) -> plait.Agent:
    model = plait.Scripted(["Final Answer: 42"] * 99, by_turn=False, **options)
    return plait.Agent("react", model=model, journal=journal)


@pytest.fixture
def locked(journal: Path) -> Iterator[Here]:
    with serving(agent(journal), tokens=(FULL,), clients=(ONE, TWO), body_mb=0.1, body_seconds=1.0) as here:
        yield here


@pytest.fixture
def open_here(journal: Path) -> Iterator[Here]:
    with serving(agent(journal)) as here:
        yield here


def raw(here: Here, sent: bytes, *, wait: float = 60) -> bytes:
    """Bytes as they are, and all that comes back till the server closes or has answered."""
    with socket.create_connection(("127.0.0.1", here.port), timeout=wait) as connection:
        connection.sendall(sent)
        got = b""
        while more := connection.recv(65536):
            got += more
            if b"\r\n\r\n" in got and not got.startswith(b"HTTP/1.1 100"):
                break
    return got


# -- tokens


@pytest.mark.parametrize("path", [CHAT, "/v1/models", "/mcp", "/api/runs", "/metrics", "/nothing/here"])
def test_without_a_token_nothing_is_had(locked: Here, path: str) -> None:
    method = "POST" if path in (CHAT, "/mcp") else "GET"
    status, headers, body = locked.ask(method, path, asked("?") if method == "POST" else None)
    assert (status, body["error"]["code"]) == (401, "invalid_api_key")
    assert headers["www-authenticate"].startswith("Bearer")
    assert not Path(locked.manager.journal.place).exists()


@pytest.mark.parametrize(
    "said",
    [
        "Bearer wrong",
        f"Bearer {FULL}x",
        f"Bearer {FULL[:-1]}",
        f"Bearer {FULL.upper()}",
        f"Bearer {ONE},{FULL}",
        "Bearer",
        "Bearer ",
        f"Basic {ONE}",
        ONE,
        "Bearer \xff\xfe",
    ],
)
def test_a_wrong_token_opens_nothing(locked: Here, said: str) -> None:
    status, _, body = locked.ask("POST", CHAT, asked("?"), {"Authorization": said})
    assert (status, body["error"]["code"]) == (401, "invalid_api_key")


def test_a_clients_token_opens_the_endpoint_alone(locked: Here) -> None:
    assert locked.ask("POST", CHAT, asked("?"), token=ONE)[0] == 200
    for path in ("/metrics", "/api/runs", "/nothing/here"):
        assert locked.ask("GET", path, token=ONE)[0] == 403
    assert locked.ask("GET", "/metrics", token=FULL)[0] == 200


def test_tokens_are_compared_in_constant_time_and_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = AccessTokens((FULL,), (ONE, TWO))
    compared: list[tuple[bytes, bytes]] = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return hmac.compare_digest(one, other)

    class Counting:
        compare_digest = staticmethod(compare)
        digest = staticmethod(hmac.digest)

    monkeypatch.setattr(auth, "hmac", Counting)
    for token in ("x", "y" * 4000, FULL, ONE):
        compared.clear()
        tokens.find_caller(token)
        assert len(compared) == 3
        assert {len(each) for pair in compared for each in pair} == {32}


@pytest.mark.parametrize("token", ["short", "fifteen-letters", "with spaces in the token", "mit-Umläuten-im-Token"])
def test_a_token_that_can_be_guessed_is_not_taken(token: str) -> None:
    with pytest.raises(ConfigError, match="can't be used"):
        load_tokens({"PLAIT_SERVE_TOKEN": token})


def test_a_clients_token_that_opens_everything_is_not_taken() -> None:
    with pytest.raises(ConfigError, match="PLAIT_SERVE_TOKEN and PLAIT_SERVE_CLIENT_TOKENS contain the same"):
        load_tokens({"PLAIT_SERVE_TOKEN": f"{FULL},{TWO}", "PLAIT_SERVE_CLIENT_TOKENS": f"{ONE},{TWO}"})


def test_a_login_is_no_token_and_a_clients_token_gets_none() -> None:
    tokens = AccessTokens((FULL,), (ONE,))
    login = tokens.login(FULL)
    assert login is not None and FULL not in login.cookie + login.page
    for server in (tokens, AccessTokens((FULL,), (ONE,))):  # another process behind the same address
        assert server.find_login(login.cookie, login.page) == tokens.find_caller(FULL)
    assert tokens.find_caller(login.cookie) is None and tokens.find_login(FULL, login.page) is None
    assert tokens.login(ONE) is None


def test_a_cookie_that_another_port_saw_opens_nothing() -> None:
    tokens = AccessTokens((FULL,))
    first, second = tokens.login(FULL), tokens.login(FULL)
    assert first is not None and second is not None
    for page in ("", first.cookie, second.page, "ä"):
        assert tokens.find_login(first.cookie, page) is None


def test_a_login_expires_and_its_time_cannot_be_changed() -> None:
    tokens = AccessTokens((FULL,))
    login = tokens.login(FULL, now=1000.0)
    assert login is not None
    assert tokens.find_login(login.cookie, login.page, now=1000.0 + LOGGED_IN) is not None
    assert tokens.find_login(login.cookie, login.page, now=1001.0 + LOGGED_IN) is None
    expires, _, rest = login.cookie.partition(".")
    later = f"{int(expires) + 9999}.{rest}"
    assert tokens.find_login(later, login.page, now=1000.0) is None
    for odd in ("", "..", "x.y.z", "9" * 5000 + ".a.b", "٣.a.b"):
        assert tokens.find_login(odd, login.page, now=1000.0) is None


def test_wrong_tokens_of_others_do_not_close_the_login(locked: Here) -> None:
    wrong = [locked.ask("POST", "/login", {"token": f"a wrong token {number}"})[0] for number in range(8)]
    assert wrong == [401] * 8
    assert locked.ask("POST", "/login", {"token": FULL})[0] == 200


# -- bodies


def test_a_huge_body_is_refused_before_it_is_read(locked: Here) -> None:
    head = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ONE}\r\nContent-Type: application/json\r\n"
    got = raw(locked, f"{head}Content-Length: 99999999999\r\n\r\n".encode())
    assert got.startswith(b"HTTP/1.1 413") and b"connection: close" in got.lower()


def test_a_body_that_does_not_say_its_length_is_refused_as_it_grows(locked: Here) -> None:
    head = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ONE}\r\nContent-Type: application/json\r\n"
    part = b"4000\r\n" + b" " * 0x4000 + b"\r\n"
    got = raw(locked, f"{head}Transfer-Encoding: chunked\r\n\r\n".encode() + part * 8)
    assert got.startswith(b"HTTP/1.1 413")


def test_a_body_within_the_limit_is_taken(locked: Here) -> None:
    assert locked.ask("POST", CHAT, asked("x" * 90_000), token=ONE)[0] == 200


def test_a_body_without_a_token_is_not_waited_for(locked: Here) -> None:
    head = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 5000\r\n\r\n"
    assert raw(locked, head.encode()).startswith(b"HTTP/1.1 401")


def test_a_slow_body_is_given_up(locked: Here) -> None:
    head = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ONE}\r\nContent-Type: application/json\r\n"
    began = time.monotonic()
    got = raw(locked, f"{head}Content-Length: 5000\r\n\r\n{{".encode())
    assert got.startswith(b"HTTP/1.1 408") and time.monotonic() - began >= 1
    assert not Path(locked.manager.journal.place).exists()


def test_headers_that_never_end_are_given_up(journal: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plait.server.listening.HEADER_SECONDS", 0.5)
    with serving(agent(journal)) as here:
        for sent in (b"", b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nX-Slow: "):
            with socket.create_connection(("127.0.0.1", here.port), timeout=60) as connection:
                connection.sendall(sent)
                with suppress(ConnectionResetError):
                    assert connection.recv(100) == b""
        assert here.ask("GET", "/health")[0] == 200


@pytest.mark.parametrize("parts", [1, 2, 50])
@pytest.mark.parametrize(("size", "status"), [(63_000, 200), (65_000, 431), (70_000, 431), (500_000, 431)])
@pytest.mark.parametrize("where", ["headers", "query"])
def test_headers_have_64_kb(open_here: Here, where: str, size: int, status: int, parts: int) -> None:
    text = "a" * (size // parts)
    lines = [f"GET /health{'?' + text * parts if where == 'query' else ''} HTTP/1.1", "Host: 127.0.0.1"]
    lines += [f"X-{number}: {text[8:]}" for number in range(parts) if where == "headers"]
    try:
        got = raw(open_here, "\r\n".join([*lines, "Connection: close", "", ""]).encode())
    except (ConnectionResetError, BrokenPipeError):
        got = b""  # uvicorn closes the connection when one piece of it is too long
    refused = (b"", b"HTTP/1.1 431", b"HTTP/1.1 400")
    assert got.startswith(b"HTTP/1.1 200") if status == 200 else got[:12] in refused
    assert open_here.ask("GET", "/health")[0] == 200


def test_headers_without_end_are_refused(open_here: Here) -> None:
    try:
        got = raw(open_here, b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"a" * 200_000)
    except (ConnectionResetError, BrokenPipeError):
        got = b""
    assert got == b"" or got.startswith(b"HTTP/1.1 4")
    assert open_here.ask("GET", "/health")[0] == 200


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"5", b'{"a": ' * 5000, b"\xff\xfe", b"[" * 90_000, b'{"model": "plait"}']
)
def test_a_body_that_is_no_request_is_refused(open_here: Here, body: bytes) -> None:
    status, _, told = open_here.ask("POST", CHAT, body)
    assert status == 400 and told["error"]["type"] == "invalid_request_error"


# -- paths


@pytest.mark.parametrize(
    "path",
    [
        "/v1/..%2f..%2fetc/passwd",
        "/v1/%2e%2e/metrics",
        "/v1/../metrics",
        "/page/../api/runs",
        "/page/..%2fapi%2fruns",
        "/page/%2e%2e%2f%2e%2e%2fdesk.py",
        "/page/..\\..\\manager.py",
        "//metrics",
        "/page//../../manager.py",
        "/v1//../metrics",
        "/page/a%00.js",
        "/v1/%252e%252e/metrics",
        "/page/%5c..%5cdesk.py",
    ],
)
def test_tricks_with_paths_lead_nowhere(locked: Here, path: str) -> None:
    for token in (None, ONE, FULL):
        assert locked.ask("GET", path, token=token)[0] == 400


# -- pages of other sites


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "http://127.0.0.1.evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Origin": "https://evil.example"},
    ],
)
def test_a_page_of_another_site_is_refused(open_here: Here, headers: dict[str, str]) -> None:
    for method, path in (("POST", CHAT), ("GET", "/api/runs"), ("GET", "/v1/models")):
        status, told, _ = open_here.ask(method, path, asked("?") if method == "POST" else None, headers)
        assert status == 403 and "access-control-allow-origin" not in told
    assert not Path(open_here.manager.journal.place).exists()


def test_a_page_of_another_site_may_not_ask_beforehand_either(open_here: Here) -> None:
    headers = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
    status, told, _ = open_here.ask("OPTIONS", CHAT, None, headers)
    assert status == 403 and not any(name.startswith("access-control") for name in told)


def test_the_servers_own_page_may_ask(open_here: Here) -> None:
    headers = {"Origin": open_here.url, "Sec-Fetch-Site": "same-origin"}
    assert open_here.ask("POST", CHAT, asked("?"), headers)[0] == 200


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_what_a_form_can_send_is_refused(open_here: Here, kind: str) -> None:
    # No Origin: as an old browser, or a form in a frame, sends it.
    assert open_here.ask("POST", CHAT, asked("?"), {"Content-Type": kind})[0] == 415
    assert not Path(open_here.manager.journal.place).exists()


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "10.0.0.1", "[::2]"])
def test_a_name_that_was_made_to_point_here_is_refused(open_here: Here, host: str) -> None:
    status, _, told = open_here.ask("GET", "/v1/models", None, {"Host": host})
    assert (status, told["error"]["code"]) == (421, "wrong_host")


@pytest.mark.parametrize("lines", ["", "Host: 127.0.0.1\r\nHost: evil.example\r\n", "Host: \r\n"])
def test_no_host_or_two_are_refused(open_here: Here, lines: str) -> None:
    got = raw(open_here, f"GET /v1/models HTTP/1.1\r\n{lines}\r\n".encode())
    assert got.startswith((b"HTTP/1.1 400", b"HTTP/1.1 421"))


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8765", "127.0.0.1:1", "[::1]:8765", "[::1]"])
def test_this_machines_names_are_taken(open_here: Here, host: str) -> None:
    assert open_here.ask("GET", "/v1/models", None, {"Host": host})[0] == 200


def test_further_names_can_be_allowed(journal: Path) -> None:
    with serving(agent(journal), hosts=["box.lan"]) as here:
        assert here.ask("GET", "/v1/models", None, {"Host": "box.lan:80"})[0] == 200


# -- what others have


def test_a_run_of_another_token_is_as_if_it_were_not(journal: Path) -> None:
    with serving(agent(journal), tokens=(FULL,), clients=(ONE, TWO)) as here:
        run = here.ask("POST", CHAT, asked("?"), token=ONE)[1]["x-plait-run"]
        one, two = (here.manager.tokens.find_caller(each) or Caller() for each in (ONE, TWO))
        assert asyncio.run(here.manager.find_run(run, one)).head.run == run
        with pytest.raises(UnknownRun) as theirs:
            asyncio.run(here.manager.find_run(run, two))
        with pytest.raises(UnknownRun) as none:
            asyncio.run(here.manager.find_run("20200101-000000-aaaaaa", two))
        assert str(theirs.value).replace(run, "X") == str(none.value).replace("20200101-000000-aaaaaa", "X")
        for part in ("last", run[:10], ""):
            with pytest.raises(UnknownRun):
                asyncio.run(here.manager.find_run(part, two))


def test_a_run_that_no_server_began_is_for_full_tokens_alone(journal: Path) -> None:
    run = agent(journal).run("?").id
    from plait.config import ServeTable
    from plait.server.agents import serve_agent

    manager = RunManager([serve_agent("plait", agent(journal), ServeTable())], tokens=AccessTokens((FULL,), (ONE,)))
    full = manager.tokens.find_caller(FULL) or Caller("", False)
    assert asyncio.run(manager.find_run(run, full)).head.run == run
    with pytest.raises(UnknownRun):
        asyncio.run(manager.find_run(run, manager.tokens.find_caller(ONE) or Caller("", False)))


# -- too much


def test_too_many_requests_are_told_to_come_again(journal: Path) -> None:
    with serving(agent(journal, delay=300), concurrent=2, queued=1) as here:

        def hang() -> None:
            with suppress(OSError):
                here.ask("POST", CHAT, asked("?"))

        threads = [threading.Thread(target=hang, daemon=True) for _ in range(3)]
        for thread in threads:
            thread.start()
        end = time.monotonic() + patience(60)
        while not (len(here.manager.active) == 2 and here.manager.waiting == 1):
            assert time.monotonic() < end
            time.sleep(0.02)
        status, headers, told = here.ask("POST", CHAT, asked("?"))
        assert (status, told["error"]["code"]) == (429, "rate_limit_exceeded")
        assert 1 <= int(headers["retry-after"]) <= 60
        assert here.ask("GET", "/health")[0] == 200
        metrics = here.ask("GET", "/metrics")[2]
        assert "plait_runs_running 2.0" in metrics and "plait_runs_queued 1.0" in metrics
        assert 'plait_refused_total{reason="full"} 1.0' in metrics
        here.loop.call_soon_threadsafe(lambda: [each.cancel("test") for each in list(here.manager.active.values())])
        end = time.monotonic() + patience(60)
        while here.manager.waiting or len(here.manager.active) != 1:
            assert time.monotonic() < end
            time.sleep(0.02)
        here.loop.call_soon_threadsafe(lambda: [each.cancel("test") for each in list(here.manager.active.values())])
        for thread in threads:
            thread.join(60)


def test_a_run_has_its_time(journal: Path) -> None:
    with serving(agent(journal, delay=300), seconds=0.3) as here:
        status, headers, told = here.ask("POST", CHAT, asked("?"))
        assert (status, told["error"]["code"]) == (422, "run_stopped") and headers["x-should-retry"] == "false"


# -- what gets into headers


@pytest.mark.parametrize("name", ["a\r\nSet-Cookie: x=1", "a\nb", "a\x00b", "\x85x", " ", "x" * 201, "a\u202eb"])
def test_a_sessions_name_can_smuggle_nothing_into_a_header(open_here: Here, name: str) -> None:
    status, headers, _ = open_here.ask("POST", CHAT, asked("?", session=name))
    assert status == 400 and "set-cookie" not in headers


@pytest.mark.parametrize("name", ["a%0d%0aSet-Cookie:%20x=1", "%00", "%ff"])
def test_nor_can_one_in_a_header(open_here: Here, name: str) -> None:
    status, headers, _ = open_here.ask("POST", CHAT, asked("?"), {"X-Plait-Session": name})
    assert status == 400 and "set-cookie" not in headers


def test_a_models_name_comes_back_as_text(open_here: Here) -> None:
    status, headers, told = open_here.ask("POST", CHAT, {**asked("?"), "model": "a\r\nX-Evil: 1"})
    assert status == 404 and "x-evil" not in headers and told["error"]["code"] == "model_not_found"


# -- where it listens


@pytest.mark.parametrize("host", some_of(["0.0.0.0", "::", "192.0.2.1", "example.com"], 2))
def test_without_a_token_only_this_machine_is_served(host: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "plait", "serve", "--host", host, "--port", "0"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 2
    assert "PLAIT_SERVE_TOKEN" in done.stderr and "Listening" not in done.stderr


def test_answers_say_how_browsers_must_take_them(open_here: Here) -> None:
    for path in ("/health", "/v1/models", "/nothing"):
        headers = open_here.ask("GET", path)[1]
        assert headers["x-content-type-options"] == "nosniff" and headers["x-frame-options"] == "DENY"
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "server" not in headers


@pytest.mark.parametrize("other", ['state={"a": [1, "b"]}', "an odd name=1", '"', 'x="not closed', "=; =;"])
def test_a_login_holds_beside_the_cookies_of_other_servers(locked: Here, other: str) -> None:
    login = locked.manager.tokens.login(FULL)
    assert login is not None
    cookie = f"plait_window_{locked.port}={login.cookie}"
    for both in (f"{other}; {cookie}", f"{cookie}; {other}"):
        assert locked.ask("GET", "/api/runs", None, {"Cookie": both, "X-Plait-Page": login.page})[0] == 200
    assert locked.ask("GET", "/api/runs", None, {"Cookie": other})[0] == 401
