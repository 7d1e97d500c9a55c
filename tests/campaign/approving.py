"""The same approval comes many times at once: from Python, and as `POST resume` from several tabs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from figures import Figures, line_of

from approval_clients import approve_at_once, duplicates, run_with_two_calls
from mcp_support import until
from plait.core.errors import PlaitError
from window_server import Here, serving

TABS = 5


UNEXPECTED: list[str] = []
"""Answers of the server that are neither 202 nor 409."""


class AuthenticationError(PlaitError):
    """The server answered 409."""


def run(count: int, seed: int, folder: Path) -> Figures:
    """Send so many answers, a tenth of them by HTTP."""
    by_http = count // 10
    here = duplicates(folder, count - by_http)
    there = posted(folder, by_http)
    total = Counter(here) + Counter(there)
    figures = line_of(
        **{name: total[name] for name in ("answers", "taken", "calls", "unapproved", "lost")}, by_http=there["answers"]
    )
    wrong = [f"{name}: {total[name]}" for name in ("unapproved", "lost") if total[name]] + UNEXPECTED[:5]
    return Figures(figures, wrong)


def posted(folder: Path, count: int) -> dict[str, int]:
    """The same by HTTP: the tabs of one browser post the same answer to a run."""
    figures = {"answers": 0, "taken": 0, "calls": 0, "unapproved": 0, "lost": 0}
    while figures["answers"] < count:
        made: list[str] = []
        agent = run_with_two_calls(folder / f"served-{figures['answers']}.db", made)
        with serving(agent) as server:
            run = server.ask("POST", "/v1/runs", {"agent": "plait", "question": "Pay Ada."})[2]["run"]
            asked = waits(server, run, 0)
            body = {"answer": "yes", "question": asked["question"]}

            def post(_: int, server: Here = server, run: str = run, body: dict[str, str] = body) -> None:
                status, _, told = server.ask("POST", f"/v1/runs/{run}/answer", body)
                if status != 202:
                    UNEXPECTED.extend([f"POST resume: {status} {told}"] * (status != 409))
                    raise AuthenticationError("answered before")

            found = approve_at_once(TABS, post)
            waits(server, run, 1)
        figures["answers"] += TABS
        figures["taken"] += found[""]
        figures["calls"] += len(made)
        figures["unapproved"] += max(0, len(made) - 1) + max(0, found[""] - 1)
        figures["lost"] += found[""] == 0
    return figures


def waits(server: Here, run: str, answered: int) -> dict[str, Any]:
    """The question that the run asks after so many answers."""
    found: list[dict[str, Any]] = []

    def there() -> bool:
        told = server.ask("GET", f"/api/runs/{run}")[2]
        found[:] = told.get("waiting") or []
        return server.manager.journal.run(run).status == "waiting" and bool(found)

    until(there)
    return found[0]
