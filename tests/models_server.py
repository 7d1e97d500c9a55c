"""A loopback HTTP server for tests of models: raw sockets, so a test says exactly which bytes come when."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from plait.models.chat import ChatModel


class Asked:
    """One request as the server got it, and the ways to answer it."""

    def __init__(self, method: str, path: str, headers: dict[str, str], raw: bytes, writer: asyncio.StreamWriter):
        self.method, self.path, self.headers, self.raw = method, path, headers, raw
        self.writer = writer

    @property
    def body(self) -> dict[str, Any]:
        return json.loads(self.raw)

    async def answer(
        self, status: int, body: bytes | dict | list, kind: str = "application/json", **headers: str
    ) -> None:
        """A whole answer of known length; underscores in header names stand for hyphens."""
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        lines = [f"HTTP/1.1 {status} X", f"Content-Type: {kind}", f"Content-Length: {len(raw)}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        self.writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + raw)
        await self.writer.drain()

    async def begin(self, kind: str = "text/event-stream") -> None:
        """The head of a chunked answer."""
        self.writer.write(f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        await self.writer.drain()

    async def piece(self, raw: bytes) -> None:
        """One piece of a chunked answer, sent by itself."""
        self.writer.write(f"{len(raw):x}\r\n".encode() + raw + b"\r\n")
        await self.writer.drain()
        await asyncio.sleep(0)

    async def end(self) -> None:
        """The end of a chunked answer."""
        self.writer.write(b"0\r\n\r\n")
        await self.writer.drain()

    async def stream(self, body: bytes) -> None:
        """A whole stream."""
        await self.begin()
        await self.piece(body)
        await self.end()


class Server:
    """`async with Server(handler) as server`: `asked` is what came, `left` tells that a client left."""

    def __init__(self, handler: Callable[[Asked], Awaitable[None]]):
        self.handler = handler
        self.asked: list[Asked] = []
        self.connections = 0
        self.left = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def model(self, **options: Any) -> ChatModel:
        return ChatModel(**{"spec": "test:m", "name": "m", "endpoint": self.url, "key": "sk-secret", **options})

    async def __aenter__(self) -> Server:
        self._server = await asyncio.start_server(self._client, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._tasks.add(asyncio.current_task())  # type: ignore[arg-type]
        self.connections += 1
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                first, *lines = head.decode("latin-1").split("\r\n")
                method, path, _ = first.split(" ")
                headers = dict(line.split(": ", 1) for line in lines if line)
                raw = await reader.readexactly(int(headers.get("Content-Length", 0)))
                asked = Asked(method, path, headers, raw, writer)
                self.asked.append(asked)
                handling = asyncio.ensure_future(self.handler(asked))
                watching = asyncio.ensure_future(reader.read(1))
                await asyncio.wait({handling, watching}, return_when=asyncio.FIRST_COMPLETED)
                if not handling.done():
                    self.left.set()
                    handling.cancel()
                    await asyncio.gather(handling, return_exceptions=True)
                    break
                handling.result()
                if watching.done():
                    break
                watching.cancel()
                await asyncio.gather(watching, return_exceptions=True)
        except (asyncio.IncompleteReadError, ConnectionError):
            self.left.set()
        finally:
            writer.close()


def event(data: Any) -> bytes:
    """One server-sent event."""
    return b"data: " + (data if isinstance(data, bytes) else json.dumps(data).encode()) + b"\n\n"


def delta(text: str | None = None, finish: str | None = None, **more: Any) -> bytes:
    """One chunk of a streamed chat completion."""
    part = {**({"content": text} if text is not None else {}), **more}
    return event({"choices": [{"index": 0, "delta": part, "finish_reason": finish}]})


USAGE = {"prompt_tokens": 12, "completion_tokens": 5, "total_tokens": 17}


def whole_stream(*texts: str, finish: str = "stop", usage: dict[str, Any] | None = None) -> bytes:
    """A whole streamed reply, as OpenAI sends it."""
    parts = [delta("", role="assistant"), *map(delta, texts), delta(finish=finish)]
    return b"".join(parts) + event({"choices": [], "usage": usage or USAGE}) + event(b"[DONE]")


def completion(text: str, finish: str = "stop", **message: Any) -> dict[str, Any]:
    """A whole chat completion in one body."""
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": text, **message},
        "finish_reason": finish,
    }
    return {"id": "x", "model": "m-1", "choices": [choice], "usage": USAGE}
