"""Kills runs with SIGKILL and resumes them: what the tests and the campaign share."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fork_server import run_forked
from loop_scripts import ANSWER, LOOPS, SENT
from plait.journal.store import Journal

SCRIPT = Path(__file__).with_name("crash_script.py")
TREES = ("children", "approved")
"""Runs whose tool runs two agents at once as its child runs; in the second the user approves each effect."""
CASES = (*LOOPS, *TREES)


def run_script(folder: Path, loop: str, point: int | str = 0, *words: str) -> dict[str, Any]:
    """Run the script until it ends or dies at that point; what it printed, empty if it died."""
    folder.mkdir(exist_ok=True)
    done = run_forked([SCRIPT, journal_in(folder), folder / "counts", str(point), loop, *words])
    if point and done.returncode == -9:
        return {}
    assert done.returncode == 0, (loop, point, words, done.stderr)
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


@dataclass
class Killed:
    """What came of a run that was killed and resumed until it ended."""

    kills: int = 0
    resumed: int = 0
    effects: int = 0
    in_doubt: int = 0
    repeated: int = 0
    lost: int = 0
    wrong: str = ""


def kill_and_resume(
    folder: Path,
    loop: str,
    point: int | str,
    *during_resume: int,
    endpoint: tuple[str, ...] = (),
    hooks: bool = False,
) -> Killed:
    """Kill a run at a point, then its resumes at the points given, then let it end; count effects done twice or lost.

    An effect is lost if it neither happened nor is reported as in doubt. `endpoint`: the profile and the address of the
    model to ask; without it, a scripted one. With `hooks`, the run has hooks at all points.
    """
    found = Killed()
    endpoint = (*endpoint, "hooks") if hooks else endpoint
    ended = run_script(folder, loop, point, *endpoint)
    found.kills += not ended
    for later in during_resume:
        if not ended and on_record(folder):
            ended = run_script(folder, loop, later, "resume", *endpoint)
            found.kills += not ended
            found.resumed += 1
    if not ended and on_record(folder):
        ended = run_script(folder, loop, 0, "resume", *endpoint)
        found.resumed += 1
    counts = folder / "counts"
    lines = counts.read_text().splitlines() if counts.exists() else []
    sends = Counter(line.split()[1] for line in lines if line.startswith("send "))
    found.effects = len(lines)
    found.repeated = sum(times - 1 for times in sends.values())
    if not ended:  # killed before the run was on record: nothing had happened
        found.wrong = f"effects without a record: {sends}" if sends else ""
        return found
    found.in_doubt = ended["troubles"].count("in_doubt")
    found.lost = max(0, len(SENT) - len(sends) - found.in_doubt)
    if (ended["status"], ended["answer"]) != ("answered", ANSWER) or not set(sends) <= SENT:
        found.wrong = f"{loop} {point} {during_resume} {endpoint}: {ended}, sent {sends}"
    return found


def on_record(folder: Path) -> bool:
    """Whether a run is on record."""
    place = journal_in(folder)
    if isinstance(place, Path) and not place.exists():
        return False
    journal = Journal(place)
    found = bool(journal.runs())
    journal.close()
    return found


def journal_in(folder: Path) -> Path | str:
    """Return the journal of a folder's run: a file in it, or, if KILL_ADDRESS names a server, a schema of its own."""
    address = os.environ.get("KILL_ADDRESS")
    if not address:
        return folder / "j.db"
    return f"{address}?options=-csearch_path%3Dk_{hashlib.sha256(str(folder).encode()).hexdigest()[:20]}"
