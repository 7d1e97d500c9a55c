"""The server room: agents as a chat-completions endpoint and over MCP, and the pages to look at runs.

Needs the extra `window`. Nothing below imports this room; the command line does when it serves.
"""
