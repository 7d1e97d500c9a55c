"""A run killed with SIGKILL at any point, then resumed, ends with the same answer and does nothing twice."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import plait
from plait.journal.store import Journal

SCRIPT = Path(__file__).with_name("crash_script.py")


def killed_at(folder: Path, point: int) -> tuple[int, str]:
    """Run the script in a process of its own until it dies at a point, or ends."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(folder / "j.db"), str(folder / "counts"), str(point)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.returncode, done.stdout + done.stderr


def resumed(folder: Path) -> str:
    """Go on with the run, in yet another process; where there is no run yet, begin one."""
    code = (
        f"import sys; sys.argv = ['', {str(folder / 'j.db')!r}, {str(folder / 'counts')!r}, '0']\n"
        f"sys.path.insert(0, {str(SCRIPT.parent)!r})\n"
        "import crash_script as s, plait\n"
        "run = s.agent(plait.Scripted(s.REPLIES)).resume('last')\n"
        "print(run.status, '|', run.answer, '|', [r.record.observation.trouble for r in run.record"
        " if type(r.record).__name__ == 'ObservedRecord'])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    return done.stdout + done.stderr


def test_killed_before_and_after_every_effect_then_resumed(tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    whole.mkdir()
    code, said = killed_at(whole, 0)
    assert code == 0 and said.startswith("answered all is sent"), said
    points = int(said.split()[-1])
    assert points >= 40  # 6 model calls and 5 tool calls, each with its writes

    def check(point: int) -> tuple[int, str, Counter[str], str]:
        folder = tmp_path / str(point)
        folder.mkdir()
        code, said = killed_at(folder, point)
        assert code == -9, (point, said)
        before = (folder / "counts").read_text() if (folder / "counts").exists() else ""
        begun = (folder / "j.db").exists() and Journal(folder / "j.db").runs()
        after = resumed(folder) if begun else "answered | all is sent | []"
        text = (folder / "counts").read_text() if (folder / "counts").exists() else ""
        return point, after, Counter(text.splitlines()), before

    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(check, range(1, points + 1)))
    in_doubt = 0
    for point, after, counts, _ in results:
        assert after.startswith("answered | all is sent"), (point, after)
        if after.endswith("[]"):
            continue  # killed before the run was on record: nothing had happened
        doubts = after.count("in_doubt")
        in_doubt += doubts
        for key in ("fetch a", "fetch b"):
            assert counts[key] >= 1, (point, counts)
        sent = [counts[f"send {word}"] for word in ("one", "two", "three")]
        assert max(sent) == 1, (point, counts)
        # A send that did not happen is one that stands as in doubt.
        assert sum(sent) >= 3 - doubts, (point, counts, after)
    assert in_doubt >= 3  # each send was interrupted at least once


def test_a_run_of_a_live_process_is_not_resumed(journal: Path) -> None:
    import asyncio

    import pytest

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
