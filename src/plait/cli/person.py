"""Asks the person at the terminal for what a run waits for. Without a terminal the run is left waiting."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress

from plait.cli.approval import EDIT, Desk
from plait.cli.text import one_line
from plait.core import Waiting
from plait.runtime.job import EDITED, NO, YES, Person

HOW = {
    "approval": "yes, no, a reason, or edit JSON",
    "plan": "yes, no, e to edit it, or what to change",
    "question": "your answer",
}


def person_here(before: Callable[[], None], *, as_object: bool, desk: Desk | None = None) -> Person | None:
    """Who answers: the person, when they sit at a terminal; else nobody. `before` makes room, `desk` shows plans."""
    if as_object or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return None

    async def ask(waiting: Waiting) -> str | None:
        before()
        shown = waiting.reason if desk is None or waiting.kind != "plan" else desk.page(waiting.reason)
        while True:
            how = HOW[waiting.kind]
            if waiting.kind != "question":
                _drop_input()
            print(f"{one_line(shown)}\n({how}; empty: the run waits) ", end="", file=sys.stderr, flush=True)
            said = await _line()
            if waiting.kind == "approval" and (why := unclear(said)):
                shown = why
                continue
            if waiting.kind == "approval" and len(said.split()) > 1 and not EDITED.fullmatch(said):
                print("Refused; the model is told why.", file=sys.stderr)
            if desk is None or waiting.kind != "plan" or said.lower() not in EDIT:
                return said or None
            if (changed := await desk.edited(waiting.reason)) is not None:
                return changed
            shown = "The plan is as it was."

    return ask


def unclear(said: str) -> str:
    """Why words at an approval may be meant otherwise than as a refusal, "" where they are clear.

    Whatever is no yes refuses: a stray word, and a yes with something behind it, are asked about once more.
    """
    words = said.split()
    if said.lower() in YES | NO or EDITED.fullmatch(said):
        return ""
    if said.lower().rstrip(":") == "edit":
        return 'With which input? Such as: edit {"text": "..."}'
    if len(words) == 1:
        return f"{said!r} is neither yes nor no. A reason to refuse has more words, such as: no, {said}"
    if words[0].lower().strip(",.;:!-") in YES:
        return "That begins as a yes, and any words but yes refuse. Say yes alone, or begin with no."
    return ""


def _drop_input() -> None:
    """Drop what was typed before the question was shown: it approves nothing."""
    with suppress(ImportError, OSError, ValueError):
        import termios

        with suppress(termios.error):
            termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)


async def _line() -> str:
    """A line from stdin, read in a thread that nobody waits for: Ctrl-C must end the run while it reads."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[str] = loop.create_future()

    def done(text: str) -> None:
        if not future.done():
            future.set_result(text)

    def read() -> None:
        # os.read, not readline: a thread that holds sys.stdin's lock would make Python's own end fail.
        text = os.read(sys.stdin.fileno(), 1 << 16).decode(errors="replace").strip()
        if not loop.is_closed():
            loop.call_soon_threadsafe(done, text)

    threading.Thread(target=read, name="plait-person", daemon=True).start()
    return await future
