"""Errors of MCP servers: which part of a request is lost, and messages that say what to do."""

from __future__ import annotations

import msgspec
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_REQUEST, PARSE_ERROR

from plait.core.errors import ConfigError, PlaitError, ToolError
from plait.tools.mcp.replies import MARK, UNKNOWN_SESSION, Fault
from plait.tools.mcp.server import McpServer


class McpServerUnavailable(ConfigError, ToolError):
    """The server cannot be started or reached, and no call was made. It is an error of usage when Plait lists the
    tools, and an error of the tool in a run."""


def find_fault(error: BaseException) -> Fault:
    """Return what an error of a request says about it."""
    if not isinstance(error, MCPError):
        return Fault()
    if isinstance(error.data, dict) and MARK in error.data:
        return msgspec.convert(error.data[MARK], Fault)
    if error.code == PARSE_ERROR:
        return Fault("unreadable")
    return Fault("lost" if error.message.startswith(("Connection closed", "SSE stream")) else "")


def find_status(error: BaseException | None) -> int:
    """Return the HTTP status of an error, or of the first in a group; 0 if there is none."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return find_fault(error).status if error is not None else 0


def may_be_unknown_session(error: Exception) -> bool:
    """Return whether a server's answer may say that it does not know the session."""
    fault = find_fault(error)
    if not isinstance(error, MCPError) or fault.kind not in ("", "answered") or fault.status == 400:
        return fault.status == 400
    is_about_request = error.code == INVALID_REQUEST or -32099 <= error.code <= -32000  # a tool has other codes
    return is_about_request and bool(UNKNOWN_SESSION.search(error.message[:300]))


def describe_call_error(server: McpServer, error: Exception, stderr: str = "") -> str:
    """Return the message for a call that the server answered with an error, or whose result nobody will know."""
    fault, words = find_fault(error), _summarize(error)
    if fault.kind == "lost":
        text = f"answered {fault.status} ({words})" if fault.status else "ended"
        text = f"The MCP server {server.label} {text} during this call. It is not known whether the call took effect."
        return text + stderr
    if fault.kind == "unreadable" or not isinstance(error, MCPError):
        words = f"{fault.status}: {words}" if fault.status else words
        return f"The call was made, but Plait cannot read the result of the MCP server {server.label} ({words})."
    return f"{error.message} ({fault.status})" if fault.status else error.message


def describe_failure(server: McpServer, error: BaseException, stderr: str) -> PlaitError:
    """Return the error for a server that did not start, could not be reached, or did not list its tools."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    fault, words = find_fault(error), _summarize(error)
    status = fault.status
    match error:
        case PlaitError():
            return error
        case TimeoutError():
            text = f"did not list its tools within {server.start:g} seconds.{stderr}"
            hint = "Check that it speaks MCP. If it needs longer, as a first download does, give start=SECONDS."
        case FileNotFoundError() if server.command:
            missing = f"folder {server.cwd!r}" if error.filename == server.cwd else f"program {server.command[0]!r}"
            text, hint = f"cannot start: there is no {missing}.", "Install it, or give its full path."
        case PermissionError() if server.command:
            text, hint = f"cannot start: {server.command[0]} is not executable.", "Check its path and permissions."
        case _ if server.command:
            text = f"ended or did not speak MCP ({words}).{stderr}"
            hint = "Run the command by itself to see what is wrong." + (
                "" if stderr else " It wrote nothing on stderr."
            )
        case _ if status in (401, 403):
            text = f"refuses the request ({status}: {words})."
            hint = "Give headers={'Authorization': 'Bearer $NAME'}, where the variable NAME has the token. "
            hint += f"Or log in, if the server has OAuth: plait mcp login {server.label}"
        case _ if status == 429 or status >= 500:
            text, hint = f"answered {status} ({words}).", "Try again later."
        case _ if fault.kind == "forgotten":
            text = f"does not know the session that it has just opened ({status or 'error'}: {words})."
            hint = "If it runs in several processes, they must share their sessions."
        case MCPError() if status or fault.kind not in ("refused", "lost"):
            text = f"answered {status or 'with an error'} ({words})."
            hint = "Check that this is the address of its MCP endpoint, often /mcp."
            if status in (400, 404, 405):
                hint += " An older server, with HTTP+SSE, often has it at /sse."
        case _:
            text, hint = f"cannot be reached ({words}).", "Check that it is running, and check the address."
    return McpServerUnavailable(f"The MCP server {server.label} {text}", hint=hint)


def _summarize(error: BaseException) -> str:
    text = (error.message if isinstance(error, MCPError) else str(error)).partition("\n")[0][:300]
    return text if isinstance(error, MCPError) else f"{type(error).__name__}: {text}".removesuffix(": ")
