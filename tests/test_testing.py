"""`plait.testing`: no real models, a journal for each test, and recorded runs as tests."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import plait
from chat_endpoint import Endpoint
from fork_server import run_forked
from plait.testing import RealModelForbidden, allow_real_models, forbid_real_models

ROOT = Path(__file__).resolve().parent.parent

SUITE = """
import os
import pytest
import plait
from pathlib import Path

AGENT = plait.Agent("tool_calling", model=plait.Chat("m", endpoint=plait.Endpoint("http://127.0.0.1:9/v1")))
SEEN = []

def test_real(no_real_models):
    with pytest.raises(plait.testing.RealModelForbidden):
        AGENT.run("x")

@pytest.mark.usefixtures("no_real_models")
def test_way_out(real_models):
    assert "can't be reached" in AGENT.run("x").reason

def test_other_order(real_models, no_real_models):
    assert "can't be reached" in AGENT.run("x").reason

@pytest.mark.parametrize("n", [1, 2])
def test_journal(n, plait_journal):
    SEEN.append(plait_journal)
    plait.Agent("react", model=plait.Scripted(["Final Answer: 4"])).run("x")
    assert plait_journal.exists() and len(set(SEEN)) == n and str(plait_journal) == os.environ["PLAIT_JOURNAL"]

def test_gone():
    assert len(SEEN) == 2 and not any(each.exists() for each in SEEN)
"""


def run_pytest(file: Path, *more: str) -> subprocess.CompletedProcess[str]:
    command = ["-m", "pytest", "-p", "plait.testing.pytest_plugin", "-p", "no:cacheprovider", "-q"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "XDG_STATE_HOME": str(file.parent / "state")}
    command += ["-c", os.devnull, "--rootdir", str(file.parent), str(file), *more]
    return run_forked(command, env=env, cwd=file.parent)


def test_the_plug_in_gives_each_test_a_journal_and_forbids_models(tmp_path: Path) -> None:
    file = tmp_path / "test_it.py"
    file.write_text(SUITE)
    found = run_pytest(file)
    assert found.returncode == 0, found.stdout
    assert "6 passed" in found.stdout and not (tmp_path / "state").exists()


def test_the_entry_point_names_the_plug_in() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"plait.testing.pytest_plugin": "plait.testing.pytest_plugin"}


def test_the_library_imports_no_pytest_and_the_plug_in_little_of_plait() -> None:
    code = "import sys, plait, plait.testing; sys.exit('pytest' in sys.modules or 'plait.agent' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
    code = "import sys, plait.testing.pytest_plugin; print([m for m in sys.modules if m.startswith('plait')])"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    loaded = ["plait", "plait.models", "plait.models.real_models", "plait.testing", "plait.testing.pytest_plugin"]
    assert sorted(eval(said)) == sorted(loaded)


def asking(model: Any) -> plait.Tool:
    @plait.tool(read_only=True)
    async def ask(ctx: plait.Context[None], question: str) -> str:
        """Ask."""
        try:
            return await ctx.aask_model(question, model=model)
        except Exception as why:
            return f"hidden: {why}"

    return ask


def test_a_forbidden_request_is_not_sent_and_nothing_hides_it() -> None:
    with Endpoint("hello") as server:
        real = server.model()
        script = plait.Scripted([{"calls": [{"name": "ask", "input": {"question": "x"}}]}, "done"])
        agents = {
            "alone": plait.Agent("react", model=real, journal=False),
            "fallback": plait.Agent("react", model=real | plait.Scripted(["Final Answer: 4"]), journal=False),
            "tool": plait.Agent("tool_calling", model=script, tools=[asking(real)], journal=False),
        }
        with forbid_real_models():
            for agent in agents.values():
                with pytest.raises(RealModelForbidden, match=r"real model: http.*plait.Scripted.*`real_models`"):
                    agent.run("x")
            assert server.asked == []
            with allow_real_models():
                assert agents["alone"].run("x").answer == "hello"
        assert agents["tool"].run("x").answer == "done" and len(server.asked) == 2


def test_a_local_model_is_not_started() -> None:
    agent = plait.Agent("react", model="local", journal=False)
    with forbid_real_models(), pytest.raises(RealModelForbidden, match="real model: local:"):
        agent.run("x")


def test_calls_of_gives_bound_inputs_results_and_errors_in_order() -> None:
    @plait.tool(destructive=True)
    def refund(order: int, reason: str = "none") -> dict[str, int]:
        """Refund."""
        if order == 2:
            raise plait.ToolError("There is no order 2.")
        return {"refunded": order}

    helper = plait.Agent(
        "react",
        model=plait.Scripted([{"calls": [{"name": "refund", "input": "9"}]}, {"answer": "ok"}]),
        tools=[refund],
    )
    calls = [{"name": "refund", "input": {"order": "1"}}, {"name": "refund", "input": {"order": 2}}]
    script = [{"calls": calls}, {"calls": [{"name": "helper", "input": "x"}, {"name": "none", "input": {}}]}, "done"]
    agent = plait.Agent(
        "tool_calling", model=plait.Scripted(script), tools=[refund, helper.as_tool("helper", "Helps.")]
    )
    run = agent.run("Refund.")
    own = [(each.input, each.result, each.status) for each in run.calls_of("refund")]
    assert own[0] == ({"order": 1, "reason": "none"}, {"refunded": 1}, "ok")
    assert own[1][0] == {"order": 2, "reason": "none"} and own[1][2] == "raised" and "no order 2" in own[1][1]
    assert [each.status for each in run.calls_of("none")] == ["unknown_tool"]
    below = run.calls_of("refund", children=True)
    assert [each.input["order"] for each in below] == [1, 2, 9] and below[2].run == run.children[0].id
    waiting = agent.using(approve="effects").run("Refund.").calls_of("refund")
    assert [each.status for each in waiting] == ["open", "open"]
