"""A loopback HTTP server that answers as services do, and says what it was asked. What tools are called with."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from plait.core.errors import ToolError
from plait.tools import Tool


@dataclass
class Seen:
    """A request as it came."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes
    parts: dict[str, Any] = field(default_factory=dict)

    @property
    def json(self) -> Any:
        return json.loads(self.body)


Reply = web.Response | Callable[[Seen], "web.Response | Awaitable[web.Response]"]


@dataclass
class Site:
    """A server: its address, what it answers by path (a list gives one after another), and what it was asked."""

    answers: dict[str, Any]
    address: str = ""
    seen: list[Seen] = field(default_factory=list)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        parts: dict[str, Any] = {}
        body = b""
        if request.content_type == "multipart/form-data":
            async for part in await request.multipart():
                parts[part.name] = (part.filename, part.headers.get("Content-Type"), bytes(await part.read()))
        else:
            body = await request.read()
        headers = {name.lower(): value for name, value in request.headers.items()}
        seen = Seen(request.method, request.path, dict(request.query), headers, body, parts)
        self.seen.append(seen)
        answer = self.answers.get(request.path, web.Response(status=404, text="not here"))
        if isinstance(answer, list):
            answer = answer.pop(0) if len(answer) > 1 else answer[0]
        if isinstance(answer, dict):
            answer = told(answer)
        if isinstance(answer, web.Response):
            # A response object serves one request: each gets its own.
            return web.Response(status=answer.status, body=answer.body, headers=answer.headers)
        made = answer(seen)
        made = await made if asyncio.iscoroutine(made) else made
        return told(made) if isinstance(made, dict) else made


@asynccontextmanager
async def site(answers: dict[str, Any]) -> Any:
    """A server on a free port of this machine, for as long as the block lasts."""
    found = Site(answers)
    app = web.Application(client_max_size=64 << 20)
    app.router.add_route("*", "/{rest:.*}", found.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        place = web.TCPSite(runner, "127.0.0.1", 0)
        await place.start()
        host, port = runner.addresses[0][:2]
        found.address = f"http://{host}:{port}"
        yield found
    finally:
        await runner.cleanup()


def told(value: Any, status: int = 200, **headers: str) -> web.Response:
    """A JSON answer; a header's _ stands for -."""
    named = {name.replace("_", "-"): said for name, said in headers.items()}
    return web.Response(status=status, body=json.dumps(value).encode(), headers=named, content_type="application/json")


def named(tools: tuple[Tool, ...], name: str) -> Tool:
    return next(tool for tool in tools if tool.name == name)


async def call(tools: tuple[Tool, ...], name: str, **given: Any) -> Any:
    """Call one of some tools."""
    made = named(tools, name)(**given)
    return await made if asyncio.iscoroutine(made) else made


async def refusal(tools: tuple[Tool, ...], name: str, **given: Any) -> str:
    """What a call that must fail says to the model."""
    try:
        result = await call(tools, name, **given)
    except ToolError as error:
        return str(error)
    raise AssertionError(f"{name} was to fail, and gave {result!r}")


def picture(width: int = 40, height: int = 30, kind: str = "PNG", **options: Any) -> bytes:
    """The bytes of an image."""
    from PIL import Image

    drawn = Image.linear_gradient("L").resize((width, height)).convert("RGB")
    out = io.BytesIO()
    drawn.save(out, kind, **options)
    return out.getvalue()
