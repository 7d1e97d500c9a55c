"""What the tests of `plait chat` share: scripts for its model, the runs on record, a chat at a pseudo-terminal."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli_support import PLAIT, Shell, trusting
from fork_server import start_forked


@pytest.fixture
def plait(tmp_path: Path) -> Shell:
    shell = Shell(tmp_path)
    shell.env["PLAIT_LOOP"] = "react"
    shell.env["PLAIT_CACHE"] = str(tmp_path / "cache")
    return shell


def script(plait: Shell, *replies: Any, **options: Any) -> str:
    """A model that gives these replies one after another, whichever turn they are asked for in."""
    text = json.dumps({"replies": replies, "by_turn": False, **options})
    (plait.folder / "talk.json").write_text(text)
    return "scripted:talk.json"


class Terminal:
    """A chat at a terminal: stdin, stdout and stderr are one."""

    def __init__(self, plait: Shell, *args: str) -> None:
        self.master, slave = pty.openpty()
        self.process = start_forked(
            [PLAIT, "chat", *args],
            cwd=plait.folder,
            env={**trusting(plait.folder), **plait.env, "TERM": "xterm-256color"},
            stdin=slave,
            stdout=slave,
            stderr=slave,
        )
        os.close(slave)
        self.seen = ""
        self.drawn = select.poll()  # not select.select, which takes no numbers above 1,023
        self.drawn.register(self.master, select.POLLIN)

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def until(self, *words: str, seconds: float = 60) -> str:
        """What is drawn until all the words were, one after the other."""
        end = time.monotonic() + seconds
        drawn = ""
        pattern = re.compile(".*?".join(map(re.escape, words)), re.S)
        while not (found := pattern.search(self.seen)):
            assert time.monotonic() < end, f"{words} never came:\n{self.seen!r}"
            if self.drawn.poll(200):
                try:
                    self.seen += os.read(self.master, 65536).decode(errors="replace")
                except OSError:
                    assert pattern.search(self.seen), f"{words} never came:\n{self.seen!r}"
        drawn, self.seen = self.seen[: found.end()], self.seen[found.end() :]
        return drawn

    def close(self) -> int:
        """The exit code, within a while."""
        code = self.process.wait(30)
        os.close(self.master)
        return code


@pytest.fixture
def terminals(plait: Shell) -> Iterator[Any]:
    made: list[Terminal] = []

    def terminal(*args: str) -> Terminal:
        made.append(Terminal(plait, *args))
        return made[-1]

    yield terminal
    for each in made:
        if each.process.poll() is None:
            each.process.kill()
            each.process.wait()


def runs(plait: Shell, *args: str) -> list[dict[str, Any]]:
    """The runs on record, oldest first."""
    listed: list[dict[str, Any]] = json.loads(plait("runs", "--json", *args).out)
    return listed[::-1]
