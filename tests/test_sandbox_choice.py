"""Which sandbox code runs in: the default, its fallback, and what a resume or a fork goes on in."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import plait
from plait.core.errors import ConfigError
from plait.core.events import Noted
from plait.journal.store import Journal
from plait.sandbox import default_sandbox, name_of, sandbox
from plait.sandbox.process import Process

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the process sandbox needs Linux")

CODE = " so.\nACTION 1:\n```python\nclass A(Exception):\n    pass\nprint('ran')\n```"
MORE = " so.\nACTION 2:\n```python\nstop(str(A.__mro__[1].__name__))\n```"


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plait.sandbox, "_opened", set())
    monkeypatch.setattr(plait.sandbox, "_refused", {})


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel whose filters do not hold, which only an attempt shows."""

    async def open_(self: Process, settings: Any) -> Any:
        raise ConfigError("The process sandbox can't confine code here: no filter.")

    monkeypatch.setattr(Process, "open", open_)


def agent(tmp_path: Path, *replies: str, **more: Any) -> plait.Agent:
    return plait.Agent("codeact", model=plait.Scripted(list(replies)), journal=tmp_path / "journal.db", **more)


def notes(run: plait.Run) -> list[str]:
    return [event.text for event in run.events if isinstance(event, Noted) and event.kind == "sandbox"]


def sandbox_in(tmp_path: Path, run: plait.Run) -> Any:
    """The sandbox in the head of a run."""
    return Journal.at(tmp_path / "journal.db").run(run.id).head.settings["sandbox"]


def test_by_default_code_runs_in_cpython_and_the_head_of_the_run_says_so(tmp_path: Path) -> None:
    run = agent(tmp_path, CODE, MORE).run("q")
    assert (run.status, run.answer) == ("answered", "Exception")
    assert sandbox_in(tmp_path, run) == "process" and notes(run) == []


def test_where_the_kernel_can_not_confine_monty_runs_it_and_one_line_says_so(tmp_path: Path, refused: None) -> None:
    replies = (" so.\nACTION 1:\n```python\nprint(1)\n```", " so.\nACTION 2:\n```python\nstop()\n```")
    run = agent(tmp_path, *replies).run("q")
    assert (run.status, run.answer, sandbox_in(tmp_path, run)) == ("answered", "1", "monty")
    (line,) = notes(run)
    assert line.startswith("Code runs in the sandbox 'monty', which has less of Python: 'process' is not available")
    assert "no filter" in line and "\n" not in line


def test_without_filters_in_the_kernel_the_default_is_monty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plait.sandbox, "_ACTIONS", tmp_path / "missing")
    assert default_sandbox() == ("monty", "the kernel has no seccomp filters")
    assert (name_of("auto"), sandbox().name) == ("monty", "monty")


def test_a_sandbox_that_is_not_there_is_said_before_the_first_model_call(tmp_path: Path, refused: None) -> None:
    model = plait.Scripted([CODE, MORE])
    chosen = plait.Agent("codeact", model=model, journal=tmp_path / "journal.db", sandbox="process")
    with pytest.raises(ConfigError, match="can't confine"):
        chosen.run("q")
    assert chosen.using(sandbox="monty", model=model).run("q").steps > 0  # no reply of the script was used up


def test_a_missing_extra_is_said_before_the_first_model_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydantic_monty", None)
    with pytest.raises(ConfigError, match=r"pip install .*\[code\]"):
        agent(tmp_path, CODE, MORE, sandbox="monty").run("q")


def test_a_fork_goes_on_in_the_sandbox_of_its_run_or_refuses(tmp_path: Path) -> None:
    first = agent(tmp_path, CODE, MORE, sandbox="process").run("q")
    with pytest.raises(ConfigError, match=r"ran its code in the sandbox 'process', and this agent's is 'monty'"):
        agent(tmp_path, CODE, MORE, sandbox="monty").fork(first.id, 2)
    fork = agent(tmp_path, CODE, MORE).fork(first.id, 2)
    assert (fork.answer, sandbox_in(tmp_path, fork)) == ("Exception", "process")
    plain = " so.\nACTION 1:\n```python\nprint(1)\n```"
    anew = agent(tmp_path, plain, " so.\nACTION 2:\n```python\nstop(2)\n```", sandbox="monty").fork(first.id, 1)
    assert (anew.status, sandbox_in(tmp_path, anew)) == ("answered", "monty")


def test_a_resume_goes_on_in_the_sandbox_of_its_run_or_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @plait.tool
    def send(text: str) -> None:
        """Send."""

    replies = (" so.\nACTION 1:\n```python\nx = 1\nsend('a')\n```", " so.\nACTION 2:\n```python\nstop(x)\n```")
    waiting = agent(tmp_path, *replies, tools=[send], approve="effects", sandbox="monty").run("q")
    assert waiting.status == "waiting"
    with pytest.raises(ConfigError, match="'monty', and this agent's is 'process'"):
        agent(tmp_path, *replies, tools=[send], approve="effects", sandbox="process").resume(waiting, "yes")
    done = agent(tmp_path, *replies, tools=[send], approve="effects").resume(waiting, "yes")
    assert (done.status, done.answer) == ("answered", "1")


def test_the_sandbox_is_part_of_a_cell_of_the_lab() -> None:
    from plait.runtime.agents.agent_fields import record_settings

    monty, process = (record_settings(plait.Agent("codeact", sandbox=name)) for name in ("monty", "auto"))
    assert (monty["sandbox"], process["sandbox"]) == ("monty", "process")
    assert record_settings(plait.Agent("react"))["sandbox"] == "auto"  # the same cell on every machine
