"""What goes wrong with an MCP server, in words that say what to do."""

from __future__ import annotations

from typing import Literal

from plait.core.errors import PlaitError, ToolError, UsageError
from plait.tools.mcp_words import Place


class NoServer(UsageError, ToolError):
    """The server can't be reached: no call was made. An error of usage when tools are listed, of the tool in a run."""


def broken(why: BaseException) -> Literal["", "before", "during"]:
    """Is the connection lost; and was that before the server could begin on the request, or not known?"""
    import anyio
    from mcp.shared.exceptions import MCPError

    if isinstance(why, (anyio.ClosedResourceError, anyio.BrokenResourceError)):
        return "during"
    if not isinstance(why, MCPError):
        return ""
    if why.message == "Session terminated":  # a server that was started anew refuses the old session
        return "before"
    # The codes of these are also free for servers to use, so they are known by their words.
    lost = why.message == "Connection closed" or why.message.startswith("SSE stream")
    return "during" if lost else ""


def unreached(why: BaseException | None) -> bool:
    """Is it that nobody answers at an address, so that a request surely did not arrive?"""
    import httpx2

    return why is not None and isinstance(innermost(why), (httpx2.ConnectError, httpx2.ConnectTimeout))


def refused(place: Place, why: BaseException) -> PlaitError:
    """The error of a call that the server answered with one, or with something that is no answer."""
    from mcp.shared.exceptions import MCPError

    if isinstance(why, PlaitError):
        return why
    if isinstance(why, MCPError):
        return ToolError(why.message or "The server refused the call and did not say why.")
    detail = str(why).splitlines()[0][:300] if str(why) else type(why).__name__
    return ToolError(f"The MCP server {place.label} answered with something that is no result: {detail}")


def no_server(place: Place, why: BaseException, wrote: str, status: int) -> NoServer:
    """Why a server could not be begun or reached, and what to do."""
    from pydantic import ValidationError

    first = innermost(why)
    name = f"The MCP server {place.label}"
    if isinstance(first, TimeoutError):
        return NoServer(
            f"{name} did not say what tools it has within {place.start:g} seconds.{wrote}",
            hint="Does it speak MCP? Give start=SECONDS where it needs longer, as a first download does.",
        )
    if isinstance(first, ValidationError):
        where = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in first.errors()[:3])
        return NoServer(f"{name} breaks the protocol in what it says of itself ({where}).", hint="Report it there.")
    if place.command:
        program = place.command[0]
        if isinstance(first, FileNotFoundError):
            missing = place.cwd if first.filename == place.cwd else program
            return NoServer(
                f"{name} can't be started: there is no {'folder' if missing == place.cwd else 'program'} {missing!r}.",
                hint="Install it, or give its whole path.",
            )
        if isinstance(first, PermissionError):
            return NoServer(f"{name} can't be started: {program} may not be run.", hint="Is it executable?")
        hint = "Run the command by itself to see what is wrong." + ("" if wrote else " It wrote nothing on stderr.")
        return NoServer(f"{name} ended or spoke no MCP when it was started ({_words(first)}).{wrote}", hint=hint)
    if status in (401, 403):
        return NoServer(
            f"{name} refuses the request ({status}).",
            hint="Give headers={'Authorization': 'Bearer $NAME'} with the name of a variable that has the token.",
        )
    if status:
        return NoServer(f"{name} answered {status}.", hint="Is that the address of its MCP endpoint, often /mcp?")
    return NoServer(f"{name} can't be reached ({_words(first)}).", hint="Is it running? Check the address.")


def innermost(why: BaseException) -> BaseException:
    """The first error in a group of them."""
    while isinstance(why, BaseExceptionGroup):
        why = why.exceptions[0]
    return why


def _words(why: BaseException) -> str:
    said = " ".join(str(why).split())[:300]
    return f"{type(why).__name__}: {said}" if said else type(why).__name__
