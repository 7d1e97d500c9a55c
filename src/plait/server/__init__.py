"""The server: agents as chat-completions models and MCP tools; the viewer's routes. Needs the extra `server`."""
