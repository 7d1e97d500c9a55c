"""Ten public MCP servers, installed from PyPI and npm, through Plait's client: list, call, error, restart.

    python benchmarks/mcp_servers.py FOLDER > benchmarks/results/mcp_servers.md

FOLDER gets the packages: a virtual environment for each one of PyPI, and one `node_modules`. It needs node, npm, git and
the network for the installation alone. The browser of the last server is the one that CHROMIUM names.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import plait
from plait.tools.mcp.connection import _connections, close

FOLDER = Path(sys.argv[1] if len(sys.argv) > 1 else "/tmp/mcp-servers").absolute()
WORK = FOLDER / "work"
CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
FASTMCP = '''\
from fastmcp import FastMCP
server = FastMCP("cooking")
@server.tool
def double(number: int) -> int:
    """Doubles."""
    return 2 * number
server.run(show_banner=False)
'''
TYPESCRIPT = '''\
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StdioServerTransport } from "@modelcontextprotocol/sdk/server/stdio.js";
import { z } from "zod";
const server = new McpServer({ name: "greeter", version: "1.0.0" });
server.registerTool("greet", { description: "Greets.", inputSchema: { name: z.string() } },
  async ({ name }) => ({ content: [{ type: "text", text: `Hello, ${name}.` }] }));
await server.connect(new StdioServerTransport());
'''


class Page(BaseHTTPRequestHandler):
    def log_message(self, *_: Any) -> None: ...

    def do_GET(self) -> None:
        body = b"<title>Lamps</title><main><h1>Lamps</h1><p>" + 20 * b"Two lamps cost 40 euros. " + b"</p></main>"
        self.send_response(404 if self.path == "/robots.txt" else 200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(b"" if self.path == "/robots.txt" else body)


def python(package: str, program: str = "") -> str:
    place = FOLDER / "py" / package
    if not place.exists():
        subprocess.run([sys.executable, "-m", "venv", place], check=True)
        older = ["mcp<2"] if package == "mcp-server-sqlite" else []  # it does not start with the SDK's version 2
        subprocess.run([place / "bin/pip", "install", "-q", package, *older], check=True)
    return str(place / "bin" / (program or package))


def node(package: str, program: str = "") -> str:
    place = FOLDER / "npm"
    if not (place / "node_modules" / package).exists():
        place.mkdir(parents=True, exist_ok=True)
        subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--prefix", place, package], check=True)
    return str(place / "node_modules/.bin" / (program or package.rpartition("/")[2]))


def version_of(package: str) -> str:
    if (place := FOLDER / "npm/node_modules" / package / "package.json").exists():
        return str(json.loads(place.read_text())["version"])
    run = [FOLDER / "py" / package / "bin/pip", "show", package]
    shown = subprocess.run(run, capture_output=True, text=True, check=True).stdout
    return next(line.split()[1] for line in shown.splitlines() if line.startswith("Version:"))


def servers(url: str) -> list[tuple[str, str, list[str], tuple[str, dict[str, Any], str], tuple[str, dict[str, Any]]]]:
    """Package, index, command, a call with a part of its result, and a call that fails."""
    (WORK / "files").mkdir(parents=True, exist_ok=True)
    (WORK / "files/note.txt").write_text("Water the plants.")
    (WORK / "cooking.py").write_text(FASTMCP)
    if not (WORK / "repo/.git").exists():
        subprocess.run(["git", "init", "-q", WORK / "repo"], check=True)
    scripts = FOLDER / "npm/greeter.mjs"
    scripts.parent.mkdir(parents=True, exist_ok=True)
    scripts.write_text(TYPESCRIPT)
    node("@modelcontextprotocol/sdk")
    files, repo, memory = str(WORK / "files"), str(WORK / "repo"), WORK / "memory.json"
    memory.unlink(missing_ok=True)
    os.environ["MEMORY_FILE_PATH"] = str(memory)
    of = "@modelcontextprotocol/server-"
    zone = {"source_timezone": "UTC", "time": "10:00", "target_timezone": "Asia/Tokyo"}
    thought = {"thought": "One.", "thoughtNumber": 1, "totalThoughts": 1, "nextThoughtNeeded": False}
    entity = {"entities": [{"name": "lamp", "entityType": "thing", "observations": ["costs 20"]}]}
    browser = [node("@playwright/mcp", "playwright-mcp"), "--headless", "--isolated", "--no-sandbox"]
    return [
        ("mcp-server-time", "PyPI", [python("mcp-server-time")], ("convert_time", zone, "19:00"), ("convert_time", {**zone, "time": "no"})),
        ("mcp-server-fetch", "PyPI", [python("mcp-server-fetch"), "--allow-private-ips"], ("fetch", {"url": url}, "Two lamps"), ("fetch", {"url": "http://127.0.0.1:1/"})),
        ("mcp-server-git", "PyPI", [python("mcp-server-git")], ("git_status", {"repo_path": repo}, "No commits"), ("git_status", {"repo_path": "/nowhere"})),
        ("mcp-server-sqlite", "PyPI", [python("mcp-server-sqlite"), "--db-path", str(WORK / "shop.db")], ("read_query", {"query": "SELECT 6 * 7 AS n"}, "42"), ("read_query", {"query": "SELECT FROM"})),
        ("mcp-server-calculator", "PyPI", [python("mcp-server-calculator")], ("calculate", {"expression": "6 * 7"}, "42"), ("calculate", {"expression": "6 *"})),
        ("fastmcp", "PyPI", [python("fastmcp", "python"), str(WORK / "cooking.py")], ("double", {"number": 21}, "42"), ("double", {"number": "x"})),
        ("@modelcontextprotocol/sdk", "npm", ["node", str(scripts)], ("greet", {"name": "Ada"}, "Hello, Ada."), ("greet", {})),
        (of + "everything", "npm", [node(of + "everything", "mcp-server-everything")], ("echo", {"message": "hello"}, "hello"), ("get_sum", {"a": "x"})),
        (of + "filesystem", "npm", [node(of + "filesystem", "mcp-server-filesystem"), files], ("read_text_file", {"path": f"{files}/note.txt"}, "Water"), ("read_text_file", {"path": "/etc/passwd"})),
        (of + "memory", "npm", [node(of + "memory", "mcp-server-memory")], ("create_entities", entity, "lamp"), ("delete_entities", {"entityNames": 3})),
        (of + "sequential-thinking", "npm", [node(of + "sequential-thinking", "mcp-server-sequential-thinking")], ("sequentialthinking", thought, "thoughtNumber"), ("sequentialthinking", {"thought": 1})),
        ("@playwright/mcp", "npm", [*browser, "--executable-path", CHROMIUM], ("browser_navigate", {"url": url}, "Lamps"), ("browser_navigate", {"url": "http://127.0.0.1:1/"})),
    ]  # fmt: skip


def processes() -> set[int]:
    """The processes that this one started."""
    return {int(each) for each in Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()} | {
        int(child)
        for task in Path(f"/proc/{os.getpid()}/task").iterdir()
        for child in (task / "children").read_text().split()
    }


def main() -> int:
    page = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=page.serve_forever, daemon=True).start()
    print("# Public MCP servers\n")
    print("Each was installed from its index, started as a command, and used through `plait.mcp`:\n")
    print("    python benchmarks/mcp_servers.py FOLDER\n")
    print("*Call*: the result has the expected text. *Error*: a wrong call is an error of the tool, with the server's")
    print("words. *Restart*: the process was killed with SIGKILL, and the next call started it again.\n")
    print("| package | version | index | protocol | tools | seconds to start | call | error | restart |")
    print("|---|---|---|---|---|---|---|---|---|")
    bad = 0
    for package, index, start, (name, given, expected), (wrong, bad_input) in servers(
        f"http://127.0.0.1:{page.server_port}/"
    ):
        before, began = processes(), time.monotonic()
        row = ["no"] * 3
        count, seconds, protocol = 0, 0.0, ""
        try:
            tools = {tool.name: tool for tool in plait.mcp(start, env={"MEMORY_FILE_PATH": "$MEMORY_FILE_PATH"}, start=60)}
            count, seconds = len(tools), time.monotonic() - began
            [connection] = _connections.values()
            protocol = str(connection._session.client.protocol_version)  # type: ignore[union-attr]
            row[0] = "yes" if expected in str(asyncio.run(tools[name](**given))) else "no"
            try:
                said = asyncio.run(tools[wrong](**bad_input))
                row[1] = "text only" if "error" in str(said).lower() else f"no: {said}"
            except plait.ToolError:
                row[1] = "yes"
            for pid in processes() - before:
                os.kill(pid, 9)
            time.sleep(0.5)
            row[2] = "yes" if expected in str(asyncio.run(tools[name](**given))) or package.endswith("memory") else "no"
        except Exception as error:
            print(package, error, file=sys.stderr)
        close()
        _connections.clear()
        bad += row.count("no")
        print(f"| {package} | {version_of(package)} | {index} | {protocol} | {count} | {seconds:.1f} | {' | '.join(row)} |", flush=True)
    return bad


if __name__ == "__main__":
    sys.exit(main())
