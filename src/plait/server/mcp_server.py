"""The MCP server, in which each served agent is a tool, and its stdio transport. Needs the extra `mcp`."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import Any

import mcp_types as types
from mcp.server import Server
from mcp.server.context import ServerRequestContext
from mcp.server.stdio import stdio_server

from plait import __version__
from plait.server.agents import ServedAgent
from plait.server.mcp_call import INPUT, AgentCall, CallResult
from plait.server.runs import RunManager

OUTPUT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "status": {"type": "string", "enum": ["answered", "stopped", "waiting"]},
        "answer": {"description": "The answer: text, or any other JSON value; null while the run waits."},
        "asks": {"type": "string", "description": "What a run that waits asks."},
        "reply_to": {"type": "string", "description": "The id of that question: the answer names it."},
        "run": {"type": "string", "description": "The run's id on the record."},
        "session": {"type": "string"},
        "steps": {"type": "integer"},
        "cost_usd": {"type": ["number", "null"], "description": "Null where a price is not known."},
        "seconds": {"type": "number"},
    },
    "required": ["status", "answer", "run", "steps", "cost_usd", "seconds"],
}


def make_server(manager: RunManager) -> Server[Any]:
    """Return the MCP server of the agents, for any transport."""

    async def list_tools(ctx: ServerRequestContext[Any], params: Any) -> types.ListToolsResult:
        # In a thread: an agent's own MCP server may have to list its tools first.
        tools = [await asyncio.to_thread(_describe_tool, each) for each in manager.agents.values()]
        return types.ListToolsResult(tools=tools)

    async def call_tool(ctx: ServerRequestContext[Any], params: types.CallToolRequestParams) -> CallResult:
        return await AgentCall(manager, ctx, params).result()

    return Server(
        "plait",
        version=__version__,
        instructions="Each tool is an agent: it answers a question, in several steps and with tools of its own.",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        get_tool_input_schema=lambda name: INPUT if name in manager.agents else None,
    )


def _describe_tool(served: ServedAgent) -> types.Tool:
    specs = served.agent.specs
    annotations = types.ToolAnnotations(
        title=served.name,
        read_only_hint=not any(spec.has_effects for spec in specs),
        destructive_hint=any(spec.destructive for spec in specs),
        idempotent_hint=False,
        open_world_hint=True,
    )
    return types.Tool(
        name=served.name,
        description=served.about,
        input_schema=INPUT,
        output_schema=OUTPUT,
        annotations=annotations,
    )


async def serve_stdio(manager: RunManager) -> None:
    """Serve over this process's stdin and stdout until stdin ends, or Ctrl-C or SIGTERM.

    Only the protocol is written to stdout; other output goes to stderr. After a signal, runs under way have `grace`
    seconds to end. Then they are cancelled and can be resumed.
    """
    loop, signalled = asyncio.get_running_loop(), asyncio.Event()
    # Keep ignoring an ignored signal: a script ignores it for its background jobs.
    for number in (each for each in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(each) != signal.SIG_IGN):
        loop.add_signal_handler(number, signalled.set)
    async with stdio_server() as (read, write):
        server = make_server(manager)
        serving = asyncio.ensure_future(server.run(read, write, server.create_initialization_options()))
        stopping = asyncio.ensure_future(signalled.wait())
        await asyncio.wait([serving, stopping], return_when=asyncio.FIRST_COMPLETED)
        # A client that closed stdin reads no more answers; one that sent a signal may.
        await manager.stop(0 if serving.done() else None)
        for task in (serving, stopping):
            task.cancel()
        await asyncio.wait([serving, stopping], timeout=5)
        if not serving.done() or signalled.is_set():
            # A thread still waits for a line on stdin and cannot be interrupted.
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)
