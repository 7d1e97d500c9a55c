"""`shell`: one tool that runs shell commands, each confined by the kernel to one folder, after approval."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from plait.core.errors import ToolError
from plait.sandbox.command import check_folder
from plait.sandbox.command import run_command as run_confined
from plait.toolkits.folder import Folder
from plait.tools.tool import Tool, tool

USUAL_SECONDS, MOST_SECONDS = 60, 600
"""Time limit of a command: the usual one, and the longest that a call can ask for."""
MAX_COMMAND = 20_000
"""Maximum number of characters of a command."""


def shell(folder: str | Path, *, readable: Sequence[str | Path] = ()) -> tuple[Tool, ...]:
    """Makes the tool `run_command`, whose commands see nothing of the machine but the folder and its programs.

    A command reads and writes the folder, reads system folders and those in `readable`, and has no network. Each call
    needs approval. Raises `ConfigError` if this machine cannot confine a command (see `plait doctor`).
    """
    place = Folder.open(folder, "shell").root
    also = tuple(str(Folder.open(each, "shell").root) for each in readable)
    check_folder(place, also)

    @tool(requires_approval=True, destructive=True, open_world=True, timeout=MOST_SECONDS + 60)
    async def run_command(command: str, seconds: int = USUAL_SECONDS) -> str:
        """Runs a shell command in the folder. It can change files in it, and has no network.

        When it ends, all processes that it started end too. Files in /tmp are then gone.

        Args:
            command: One or several lines for /bin/sh.
            seconds: Its time limit, at most 600.
        """
        if not 1 <= seconds <= MOST_SECONDS:
            raise ToolError(f"A command can't have {seconds} seconds.", hint=f"Give 1 to {MOST_SECONDS}.")
        if not command.strip() or len(command) > MAX_COMMAND or "\0" in command or not _is_unicode(command):
            raise ToolError(f"This is not a command of 1 to {MAX_COMMAND:,} characters.", hint="Write plain text.")
        if not place.is_dir():
            raise ToolError("The folder of the shell is gone.", hint="Ask the user to make it again.")
        ended = await run_confined(place, command, seconds, also)
        said = f"exit code {ended.code}" if ended.code is not None else f"stopped after its {seconds} seconds"
        streams = [("stdout", ended.stdout), ("stderr", ended.stderr)]
        return "\n".join([said, *(f"{name}:\n{text.rstrip()}" for name, text in streams if text.strip())])

    return (run_command,)


def _is_unicode(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)
