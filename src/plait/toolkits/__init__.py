"""The tools that ship: `calculator` is a tool, `lookup(source)` makes one."""

# The parser, the tables and the index are imported when a tool is first made or called.
from plait.toolkits.calculator import calculator
from plait.toolkits.lookup import lookup

__all__ = ["calculator", "lookup"]
