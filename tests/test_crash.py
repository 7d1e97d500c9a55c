"""A run killed with SIGKILL at any point, then resumed, ends with the same answer and does nothing twice."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import plait
from plait.journal.store import Journal

SCRIPT = Path(__file__).with_name("crash_script.py")


# Points passed by each loop: model calls and tool calls, each with its writes.
POINTS = {"react": 40, "json": 40, "rewoo": 20, "compiler": 20, "phased": 20, "codeact": 20, "native": 20}


def script(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the script in a process of its own until it dies, or ends."""
    return subprocess.run(
        [sys.executable, str(SCRIPT), str(folder / "j.db"), str(folder / "counts"), *words],
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize("loop", POINTS)
def test_killed_before_and_after_every_effect_then_resumed(loop: str, tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    whole.mkdir()
    done = script(whole, "0", loop)
    assert done.stdout.startswith("answered all is sent"), done.stdout + done.stderr
    points = int(done.stdout.split()[-1])
    assert points >= POINTS[loop]

    def check(point: int) -> tuple[int, str, Counter[str]]:
        folder = tmp_path / str(point)
        folder.mkdir()
        died = script(folder, str(point), loop)
        assert died.returncode == -9, (point, died.stdout + died.stderr)
        begun = (folder / "j.db").exists() and Journal(folder / "j.db").runs()
        after = script(folder, "0", loop, "resume") if begun else None
        text = (folder / "counts").read_text() if (folder / "counts").exists() else ""
        return point, after.stdout + after.stderr if after else "", Counter(line.split()[1] for line in sends(text))

    def sends(text: str) -> list[str]:
        return [line for line in text.splitlines() if line.startswith("send ")]

    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(check, range(1, points + 1)))
    in_doubt = 0
    for point, after, sent in results:
        if not after:
            assert not sent, (point, sent)  # killed before the run was on record: nothing had happened
            continue
        assert after.startswith("answered | all is sent"), (point, after)
        doubts = after.count("in_doubt")
        in_doubt += doubts
        assert all(times == 1 for times in sent.values()), (point, sent)
        # A send that did not happen is one that stands as in doubt.
        assert set(sent) <= {"one", "two", "three"} and len(sent) >= 3 - doubts, (point, sent, after)
    assert in_doubt >= 3  # each send was interrupted at least once


def test_a_run_of_a_live_process_is_not_resumed(journal: Path) -> None:
    @plait.tool
    async def slow(text: str) -> str:
        """Takes long."""
        await asyncio.sleep(30)
        return text

    agent = plait.Agent(
        "react",
        model=plait.Scripted(['Action:\n```json\n{"action": "slow", "action_input": "x"}\n```', "Final Answer: y"]),
        tools=[slow],
        journal=journal,
    )

    async def main() -> None:
        task = asyncio.create_task(agent.arun("go"))
        for _ in range(200):
            await asyncio.sleep(0.01)
            if journal.exists() and any(row.status == "running" for row in Journal(journal).runs()):
                break
        with pytest.raises(plait.PlaitError, match="still going on"):
            await agent.aresume("last")
        task.cancel()
        await asyncio.wait([task])

    asyncio.run(main())
    assert Journal(journal).run("last").status == "cancelled"
