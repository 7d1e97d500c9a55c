"""What the tests of faults share: an endpoint in this process that does what a test says, and the record afterwards."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest

from cli_support import Ended, Shell, action, final
from journal_rows import is_request
from models_server import Asked, Server, completion, whole_stream
from plait.core import Observation
from plait.journal.records import Row
from plait.journal.store import Journal
from plait.journal.timeline import Timeline

Handler = Callable[[Asked], Awaitable[None]]
Kind = TypeVar("Kind")

KEY = "sk-secret-of-the-test"
REPLIES = [action("send", "one"), action("send", "two"), final("all is sent")]
"""A run that sends two texts (a tool that must never be called twice), and answers."""


class Endpoint:
    """A server at a loopback address, on a thread of its own. `handler` may be changed while it runs."""

    def __init__(self, handler: Handler) -> None:
        self.handler = handler
        self.loop = asyncio.new_event_loop()
        self.server = Server(lambda asked: self.handler(asked))
        self._up = threading.Event()
        self._down = asyncio.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._up.wait(10)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self.loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        async with self.server:
            self._up.set()
            await self._down.wait()
        for asked in self.asked:
            asked.writer.transport.abort()
        await asyncio.sleep(0)

    def close(self) -> None:
        """Down: nothing listens at the address any more."""
        self.loop.call_soon_threadsafe(self._down.set)
        self._thread.join(10)

    @property
    def asked(self) -> list[Asked]:
        """The requests so far."""
        return self.server.asked

    @property
    def env(self) -> dict[str, str]:
        """What makes `openai:m` this endpoint, for scripts of text ReAct."""
        return {"OPENAI_BASE_URL": self.server.url, "OPENAI_API_KEY": KEY, "PLAIT_LOOP": "react"}


@contextmanager
def endpoint(handler: Handler) -> Iterator[Endpoint]:
    """An endpoint for the length of a test."""
    made = Endpoint(handler)
    try:
        yield made
    finally:
        made.close()


def turn_of(asked: Asked) -> int:
    """How many turns of its own the model is shown."""
    return sum(message["role"] == "assistant" for message in asked.body["messages"])


def serving(replies: list[str] = REPLIES) -> Handler:
    """A handler that answers in order, by the turns it is shown, streamed where a stream is asked for."""

    async def handle(asked: Asked) -> None:
        text = replies[turn_of(asked)]
        if asked.body.get("stream"):
            await asked.stream(whole_stream(text[:7], text[7:]))
        else:
            await asked.answer(200, completion(text))

    return handle


def failing(status: int, message: str = "the engine is on fire", **headers: str) -> Handler:
    """A handler that answers every request with an error."""

    async def handle(asked: Asked) -> None:
        await asked.answer(status, {"error": {"message": message}}, **headers)

    return handle


def after(turns: int, fault: Handler, good: Handler | None = None) -> Handler:
    """Good until so many turns are made, then the fault."""
    well = good or serving()

    async def handle(asked: Asked) -> None:
        await (fault if turn_of(asked) >= turns else well)(asked)

    return handle


def plait_run(shell: Shell, at: Endpoint, *flags: str, **options: Any) -> Ended:
    """`plait run` against the endpoint, with the tools of the tests. No secret is ever said."""
    words = ("run", "Send one and two.", "--model", "openai:m", "--tools", "tools.py", *flags)
    done = shell(*words, env=at.env, **options)
    assert KEY not in done.err + done.out
    return done


def plait_resume(shell: Shell, at: Endpoint, *flags: str) -> Ended:
    """`plait resume last` against the endpoint."""
    return shell("resume", "last", *flags, env=at.env)


def sent(shell: Shell) -> list[str]:
    """What the tool `send` did, in order."""
    path = shell.folder / "sent.txt"
    return path.read_text().split() if path.exists() else []


def record(shell: Shell) -> list[Row]:
    """The newest run's record."""
    return Journal(shell.env["PLAIT_JOURNAL"]).rows("last")


def of(rows: list[Row], kind: type[Kind]) -> list[Kind]:
    """The records of one kind."""
    return [row.record for row in rows if isinstance(row.record, kind)]


def attempts(shell: Shell) -> list[tuple[int, int, str]]:
    """(turn's effect, status, error) of each request on record."""
    ended = [(call.n, each.response) for call, each in Timeline(record(shell)).attempts if each.response is not None]
    return [(n, got.status, got.error.partition(":")[0]) for n, got in ended]


def bodies_sent(shell: Shell) -> list[bytes]:
    """The exact body of each request on record."""
    return [row.body or b"" for row in record(shell) if is_request(row.record)]


def observations(shell: Shell) -> list[Observation]:
    """What came of each tool call on record."""
    return [seen for _, seen in Timeline(record(shell)).results]


def calls_begun(shell: Shell) -> list[str]:
    """The input of each tool call on record."""
    return [each.planned.input for each in Timeline(record(shell)).tool_calls]


def told_clearly(done: Ended, code: int, *words: str) -> None:
    """The exit code, nothing on stdout, and one line on stderr that says it all."""
    assert (done.code, done.out) == (code, ""), (done.code, done.out, done.err)
    lines = [line for line in done.err.splitlines() if all(word in line for word in words)]
    assert lines, (words, done.err)
    assert all(len(line) < 1200 for line in lines)


@pytest.fixture
def shell(tmp_path: Any) -> Shell:
    """A folder with tools and a journal of its own."""
    return Shell(tmp_path)
