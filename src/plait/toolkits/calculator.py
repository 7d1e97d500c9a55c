"""The tool `calculator`: arithmetic for models that are bad at it."""

from __future__ import annotations

from plait.core.errors import ConfigError
from plait.tools.tool import Tool, tool

_RETURNS = {
    "": "the value: a whole number exactly, another to 12 significant digits",
    "full": "the value, with every digit of a 64-bit float",
}


def _make_tool(precision: str) -> Tool:
    @tool(name="calculator", returns=_RETURNS[precision], read_only=True, inline=True)
    def calculate(expression: str) -> str:
        """Computes an arithmetic expression of numbers.

        Args:
            expression: Numbers, operators + - * / // % ^, brackets and functions such as sqrt and round; no words.
        """
        from plait.toolkits.expression import compute  # imported when first used: half of the package's import time

        return compute(expression, full=precision == "full")

    return calculate


calculator = _make_tool("")


def make_calculator(precision: str = "") -> tuple[Tool, ...]:
    """Makes the tool `calculator`: results have 12 significant digits, or all of them for the precision "full"."""
    if precision not in _RETURNS:
        hint = "Write calculator or calculator:full."
        raise ConfigError(f"The calculator has no precision {precision!r}.", hint=hint)
    return (_make_tool(precision) if precision else calculator,)
