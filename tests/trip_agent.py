"""The agent of `test_agent_on_profiles.py`: it searches, asks another agent, books, and answers with a `Trip`.

    python trip_agent.py JOURNAL DATABASE POINT PROFILE ADDRESS          runs to the end or dies at the point
    python trip_agent.py JOURNAL DATABASE POINT PROFILE ADDRESS resume   resumes the run with a new `Db`

A script that ends prints one JSON object: the status, the output, the troubles of the tool calls, and the kinds of the
points that it passed (`kill_points.py`). Bookings are rows of an SQLite file, each committed by itself.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from msgspec import structs
from pydantic import BaseModel

import plait
from kill_points import KillPoints
from plait.models.base import Model
from plait.models.chat import ChatModel
from plait.models.prices import Rate
from profile_matrix import PROFILES
from profile_servers import with_script

QUESTION = "Two days in Ghent"


class Trip(BaseModel):
    city: str
    days: int
    stops: list[str]


class Db:
    """A database of bookings."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with closing(sqlite3.connect(path)) as rows, rows:
            rows.execute("CREATE TABLE IF NOT EXISTS bookings (what TEXT)")

    def add(self, what: str) -> None:
        with closing(sqlite3.connect(self.path)) as rows, rows:
            rows.execute("INSERT INTO bookings VALUES (?)", (what,))

    def bookings(self) -> list[str]:
        with closing(sqlite3.connect(self.path)) as rows:
            return sorted(what for (what,) in rows.execute("SELECT what FROM bookings"))


@plait.tool(read_only=True)
def search(query: str) -> str:
    """Search the web.

    Args:
        query: a few words
    """
    return f"Pages about {query}."


def make_book(point: Callable[[str], None]) -> plait.Tool:
    @plait.tool
    def book(ctx: plait.Context[Db], what: str) -> str:
        """Book something.

        Args:
            what: what to book
        """
        point("before book")
        ctx.deps.add(what)
        point("after book")
        return f"booked {what}"

    return book


def make_profile_agent(
    name: str, address: str, journal: Path, point: Callable[[str], None] = str
) -> plait.Agent[Db, Trip]:
    """The agent, with the models of a profile at this address."""
    model = structs.replace(PROFILES[name].resolve(address), rate=Rate("tokens", input=1.25, output=10.0))
    return make_trip_agent(with_script(model, "trip", "act"), with_script(model, "trip", "research"), journal, point)


def make_trip_agent(
    model: str | Model, researchers_model: str | Model, journal: Path, point: Callable[[str], None] = str
) -> plait.Agent[Db, Trip]:
    """The agent, with its model and that of the agent that it asks."""
    researcher = plait.Agent(model=researchers_model, tools=[search])
    return plait.Agent(
        model=model,
        instructions="Answer in French.",
        tools=[search, make_book(point), researcher.as_tool()],
        output=Trip,
        deps=Db,
        limits=plait.Limits(usd=0.50),
        journal=journal,
    )


def main() -> None:
    journal, database, fatal, name, address, *words = sys.argv[1:]
    points = KillPoints(fatal)
    points.watch(ChatModel)
    agent = make_profile_agent(name, address, Path(journal), points.point)
    db = Db(Path(database))
    run = agent.resume("last", deps=db) if words else agent.run(QUESTION, deps=db)
    found: dict[str, Any] = {"status": run.status, "reason": run.reason, "points": points.passed}
    found["troubles"] = [observation.trouble for _, observation in run.timeline.results]
    print(json.dumps({**found, "output": run.output.model_dump() if run.status == "answered" else None}))


if __name__ == "__main__":
    main()
