"""A run over time and the search in one run, made of the rows of a journal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import plait
from journal_rows import request, response, resumed
from plait.core.outcomes import Answered
from plait.journal.owner import owner_of_this_process
from plait.journal.records import RunHead
from plait.journal.store import Journal
from plait.view.live import full_timeline
from plait.view.waterfall import read_waterfall
from test_window_inside import traveller
from window_support import action, answer, react


def by_label(rows: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(row["label"], []).append(row)
    return found


def test_parts_lie_within_what_they_are_a_part_of_and_child_runs_within_their_call(tmp_path: Path) -> None:
    journal = tmp_path / "journal.db"
    agent = traveller(journal)
    waits = agent.run("What should I pack?")
    rows = read_waterfall(Journal(journal), waits.id)
    (wait,) = [row for row in rows if row["kind"] == "wait"]
    assert wait["end"] is None and wait["state"] == "waiting"
    assert [row["state"] for row in rows if row["end"] is None] == ["waiting"] * 3  # its call and its step as well
    done = agent.resume(waits, "yes")
    rows = read_waterfall(Journal(journal), done.id)
    known = {row["id"]: row for row in rows}
    assert all(row["end"] is not None and row["state"] == "done" for row in rows)
    for row in rows:
        if whole := known.get(row.get("in", "")):
            assert whole["at"] - 0.001 <= row["at"] and row["end"] <= whole["end"] + 0.001
    labels = by_label(rows)
    (child,) = labels["child run"]
    assert known[child["in"]]["label"] == "packer" and child["child"] in {row["run"] for row in rows}
    one, *_ = labels["weather"]
    (packer,) = labels["packer"]
    assert one["step"] == packer["step"] == 1 and packer["at"] < one["end"]  # at the same time
    (wait,), (send,) = labels["waits for the user: approval"], labels["send"]
    assert wait["end"] <= send["at"] and rows.index(wait) < rows.index(send)  # a call begins after its approval
    assert sum(row.get("tokens", 0) for row in rows if row["kind"] == "model") == done.tree.usage.tokens
    assert len({row["wire"] for row in rows if row["kind"] == "model" and row["run"] == done.id}) == 4


@pytest.mark.asyncio
async def test_failed_attempts_have_rows_of_their_own_and_what_a_killed_process_left_open_ends(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.db")
    head = RunHead("20260101-000000-killed", "?", {"name": "react", "options": {}}, {"": {"spec": "m"}})
    log = await journal.store.begin(head, owner_of_this_process())
    records = [request("0a0"), response("0a0", 503, error="busy"), request("0a1"), resumed(), request("0a2")]
    for each in records:
        await log.append((each, b"{}"))
    models = [row for row in read_waterfall(journal, head.run) if row["kind"] == "model"]
    assert [row["state"] for row in models] == ["failed", "failed", "running"]  # the second was lost with its process
    assert [row["label"] for row in models] == ["m · act", "m · act · attempt 2", "m · act · attempt 3"]
    assert models[0]["note"] == "busy" and models[1]["end"] is not None
    await log.end("crashed", Answered("x"), {})
    assert all(row["end"] is not None for row in read_waterfall(journal, head.run))


def test_a_search_counts_every_place_in_texts_that_the_page_has_cut(tmp_path: Path) -> None:
    journal = tmp_path / "journal.db"

    @plait.tool(read_only=True)
    def read() -> str:
        "Reads."
        return "needle " * 2_000

    run = react(journal, [action("read", {}, "A Needle?"), answer("no")], tools=(read,)).run("?")
    found = full_timeline(Journal(journal), run.id).search("NEEDLE")
    assert found["count"] == 2_001 and len(found["hits"]) == 500
    assert {hit["field"].rstrip("0123456789") for hit in found["hits"]} == {"thought", "text"}
    assert (found["hits"][0]["before"], found["hits"][0]["found"], found["hits"][0]["after"]) == ("A ", "Needle", "?")
    assert full_timeline(Journal(journal), run.id).search("") == {"hits": [], "count": 0}
