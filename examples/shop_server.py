"""A small MCP server to try things with: `plait tools list "mcp:python examples/shop_server.py"`."""

from mcp.server.mcpserver import MCPServer
from mcp_types import ToolAnnotations

server = MCPServer("shop")


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def price(item: str, count: int = 1) -> int:
    """The price of an item, in euros."""
    return {"pear": 3, "lamp": 20}.get(item, 7) * count


@server.tool()
def order(item: str, count: int = 1) -> str:
    """Orders an item."""
    return f"ordered: {count} {item}"


if __name__ == "__main__":
    server.run("stdio")
