"""Tools of MCP servers: the client side of the Model Context Protocol, on top of the official SDK."""
