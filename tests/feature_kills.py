"""Kills the runs of `feature_scenarios.py` with SIGKILL, resumes and replays them: for the tests and the campaign."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crash_support import journal_in, on_record
from feature_scenarios import FEATURES
from fork_server import run_forked

SCRIPT = Path(__file__).with_name("features_script.py")


@dataclass
class Resumed:
    """What came of a run with a feature that was killed and resumed: figures, and a text for each thing that is
    wrong."""

    kills: int = 0
    effects: int = 0
    in_doubt: int = 0
    repeated: int = 0
    lost: int = 0
    differing: int = 0
    wrong: list[str] = field(default_factory=list)


def perform_feature(folder: Path, feature: str, loop: str, point: int | str = 0, *words: str) -> dict[str, Any]:
    """Perform a run until it ends or dies at a point. Return what the script printed; nothing if it died."""
    folder.mkdir(parents=True, exist_ok=True)
    done = run_forked([SCRIPT, folder, journal_in(folder), feature, loop, str(point), *words])
    if point and done.returncode == -9:
        return {}
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


def kill_feature(folder: Path, feature: str, loop: str, *kills: int | str, fault: str = "") -> Resumed:
    """Kill a run and its resumes at these points, then let it end, and count what is wrong."""
    found, ended = Resumed(), dict[str, Any]()
    for point in [*kills, 0]:
        words = ["resume"] if (folder / "prepared").exists() and on_record(folder) else []
        ended = perform_feature(folder, feature, loop, point, *words, *([fault] if fault else []))
        if ended:
            break
        found.kills += 1
    made = FEATURES[feature]
    named = [each if each.startswith("note ") else each.split()[0] for each in ended["effects"]]
    happened = Counter(named)
    found.effects, found.in_doubt = len(named), ended["in_doubt"]
    found.repeated = sum(times - 1 for times in happened.values())
    has_ended_otherwise = found.kills > 0 and ended["status"] in made.instead
    missing = len(made.effects - {*happened})
    found.lost = 0 if has_ended_otherwise else max(0, missing - ended["in_doubt"])
    found.differing = bool(ended["differs"] or ended["performed"])
    doubts = ended["in_doubt"] - made.doubts
    checks = {
        "no effect is repeated": not found.repeated,
        "no effect is lost": not found.lost,
        "the replay is the same, and performs nothing": not found.differing,
        "the end": has_ended_otherwise
        or (ended["status"] == "answered" and (ended["answer"] == made.answer or made.answers > 1)),
        "only interrupted calls are in doubt": doubts <= 3 * found.kills,
        "a note that is forgotten is gone": "note Ada likes coal." not in happened,
        "it is on the record": found.kills or not ended["unrecorded"],
        "it is in the studio": found.kills or not ended["unshown"],
    }
    found.wrong = [
        f"{feature}, {loop}, killed {kills}: {check}? {ended}" for check, holds in checks.items() if not holds
    ]
    return found
