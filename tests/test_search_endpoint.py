"""An endpoint that speaks `/embeddings`, asked over real HTTP: what goes out, what comes back, what goes wrong."""

from __future__ import annotations

import base64
import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pytest

from conftest import for_each
from plait.core.errors import (
    AuthenticationError,
    BadRequest,
    BadResponse,
    ConfigError,
    PlaitError,
    RateLimited,
    ServerFailed,
    Unreachable,
)
from plait.search import load_embedder
from plait.search.endpoint import EndpointEmbedder

KEY = "sk-very-secret"
Answer = tuple[int, dict[str, str], bytes]


class Server:
    """Answers each POST with `answer(request)`; `asked` holds (path, headers, body) of each."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, str], Any]] = []
        self.answer: Callable[[Any], Answer] = lambda body: ok(body)
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.asked.append((self.path, dict(self.headers), body))
                status, headers, data = outer.answer(body)
                self.send_response(status)
                for name, value in {"Content-Length": str(len(data)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                pass

            def handle_one_request(self) -> None:
                with contextlib.suppress(ConnectionError):  # a client that left
                    super().handle_one_request()

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}/v1"


def ok(body: Any, **changed: Any) -> Answer:
    """Vectors that say which text they are of: [its length, 1]; out of order, as the shape allows."""
    rows = [{"index": at, "embedding": [len(text), 1.0]} for at, text in enumerate(body["input"])]
    return 200, {}, json.dumps({"object": "list", "data": rows[::-1], **changed}).encode()


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    thread = threading.Thread(target=made.http.serve_forever, args=(0.02,))
    thread.start()
    yield made
    made.http.shutdown()
    made.http.server_close()
    thread.join()


def ask(server: Server, texts: list[str], **options: Any) -> Any:
    return EndpointEmbedder("m", server.url, KEY, **{"tries": 1, **options}).embed(texts)


def test_what_goes_out_is_the_usual_shape_and_what_comes_back_is_put_in_order(server: Server) -> None:
    env = {"OPENAI_BASE_URL": server.url + "/", "OPENAI_API_KEY": KEY}
    made = load_embedder("openai:text-embedding-3-small", env=env)
    assert made.dim == 0
    rows = made.embed(["aaa", "", "a"])
    assert np.allclose(rows[0], [3 / 10**0.5, 1 / 10**0.5]) and np.allclose(rows[2], [0.5**0.5, 0.5**0.5])
    assert rows.dtype == np.float32 and made.dim == 2
    ((path, headers, body),) = server.asked
    assert path == "/v1/embeddings" and headers["Authorization"] == f"Bearer {KEY}"
    # Hosts refuse an empty text.
    assert body == {"model": "text-embedding-3-small", "input": ["aaa", " ", "a"], "encoding_format": "float"}
    assert made.embed([]).shape == (0, 2) and len(server.asked) == 1


def test_many_and_long_texts_go_in_batches(server: Server) -> None:
    rows = ask(server, [f"{n % 7 * 'x'}" for n in range(300)])
    assert [len(body["input"]) for _, _, body in server.asked] == [128, 128, 44]
    assert rows.shape == (300, 2) and np.allclose(rows[5], rows[299 - 299 % 7 + 5 - 7])
    server.asked.clear()
    ask(server, ["y" * 1_000_000] * 60)
    sent = [body["input"] for _, _, body in server.asked]
    assert sum(map(len, sent)) == 60 and all(sum(map(len, texts)) <= 200_000 for texts in sent)


def test_odd_text_is_sent_and_base64_is_understood(server: Server) -> None:
    numbers = base64.b64encode(np.array([3, 4], dtype="<f4").tobytes()).decode()
    server.answer = lambda body: ok(body, data=[{"index": 0, "embedding": numbers}])
    assert np.allclose(ask(server, ["\ud800 été 🚀 \x00"]), [[0.6, 0.8]])
    assert server.asked[0][2]["input"] == ["? été 🚀 \x00"]


@pytest.mark.parametrize(
    ("status", "error", "said"),
    [
        (401, AuthenticationError, r"refused the key \(401\): no such key \[secret\]\. Check the key of the endpoint"),
        (403, AuthenticationError, r"refused access \(403\)"),
        (404, BadRequest, r"\(404\).*Check the address"),
        (429, RateLimited, r"\(429\), asks to wait 7 s"),
        (400, BadRequest, r"refused the request \(400\)"),
        (500, ServerFailed, r"failed \(500\)"),
        (302, BadRequest, r"redirects to .*/elsewhere \(302\)"),
    ],
)
def test_a_refusal_is_told_with_its_reason_and_without_the_key(
    server: Server, status: int, error: type[PlaitError], said: str
) -> None:
    body = json.dumps({"error": {"message": f"no such key {KEY}."}}).encode()
    server.answer = lambda _: (status, {"Retry-After": "7", "Location": f"{server.url}/elsewhere"}, body)
    with pytest.raises(error, match=said) as caught:
        ask(server, ["a"])
    assert KEY not in str(caught.value) and caught.value.__cause__ is None
    assert server.url in str(caught.value) and len(server.asked) == 1
    if isinstance(caught.value, RateLimited):
        assert caught.value.after == 7


def test_a_passing_refusal_is_tried_again_and_a_long_wait_is_not(server: Server) -> None:
    refusals = [(429, {"Retry-After": "0"}, b"slow"), (503, {}, b"")]
    server.answer = lambda body: refusals.pop(0) if refusals else ok(body)
    began = time.monotonic()
    assert ask(server, ["a"], tries=3).shape == (1, 2)
    assert len(server.asked) == 3 and time.monotonic() - began > 0.5
    server.answer = lambda body: (429, {"Retry-After": "3600"}, b"tomorrow")
    with pytest.raises(RateLimited):
        ask(server, ["a"], tries=3)
    assert len(server.asked) == 4
    server.answer = lambda body: (401, {}, b"")
    with pytest.raises(AuthenticationError):
        ask(server, ["a"], tries=3)
    assert len(server.asked) == 5


def row(index: object, embedding: object) -> dict[str, object]:
    return {"index": index, "embedding": embedding}


@for_each(
    "body",
    [
        b"<html>Welcome</html>",
        b"",
        b"[]",
        b"null",
        b"{}",
        b'{"data": 3}',
        b"[" * 100_000,
        json.dumps({"data": []}).encode(),
        json.dumps({"data": [row(0, [1.0])]}).encode(),
        json.dumps({"data": [row(0, [1.0]), row(0, [2.0])]}).encode(),
        json.dumps({"data": [row(0, [1.0]), row(1, [1.0, 2.0])]}).encode(),
        json.dumps({"data": [row(0, ["a"]), row(1, ["b"])]}).encode(),
        json.dumps({"data": [row(0, "%%%"), row(1, "%%%")]}).encode(),
        json.dumps({"data": [row(0, [float("nan")]), row(1, [1.0])]}).encode(),
        json.dumps({"data": [row(0, []), row(1, [])]}).encode(),
        json.dumps({"data": [row(0, None), row(1, None)]}).encode(),
    ],
)
def test_garbage_is_a_bad_response(server: Server, body: bytes) -> None:
    server.answer = lambda _: (200, {}, body)
    with pytest.raises(BadResponse):
        ask(server, ["a", "b"])


def test_another_length_than_before_is_refused(server: Server) -> None:
    made = EndpointEmbedder("m", server.url, tries=1)
    made.embed(["a"])
    server.answer = lambda body: ok(body, data=[row(0, [1.0, 2.0, 3.0])])
    with pytest.raises(BadResponse, match="vectors of 3 numbers, and of 2 before"):
        made.embed(["a"])


def test_an_answer_that_breaks_off_and_one_that_never_comes_are_unreachable(server: Server) -> None:
    server.answer = lambda _: (200, {"Content-Length": "1000"}, b'{"data"')
    server.http.RequestHandlerClass.protocol_version = "HTTP/1.0"
    with pytest.raises(Unreachable):
        ask(server, ["a"])
    done = threading.Event()

    def late(body: Any) -> Answer:
        done.wait(20)
        return ok(body)

    server.answer = late
    try:
        with pytest.raises(Unreachable, match=r"silence for 0\.2 s"):
            ask(server, ["a"], timeout=0.2)
    finally:
        done.set()


def test_nobody_there_is_unreachable_and_names_the_setting() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    made = load_embedder("openai:m", env={"OPENAI_BASE_URL": f"http://127.0.0.1:{port}/v1", "OPENAI_API_KEY": KEY})
    made._tries = 1  # type: ignore[attr-defined]
    with pytest.raises(Unreachable, match=r"connection refused.*OPENAI_BASE_URL") as caught:
        made.embed(["a"])
    assert KEY not in str(caught.value) + repr(caught.value.__cause__) + repr(made)


@pytest.mark.parametrize("key", ["sk-schlüssel", "sk-ключ", "sk-a\nb"])
def test_a_key_that_can_not_be_sent_is_not_shown(server: Server, key: str) -> None:
    with pytest.raises(PlaitError) as caught:
        EndpointEmbedder("m", server.url, key, tries=1).embed(["a"])
    assert key not in str(caught.value) and "key" in str(caught.value)


def test_a_missing_key_is_said_and_another_server_or_a_local_one_needs_none() -> None:
    with pytest.raises(ConfigError, match=r"OPENAI_API_KEY is not set.*use the local embedder"):
        load_embedder("openai:m", env={})
    moved = load_embedder("openai:m", env={"OPENAI_BASE_URL": "http://10.0.0.1/v1"})
    plain = load_embedder("openai:m", env={"OPENAI_API_KEY": KEY})
    # Vectors of one name on two servers may be of two models: they are not mixed up in a cache.
    assert plain.name == "openai:m" and moved.name.startswith("openai:m@")
    assert load_embedder("ollama:nomic-embed-text", env={}).name == "ollama:nomic-embed-text"


@pytest.mark.parametrize(
    "address", ["nonsense", "ftp://host/v1", "http://", "http://host:port/v1", "http://u:hush@h/v1"]
)
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match="OPENAI_BASE_URL") as caught:
        load_embedder("openai:m", env={"OPENAI_BASE_URL": address})
    assert "hush" not in str(caught.value)
