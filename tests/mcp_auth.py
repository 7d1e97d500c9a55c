"""An MCP server that wants OAuth, with its authorization server, on one port. `faults` say what is wrong with it."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit


class AuthServer:
    """`faults`: "state", "issuer", "redirect", "no_resource". The lists and dictionaries hold what the clients did."""

    def __init__(self, *faults: str, seconds: int = 3600) -> None:
        self.faults, self.seconds = faults, seconds
        self.clients: list[dict[str, Any]] = []
        self.codes: dict[str, dict[str, str]] = {}
        self.tokens: list[str] = []
        self.refreshes: list[str] = []
        self.spent: list[str] = []
        self.valid: set[str] = set()
        self.used: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: Any) -> None: ...

            def reply(self, status: int, body: Any, **headers: str) -> None:
                data = json.dumps(body).encode()
                self.send_response(status)
                for name, value in {"content-type": "application/json", **headers}.items():
                    self.send_header(name.replace("_", "-"), value)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def do_GET(self) -> None:
                outer.get(self, urlsplit(self.path))

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0)).decode()
                outer.post(self, urlsplit(self.path).path, body)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    def get(self, http: Any, parts: Any) -> None:
        given = {name: each[0] for name, each in parse_qs(parts.query).items()}
        if parts.path.startswith("/.well-known/oauth-protected-resource"):
            http.reply(200, {"resource": f"{self.url}/mcp", "authorization_servers": [f"{self.url}/auth"]})
        elif parts.path == "/.well-known/oauth-authorization-server/auth":
            issuer = "http://127.0.0.1:1/other" if "issuer" in self.faults else f"{self.url}/auth"
            page = "http://evil.example/authorize" if "redirect" in self.faults else f"{self.url}/authorize"
            found = {"issuer": issuer, "authorization_endpoint": page, "token_endpoint": f"{self.url}/auth/token"}
            found |= {"registration_endpoint": f"{self.url}/auth/register"}
            http.reply(200, {**found, "code_challenge_methods_supported": ["S256"]})
        elif parts.path == "/authorize":
            code = secrets.token_urlsafe(12)
            self.codes[code] = given
            state = "another" if "state" in self.faults else given["state"]
            location = f"{given['redirect_uri']}?{urlencode({'code': code, 'state': state})}"
            http.reply(302, {}, location=location)
        else:
            http.reply(404 if parts.path != "/mcp" else 405, {})

    def post(self, http: Any, path: str, body: str) -> None:
        if path == "/auth/register":
            self.clients.append(json.loads(body))
            http.reply(201, {**self.clients[-1], "client_id": f"client-{len(self.clients)}"})
        elif path == "/auth/token":
            self.give_token(http, {name: each[0] for name, each in parse_qs(body).items()})
        elif path == "/mcp":
            token = http.headers.get("authorization", "").removeprefix("Bearer ")
            if token not in self.valid:
                where = f'Bearer resource_metadata="{self.url}/.well-known/oauth-protected-resource/mcp"'
                http.reply(401, {"error": "no valid token"}, www_authenticate=where)
                return
            self.used.append(token)
            self.serve_mcp(http, json.loads(body), token)

    def give_token(self, http: Any, given: dict[str, str]) -> None:
        if given["grant_type"] == "refresh_token":
            self.spent.append(given["refresh_token"])
            if given["refresh_token"] != self.refreshes[-1] or self.spent.count(given["refresh_token"]) > 1:
                http.reply(400, {"error": "invalid_grant"})
                return
        else:
            asked = self.codes.pop(given["code"], None)
            challenge = base64.urlsafe_b64encode(hashlib.sha256(given["code_verifier"].encode()).digest())
            if asked is None or challenge.decode().rstrip("=") != asked["code_challenge"]:
                http.reply(400, {"error": "invalid_grant"})
                return
        self.tokens.append(f"access-{secrets.token_urlsafe(12)}")
        self.refreshes.append(f"refresh-{secrets.token_urlsafe(12)}")
        self.valid = {self.tokens[-1]}
        found = {"access_token": self.tokens[-1], "token_type": "Bearer", "expires_in": self.seconds}
        http.reply(200, {**found, "refresh_token": self.refreshes[-1]})

    def serve_mcp(self, http: Any, asked: dict[str, Any], token: str) -> None:
        tools = [{"name": "echo", "description": f"Says {token}", "inputSchema": {"type": "object"}}]
        result: dict[str, Any] = {}
        if asked.get("method") == "initialize":
            result = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "a", "version": "1"}}
        elif asked.get("method") == "tools/list":
            result = {"tools": tools}
        elif asked.get("method") == "tools/call":
            result = {"content": [{"type": "text", "text": f"your token is {token}"}]}
        elif asked.get("method") == "server/discover":
            http.reply(200, {"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -32601, "message": "no"}})
            return
        elif "id" not in asked:
            http.reply(202, None)
            return
        http.reply(200, {"jsonrpc": "2.0", "id": asked.get("id"), "result": result})
