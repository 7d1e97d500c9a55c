"""Claims about what the viewer shows of retries and what its filters offer."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from plait.core.errors import RateLimited
from plait.journal.store import Journal
from plait.runtime.recorded_events import recorded_loop
from plait.view.run_search import list_choices
from plait.view.timeline import build_timeline
from window_support import answer, begin, react


def test_a_retry_stands_with_the_attempt_that_failed_and_not_behind_the_reply(tmp_path: Path) -> None:
    agent = react(tmp_path / "j.db", [RateLimited("busy", after=0.01), answer("done")])
    run = begin(agent, "What?")
    head = Journal.at(tmp_path / "j.db").head(run.id)
    items = [item for step in build_timeline(run.trace, recorded_loop(head)).changes() for item in step["items"]]
    (asked,) = [item for item in items if item["kind"] == "model"]
    assert [wrong["attempt"] for wrong in asked["errors"]] == [1] and asked["errors"][0]["then"]
    assert not [item for item in items if item.get("word") == "retry"]


def test_filters_offer_what_only_runs_before_the_newest_thousand_have(tmp_path: Path) -> None:
    place = tmp_path / "j.db"
    agent = react(place)
    begin(agent, "Once.")
    with sqlite3.connect(place) as connection:
        names = [row[1] for row in connection.execute("PRAGMA table_info(runs)") if row[1] != "n"]
        values = {"id": "id || x", "loop": "'rewoo'", "session": "''"}
        count = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < 1100)"
        chosen = ", ".join(values.get(name, name) for name in names)
        connection.execute("UPDATE runs SET session = 'early'")
        connection.execute(f"INSERT INTO runs ({', '.join(names)}) {count} SELECT {chosen} FROM runs, c")
    found = list_choices(Journal(place))
    assert found["loops"] == ["react", "rewoo"] and found["sessions"] == ["early"] and len(found["models"]) == 1
