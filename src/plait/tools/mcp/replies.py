"""Repairs what servers reply, as plain JSON, before the SDK checks it.

The SDK refuses a whole list of tools for one odd field, and a call's result for one unknown block. So it gets a result
that Plait builds from the parts that can be used; the server's own goes with it as text. Over HTTP, an error status, a
failed connection and an unreadable body become the error of one request. Otherwise the SDK would end the session with
all its calls, or drop the status.
"""

from __future__ import annotations

import asyncio
import json
import re
import secrets
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context
from typing import Any, Literal, TypeAlias

import httpx2
import mcp_types as types
import msgspec
from anyio.abc import ObjectReceiveStream, ObjectSendStream
from mcp.client.streamable_http import MCP_SESSION_ID
from mcp.shared.message import SessionMessage
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from msgspec import Struct
from pydantic import ValidationError
from pydantic_core import from_json

from plait.core.secrets import Scrubber
from plait.core.text import clean
from plait.tools.mcp.schema import repair_schema

MARK = f"plait.{secrets.token_hex(8)}"
"""The key of what Plait adds to a reply: an error's `Fault`, or the server's result as JSON text and how many listed
tools have no name. It is random, so that no server can write it."""
BODY_SECONDS = 5.0
"""Time for the body of a response with an error status, because the server may never end it."""
REFUSED = (401, 403, 404, 405, 406, 407, 410, 411, 413, 414, 415, 429, 431)
"""Statuses with which a server refuses a request before it begins."""
FaultKind: TypeAlias = Literal["", "answered", "refused", "forgotten", "lost", "unreadable"]

UNKNOWN_SESSION = re.compile(
    r"session.{0,80}(not found|unknown|invalid|expired|terminated|missing|required|closed|ended|n.t exist|no longer)"
    r"|(no valid|invalid|unknown|missing|expired|no such|no) .{0,20}session|not initiali[sz]ed|before initiali[sz]",
    re.IGNORECASE,
)
"""What servers say about a session that they do not know."""
_TAG = re.compile(r"<[^<>]*>")
_HINTS = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
_BOOLEANS = {"true": True, "false": False}


class Fault(Struct, frozen=True):
    """What an error says about its request, and the HTTP status with which it came.

    `answered`: the server answered with an error. `refused`: nothing had begun. `forgotten`: the same, because the
    server does not know the session. `lost`: nobody knows. `unreadable`: the answer cannot be read. "": the error is
    the SDK's.
    """

    kind: FaultKind = ""
    status: int = 0


def parse_json(data: bytes | str) -> Any:
    """Return the value of JSON, with U+FFFD for what is not Unicode. Raises `ValueError`, also for very deep JSON."""
    with suppress(ValueError):
        return from_json(data)
    text = data if isinstance(data, str) else data.decode("utf-8-sig", "replace")
    try:
        text = json.dumps(json.loads(text, strict=False), ensure_ascii=False)
    except RecursionError as error:
        raise ValueError("The JSON is nested too deeply.") from error
    return from_json(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))


def repair_reply(message: Any, id: int | str) -> dict[str, Any] | None:
    """Return a server's reply as valid JSON-RPC; None if the message is not a reply."""
    if not isinstance(message, dict) or "method" in message:
        return None
    if (error := message.get("error")) is not None:
        return make_error(id, error, Fault("answered"))
    if "result" not in message:
        return None
    result = message["result"]
    return {"jsonrpc": "2.0", "id": id, "result": result if isinstance(result, dict) else {MARK: result}}


def repair_result(result: dict[str, Any]) -> dict[str, Any]:
    """Return a result that the SDK accepts for every request of Plait's."""
    listed = result.get("tools")
    listed = listed if isinstance(listed, list) else []
    tools = [_repair_tool(tool) for tool in listed if isinstance(tool, dict) and isinstance(tool.get("name"), str)]
    version, cursor = result.get("protocolVersion"), result.get("nextCursor")
    return {
        "supportedVersions": result.get("supportedVersions"),
        "protocolVersion": version if isinstance(version, str) else HANDSHAKE_PROTOCOL_VERSIONS[-1],
        "capabilities": {},
        "serverInfo": {"name": "server", "version": "0"},
        "tools": tools,
        "nextCursor": str(cursor) if isinstance(cursor, str | int) else None,
        **{name: [] for name in ("content", "resources", "resourceTemplates", "contents", "prompts", "messages")},
        "resultType": "complete",
        "cacheScope": "private",
        "ttlMs": 0,
        "_meta": {MARK: [json.dumps(result.get(MARK, result)), len(listed) - len(tools)]},
    }


def make_error(id: int | str, error: Any, fault: Fault) -> dict[str, Any]:
    """Return the reply for an error: its text, or what a server sent as one."""
    given = error if isinstance(error, dict) else {}
    text, code, data = given.get("message"), given.get("code"), given.get("data")
    if not isinstance(text, str) or not text:
        text = error if isinstance(error, str) else json.dumps(error, ensure_ascii=False)
    if isinstance(code, str):
        text = f"{text} ({code})"
    data = {**(data if isinstance(data, dict) else {}), MARK: msgspec.to_builtins(fault)}
    code = code if type(code) is int else types.INTERNAL_ERROR
    return {"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": text, "data": data}}


def _repair_tool(tool: dict[str, Any]) -> dict[str, Any]:
    """Return a tool with the fields that Plait uses."""
    output, hints = tool.get("outputSchema"), tool.get("annotations")
    repaired = {key: tool[key] for key in ("name", "title", "description") if isinstance(tool.get(key), str)}
    repaired["inputSchema"] = repair_schema(tool.get("inputSchema"))
    if isinstance(hints, dict):
        repaired["annotations"] = {hint: _BOOLEANS.get(str(hints.get(hint)).lower()) for hint in _HINTS}
    if isinstance(output, dict):
        # The protocol of 2025 allows only objects here.
        wrapped = {"properties": {"result": output}, "required": ["result"]}
        repaired["outputSchema"] = repair_schema(output if output.get("type") == "object" else wrapped)
    return repaired


def read_raw(reply: types.Result) -> Any:
    """Return a server's result as JSON."""
    if reply.meta and MARK in reply.meta:
        return json.loads(reply.meta[MARK][0])
    return reply.model_dump(mode="json", by_alias=True, exclude_none=True)  # of a server in this process


class RepairedReplies(ObjectReceiveStream[SessionMessage | Exception]):
    """Receives the messages of a server, with results repaired, and with replies that the SDK could not read. What
    `scrubber` returns removes the user's secrets from each."""

    def __init__(self, stream: Any, scrubber: Callable[[], Scrubber] = Scrubber) -> None:
        self._stream, self._scrubber = stream, scrubber

    async def receive(self) -> SessionMessage | Exception:
        item: SessionMessage | Exception = await self._stream.receive()
        if isinstance(item, SessionMessage) and (scrub := self._scrubber()):
            sent = item.message.model_dump_json(by_alias=True, exclude_unset=True)
            item.message = types.jsonrpc_message_adapter.validate_json(scrub.text(sent), by_name=False)
        if isinstance(item, Exception):
            message = _find_message(item)
            digits = str(message.get("id")).removesuffix(".0")
            if "method" in message or not digits.isdecimal():
                return item
            error = make_error(int(digits), "a reply without a result", Fault("unreadable"))
            reply = repair_reply(message, int(digits)) or error
            item = SessionMessage(types.jsonrpc_message_adapter.validate_python(reply, by_name=False))
        if isinstance(item.message, types.JSONRPCResponse):
            item.message.result = repair_result(item.message.result)
        return item

    async def aclose(self) -> None:
        await self._stream.aclose()

    @property
    def last_context(self) -> Context | None:
        """The context in which the last message was received, for the SDK."""
        return getattr(self._stream, "last_context", None)


def _find_message(error: Exception) -> dict[str, Any]:
    """Return the message that the SDK could not read; an empty one for a line that is no message."""
    for fault in error.errors(include_url=False, include_context=False) if isinstance(error, ValidationError) else ():
        given = fault["input"]
        if fault["type"] == "json_invalid":
            with suppress(ValueError):
                given = parse_json(given)
        if isinstance(given, dict):
            return given
    return {}


class McpHttpClient(httpx2.AsyncClient):
    """An HTTP client that answers each request of the SDK with a reply that the SDK can read."""

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        asked = json.loads(await request.aread()) if request.method == "POST" else {}
        is_request, id = "id" in asked and "method" in asked, asked.get("id", 0)
        headers = {"content-type": "application/json"}
        try:
            response = await super().send(request, **options)
            is_stream = response.headers.get("content-type", "").lower().startswith("text/event-stream")
            if not is_request or response.has_redirect_location or (is_stream and response.is_success):
                return response
            headers |= {name: response.headers[name] for name in (MCP_SESSION_ID,) if name in response.headers}
            reply = await _read_reply(response, id)
        except (httpx2.RequestError, TimeoutError) as error:
            is_unsent = isinstance(error, (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout))
            reply = make_error(id, f"{type(error).__name__}: {error}", Fault("refused" if is_unsent else "lost"))
        content = json.dumps(reply).encode()
        return httpx2.Response(200 if is_request else 503, headers=headers, content=content, request=request)


class OldHttpClient(McpHttpClient):
    """An HTTP client for the transport of 2024, in which replies come on one stream. What becomes of a message that the
    server does not take goes to `failures`, as its reply."""

    def __init__(self, failures: ObjectSendStream[SessionMessage | Exception], **options: Any) -> None:
        super().__init__(**options)
        self._failures = failures

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        response = await super().send(request, **options)
        asked = json.loads(request.content) if request.method == "POST" else {}
        if "id" in asked and "method" in asked and not response.has_redirect_location:
            reply = json.loads(response.content)
            if reply["error"]["data"][MARK]["kind"] != "unreadable":  # a message that was taken has no answer here
                await self._failures.send(SessionMessage(types.jsonrpc_message_adapter.validate_python(reply)))
        return response


async def forward_messages(
    read: ObjectReceiveStream[SessionMessage | Exception], send: ObjectSendStream[SessionMessage | Exception]
) -> None:
    """Pass on the messages of a stream until it ends."""
    async with send:
        async for item in read:
            await send.send(item)


async def _read_reply(response: httpx2.Response, id: int | str) -> dict[str, Any]:
    status, message = response.status_code, None
    async with asyncio.timeout(None if response.is_success else BODY_SECONDS):
        content = await response.aread()
    with suppress(ValueError):
        message = parse_json(content)
    reply = repair_reply(message, id)
    if response.is_success:
        text = response.headers.get("content-type", "no type")[:80] if content.strip() else "nothing"
        return reply or make_error(id, f"{text} instead of a result", Fault("unreadable", status))
    words = clean(_TAG.sub(" ", content.decode("utf-8", "replace")[:2_000]))
    error = reply["error"] if reply and "error" in reply else {"message": " ".join(words.split())[:200] or "no reason"}
    if after := response.headers.get("retry-after"):
        error["message"] += f"; Retry-After: {after[:40]}"
    # An error with the request's own id comes from a server that has read the request.
    is_own = isinstance(message, dict) and message.get("id") == id
    is_about_session = UNKNOWN_SESSION.search(error["message"][:300]) or (status == 404 and not is_own)
    kind: FaultKind = "lost" if (status >= 500 or status == 408) and not is_own else "answered"
    if status < 500 and is_about_session and MCP_SESSION_ID in response.request.headers:
        kind = "answered" if is_own else "forgotten"
    elif status in REFUSED:
        kind = "refused"
    return make_error(id, error, Fault(kind, status))
