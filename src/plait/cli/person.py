"""Asks the person at the terminal for what a run waits for. Without a terminal the run is left waiting."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Callable

from plait.cli.approval import EDIT, Desk
from plait.cli.text import one_line
from plait.core import Waiting
from plait.runtime.job import Person

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
            print(f"{one_line(shown)}\n({how}; empty: the run waits) ", end="", file=sys.stderr, flush=True)
            said = await _line()
            if desk is None or waiting.kind != "plan" or said.lower() not in EDIT:
                return said or None
            if (changed := await desk.edited(waiting.reason)) is not None:
                return changed
            shown = "The plan is as it was."

    return ask


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
