"""What a run's models are writing at this moment, for whoever looks on: the record has a reply when it is whole."""

from __future__ import annotations

from typing import Any

from plait.core import Event
from plait.core import events as ev
from plait.tools.render import sound

MOST = 4_000
"""Characters of one kind of text that are told: the last ones."""


class Writing:
    """Hears a run's events. `version` grows with each change of what `told` tells."""

    def __init__(self) -> None:
        self.version = 0
        self._replies: dict[int, list[tuple[str, str]] | None] = {}
        """The unfinished reply of each step, in pieces of one kind; None where two are written in one step at once:
        their pieces can't be told apart."""

    def heard(self, event: Event) -> None:
        """The next event."""
        match event:
            case ev.Asked(step=step):
                self._replies[step] = None if step in self._replies else []
            case ev.Thought(step=step, text=text) | ev.Action(step=step, text=text) | ev.Answer(step=step, text=text):
                parts = self._replies.get(step)
                if parts is None:
                    return
                kind = type(event).__name__.lower()
                before = parts.pop()[1] if parts and parts[-1][0] == kind else ""
                parts.append((kind, (before + text)[-MOST:]))
            case ev.Noted(step=step, kind="retry") if self._replies.get(step):
                self._replies[step] = []  # the reply begins anew
            case ev.Replied(step=step):
                self._replies.pop(step, None)
            case _:
                return
        self.version += 1

    def told(self) -> list[dict[str, Any]]:
        """The steps in which something is being written: `step`, and `parts` as [kind, text] in order."""
        return [
            {"step": step, "parts": [[kind, sound(text)] for kind, text in parts]}
            for step, parts in self._replies.items()
            if parts
        ]
