"""The person as a tool: what a loop without a question of its own asks them by."""

from __future__ import annotations

from msgspec import structs

from plait.tools.tool import Tool, tool


@tool(read_only=True)
def _ask_user(question: str) -> str:
    """Asks the user a question, and gives their answer. Only for what no other tool can tell.

    Args:
        question: one question, whole: the user sees nothing else
    """
    raise AssertionError("the runtime asks the person itself")


ask_user: Tool = structs.replace(_ask_user, name="ask_user", person=True)
