"""A real server on loopback for tests: in a thread with agents made here, or as a process of its own."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import re
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import plait
from cli_support import trusting
from fork_server import start_forked
from plait.config import ServeTable
from plait.server.agents import ServedAgent, serve_agent
from plait.server.auth import AccessTokens
from plait.server.listening import listen, make_http_server
from plait.server.runs import RunManager

FULL = "full-token-of-the-tests"
ONE = "first-client-token-1"
TWO = "second-client-token-2"
ALICE = "the-own-token-of-alice"
BOB = "the-own-token-of-bob-1"
USERS = (("alice", ALICE), ("bob", BOB))


class Here:
    """A server in a thread. `url` is where it listens."""

    def __init__(self, manager: RunManager) -> None:
        self.manager = manager
        self.sock = listen("127.0.0.1", 0)
        self.port = self.sock.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.loop = asyncio.new_event_loop()
        self.server = make_http_server(manager)
        self._up = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def begin(self) -> None:
        self._thread.start()
        assert self._up.wait(60)

    def end(self) -> None:
        def stop() -> None:
            self.server.should_exit = True
            self.manager.stopping = True

        self.loop.call_soon_threadsafe(stop)
        self._thread.join(60)
        assert not self._thread.is_alive()
        self.sock.close()

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        *,
        token: str | None = None,
    ) -> tuple[int, dict[str, str], Any]:
        """One request, exactly as said: (status, headers in small letters, body: JSON where it is)."""
        return ask(self.port, method, path, body, headers, token=token)

    def _run(self) -> None:
        async def serve() -> None:
            task = asyncio.ensure_future(self.server.serve([self.sock]))
            while not self.server.started:
                await asyncio.sleep(0.01)
            self._up.set()
            await task
            await self.manager.stop(0.0)

        try:
            self.loop.run_until_complete(serve())
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
        finally:
            self.loop.close()
            self.manager.journal.close()


@contextmanager
def serving(
    *agents: ServedAgent | plait.Agent,
    tokens: tuple[str, ...] = (),
    clients: tuple[str, ...] = (),
    users: tuple[tuple[str, str], ...] = (),
    **table: Any,
) -> Iterator[Here]:
    """Serve agents until the block ends. A plain agent is served as `plait`, its thoughts told."""
    settings = ServeTable(**{"grace": 1.0, **table})
    ready = [
        each if isinstance(each, ServedAgent) else serve_agent("plait", each, settings, thoughts=True)
        for each in agents
    ]
    here = Here(RunManager(ready, settings, AccessTokens(tokens, clients, users)))
    here.begin()
    try:
        yield here
    finally:
        here.end()


def ask(
    port: int,
    method: str,
    path: str,
    body: Any = None,
    headers: Mapping[str, str] | None = None,
    *,
    token: str | None = None,
) -> tuple[int, dict[str, str], Any]:
    """See `Here.ask`."""
    sent = {"content-type": "application/json"} if body is not None else {}
    if token is not None:
        sent["authorization"] = f"Bearer {token}"
    sent |= {name.lower(): value for name, value in (headers or {}).items()}
    raw = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    try:
        connection.request(method, path, raw, sent)
        reply = connection.getresponse()
        text = reply.read()
        found = {name.lower(): value for name, value in reply.getheaders()}
    finally:
        connection.close()
    is_json = found.get("content-type", "").startswith("application/json") and text
    return reply.status, found, json.loads(text) if is_json else text.decode(errors="surrogateescape")


def asked(text: str, **more: Any) -> dict[str, Any]:
    """A request's body with one message."""
    return {"model": "plait", "messages": [{"role": "user", "content": text}], **more}


class Process:
    """`plait serve` as a process, its words on stderr gathered."""

    def __init__(self, *args: str, cwd: Path, env: Mapping[str, str] | None = None) -> None:
        self.words: list[str] = []
        reading, writing = os.pipe()
        self._stderr = open(reading)  # noqa: SIM115
        with open(os.devnull, "r+b") as nothing:
            self.process = start_forked(
                ["-m", "plait", "serve", "--port", "0", *args],
                cwd=cwd,
                env={**os.environ, **trusting(cwd), **(env or {})},
                stdin=nothing.fileno(),
                stdout=nothing.fileno(),
                stderr=writing,
            )
        os.close(writing)
        self.port = 0
        self._said = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Process:
        assert self._said.wait(120), self.words
        assert self.port, "".join(self.words)
        return self

    def __exit__(self, *why: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(60)
        self._reader.join(60)
        self._stderr.close()

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and wait for the end; the exit code."""
        self.process.send_signal(number)
        code = self.process.wait(120)
        self._reader.join(60)
        return code

    def _read(self) -> None:
        for line in self._stderr:
            self.words.append(line)
            if found := re.search(r"Listening on \S+:(\d+) ", line):
                self.port = int(found[1])
            if line.startswith("Journal:"):
                self._said.set()
        self._said.set()


def script(folder: Path, *replies: Any, name: str = "script.json", **options: Any) -> str:
    """A scripted model in a file, as a model's word."""
    path = folder / name
    path.write_text(json.dumps({"replies": list(replies), **options}))
    return f"scripted:{path}"
