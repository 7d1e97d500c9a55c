"""What of a run is told to a client while it goes on.

Theory of operation. Thoughts and actions may be told as they come: nothing depends on them. Content can't be taken
back, so an answer is told while it is being written only where it is sure to be the answer: in a phase whose reply is
the answer and nothing else, when nothing looks at answers afterwards (`provenance` off), and at the first attempt.
Everywhere else it is told when the run has ended. `rest` says what is missing in the end.
"""

from __future__ import annotations

from plait.agent import Agent
from plait.core import Event, OneKind
from plait.core import events as ev
from plait.loops import OURS, splitter_of
from plait.tools.render import sound
from plait.window.errors import Rejected


class Speaking:
    """Turns events into pieces of reasoning and of content. `thoughts` False: no reasoning is told."""

    def __init__(self, agent: Agent, *, thoughts: bool) -> None:
        self._thoughts = thoughts
        self._loop = agent._loop
        # A loop of another package may say anything after what looked like its answer.
        self._sure = agent.provenance == "off" and self._loop.name in OURS
        self._phase = ""
        self._live = 0
        """The step whose reply is being told as content; 0: none yet, -1: none any more."""
        self._sent = ""
        self._held = ""
        self._last = ("", 0)

    def heard(self, event: Event) -> tuple[str, str]:
        """What an event adds: (reasoning, content), each "" for nothing."""
        match event:
            case ev.Asked(phase=phase):
                self._phase = phase
            case ev.Thought(step=step, text=text) if self._thoughts:
                return self._apart("thought", step, sound(text)), ""
            case ev.Action(step=step, text=text) if self._thoughts:
                return self._apart("action", step, sound(text)), ""
            case ev.Answer(step=step, text=text) if self._sure:
                return "", self._answer(step, sound(text))
            case ev.Noted(kind="retry") if self._live > 0:
                self._live = -1  # the reply begins anew
        return "", ""

    def rest(self, content: str) -> str:
        """What is missing of the content. Raises `Rejected` where what was told is not how it begins."""
        if not content.startswith(self._sent):
            raise Rejected(
                500,
                "The answer that had begun was given up for another.",
                hint="The run's record has it whole.",
                kind="run_error",
                code="answer_changed",
                again=False,
            )
        return content[len(self._sent) :]

    def _apart(self, kind: str, step: int, text: str) -> str:
        """A piece, apart from one of another kind or step; without the blanks that stood behind its label."""
        if self._last == (kind, step):
            return text
        if not (text := text.lstrip(" \t")):
            return ""
        before, self._last = self._last, (kind, step)
        return text if before == ("", 0) else f"\n{text}"

    def _answer(self, step: int, text: str) -> str:
        if self._live == 0 and isinstance(splitter_of(self._loop, self._phase), OneKind):
            self._live = step
        if self._live != step:
            self._live = -1 if self._live else 0
            return ""
        # An answer is given without the space around it.
        text = self._held + text if self._sent else (self._held + text).lstrip()
        kept = text.rstrip()
        self._held = text[len(kept) :]
        self._sent += kept
        return kept
