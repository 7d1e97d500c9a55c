"""Errors of MCP servers: which part of a request is lost, and messages that say what to do."""

from __future__ import annotations

from typing import Literal

from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from plait.core.errors import ConfigError, PlaitError, ToolError
from plait.tools.mcp.server import McpServer

UNREACHED = "plait: not sent"
"""The `data` of the error of a request that could not be sent, because nothing answers at the address."""

LOST = "Connection closed"
"""How the message begins that the SDK gives to requests whose connection broke."""


class McpServerUnavailable(ConfigError, ToolError):
    """The server cannot be started or reached, and no call was made.

    It is an error of usage when Plait lists the tools, and an error of the tool in a run.
    """


def find_loss(error: Exception) -> Literal["", "unreached", "before", "during"]:
    """Return whether the connection is lost, and when: before the server began the request, or in an unknown state."""
    if not isinstance(error, MCPError):
        return ""
    if error.data == UNREACHED:
        return "unreached"
    if error.message == "Session terminated":  # a server that was restarted refuses the old session
        return "before"
    # The message decides, because servers may use the SDK's codes for their own errors.
    return "during" if error.message.startswith((LOST, "SSE stream")) else ""


def describe_refusal(server: McpServer, error: Exception) -> ToolError:
    """Return the error for a call that the server answered with an error, or with an invalid result."""
    if isinstance(error, MCPError):
        return ToolError(error.message or "The MCP server refused the call without a reason.")
    return ToolError(f"The MCP server {server.label} sent an invalid result: {_summarize(error)}")


def describe_failure(server: McpServer, error: BaseException, stderr: str, http_status: int) -> PlaitError:
    """Return the error for a server that did not start, could not be reached, or did not list its tools."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    match error:
        case PlaitError():
            return error
        case TimeoutError():
            text = f"did not list its tools within {server.start:g} seconds.{stderr}"
            hint = "Check that it speaks MCP. If it needs longer, as a first download does, give start=SECONDS."
        case ValidationError():
            faults = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()[:3])
            text, hint = f"breaks the protocol ({faults}).", "Report it to the authors of the server."
        case FileNotFoundError() if server.command:
            missing = f"folder {server.cwd!r}" if error.filename == server.cwd else f"program {server.command[0]!r}"
            text, hint = f"cannot start: there is no {missing}.", "Install it, or give its full path."
        case PermissionError() if server.command:
            text, hint = f"cannot start: {server.command[0]} is not executable.", "Check its path and permissions."
        case _ if server.command:
            text = f"ended or did not speak MCP ({_summarize(error)}).{stderr}"
            hint = "Run the command by itself to see what is wrong." + (
                "" if stderr else " It wrote nothing on stderr."
            )
        case _ if http_status in (401, 403):
            text = f"refuses the request ({http_status})."
            hint = "Give headers={'Authorization': 'Bearer $NAME'}, where the variable NAME has the token."
        case _ if http_status:
            text, hint = f"answered {http_status}.", "Check that this is the address of its MCP endpoint, often /mcp."
        case _:
            text, hint = f"cannot be reached ({_summarize(error)}).", "Check that it is running, and check the address."
    return McpServerUnavailable(f"The MCP server {server.label} {text}", hint=hint)


def _summarize(error: BaseException) -> str:
    text = str(error).partition("\n")[0][:300]
    return text if isinstance(error, MCPError) else f"{type(error).__name__}: {text}".removesuffix(": ")
