"""Ten public MCP servers, installed from PyPI and npm, through Plait's client: list, call, error, restart.

    python benchmarks/mcp_servers.py FOLDER > benchmarks/results/mcp_servers.md

FOLDER gets the packages: a virtual environment for each one of PyPI, and one `node_modules`. This needs node, npm and
git, and the network for the installation. The browser of the last server is the one that CHROMIUM names.
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
from typing import Any, NamedTuple

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
TYPESCRIPT = """\
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StdioServerTransport } from "@modelcontextprotocol/sdk/server/stdio.js";
import { z } from "zod";
const server = new McpServer({ name: "greeter", version: "1.0.0" });
server.registerTool("greet", { description: "Greets.", inputSchema: { name: z.string() } },
  async ({ name }) => ({ content: [{ type: "text", text: `Hello, ${name}.` }] }));
await server.connect(new StdioServerTransport());
"""


CALCULATION, WRONG = {"expression": "6 * 7"}, {"expression": "6 *"}
HEAD = """\
# Public MCP servers

Each was installed from its index, started as a command, and used through `plait.mcp`:

    python benchmarks/mcp_servers.py FOLDER

*Call*: the result has the expected text. *Error*: a wrong call is an error of the tool, with the server's words; *text
only*: the server sends its error as an ordinary result. *Restart*: the process was killed with SIGKILL, and the next
call started it again. mcp-server-sqlite does not start with version 2 of the SDK, and ran with version 1.

| package | version | index | protocol | tools | seconds to start | call | error | restart |
|---|---|---|---|---|---|---|---|---|"""


class Server(NamedTuple):
    """A server: its package and command, a call of a tool with a part of the result, and an input that is wrong."""

    package: str
    command: list[str]
    tool: str
    given: dict[str, Any]
    expected: str
    wrong: dict[str, Any]


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


def servers(url: str) -> list[Server]:
    """Prepare the files of the servers, and return them. `url` is a page of this process."""
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
    shop, nowhere = str(WORK / "shop.db"), "http://127.0.0.1:1/"
    fetch = [python("mcp-server-fetch"), "--allow-private-ips"]
    thinking = node(of + "sequential-thinking", "mcp-server-sequential-thinking")
    browser = [node("@playwright/mcp", "playwright-mcp"), "--headless", "--isolated", "--no-sandbox"]
    browser += ["--executable-path", CHROMIUM, "--output-dir", str(WORK / "browser")]
    everything, memory_server = (node(of + name, f"mcp-server-{name}") for name in ("everything", "memory"))
    filesystem = [node(of + "filesystem", "mcp-server-filesystem"), files]
    note = {"path": f"{files}/note.txt"}
    sqlite = [python("mcp-server-sqlite"), "--db-path", shop]
    return [
        Server("mcp-server-time", [python("mcp-server-time")], "convert_time", zone, "19:00", {**zone, "time": "no"}),
        Server("mcp-server-fetch", fetch, "fetch", {"url": url}, "Two lamps", {"url": nowhere}),
        Server("mcp-server-git", [python("mcp-server-git")], "git_status", {"repo_path": repo}, "No commits", {}),
        Server("mcp-server-sqlite", sqlite, "read_query", {"query": "SELECT 6 * 7 AS n"}, "42", {"query": "SELECT"}),
        Server("mcp-server-calculator", [python("mcp-server-calculator")], "calculate", CALCULATION, "42", WRONG),
        Server("fastmcp", [python("fastmcp", "python"), str(WORK / "cooking.py")], "double", {"number": 21}, "42", {}),
        Server("@modelcontextprotocol/sdk", ["node", str(scripts)], "greet", {"name": "Ada"}, "Hello, Ada.", {}),
        Server(of + "everything", [everything], "echo", {"message": "hello"}, "hello", {}),
        Server(of + "filesystem", filesystem, "read_text_file", note, "Water", {"path": "/etc/passwd"}),
        Server(of + "memory", [memory_server], "search_nodes", {"query": "x"}, "entities", {"query": {}}),
        Server(of + "sequential-thinking", [thinking], "sequentialthinking", thought, "thoughtNumber", {"thought": 1}),
        Server("@playwright/mcp", browser, "browser_navigate", {"url": url}, "Lamps", {"url": nowhere}),
    ]


def processes() -> set[int]:
    """The processes that this one started."""
    tasks = Path(f"/proc/{os.getpid()}/task").iterdir()
    return {int(child) for task in tasks for child in (task / "children").read_text().split()}


def try_server(server: Server) -> str:
    """Return the row of a server."""
    before, began = processes(), time.monotonic()
    env = {"MEMORY_FILE_PATH": "$MEMORY_FILE_PATH"}
    tools = {tool.name: tool for tool in plait.mcp(server.command, env=env, start=60)}
    seconds = time.monotonic() - began
    [connection] = _connections.values()
    protocol = str(connection._session.client.protocol_version)  # type: ignore[union-attr]
    tool = tools[server.tool]
    called = server.expected in str(asyncio.run(tool(**server.given)))
    try:
        failed = "text only" if "error" in str(asyncio.run(tool(**server.wrong))).lower() else "no"
    except plait.ToolError:
        failed = "yes"
    killed = processes() - before
    for pid in killed:
        os.kill(pid, 9)
    time.sleep(0.5)
    restarted = bool(killed) and server.expected in str(asyncio.run(tool(**server.given)))
    close()
    _connections.clear()
    index = "npm" if (FOLDER / "npm/node_modules" / server.package).exists() else "PyPI"
    cells = (server.package, version_of(server.package), index, protocol, len(tools), f"{seconds:.1f}")
    return " | ".join(map(str, (*cells, "yes" if called else "no", failed, "yes" if restarted else "no")))


def main() -> int:
    page = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=page.serve_forever, daemon=True).start()
    print(HEAD)
    bad = 0
    for server in servers(f"http://127.0.0.1:{page.server_port}/"):
        try:
            row = try_server(server)
        except Exception as error:
            print(server.package, error, file=sys.stderr)
            row = f"{server.package} | no"
        bad += row.count("| no")
        print(f"| {row} |", flush=True)
    return bad


if __name__ == "__main__":
    sys.exit(main())
