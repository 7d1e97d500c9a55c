"""The server: agents as chat-completions models and MCP tools, and the routes of the viewer. Needs the extra `server`."""
