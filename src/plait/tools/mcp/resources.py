"""Resources and prompts of MCP servers: resources are read by a tool, prompts are questions that a user picks."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from plait.core.errors import ToolError
from plait.core.text import clean, one_line
from plait.tools.mcp.results import read_result

if TYPE_CHECKING:
    from plait.tools.mcp.connection import McpConnection

_URI = {"type": "string", "description": "The address of the resource, with values for the parts in braces."}
READ: dict[str, Any] = {"type": "object", "properties": {"uri": _URI}, "required": []}


async def describe_resources(connection: McpConnection) -> str:
    """Return the list of a server's resources, and of its templates, a line for each."""
    lines = [f"- {each.get('uri')}{_about(each)}" for each in await connection.list_all("resources")]
    templates = await connection.list_all("resourceTemplates")
    lines += [f"- {each.get('uriTemplate')}{_about(each)}" for each in templates]
    return "\n".join(["The resources:", *lines]) if lines else "The server lists no resources."


async def read_resource(connection: McpConnection, uri: Any) -> Any:
    """Return the contents of a resource as the result of a tool; without `uri` the list. Raises `ToolError`."""
    import mcp_types as types

    if not uri:
        return await describe_resources(connection)
    params = types.ReadResourceRequestParams(uri=str(uri))
    result = await connection.ask(types.ReadResourceRequest(params=params))
    contents = result.get("contents") if isinstance(result, dict) else None
    if not isinstance(contents, list) or not contents:
        raise ToolError(f"The resource {uri} has no contents.")
    return read_result({"content": [{"type": "resource", "resource": each} for each in contents]})


async def list_prompts(connection: McpConnection) -> dict[str, str]:
    """Return what each prompt of a server is for, with its arguments, by name."""
    found: dict[str, str] = {}
    for each in await connection.list_all("prompts"):
        given = each.get("arguments")
        arguments = [arg for arg in given if isinstance(arg, dict)] if isinstance(given, list) else []
        words = [f"{arg.get('name')}=..." if arg.get("required") else f"[{arg.get('name')}=...]" for arg in arguments]
        found[str(each.get("name"))] = " ".join([*map(one_line, words), _about(each).removeprefix(": ")]).strip()
    return found


async def format_prompt(connection: McpConnection, name: str, arguments: dict[str, str]) -> str:
    """Return a prompt as one question; several messages with their roles. Raises `ToolError`."""
    import mcp_types as types

    params = types.GetPromptRequestParams(name=name, arguments=arguments)
    result = await connection.ask(types.GetPromptRequest(params=params))
    messages = result.get("messages") if isinstance(result, dict) else None
    found: list[tuple[str, str]] = []
    for message in messages if isinstance(messages, list) else []:
        if isinstance(message, dict):
            read = read_result({"content": [message.get("content")]})
            found.append((str(message.get("role")), clean(read if isinstance(read, str) else json.dumps(str(read)))))
    if not found:
        raise ToolError(f"The prompt {name} of the MCP server {connection.server.label} is empty.")
    return found[0][1] if len(found) == 1 else "\n\n".join(f"{role}: {text}" for role, text in found)


def _about(each: dict[str, Any]) -> str:
    """Return what a server says about something that it lists, on one line, after a colon."""
    words = [str(each[name]) for name in ("title", "description") if each.get(name)] or [str(each.get("name") or "")]
    text = one_line(clean(" ".join(words)))[:300]
    return f": {text}" if text else ""
