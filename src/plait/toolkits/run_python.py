"""`run_python`: a piece of Python in the sandbox, for models whose provider runs no code."""

from __future__ import annotations

import time

from plait.core.errors import ToolError
from plait.tools.tool import Tool, tool


def run_python() -> tuple[Tool, ...]:
    """Makes the tool `run_python`. Each piece has a session of its own, in the default sandbox."""

    @tool(read_only=True)
    async def run_python(code: str) -> str:
        """Runs Python code without network and files, and gives what it prints. Nothing is kept between two calls.

        Args:
            code: The code; print what you want to know.
        """
        from plait.sandbox import AUTO, check_sandbox, default_sandbox, sandbox
        from plait.sandbox.base import Settings

        await check_sandbox(AUTO)
        session = await sandbox(default_sandbox()[0]).open(Settings())
        try:
            turn = await session.run(code, time.time())
        finally:
            await session.close()
        if turn.calls:
            raise ToolError(f"The code calls {turn.calls[0].name}, which is not defined.", hint="Call no tools here.")
        if (error := turn.error) is not None:
            where = f" on line {error.line}" if error.line else ""
            raise ToolError(f"{turn.output}{error.type}{where}: {error.message}", hint="Correct the code.")
        return turn.output or "(It printed nothing.)"

    return (run_python,)
