"""The calculator: arithmetic for models that are bad at it."""

from __future__ import annotations

from plait.tools.tool import tool


@tool(
    returns="the value: a whole number exactly, another to 12 significant digits",
    read_only=True,
    inline=True,
)
def calculator(expression: str) -> str:
    """Computes an arithmetic expression of numbers, such as 7 * 8.5 or 20% of 50.

    Args:
        expression: Numbers, operators + - * / // % ^, brackets and functions such as sqrt and round; no words.
    """
    from plait.toolkits.expression import compute

    return compute(expression)
