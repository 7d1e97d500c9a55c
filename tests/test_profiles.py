"""Runs against endpoints that are as strict as hosted providers: every loop, forks to other models, and refusals."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from loop_scripts import LOOPS, QUESTION, SCRIPTS
from models_server import Server
from profile_matrix import PROFILES, Tally, make_agent, run_cell


@pytest.mark.parametrize("name", PROFILES)
async def test_each_loop_is_answered_by_each_model_and_nothing_is_refused(name: str, tmp_path: Path) -> None:
    for loop in LOOPS:
        cell = await run_cell(PROFILES[name], loop, tmp_path)
        assert (cell.faults, cell.refused) == ([], [[], []]), loop


@pytest.mark.parametrize("name", PROFILES)
async def test_a_tool_calling_run_is_forked_to_every_other_model_and_replayed(name: str, tmp_path: Path) -> None:
    """The fork has the first turn's calls of one model, and its own model makes the second."""
    journal = tmp_path / "journal.db"
    async with AsyncExitStack() as stack:
        handlers = {each: profile.server() for each, profile in PROFILES.items()}
        servers = {each: await stack.enter_async_context(Server(handler)) for each, handler in handlers.items()}

        def agent(of: str, tally: Tally):
            return make_agent(PROFILES[of].resolve(servers[of].url), "tool_calling", tally.tools(), journal)

        first = Tally()
        run = await agent(name, first).arun(QUESTION)
        assert first.find_fault(run) == ""
        for other in PROFILES:
            tally = Tally(first.sent[:1])
            forked = await agent(other, tally).afork(run.id, 2)
            assert (tally.find_fault(forked), handlers[other].refused) == ("", []), other
            replayed = agent(other, tally).replay(forked.id)
            assert replayed.whole and replayed.requests == len(SCRIPTS["tool_calling"]["act"]) - 1, other
