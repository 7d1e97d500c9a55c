"""Parts of agents that a pickle names: they must be importable."""

from __future__ import annotations

import plait


@plait.tool(read_only=True)
def look_up(word: str) -> str:
    """Looks up a word."""
    return f"{word}: found"


def plain(word: str) -> str:
    """Says a word."""
    return word


class Box:
    """A box that counts."""

    def __init__(self) -> None:
        self.count = 0

    @plait.tool
    def add(self, number: int) -> int:
        """Add a number."""
        self.count += number
        return self.count


class Watch(plait.Hook):
    """A hook that lets everything pass."""


def accept(value: object) -> None:
    """Accept every answer."""


def run_agent(agent: plait.Agent) -> plait.Run:
    return agent.run("q")
