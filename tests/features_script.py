"""Performs a run with a feature in one process, up to its end or a kill.

    python features_script.py FOLDER JOURNAL FEATURE LOOP POINT [resume] [FAULT]

POINT is described in `kill_points.py`. FAULT makes Plait, or the tool, do wrong what the campaign must notice: "repeat"
calls in doubt, "lose" an effect, and "differ" in the replay. It prints one JSON object.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

folder = Path(sys.argv[1])
os.environ["XDG_STATE_HOME"] = str(folder / "state")

import plait  # noqa: E402
from feature_scenarios import FEATURES, Place, make_agent  # noqa: E402
from kill_points import KillPoints  # noqa: E402
from plait.journal.notes import Memory, Notes  # noqa: E402
from plait.journal.records import ResultRecord  # noqa: E402
from plait.journal.store import Journal, is_address, open_store, wait_for  # noqa: E402
from plait.view.live import run_document  # noqa: E402


def read_effects(place: Place) -> list[str]:
    """Return what has happened: each effect once for each time."""
    files = [folder / "counts", folder / "work" / "lines", folder / "log"]
    lines = [line for file in files if file.exists() for line in file.read_text().splitlines()]
    found = [line.split(maxsplit=1)[1] for line in lines if line.startswith(("send ", "sent "))]
    notes = wait_for(Notes(place.store).list(Memory("", "likes")))
    return [*found, *(f"note {each.text}" for each in notes)]


def list_rows(run: plait.Run[Any]) -> list[Any]:
    return [*run.rows(), *(row for child in run.children for row in list_rows(child))]


def describe(agent: plait.Agent[Any], run: plait.Run[Any], place: Place) -> dict[str, Any]:
    """Return how a run ended, what is on its record and its page, and what its replay did."""
    rows = list_rows(run)
    seen = [row.record.value for row in rows if isinstance(row.record, ResultRecord) and row.record.work == "call"]
    before = read_effects(place)
    try:
        replayed = (agent.using(instructions="Differ.") if "differ" in sys.argv else agent).replay(run)
        differs = "" if replayed.whole and replayed.outcome == run.outcome else f"{replayed.outcome} {replayed.whole}"
    except plait.PlaitError as why:
        differs = str(why)
    record = "\n".join(f"{row.record!r} {(row.body or b'').decode(errors='replace')}" for row in rows)
    page = json.dumps(run_document(Journal.at(place.journal), run.id), ensure_ascii=False)
    shows = FEATURES[feature].shows
    return {
        "status": run.status,
        "answer": run.answer,
        "reason": str(run.reason),
        "in_doubt": sum(each.trouble == "in_doubt" for each in seen),
        "effects": before,
        "differs": differs,
        "performed": [*(Counter(read_effects(place)) - Counter(before)), *map(str, list_rows(run)[len(rows) :])],
        "unrecorded": [each for each in shows if each not in record],
        "unshown": [each for each in shows if json.dumps(each, ensure_ascii=False)[1:-1] not in page],
        "points": place.points.passed,
    }


if __name__ == "__main__":
    feature, loop, fatal = sys.argv[3:6]
    journal: Path | str = sys.argv[2] if is_address(sys.argv[2]) else Path(sys.argv[2])
    resumes, fault = "resume" in sys.argv, sys.argv[-1]
    points = KillPoints(fatal)
    points.watch(plait.Scripted, is_postgres=is_address(str(journal)))
    place = Place(folder, journal, loop, points, open_store(journal))
    if fault == "lose":
        Place.tally = lambda place, line: None  # type: ignore[method-assign]
    is_prepared = folder / "prepared"
    if not is_prepared.exists():
        FEATURES[feature].prepare(place)
        is_prepared.touch()
    options: dict[str, Any] = {"on_interrupted_call": "repeat"} if fault == "repeat" else {}
    agent = make_agent(feature, place, **options)
    if resumes and (file := folder / "repo" / "AGENTS.md").exists():
        file.write_text("Changed meanwhile.")
    run = agent.resume("last", force=is_address(str(journal))) if resumes else agent.run("Go on.")
    while run.status == "waiting":
        run = agent.resume(run, "no" if "not known" in run.outcome.reason else "yes")
    print(json.dumps(describe(agent, run, place)))
