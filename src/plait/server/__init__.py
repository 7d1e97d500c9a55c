"""The server: agents as chat-completions models and MCP tools, and the viewer of runs. Needs the extra `server`."""
