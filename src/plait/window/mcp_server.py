"""Each served agent as a tool of an MCP server: `tools/list` and `tools/call`, over any transport."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from plait import __version__
from plait.window.desk import Desk
from plait.window.mcp_call import INPUT, Asked
from plait.window.settings import ServedAgent

if TYPE_CHECKING:
    import mcp_types as types
    from mcp.server import Server
    from mcp.server.context import ServerRequestContext
    from starlette.routing import BaseRoute

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


def server(desk: Desk) -> Server[Any]:
    """The MCP server of a desk's agents."""
    from mcp.server import Server
    from mcp_types import ListToolsResult

    async def listed(ctx: ServerRequestContext[Any], params: Any) -> types.ListToolsResult:
        # An agent's tools may have to be listed first, by a server of their own.
        return ListToolsResult(tools=[await asyncio.to_thread(_tool, each) for each in desk.agents.values()])

    async def called(
        ctx: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        return await Asked(desk, ctx, params).result()

    return Server(
        "plait",
        version=__version__,
        instructions="Each tool is an agent: it answers a question, in several steps and with tools of its own.",
        on_list_tools=listed,
        on_call_tool=called,
        get_tool_input_schema=lambda name: INPUT if name in desk.agents else None,
    )


def routes(desk: Desk) -> list[BaseRoute]:
    """The route /mcp."""
    from plait.window import mcp_transport

    return mcp_transport.routes(desk)


def _tool(served: ServedAgent) -> types.Tool:
    from mcp_types import Tool, ToolAnnotations

    specs = served.agent.specs
    marks = ToolAnnotations(
        title=served.name,
        read_only_hint=not any(spec.has_effects for spec in specs),
        destructive_hint=any(spec.destructive for spec in specs),
        idempotent_hint=False,
        open_world_hint=True,
    )
    tools = ", ".join(spec.name for spec in specs[:20])
    about = served.description or f"An agent of the loop {served.agent._loop.name}{f' with {tools}' if tools else ''}."
    return Tool(name=served.name, description=about, input_schema=INPUT, output_schema=OUTPUT, annotations=marks)
