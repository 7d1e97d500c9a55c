"""An MCP server for the tests: two tools that take long, one of which changes nothing. `python mcp_stay.py LOG`."""

import asyncio
import os
import sys

from mcp.server.mcpserver import MCPServer
from mcp_types import ToolAnnotations as Marks

LOG = sys.argv[1]
server = MCPServer("stay")


async def long(seconds: float) -> str:
    with open(LOG, "a") as file:
        file.write("called\n")
    await asyncio.sleep(0 if os.path.exists(LOG + ".quick") else seconds)
    return "done"


@server.tool()
async def stay(seconds: float) -> str:
    """Stays."""
    return await long(seconds)


@server.tool(annotations=Marks(read_only_hint=True))
async def look(seconds: float) -> str:
    """Looks."""
    return await long(seconds)


server.run("stdio")
