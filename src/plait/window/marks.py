"""Who began a run, on its record: a label that a later server reads."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mark:
    """What a run's label says: who began it, which served agent, and the key of its conversation."""

    owner: str
    agent: str
    key: str = ""

    def __str__(self) -> str:
        return f"serve:{self.owner}:{self.agent}:{self.key}"


def mark_of(label: str) -> Mark | None:
    """The mark in a label; None for that of a run which no server began."""
    parts = label.split(":")
    return Mark(*parts[1:]) if parts[0] == "serve" and len(parts) == 4 else None
