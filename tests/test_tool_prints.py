"""What a tool prints while code calls it is shown to the model with the result, each call's by itself."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from pathlib import Path

import pytest

import plait
from journal_rows import is_request
from plait.core.events import Observed
from plait.runtime.calls.tool_prints import MOST, collecting


def codeact(tmp_path: Path, codes: list[str], tools: list[object]) -> plait.Agent:
    replies = [f" so.\nACTION {n}:\n```python\n{code}\n```" for n, code in enumerate(codes, 1)]
    return plait.Agent("codeact", model=plait.Scripted(replies), tools=tools, journal=tmp_path / "j.db")  # type: ignore[arg-type]


def test_the_model_sees_what_a_tool_prints_and_a_replay_has_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    @plait.tool
    def book(room: int) -> bool:
        """Books a room."""
        print("booked", room)
        print("noise " * 1000 if room == 3 else "", end="")
        return True

    @plait.tool
    def fail() -> None:
        """Fails."""
        print("half done")
        raise ValueError("no luck")

    usual = sys.stdout
    agent = codeact(tmp_path, ["x = book(1)\nprint('code', x)", "book(3)\nfail()", "stop(1)"], [book, fail])
    run = agent.run("q")
    assert run.status == "answered" and sys.stdout is usual
    seen = [event.observation for event in run.events if isinstance(event, Observed)]
    assert seen[0].printed == "booked 1\n"
    assert "more characters were printed]" in seen[1].printed and len(seen[1].printed) < MOST + 80
    last = [row.body for row in run.trace if is_request(row.record)][-1]
    observed = [m["content"] for m in json.loads(last or b"")["messages"] if m["content"].startswith("OBSERVATION")]
    assert observed[0] == "OBSERVATION 1:\nbooked 1\ncode True"
    assert "half done\nERROR: ValueError in line 2" in observed[1]
    assert capsys.readouterr().out == ""
    assert agent.replay(run.id).whole


async def test_calls_side_by_side_and_others_do_not_mix(capsys: pytest.CaptureFixture[str]) -> None:
    async def call(name: str) -> str:
        with collecting() as collected:
            for n in range(20):
                await asyncio.to_thread(print, name, n)
                print(name, "async")
                await asyncio.sleep(0)
        return collected.text

    stray = threading.Thread(target=lambda: [print("stray") for _ in range(50)])
    stray.start()
    told = await asyncio.gather(*(call(name) for name in "abc"))
    stray.join()
    print("after")
    for name, text in zip("abc", told, strict=True):
        assert text == "".join(f"{name} {n}\n{name} async\n" for n in range(20))
    assert capsys.readouterr().out == "stray\n" * 50 + "after\n"


def test_what_other_loops_call_prints_where_it_always_did(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    @plait.tool
    def say() -> str:
        """Says."""
        print("aloud")
        return "said"

    replies = ["Thought: x\nAction: say\nAction Input: ", "Thought: x\nFinal Answer: 1"]
    run = plait.Agent("react", model=plait.Scripted(replies), tools=[say], journal=tmp_path / "j.db").run("q")
    assert run.status == "answered" and capsys.readouterr().out == "aloud\n"
