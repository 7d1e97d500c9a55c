"""Recorded runs of a Python-session agent: read whole, and their code run with the world's tools in their place."""

from __future__ import annotations

import re

import pytest

from conftest import data_file
from repl_logs import MODELS, Cells, Log, read_all, run_cells

WORD = "world:400"
"""A world in which the user's next days have the weather codes that one of the recorded runs made a table of."""


@pytest.fixture(scope="module")
def logs() -> list[Log]:
    return read_all(data_file("repl-logs"))


@pytest.fixture(scope="module")
def cells(logs: list[Log]) -> dict[str, Cells]:
    return {log.name: run_cells(log, WORD) for log in logs}


def test_every_log_is_read_whole(logs: list[Log]) -> None:
    assert [log.name for log in logs] == [f"{letter}-{model}" for model in MODELS for letter in "ABCDEF"]
    for log in logs:
        assert [step.number for step in log.steps] == list(range(1, len(log.steps) + 1))
        assert all(step.thought.strip() and step.code.strip() for step in log.steps)
        assert len(log.plan) >= 3
        assert f'method_search("{log.plan[0].rstrip(".")}")' in log.steps[0].code
        *before, last = log.steps
        assert all(step.observation for step in before)
        assert (last.observation is None) == (log.end == "stop")


def test_every_recorded_action_ends_here_as_it_did_there(logs: list[Log], cells: dict[str, Cells]) -> None:
    """With the world's tools each of the recorded 147 actions errs where it erred, and nowhere else.

    One does not: looking up "London, UK" failed there, and is found by our toolkit.
    """
    differ, actions, failed = [], 0, 0
    for log in logs:
        for step, ran in zip(log.steps, cells[log.name].ran, strict=True):
            actions += 1
            failed += bool(step.error)
            if bool(step.error) != bool(ran.error):
                differ.append((log.name, step.number, step.error, ran.error))
    assert differ == [("C-gpt-4", 3, "LocationNameError", "")]
    assert (actions, failed) == (147, 32)


def test_errors_are_of_the_same_kind(logs: list[Log], cells: dict[str, Cells]) -> None:
    """Tables have errors of their own names there, and the wrong keys of C come to light one call earlier here."""
    same = {
        "TableIndexTypeError": "TypeError",
        "TableAttributeError": "AttributeError",
        "LocationNameError": "KeyError",
    }
    for log in logs:
        for step, ran in zip(log.steps, cells[log.name].ran, strict=True):
            if step.error and ran.error:
                assert ran.error == same.get(step.error, step.error), (log.name, step.number, ran)


def test_every_run_that_stopped_there_stops_here_at_its_last_action(logs: list[Log], cells: dict[str, Cells]) -> None:
    for log in logs:
        stopped = [i for i, ran in enumerate(cells[log.name].ran, 1) if ran.stopped]
        assert stopped == ([len(log.steps)] if log.end == "stop" else []), log.name


GRADES = {
    "gpt-3.5-turbo": "done, done, not done, not done, not done, not done",
    "text-davinci-003": "done, done, flaw, done, done, not done",
    "gpt-4": "done, done, done, flaw, done, done",
}
"""The recorded runs' grades. Of gpt-3.5-turbo, D is another place's weather (invented coordinates), C, E and F
overflowed; of text-davinci-003, C has invented coordinates and F overflowed; gpt-4's emoji in D do not fit."""


def test_the_recorded_runs_are_graded_by_what_they_sent(logs: list[Log], cells: dict[str, Cells]) -> None:
    for model in MODELS:
        marks = [
            cells[log.name].grade.partition(":")[0].replace("done with a flaw", "flaw")
            for log in logs
            if log.model == model
        ]
        assert ", ".join(marks) == GRADES[model]
    assert "latitude 51.509865 was invented" in cells["C-text-davinci-003"].grade
    assert "no emoji" in cells["D-gpt-4"].grade


def test_what_was_sent_has_the_shape_that_was_sent_there(logs: list[Log], cells: dict[str, Cells]) -> None:
    """A message that was sent there is sent here, to the same service, as many times."""
    for log in logs:
        services = re.findall(r"^\s*send_(?:message_)?(discord|slack)", "\n".join(_sending(log)), re.M)
        assert [sent["service"] for sent in cells[log.name].sent] == services, log.name


def _sending(log: Log) -> list[str]:
    """The code of the actions that sent something: those that did not err."""
    return [step.code for step in log.steps if not step.error and re.search(r"^\s*send_", step.code, re.M)]
