"""Ctrl-C at any moment of a run: it ends at once, the record says so, and it goes on to the same answer."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cli_support import Shell, action, ended, final, interrupt, is_before_ours, until
from conftest import CAMPAIGN
from faults_support import Endpoint, Handler, attempts, endpoint, failing, plait_resume, sent, serving, shell, turn_of
from models_server import Asked, delta
from patience import patience
from plait.core.errors import JournalError
from plait.journal.store import Journal

__all__ = ["shell"]

TOOLS = """
import asyncio, time
import plait

def tally(text):
    with open("sent.txt", "a") as file:
        file.write(text + "\\n")

@plait.tool
def send(text: str) -> str:
    "Sends a text; must never be called twice."
    time.sleep(0.2)
    tally(text)
    time.sleep(0.2)
    return "sent"

@plait.tool
async def post(text: str) -> str:
    "The same, on the event loop."
    await asyncio.sleep(0.2)
    tally(text)
    await asyncio.sleep(0.2)
    return "posted"
"""

REPLIES = [action("send", "one"), action("post", "two"), action("send", "three"), final("all is sent")]
TEXTS = ["one", "two", "three"]


def slow(replies: list[str] = REPLIES) -> Handler:
    """Streams its replies word by word, a run of about two seconds."""

    async def handle(asked: Asked) -> None:
        await asyncio.sleep(0.05)
        await asked.begin()
        text = replies[turn_of(asked)]
        for start in range(0, len(text), 20):
            await asked.piece(delta(text[start : start + 20]))
            await asyncio.sleep(0.01)
        await asked.piece(delta(finish="stop") + b"data: [DONE]\n\n")
        await asked.end()

    return handle


@pytest.fixture(scope="module")
def model() -> Iterator[Endpoint]:
    with endpoint(slow()) as at:
        yield at


def start(shell: Shell, at: Endpoint) -> object:
    (shell.folder / "tools.py").write_text(TOOLS)
    return shell.start("run", "Send them.", "--model", "openai:m", "--tools", "tools.py", env=at.env)


def interrupted_after(folder: Path, at: Endpoint, seconds: float) -> str:
    """Interrupt a run so many seconds after its record began; check all that must hold; say how it ended."""
    folder.mkdir()
    shell = Shell(folder)
    process = start(shell, at)
    journal = Path(shell.env["PLAIT_JOURNAL"])
    if seconds:
        until(journal)
        time.sleep(seconds)
    process.send_signal(signal.SIGINT)  # type: ignore[attr-defined]
    began = time.monotonic()
    done = ended(process)  # type: ignore[arg-type]
    assert time.monotonic() - began < patience(4), done.err
    if is_before_ours(done.err):  # Python itself was starting: none of ours had run
        assert not journal.exists() and sent(shell) == [] and done.out == ""
        return "before"
    assert done.code in (0, 130, -2), (done.code, done.err)
    try:
        run = Journal(journal).run("last")
    except JournalError:
        assert sent(shell) == [] and done.out == ""
        return "before"
    if done.code == 0:
        assert done.out == "all is sent\n" and sent(shell) == TEXTS
        return "answered"
    if run.status == "answered":  # it came while the answer was being told
        assert done.out in ("", "all is sent\n") and sent(shell) == TEXTS
        return "answered"
    assert done.out == "" and run.status == "cancelled", (run.status, done.err)
    assert f"plait resume {run.head.run}" in done.err
    # A thread can't be stopped: what it had begun may be done a moment later; but nothing is begun any more.
    resumed = plait_resume(shell, at)
    assert (resumed.code, resumed.out) == (0, "all is sent\n"), resumed.err
    counts = Counter(sent(shell))
    assert max(counts.values()) == 1, counts
    doubts = resumed.err.count("is not known, and it was not repeated")
    assert len(counts) >= len(TEXTS) - doubts and doubts <= 1
    return "in a call" if doubts else "between calls"


def test_ctrl_c_at_any_moment(tmp_path: Path, model: Endpoint) -> None:
    step = 0.2 if CAMPAIGN else 1.0
    moments = [0.0, 0.02, *(step * k for k in range(1, round(2 / step) + 1))]
    with ThreadPoolExecutor(3) as pool:
        how = list(pool.map(lambda s: interrupted_after(tmp_path / f"{s:.2f}", model, s), moments))
    # Many moments meet runs in a call, and others: not yet begun, between calls, at their end.
    assert not CAMPAIGN or ("in a call" in how and len(set(how)) > 1), how


def test_the_endpoint_sees_the_connection_closed(shell: Shell) -> None:
    async def silent(asked: Asked) -> None:
        await asked.begin()
        await asked.piece(delta("Thought: this takes"))
        await asyncio.sleep(60)

    with endpoint(silent) as at:
        process = start(shell, at)
        end = time.monotonic() + patience(20)
        while not at.asked:
            assert time.monotonic() < end
            time.sleep(0.02)
        time.sleep(0.2)
        done = interrupt(process)  # type: ignore[arg-type]
        assert done.code == 130
        asyncio.run_coroutine_threadsafe(asyncio.wait_for(at.server.left.wait(), 2), at.loop).result()
        # The attempt is on record with what came; the next one goes out as if nothing had been.
        assert Journal(shell.env["PLAIT_JOURNAL"]).run("last").status == "cancelled"
        assert attempts(shell) == [(0, 200, "cancelled")]
        at.handler = slow()
        assert plait_resume(shell, at).out == "all is sent\n"
    assert sent(shell) == TEXTS


def test_while_it_waits_to_try_again_as_asked(shell: Shell) -> None:
    with endpoint(failing(429, Retry_After="30")) as at:
        process = start(shell, at)
        end = time.monotonic() + patience(20)
        while not at.asked:
            assert time.monotonic() < end
            time.sleep(0.02)
        time.sleep(0.3)
        done = interrupt(process)  # type: ignore[arg-type]
        assert done.code == 130
        at.handler = serving(REPLIES)
        assert plait_resume(shell, at).out == "all is sent\n"
    assert sent(shell) == TEXTS


def test_a_resumed_run_can_be_interrupted_and_resumed_again(shell: Shell, model: Endpoint) -> None:
    process = start(shell, model)
    for _ in range(3):
        until(Path(shell.env["PLAIT_JOURNAL"]))
        time.sleep(0.45)
        done = interrupt(process)  # type: ignore[arg-type]
        if done.code == 0:
            break
        process = shell.start("resume", "last", env=model.env)
    done = ended(process) if process.poll() is None else done  # type: ignore[attr-defined, arg-type]
    last = plait_resume(shell, model)
    assert (last.code, last.out) == (0, "all is sent\n"), last.err
    assert max(Counter(sent(shell)).values()) == 1
