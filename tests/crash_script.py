"""A six-step run that kills itself with SIGKILL at the K-th point: before and after every effect and every write.

    python crash_script.py JOURNAL COUNTS K        prints the answer, or dies

Points are passed around each model call, inside each tool before and after what it does, and around each
write to the journal. Each tool call that takes effect adds a line to the file COUNTS.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import plait
from plait.journal.log import RunLog

journal, counts, fatal = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
passed = 0


def point() -> None:
    global passed
    passed += 1
    if passed == fatal:
        os.kill(os.getpid(), signal.SIGKILL)


def tally(name: str) -> None:
    with counts.open("a") as file:
        file.write(name + "\n")


@plait.tool(idempotent=True)
def fetch(key: str) -> str:
    """Fetch a value; may be called again.

    Args:
        key: what to fetch
    """
    point()
    tally(f"fetch {key}")
    point()
    return f"value of {key}"


@plait.tool
def send(text: str) -> str:
    """Send a text; has an effect outside.

    Args:
        text: what to send
    """
    point()
    tally(f"send {text}")
    point()
    return f"sent {text}"


def action(tool: str, value: str) -> str:
    return f'Thought: next.\nAction:\n```json\n{{"action": "{tool}", "action_input": "{value}"}}\n```\n'


REPLIES = [
    action("fetch", "a"),
    action("send", "one"),
    action("fetch", "b"),
    action("send", "two"),
    action("send", "three"),
    "Thought: done.\nFinal Answer: all is sent",
]


class Dying(plait.Scripted):
    """The scripted model with a point before and after each call."""

    async def send(self, *args: Any, **kwargs: Any) -> Any:
        point()
        response = await super().send(*args, **kwargs)
        point()
        return response


_submit = RunLog.append


def agent(model: Any) -> plait.Agent:
    return plait.Agent("react", model=model, tools=[fetch, send], journal=journal)


if __name__ == "__main__":

    async def append(self: RunLog, *entries: Any) -> None:
        point()
        await _submit(self, *entries)
        point()

    RunLog.append = append  # type: ignore[method-assign]
    run = agent(Dying(REPLIES)).run("Send one, two and three.")
    print(run.status, run.answer, passed)
