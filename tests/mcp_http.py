"""An MCP server over HTTP in this process, by hand: what it answers is decided by the test."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = {"name": "weather", "description": "The weather.", "inputSchema": CITY}

Reply = tuple[int, dict[str, str], Any]
"""Status, headers, and body: JSON, or text as it is."""


def text_result(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}]}


def rpc(message: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """The reply to a message."""
    return {"jsonrpc": "2.0", "id": message["id"], **fields}


class RawServer(ThreadingHTTPServer):
    """`answer` gives the reply to a call, or to any request for which it does not return None; `forgotten` the reply to
    a request in an unknown session. `calls` has the cities of all calls in known sessions."""

    daemon_threads = True

    def __init__(
        self,
        answer: Callable[[dict[str, Any]], Reply | None] = lambda message: None,
        forgotten: Callable[[dict[str, Any]], Reply] = lambda message: (404, {}, "Session not found"),
    ) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answer, self.forgotten = answer, forgotten
        self.tools: Any = [WEATHER]
        self.sessions: set[str] = set()
        self.opened = 0
        self.calls: list[Any] = []
        self.url = f"http://127.0.0.1:{self.server_port}/mcp"

    def __enter__(self) -> RawServer:
        Thread(target=self.serve_forever, args=[0.01], daemon=True).start()
        return self

    def __exit__(self, *raised: object) -> None:
        self.shutdown()
        self.server_close()

    def reply_to(self, message: dict[str, Any], session: str | None) -> Reply:
        if "id" not in message:
            return 202, {}, ""
        method = message["method"]
        if method == "initialize":
            self.opened += 1
            self.sessions.add(session := uuid.uuid4().hex)
            version = message["params"]["protocolVersion"]
            info = {"protocolVersion": version, "capabilities": {}, "serverInfo": {"name": "raw", "version": "1"}}
            return self.answer(message) or (200, {"Mcp-Session-Id": session}, rpc(message, result=info))
        if method not in ("tools/list", "tools/call"):
            return 200, {}, rpc(message, error={"code": -32601, "message": "Method not found"})
        if session not in self.sessions:
            return self.forgotten(message)
        if method == "tools/list":
            return self.answer(message) or (200, {}, rpc(message, result={"tools": self.tools}))
        city = message["params"]["arguments"].get("city")
        self.calls.append(city)
        return self.answer(message) or (200, {}, rpc(message, result=text_result(f"{city}: 21")))


class _Handler(BaseHTTPRequestHandler):
    server: RawServer
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # headers and body in one packet

    def log_message(self, *_: Any) -> None: ...

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self._send(*self.server.reply_to(message, self.headers.get("Mcp-Session-Id")))

    def do_GET(self) -> None:
        self._send(405, {}, "")

    def do_DELETE(self) -> None:
        self._send(200, {}, "")

    def _send(self, status: int, headers: dict[str, str], body: Any) -> None:
        content = body if isinstance(body, str) else json.dumps(body)
        sent = {"Content-Type": "application/json", "Content-Length": str(len(content.encode())), **headers}
        self.send_response(status)
        for name, value in sent.items():
            if value:
                self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content.encode())
        self.close_connection |= int(sent["Content-Length"] or 0) != len(content.encode())
