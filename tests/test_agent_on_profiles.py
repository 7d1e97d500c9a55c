"""One agent with a typed answer, dependencies, another agent as a tool and a budget, on the endpoints of all profiles.

The answer is typed, it arrives while it is written, and a SIGKILL at any point neither repeats nor loses a booking.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import plait
from conftest import only_in_campaign
from fork_server import run_forked
from loop_scripts import TRIP, Turn
from models_server import Asked, Server
from plait.core.events import Action, Answer, Ended, PartialOutput, Thought
from plait.journal.store import Journal
from profile_matrix import PROFILES
from profile_servers import ProfileServer
from trip_agent import QUESTION, Db, Trip, make_profile_agent, make_trip_agent

SCRIPT = Path(__file__).with_name("trip_agent.py")
BOOKED = ["hotel", "train"]
KINDS = ("before model", "after model", "before book", "after book", "after result call")
"""In a model call, while `book` runs, after it."""


@pytest.mark.parametrize("name", PROFILES)
async def test_the_answer_is_typed_and_the_agents_share_one_budget(name: str, tmp_path: Path) -> None:
    handler, db = PROFILES[name].server(), Db(tmp_path / "trips.db")
    async with Server(handler) as server:
        agent = make_profile_agent(name, server.url, tmp_path / "j.db")
        run = await agent.arun(QUESTION, deps=db)
        assert run.status == "answered", run.reason
        assert run.output == Trip(**TRIP) and run.output.days == 2
        assert (db.bookings(), handler.refused) == (BOOKED, [])
        assert [(child.status, child.answer) for child in run.children] == [("answered", "Two museums are open.")]
        assert run.total_cost_usd is not None and run.cost_usd is not None
        assert 0 < run.cost_usd < run.total_cost_usd < 0.5
        told = [b"Answer in French." in each.raw for each in server.asked if each.headers["X-Script"] == "trip/act"]
        assert len(told) == 3 and all(told)
        assert agent.replay(run.id).whole


async def test_models_named_by_words_are_asked_at_the_address_of_plait_toml(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both agents get the same replies here, so the second one asks for tools that it does not have."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-test")
    handler, db, model = PROFILES["GPT-5.6"].server(), Db(tmp_path / "trips.db"), "openai:gpt-5.6"
    async with Server(handler) as server:
        endpoint = f'base_url = "{server.url}"', 'wire = "responses"', 'headers = { X-Script = "trip/act" }'
        price = f'prices = {{ "{model}" = {{ input = 1.25, output = 10 }} }}'
        lines = [price, "[endpoints.openai]", *endpoint]
        (tmp_path / "plait.toml").write_text("\n".join(lines))
        plait.use_config(tmp_path / "plait.toml")
        run = await make_trip_agent(model, model, tmp_path / "j.db").arun(QUESTION, deps=db)
    assert (run.status, db.bookings(), handler.refused) == ("answered", BOOKED, [])
    assert run.output.days == 2 and run.cost_usd is not None


def hold_the_end(handler: ProfileServer, shown: asyncio.Event) -> None:
    """Let the endpoint send the last events of a typed answer only when the program has shown a part of it."""
    reply = handler.reply

    async def reply_in_two(asked: Asked, turn: Turn, number: int) -> None:
        if (isinstance(turn, str) and turn.startswith("{")) or turn[0][0] == "final_answer":

            async def stream(body: bytes) -> None:
                begin, _, last = body.removesuffix(b"\n\n").rpartition(b"\n\n")
                await asked.begin()
                await asked.piece(begin + b"\n\n")
                if b"functionCall" not in last:  # Gemini sends a call in one piece, at the end
                    await asyncio.wait_for(shown.wait(), 20)
                await asked.piece(last + b"\n\n")
                await asyncio.wait_for(shown.wait(), 20)
                await asked.end()

            asked.stream = stream  # type: ignore[method-assign]
        await reply(asked, turn, number)

    handler.reply = reply_in_two  # type: ignore[method-assign]


@pytest.mark.parametrize("name", PROFILES)
async def test_the_typed_answer_arrives_while_it_is_written(name: str, tmp_path: Path) -> None:
    handler, shown = PROFILES[name].server(), asyncio.Event()
    hold_the_end(handler, shown)
    values: list[Any] = []
    async with Server(handler) as server:
        agent = make_profile_agent(name, server.url, tmp_path / "j.db")
        async for event in agent.stream(QUESTION, deps=Db(tmp_path / "trips.db")):
            if isinstance(event, PartialOutput):
                values.append(event.value)
                shown.set()
            if isinstance(event, Ended):
                assert event.run.output == Trip(**TRIP)
    assert values[-1] == Trip(**TRIP)
    assert len(values) > 3 or name == "Gemini 3"  # which sends a call in one piece


def run_script(folder: Path, name: str, address: str, point: int | str, *words: str) -> dict[str, Any]:
    """Run the script until it ends or dies at that point; what it printed, empty if it died."""
    done = run_forked([SCRIPT, folder / "j.db", folder / "trips.db", str(point), name, address, *words])
    if point and done.returncode == -9:
        return {}
    assert done.returncode == 0, (name, point, done.stderr)
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


def kill_and_resume(folder: Path, name: str, address: str, point: int | str, *later: int) -> str:
    """Kill a run at a point, and its resumes at later ones, then let it end; what is wrong then, "" for nothing."""
    folder.mkdir()
    assert run_script(folder, name, address, point) == {}, f"{name} was not killed at {point}"
    if not (folder / "j.db").exists() or not Journal(folder / "j.db").runs():  # killed before its first row
        return f"{point}: booked without a record" if Db(folder / "trips.db").bookings() else ""
    ended = next(filter(None, (run_script(folder, name, address, each, "resume") for each in (*later, 0))))
    counts = Counter(Db(folder / "trips.db").bookings())
    is_lost = len(counts) + ended["troubles"].count("in_doubt") < len(BOOKED)
    if ended["output"] != TRIP or is_lost or set(counts) - set(BOOKED) or max(counts.values(), default=1) > 1:
        return f"{name}, killed at {point}: {ended}, booked {counts}"
    return ""


@pytest.mark.parametrize("name", PROFILES)
async def test_a_killed_run_is_resumed_and_books_nothing_twice(name: str, tmp_path: Path) -> None:
    """Each profile is killed at one kind of point. The campaign kills each at every point."""
    kind = KINDS[list(PROFILES).index(name) % len(KINDS)]
    handler = PROFILES[name].server()
    async with Server(handler) as server:
        assert await asyncio.to_thread(kill_and_resume, tmp_path / kind, name, server.url, kind) == ""
    assert handler.refused == []


@only_in_campaign
@pytest.mark.parametrize("name", PROFILES)
async def test_a_run_killed_at_every_point_is_resumed_and_books_nothing_twice(name: str, tmp_path: Path) -> None:
    """A third of the resumes are killed as well."""
    handler = PROFILES[name].server()
    async with Server(handler) as server:
        (tmp_path / "whole").mkdir()
        whole = await asyncio.to_thread(run_script, tmp_path / "whole", name, server.url, 0)
        points = range(1, len(whole["points"]) + 1)
        assert len(points) > 30
        for point in points:
            folder = tmp_path / str(point)
            later = (3, 5) if point % 3 == 0 else ()
            assert await asyncio.to_thread(kill_and_resume, folder, name, server.url, point, *later) == ""
    assert handler.refused == []


@only_in_campaign
@pytest.mark.parametrize("name", ["local:smollm2-135m", "local"])
async def test_with_a_small_model_of_this_machine_the_run_streams_and_ends_with_an_honest_status(
    name: str, tmp_path: Path
) -> None:
    """The smaller model can do nothing of this, so its run must not be answered with a value that is not a trip."""
    agent = make_trip_agent(name, name, tmp_path / "j.db").using(settings=plait.ModelSettings(max_tokens=60))
    if name != "local":
        agent = agent.using(limits=plait.Limits(calls=2, usd=0.50))
    pieces = 0
    async for event in agent.stream(QUESTION, deps=Db(tmp_path / "trips.db")):
        pieces += isinstance(event, Thought | Action | Answer)
    assert isinstance(event, Ended)
    run = event.run
    assert pieces > 20 and run.calls > 1 and run.usage.output_tokens > 20
    if run.status == "answered":
        assert isinstance(run.output, Trip)
    else:
        assert run.status in ("stopped", "failed") and run.reason
        with pytest.raises(plait.OutputError, match=run.status):
            _ = run.output
