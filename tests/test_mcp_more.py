"""Resources, prompts, changing lists and the transport of 2024 of MCP servers."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp.server.mcpserver import Context, MCPServer

import plait
from fork_server import start_forked
from journal_rows import is_result
from mcp_support import HERE, _answers, command, free_port, until
from mcp_talker import act, done
from plait import Agent, ConfigError, ToolError
from plait.journal.store import Journal
from plait.tools.mcp import connection
from plait.tools.mcp.server import TOOL_LISTS
from window_server import script

MORE = HERE / "mcp_more.py"


@pytest.fixture(autouse=True)
def ended() -> Iterator[None]:
    yield
    connection.close()
    connection._connections.clear()


def seen(run: plait.Run) -> list[Any]:
    return [row.record.value.text for row in run.rows() if is_result(row.record) and row.record.work == "call"]


def test_resources_are_listed_and_read_by_a_tool(tmp_path: Path) -> None:
    start = shlex.split(command(tmp_path / "log", script=MORE))
    word = "mcp:" + json.dumps({"command": start, "resources": True, "only": []})
    reads = (act("read_resource", uri="note://today"), act("read_resource", uri="note://Monday/list"))
    replies = script(tmp_path, *reads, act("read_resource", uri="note://x"), done("ok"))
    made = Agent("react", model=replies, tools=[word], journal=tmp_path / "runs.db")
    [spec] = made.specs
    assert "- note://today: " in spec.description and "- note://{day}/list" in spec.description
    assert "\nFinal" not in spec.description and (spec.read_only, spec.repeatable, spec.foreign) == (False, True, True)
    run = made.run("Read.")
    assert ["Water the plants." in seen(run)[0], "Nothing on Monday." in seen(run)[1]] == [True, True]
    assert seen(run)[2].startswith("Error: ")
    connection.close()
    connection._connections.clear()
    head = Journal.at(tmp_path / "runs.db").run(run.id).head
    again = Agent.from_journal(head, journal=tmp_path / "runs.db", load_tools=True)
    assert again.replay(run.id).whole and len(again.specs) == 1


def test_prompts_are_questions_that_the_user_picks(tmp_path: Path) -> None:
    start = command(tmp_path / "log", script=MORE)
    assert plait.mcp_prompts(start) == {"review": "text=... [tone=...] Reviews a text."}
    assert plait.mcp_prompt(start, "review", text="abc") == "Review this text in a kind tone: abc"
    with pytest.raises(ToolError):
        plait.mcp_prompt(start, "review")
    with pytest.raises(ConfigError, match="cannot be reached"):
        plait.mcp_prompts(f"http://127.0.0.1:{free_port()}/mcp")


def test_the_transport_of_2024_is_found_and_a_server_that_ends_is_noticed(tmp_path: Path) -> None:
    port = free_port()
    with open(os.devnull, "r+b") as nothing:
        stream = nothing.fileno()
        ways = {"stdin": stream, "stdout": stream, "stderr": stream}
        process = start_forked([MORE, tmp_path / "log", str(port)], **ways)
        until(lambda: _answers(port))
        [echo] = plait.mcp(f"http://127.0.0.1:{port}/sse", only=["echo"])
        assert asyncio.run(echo(text="hello")) == "hello"
        process.kill()
        process.wait()
        with pytest.raises(ToolError, match=r"cannot be reached|ended during this call"):
            asyncio.run(echo(text="hello"))
        process = start_forked([MORE, tmp_path / "log", str(port)], **ways)
        until(lambda: _answers(port))
        assert asyncio.run(echo(text="again")) == "again"
        process.kill()
        process.wait()


def test_a_list_that_changes_is_noticed_in_the_protocol_of_2026() -> None:
    server = MCPServer("changing")

    @server.tool()
    async def grow(ctx: Context[Any, Any]) -> str:
        """Adds a tool."""
        server.add_tool(lambda: "new", name="new")
        await ctx.notify_tools_changed()
        return "grown"

    [tool] = plait.mcp(server)
    before = TOOL_LISTS.changes
    asyncio.run(tool())
    until(lambda: TOOL_LISTS.changes > before, 5)
