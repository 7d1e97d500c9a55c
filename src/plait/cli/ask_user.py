"""Prompts at the terminal, for answers, approvals and plans. Without a terminal, the run waits."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from plait.agent import Agent
from plait.cli.output import clean_text
from plait.core import Waiting
from plait.core.errors import PlaitError
from plait.core.text import clean
from plait.journal.store import Journal
from plait.runtime.answers import EDITED, NO, YES, begins_with_yes
from plait.runtime.run_spec import OnWait

ANSWERS = {
    "approval": "yes, no, a reason, or edit JSON",
    "plan": "yes, no, e to edit it, or what to change",
    "question": "your answer",
}
"""What the user may answer to each kind of question."""


class PlanPrompt:
    """Show the plans of one run with their expected cost. `run` is set after the run starts."""

    def __init__(self, agent: Agent, question: str, run: str = "") -> None:
        self.agent, self.question, self.run = agent, question, run

    def render(self, text: str) -> str:
        """Return a plan with its picture and its expected cost, as far as they are known."""
        from plait.cli.plan_text import plan_page, price_lines
        from plait.runtime.planning.plans import plan_of

        journal = self.agent.journal
        try:
            timeline = Journal.at(journal).timeline(self.run) if journal is not False and self.run else None
            expected = self.agent.estimate(self.question, text, timeline)
            page = plan_page(plan_of(text, self.agent.known_to(text)))
        except PlaitError:  # a plan of another loop, or with a session's tool: show only its text
            return clean(text)
        complaints = [line for line in text.split("\n") if line.startswith("# ")]
        return clean("\n".join([*complaints, page, "", *price_lines(expected)]))


def user_at_terminal(before: Callable[[], None], plans: PlanPrompt | None) -> OnWait | None:
    """Return the function that asks the user, or None without a terminal. `before` clears the screen for a question."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return None

    async def ask(waiting: Waiting) -> str | None:
        before()
        shown = plans.render(waiting.reason) if plans is not None and waiting.kind == "plan" else waiting.reason
        while True:
            if waiting.kind != "question":  # what was typed before it was shown approves nothing
                with suppress(ImportError, OSError, ValueError):
                    import termios

                    with suppress(termios.error):
                        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
            options = ANSWERS[waiting.kind]
            print(f"{clean_text(shown)}\n({options}; empty: the run waits) ", end="", file=sys.stderr, flush=True)
            answer = await _read_line()
            if waiting.kind == "approval" and (complaint := ambiguity(answer)):
                shown = complaint
                continue
            if waiting.kind == "approval" and len(answer.split()) > 1 and not EDITED.fullmatch(answer):
                print("Refused. The model gets the reason.", file=sys.stderr)
            if waiting.kind != "plan" or answer.lower() not in ("e", "edit"):
                return answer or None
            if (edited := await _edit_plan(waiting.reason)) is not None:
                return edited
            shown = "The plan did not change."

    return ask


def ambiguity(answer: str) -> str:
    """Return why an answer to an approval is ambiguous; "" if it is clear.

    Everything except a plain yes refuses. So Plait asks again after a single unknown word, and after a yes with more
    words.
    """
    if answer.lower() in YES | NO or EDITED.fullmatch(answer):
        return ""
    if answer.lower().rstrip(":") == "edit":
        return 'With which input? For example: edit {"text": "..."}'
    if len(answer.split()) == 1:
        return f"{answer!r} is neither yes nor no. To refuse with a reason: no, {answer}"
    if begins_with_yes(answer):
        return "This begins with a yes, but only yes alone approves. Say yes alone, or begin with no."
    return ""


async def _edit_plan(text: str) -> str | None:
    """Open a plan in the user's editor. Return the new text; None if nothing changed or no editor is set."""
    words = shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi")
    if not words or shutil.which(words[0]) is None:
        print(f"There is no editor {clean_text(' '.join(words))}; set EDITOR.", file=sys.stderr)
        return None
    with TemporaryDirectory(prefix="plait-") as folder:
        path = Path(folder) / "plan.txt"
        path.write_text(text.rstrip("\n") + "\n", encoding="utf-8")
        done = await asyncio.to_thread(subprocess.run, [*words, str(path)], check=False)
        edited = path.read_text(encoding="utf-8", errors="replace").strip()
    return None if done.returncode or edited in ("", text.strip()) else edited


async def _read_line() -> str:
    """Read a line from stdin in a thread that nothing waits for, because Ctrl-C must end the run while it reads."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[str] = loop.create_future()

    def finish(text: str) -> None:
        if not future.done():
            future.set_result(text)

    def read() -> None:
        # os.read instead of readline: a thread that holds the lock of sys.stdin would break the interpreter's exit.
        text = os.read(sys.stdin.fileno(), 1 << 16).decode(errors="replace").strip()
        if not loop.is_closed():
            loop.call_soon_threadsafe(finish, text)

    threading.Thread(target=read, name="plait-ask-user", daemon=True).start()
    return await future
