"""The marks of runs that a server started: their label, and the names of sessions that no client named."""

from __future__ import annotations

import re
from dataclasses import dataclass

UNNAMED = re.compile(r"(^|/)chat-[0-9]{8}-[0-9]{6}-[a-z0-9]{6}$")
"""The names, in the journal, of sessions that clients did not name."""


@dataclass(frozen=True)
class RunLabel:
    """The label of a run that a server started: its owner, the served agent, and the key of its conversation."""

    owner: str
    agent: str
    key: str = ""

    def __str__(self) -> str:
        return f"serve:{self.owner}:{self.agent}:{self.key}"

    @classmethod
    def parse(cls, label: str) -> RunLabel | None:
        """Read a label; None for a run that no server started."""
        parts = label.split(":")
        return cls(*parts[1:]) if parts[0] == "serve" and len(parts) == 4 else None
