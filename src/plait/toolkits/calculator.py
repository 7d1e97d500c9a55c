"""The calculator: arithmetic for models that are bad at it."""

from __future__ import annotations

from plait.tools.tool import tool


@tool(
    returns="the value: a whole number exactly, another to 12 significant digits",
    read_only=True,
    inline=True,
)
def calculator(expression: str) -> str:
    """Computes an arithmetic expression, such as (3 + 4.5) * 2^10 / sqrt(16), 5! or round(20% of 50, 2).

    Args:
        expression: Numbers, operators + - * / // % ^, brackets and functions. No words, no variables.
    """
    from plait.toolkits.expression import compute

    return compute(expression)
