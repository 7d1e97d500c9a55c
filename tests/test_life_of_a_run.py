"""docs/life-of-a-run.md names the functions of a run, in their order, and the way to the request stays short."""

from __future__ import annotations

import ast
import json
import re
from functools import cache
from typing import Any, NamedTuple

import pytest

from conftest import for_each
from docs_support import ROOT
from fork_server import run_forked

SOURCE = ROOT / "src" / "plait"
PAGE = (ROOT / "docs" / "life-of-a-run.md").read_text(encoding="utf-8")
MOST = 15
"""Stack frames of ours between the command and aiohttp's POST, both included."""

ANSWERS = [
    'Thought: I compute it.\nAction:\n```\n{"action": "calculator", "action_input": "2+2"}\n```',
    "Thought: I know.\nFinal Answer: 4",
]

PROGRAM = """
import json, os, sys, threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
import plait
from plait.cli.main import main

OURS = f"{Path(plait.__file__).parent}{os.sep}"
replies, bodies, stack, calls, code = json.loads(sys.argv[1]), [], [], [], None

class Endpoint(BaseHTTPRequestHandler):
    def log_message(self, *args):
        pass

    def do_POST(self):
        bodies.append(self.rfile.read(int(self.headers["content-length"])).decode())
        message = {"role": "assistant", "content": replies[len(bodies) - 1]}
        body = json.dumps({"choices": [{"index": 0, "finish_reason": "stop", "message": message}]}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

def place(frame):
    return [Path(frame.f_code.co_filename).relative_to(OURS).as_posix(), frame.f_code.co_qualname]

def is_ours(frame):
    return frame.f_code.co_filename.startswith(OURS)

def profile(frame, event, arg):
    if event != "call":
        return
    if is_ours(frame):
        calls.append(place(frame))
    elif not stack and frame.f_code.co_qualname == "ClientSession._request" and frame.f_locals["method"] == "POST":
        while frame is not None:
            if is_ours(frame):
                stack.insert(0, place(frame))
            frame = frame.f_back

server = ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
threading.Thread(target=server.serve_forever, daemon=True).start()
Path("plait.toml").write_text(f'[endpoints.fake]\\nbase_url = "http://127.0.0.1:{server.server_port}/v1"\\n')
sys.argv = ["plait", "run", "2+2?", "--loop", "react", "--model", "fake:m", "--tools", "calculator"]
sys.argv += ["--journal", "journal.db"]
sys.setprofile(profile)
try:
    main()
except SystemExit as end:
    code = end.code
sys.setprofile(None)
Path("found.json").write_text(json.dumps({"stack": stack, "calls": calls, "bodies": bodies, "code": code}))
"""


class Row(NamedTuple):
    """A row of the page's tables."""

    section: str
    file: str
    function: str


def rows_of_page() -> list[Row]:
    found, section = [], ""
    for line in PAGE.splitlines():
        if line.startswith("## "):
            section = line[3:]
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and len(cells) == 4 and cells[1] not in ("file", "---"):
            assert re.fullmatch(r"`[\w/]+\.py`", cells[1]) and re.fullmatch(r"`[\w.]+`", cells[2]), line
            found.append(Row(section, cells[1].strip("`"), cells[2].strip("`")))
    return found


ROWS = rows_of_page()
SECTIONS = list(dict.fromkeys(row.section for row in ROWS))


@cache
def functions_in(file: str) -> frozenset[str]:
    """The functions of a file, and the methods of its classes as `Class.method`."""
    body = ast.parse((SOURCE / file).read_text(encoding="utf-8")).body
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    methods = [
        f"{each.name}.{part.name}"
        for each in body
        if isinstance(each, ast.ClassDef)
        for part in each.body
        if isinstance(part, kinds)
    ]
    return frozenset([*methods, *(each.name for each in body if isinstance(each, kinds))])


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What a profiled run called, and what it sent."""
    folder = tmp_path_factory.mktemp("run")
    command = ["-c", PROGRAM, json.dumps(ANSWERS)]
    done = run_forked(command, cwd=folder)
    assert (folder / "found.json").exists(), done.stderr
    return {**json.loads((folder / "found.json").read_text()), "stdout": done.stdout}


@for_each("row", ROWS)
def test_each_function_on_the_page_exists(row: Row) -> None:
    assert row.function in functions_in(row.file)


def test_the_first_table_is_the_stack_of_a_request(found: Any) -> None:
    frames = [(file, function) for file, function in found["stack"]]
    assert frames == [(row.file, row.function) for row in ROWS if row.section == SECTIONS[0]]
    assert len(frames) <= MOST


def test_the_run_makes_its_requests_and_prints_the_answer(found: Any) -> None:
    asked, told = (json.loads(body)["messages"] for body in found["bodies"])
    assert "2+2?" in asked[-1]["content"] and "4" in told[-1]["content"]
    assert (found["stdout"], found["code"]) == ("4\n", 0)


def test_the_next_tables_list_the_calls_of_a_run_in_their_order(found: Any) -> None:
    made = iter([(file, function) for file, function in found["calls"]])
    for row in ROWS:
        if row.section in SECTIONS[1:5]:
            assert (row.file, row.function) in made, row  # consumes the calls up to this one
