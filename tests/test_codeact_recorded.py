"""Recorded runs of a Python-session agent, driven through the loop, with the world's tools answering."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import plait
from conftest import data_file
from journal_rows import is_request
from plait.core import Answered, Stopped
from plait.core.errors import ContextOverflow
from plait.core.events import Executing, Noted, Observed, Replied
from plait.journal.records import NoteRecord
from plait.lab.world import world_of
from plait.loops.codeact.format import CodeFormat, code_call
from plait.loops.codeact.hints import find_forbidden_import
from plait.loops.codeact.loop import CodeAct
from plait.runtime.run import Run
from repl_logs import Log, read_all

WORD = "world:400"


@pytest.fixture(scope="module")
def logs() -> list[Log]:
    return read_all(data_file("repl-logs"))


def replies(log: Log) -> Iterator[Any]:
    """What the model wrote: the steps of the first thought, then its turns; a prompt that is too long at the end."""
    yield "\n".join(f"{n}. {step}" for n, step in enumerate(log.plan, 1))
    for step in log.steps[1:]:
        yield f"THOUGHT {step.number}:\n{step.thought}\nACTION {step.number}:\n```python\n{step.code}```"
    if log.end == "overflow":
        for _ in range(9):
            yield ContextOverflow("This model's maximum context length is 4096 tokens.", tokens=4212, room=4096)


def driven(log: Log, journal: Path) -> Run:
    world = world_of(WORD)

    agent = plait.Agent(
        CodeAct(repeats=0),
        model=plait.Scripted(list(replies(log)), by_turn=False),
        tools=world.tools,
        limits=plait.Limits(repeats=0, tools=0, compact_at=None),
        journal=journal,
        grounding="note",
    )
    # The time that code sees is the world's: the share prices that are asked for are those before it.
    return agent.run(log.task, now=world.now.timestamp())


@pytest.fixture(scope="module")
def runs(logs: list[Log], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    folder = tmp_path_factory.mktemp("runs")
    return {log.name: driven(log, folder / f"{log.name}.db") for log in logs}


def test_every_recorded_thought_and_action_is_read_with_nothing_to_repair(logs: list[Log]) -> None:
    form, read = CodeFormat(), 0
    for log in logs:
        for step, text in zip(log.steps[1:], list(replies(log))[1:], strict=False):
            turn = form.read(text, step.number)
            assert (turn.thought, turn.call) == (step.thought.strip(), code_call(step.code.rstrip()))
            assert (turn.kept, turn.remarks) == (text, ())
            read += 1
    assert read == 129


def test_a_run_ends_as_it_did(logs: list[Log], runs: dict[str, Run]) -> None:
    for log in logs:
        outcome = runs[log.name].outcome
        if log.end == "stop":
            assert isinstance(outcome, Answered), log.name
        else:
            assert isinstance(outcome, Stopped) and outcome.limit == "context", log.name


def refused(step: Any) -> bool:
    """It imported, which was never allowed then, and it imports a module that is not allowed now."""
    return step.error == "ImportError" and find_forbidden_import(step.code) is not None


def test_every_action_runs_but_those_that_import_what_is_not_allowed(logs: list[Log], runs: dict[str, Run]) -> None:
    many = 0
    for log in logs:
        ran = [event.code for event in runs[log.name].events if isinstance(event, Executing)]
        wanted = [step.code.rstrip() for step in log.steps if not refused(step)]
        assert ran == wanted, log.name
        many += len(log.steps) - len(wanted)
    assert many == 4


def test_an_action_errs_where_it_erred(logs: list[Log], runs: dict[str, Run]) -> None:
    """But "London, UK", which this world finds; the last observation of a run whose prompt overflowed is not shown."""
    differ = []
    for log in logs:
        seen = observations(runs[log.name])
        assert sorted(seen) == list(range(1, len(log.steps) + (log.end == "overflow")))
        for step in log.steps:
            erred = bool(step.error) and (refused(step) or step.error != "ImportError")
            if step.number in seen and ("\nERROR: " in f"\n{seen[step.number]}") != erred:
                differ.append((log.name, step.number, step.error, seen[step.number][:80]))
    assert [each[:3] for each in differ] == [("C-gpt-4", 3, "LocationNameError")], differ


def test_an_unknown_name_was_searched_for(logs: list[Log], runs: dict[str, Run]) -> None:
    for log in logs:
        unknown = {
            re.findall(r"name '(\w+)' is not defined", step.observation or "")[0]
            for step in log.steps
            if step.error == "NameError"
        }
        searched = {
            event.call.input["description"]
            for event in runs[log.name].events
            if isinstance(event, Observed) and event.call.tool == "method_search"
        }
        assert unknown <= searched, log.name


def test_nothing_was_repaired(logs: list[Log], runs: dict[str, Run]) -> None:
    for log in logs:
        kinds = {row.record.kind for row in runs[log.name].trace if isinstance(row.record, NoteRecord)}
        assert kinds <= {"compacted", "shortened", "refused", "invented"}, log.name


def test_the_prompt_only_grows_at_its_end(logs: list[Log], runs: dict[str, Run]) -> None:
    for log in logs:
        requests = [_messages(row.body) for row in runs[log.name].trace if is_request(row.record)]
        requests = requests[: len(log.steps)]
        for before, after in itertools.pairwise(requests):
            assert after[: len(before) - 1] == before[:-1]
        assert len([event for event in runs[log.name].events if isinstance(event, Replied)]) == len(log.steps)


def test_made_up_values_are_found_where_there_are_some_and_nowhere_else(runs: dict[str, Run]) -> None:
    """text-davinci-003 made up coordinates in C, and gpt-3.5-turbo in D."""
    noted = {
        name: " ".join(event.text for event in run.events if isinstance(event, Noted) and event.kind == "invented")
        for name, run in runs.items()
    }
    assert {name for name, text in noted.items() if text} == {"C-text-davinci-003", "D-gpt-3.5-turbo"}
    assert "51.509865" in noted["C-text-davinci-003"] and "-0.118092" in noted["C-text-davinci-003"]
    assert "51.5074" in noted["D-gpt-3.5-turbo"] and "0.1278" in noted["D-gpt-3.5-turbo"]


def observations(run: Run) -> dict[int, str]:
    """The observations in the longest prompt of a run, by their numbers."""
    found = {}
    for row in run.trace:
        if is_request(row.record):
            for message in _messages(row.body):
                if match := re.match(r"OBSERVATION (\d+):\n", message["content"]):
                    found.setdefault(int(match[1]), message["content"][match.end() :])
    return found


def _messages(body: bytes | None) -> list[dict[str, str]]:
    import json

    return list(json.loads(body or b"{}")["messages"])
