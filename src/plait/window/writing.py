"""What a run's models are writing at this moment, for whoever looks on: the record has a reply when it is whole."""

from __future__ import annotations

from typing import Any

from plait.core import Event
from plait.core import events as ev
from plait.models.stages import Stage
from plait.tools.render import sound

MOST = 4_000
"""Characters of one kind of text that are told: the last ones."""


class Writing:
    """Hears a run's events."""

    def __init__(self) -> None:
        self._stages: dict[int, Stage] = {}
        """What the model that a step asked is doing."""
        self._replies: dict[int, list[tuple[str, str]] | None] = {}
        """The unfinished reply of each step, in pieces of one kind; None where two are written in one step at once:
        their pieces can't be told apart."""

    def heard(self, event: Event) -> None:
        """The next event."""
        match event:
            case ev.Asked(step=step, model=model):
                self._stages[step] = Stage(model)
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

    def told(self) -> list[dict[str, Any]]:
        """The steps whose reply is not whole: `step`, its `parts` as [kind, text] in order, and while there are none
        yet the `stage` the model is in and for how many whole `seconds`."""
        return [
            {"step": step, "parts": [[kind, sound(text)] for kind, text in parts]} if parts else self._waits(step)
            for step, parts in list(self._replies.items())
            if parts is not None
        ]

    def _waits(self, step: int) -> dict[str, Any]:
        stage, seconds = self._stages[step].now()
        return {"step": step, "parts": [], "stage": stage, "seconds": int(seconds)}
