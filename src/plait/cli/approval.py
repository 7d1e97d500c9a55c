"""The person at the terminal is shown a plan: they say yes, no, what to change, or edit it."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from plait.cli.foresight import as_page, foreseen
from plait.cli.text import clean, one_line
from plait.core import Event
from plait.core.errors import PlaitError
from plait.core.events import Began

if TYPE_CHECKING:
    from plait.agent import Agent

EDIT = ("e", "edit")


class Desk:
    """Knows the agent and the run whose plans are shown, and so what they will take."""

    def __init__(self, agent: Agent, question: str, run: str = "") -> None:
        self.agent, self.question, self.run = agent, question, run

    def seeing(self, emit: Callable[[Event], None]) -> Callable[[Event], None]:
        """`emit`, told of by the way which run it is."""

        def seen(event: Event) -> None:
            if isinstance(event, Began):
                self.run = event.run
            emit(event)

        return seen

    def page(self, text: str) -> str:
        """A plan as the person is shown it: with its picture and what it is expected to take, where that is known."""
        from plait.journal.store import Journal
        from plait.runtime.plans import plan_of

        journal = self.agent.journal
        try:
            rows = Journal.at(journal).rows(self.run) if journal is not False and self.run else ()
            expected = self.agent.expected(self.question, text, rows)
            page = as_page(plan_of(text, self.agent.known_to(text)))
        except PlaitError:  # a plan of another loop, or with a tool of its session: its text alone
            return clean(text)
        complaint = [line for line in text.split("\n") if line.startswith("# ")]
        return clean("\n".join([*complaint, page, "", *foreseen(expected)]))

    async def edited(self, text: str) -> str | None:
        """The plan as the person changed it in their editor; None when they left it as it was, or have no editor."""
        words = shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi")
        if not words or shutil.which(words[0]) is None:
            print(f"There is no editor {one_line(' '.join(words))}; set EDITOR.", file=sys.stderr)
            return None
        with TemporaryDirectory(prefix="plait-") as folder:
            place = os.path.join(folder, "plan.txt")
            with open(place, "w", encoding="utf-8") as file:
                file.write(text.rstrip("\n") + "\n")
            done = await asyncio.to_thread(subprocess.run, [*words, place], check=False)
            with open(place, encoding="utf-8", errors="replace") as file:
                found = file.read().strip()
        if done.returncode or not found or found == text.strip():
            return None
        return found
