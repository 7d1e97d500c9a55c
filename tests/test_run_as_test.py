"""`plait export RUN --test FILE`: the file passes ruff and is green as written, for runs of every loop."""

from __future__ import annotations

import ast
import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies

import plait
from cli_support import run_in_process
from fork_server import run_forked
from loop_scripts import LOOPS, SCRIPTS, reply_of
from plait.core import Call
from plait.core.errors import RateLimited
from plait.core.messages import Exchange
from plait.journal.records import RunHead, RunRow
from plait.journal.timeline import Timeline
from plait.testing.recorded_run import _write_value, write_test

WORDS = 'He said "it\'s\\ fine" \'\'\' """ {x} – 東京 😀 \u202e %s \\N'


@plait.tool(read_only=True)
def fetch(key: str) -> Any:
    """Fetch."""
    return {"value": key, "more": [1, 2.5, None, True]}


@plait.tool(destructive=True)
def send(text: str) -> str:
    """Send."""
    if text == "broken":
        raise plait.ToolError("The line is down.")
    return f"sent {text}"


def export(run: plait.Run[Any], folder: Path) -> Path:
    file = folder / f"test_{run.id.replace('-', '_')}.py"
    assert run_in_process(["export", run.id, "--test", str(file)]) == 0
    return file


def check(*files: Path) -> None:
    """Run ruff with its own defaults and with those of this repository, and pytest without any plug-in."""
    names = list(map(str, files))
    root = Path(__file__).resolve().parent.parent
    for config in (["--isolated"], ["--config", str(root / "pyproject.toml")]):
        said = subprocess.run(["ruff", "check", "--no-cache", *config, *names], capture_output=True, text=True, env=ENV)
        assert said.returncode == 0, said.stdout
    said = subprocess.run(
        ["ruff", "format", "--diff", "--no-cache", "--isolated", *names], capture_output=True, text=True, env=ENV
    )
    assert said.returncode == 0, said.stdout
    run_pytest(*files)


def run_pytest(*files: Path) -> None:
    command = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, *map(str, files)]
    said = run_forked(command, env=ENV, cwd=files[0].parent)
    assert said.returncode == 0 and f"{len(files)} passed" in said.stdout, said.stdout


ENV = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join(sys.path),
    "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    "PLAIT_REAL_MODELS": "forbid",
}


def test_the_runs_of_every_loop_are_green_as_tests(tmp_path: Path) -> None:
    files = []
    for loop in LOOPS:
        script = {phase: [reply_of(turn) for turn in turns] for phase, turns in SCRIPTS[loop].items()}
        script["act"] = [each for each in script.get("act", []) if each != ""]
        agent = plait.Agent(loop, model=plait.Scripted(script), tools=[fetch, send])
        run = agent.run("Send one, two and three.")
        assert run.status == "answered" and len(run.calls_of("send")) >= 2, (loop, run.reason)
        files.append(export(run, tmp_path))
    check(*files)


def test_quotes_types_errors_approvals_and_limits_are_green_too(tmp_path: Path) -> None:
    calls = {"calls": [{"name": "send", "input": {"text": WORDS}}, {"name": "send", "input": {"text": "broken"}}]}
    schema = {"type": "object", "properties": {"a": {"type": ["string", "null"]}, "b": {"type": "boolean"}}}
    typed = plait.Agent("tool_calling", tools=[send], output=schema)
    typed = typed.using(model=plait.Scripted([calls, {"answer": {"a": WORDS[:5], "b": False}}]))
    answers = iter(["yes", "edit " + '{"text": "four"}'])
    runs = [
        typed.run(WORDS.encode("utf-8", "replace").decode()),
        typed.using(approve="effects").run("a", on_wait=lambda waiting: next(answers)),
        typed.using(approve=lambda call: call.input["text"] == "broken").run("b", on_wait=lambda waiting: 'no, "why"?'),
        typed.using(approve="effects").run("waits"),
        typed.using(limits=plait.Limits(steps=1)).run("stopped"),
        typed.using(model=plait.Scripted([])).run("crashed"),
        plait.Agent("json", model=plait.Scripted(['{"thought":"","tool":"fail_task","tool_input":"no"}'])).run(
            "failed"
        ),
        plait.Agent(
            "json",
            model=plait.Scripted(
                ['{"thought":"","tool":"ask_user","tool_input":"which?"}', {"answer": [1, {"é": None}]}]
            ),
        ).run("asks", on_wait=lambda waiting: WORDS[:9]),
    ]
    found = [run.status for run in runs]
    assert found == ["answered"] * 3 + ["waiting", found[4], "crashed", "failed", "answered"]
    assert [each.input["text"] for each in runs[1].calls_of("send")][1] == "four"
    check(*[export(run, tmp_path) for run in runs])


def test_child_runs_hand_offs_plans_typed_code_and_retries_are_green_too(tmp_path: Path) -> None:
    deep = plait.Scripted([{"calls": [{"name": "send", "input": "deep"}]}, {"answer": "ok"}])
    helper = plait.Agent("react", model=deep, tools=[send])

    @plait.tool(read_only=True)
    async def ask(ctx: plait.Context[Any], question: str) -> str:
        """Ask."""
        return await ctx.aask_model(question, model=plait.Scripted(["sub"]))

    calls = [{"name": "helper", "input": "x"}, {"name": "ask", "input": {"question": "q"}}]
    calls += [{"name": "none"}, {"name": "send", "input": {"txt": 1}}]
    tools = [send, ask, helper.as_tool("helper", "Helps.")]
    hand_off = [helper.as_tool("helper", "Helps.", hand_off=True)]
    plan = "Plan: a\n#E1 = fetch[a]\nPlan: b\n#E2 = LLM[say #E1]\nPlan: c\n#E3 = LLM[other]\n"
    planned = plait.Scripted({"plan": [plan], "work": ["w1", "w2"], "solve": ["end"]}, by_turn=False)
    code = plait.Scripted([{"calls": [{"name": "fetch", "input": {"key": "a"}}]}, {"answer": {"a": 1}}])
    late = plait.Scripted([RateLimited("Wait.", after=0.01), {"answer": "late"}])
    formula = plait.Scripted(
        [{"calls": [{"name": "calculator", "input": "2+2"}]}, "garbage {", {"answer": "late"}], by_turn=False
    )
    runs = [
        plait.Agent("tool_calling", model=plait.Scripted([{"calls": calls}, {"answer": "done"}]), tools=tools).run("x"),
        plait.Agent("tool_calling", model=plait.Scripted([{"calls": calls[:1]}]), tools=hand_off).run("x"),
        plait.Agent("rewoo", model=planned, tools=[fetch], approve="plan").run("x", on_wait=lambda waiting: "yes"),
        plait.Agent("codeact", model=code, tools=[fetch], output={"type": "object"}).run("x"),
        plait.Agent("react", model=late).run("x"),
        plait.Agent("react", model=formula, tools=["calculator"], hooks=["redact"]).run("x"),
    ]
    assert {run.status for run in runs} == {"answered"}
    check(*[export(run, tmp_path) for run in runs])


def test_a_changed_answer_or_call_fails_the_test(tmp_path: Path) -> None:
    script = [{"calls": [{"name": "send", "input": {"text": "one"}}]}, {"answer": "done"}]
    file = export(plait.Agent("react", model=plait.Scripted(script), tools=[send]).run("x"), tmp_path)
    text = file.read_text()
    for old, new in (
        ('"answered", "done"', '"answered", "gone"'),
        ('CALLS = [("send", {"text": "one"}, "ok")', 'CALLS = [("send", {"text": "two"}, "ok")'),
        ('CALLS = [("send", {"text": "one"}, "ok")', 'CALLS = [("send", {"text": "one"}, "raised")'),
    ):
        assert old in text
        file.write_text(text.replace(old, new))
        with pytest.raises(AssertionError):
            run_pytest(file)


def test_the_own_agent_fails_the_test_if_its_tool_fails_now(tmp_path: Path) -> None:
    script = [{"calls": [{"name": "send", "input": {"text": "one"}}]}, {"answer": "done"}]
    file = export(plait.Agent("react", model=plait.Scripted(script), tools=[send]).run("x"), tmp_path)
    own = """import plait
@plait.tool
def send(text: str) -> str:
    {}
agent = plait.Agent("react", tools=[send])
"""
    text = file.read_text()
    assert "agent.using(tools=[" in text
    old = "agent = recorded_agent(RECORD)"
    (tmp_path / "own.py").write_text(own.format("return 'Fine.'"))
    file.write_text(text.replace(old, "from own import agent").replace("from plait.testing.recorded_run import", "#"))
    run_pytest(file)
    (tmp_path / "own.py").write_text(own.format("raise plait.ToolError('The line is down.')"))
    with pytest.raises(AssertionError, match=r"'send', \{'text': 'one'\}, 'raised'"):
        run_pytest(file)


class Withhold(plait.Hook[Any]):
    """Refuses a call, and the result of another one."""

    def before_tool(self, context: plait.Context[Any], call: Call) -> plait.Refuse | None:
        return plait.Refuse("No.") if call.input.get("text") == "never" else None

    def after_tool(self, context: plait.Context[Any], call: Call, result: Any) -> plait.Refuse | None:
        return plait.Refuse("Secret.") if call.input.get("text") == "secret" else None


def test_every_status_of_a_call_is_green_as_written(tmp_path: Path) -> None:
    @plait.tool(read_only=True, timeout=0.05)
    async def slow() -> str:
        """Wait."""
        await asyncio.sleep(60)
        return "late"

    @plait.tool
    def lose() -> str:
        """Lose."""
        raise plait.core.errors.CallLost("The connection broke.")

    inputs = [{"text": text} for text in ("never", "secret", "broken", "one")] + [{"txt": 1}]
    calls = [{"name": "send", "input": each} for each in inputs]
    calls += [{"name": name, "input": {}} for name in ("slow", "lose", "none")]
    agent = plait.Agent("tool_calling", tools=[send, slow, lose], hooks=[Withhold()])
    run = agent.using(model=plait.Scripted([{"calls": calls}, {"answer": "done"}])).run("x")
    found = [each.status for each in run.calls_of()]
    assert found == ["refused", "refused", "raised", "ok", "bad_input", "timeout", "in_doubt", "unknown_tool"]
    one = {"calls": [{"name": "send", "input": {"text": "one"}}]}
    asks = agent.using(approve="effects", hooks=[])
    waiting = asks.using(model=plait.Scripted([one])).run("waits")
    both = asks.using(model=plait.Scripted([one, one, {"answer": "done"}], by_turn=False))
    answers = iter(["no", "yes"])
    twice = both.run("twice", on_wait=lambda waiting: next(answers))
    assert [each.status for each in waiting.calls_of()] == ["open"]
    assert [each.status for each in twice.calls_of()] == ["refused", "ok"]
    check(*[export(each, tmp_path) for each in (run, waiting, twice)])


@given(strategies.text(alphabet="\"'\\\n{}a\u202e", max_size=200))
def test_every_text_is_written_as_python(text: str) -> None:
    assert ast.literal_eval(_write_value({text: [text, (text, 1)]})) == {text: [text, (text, 1)]}


def test_no_key_stands_in_the_file(tmp_path: Path) -> None:
    key = "sk-very-secret-1234567"

    @plait.tool(read_only=True)
    def leak() -> str:
        """Leak."""
        return f"the key is {key}"

    class Keyed(plait.Scripted):
        def __init__(self, replies: Any) -> None:
            super().__init__(replies)
            self.secrets = (key,)

    script = [{"calls": [{"name": "leak", "input": {}}]}, {"answer": f"It is {key}."}]
    run = plait.Agent("react", model=Keyed(script), tools=[leak], instructions=f"Never say {key}.").run(f"Say {key}")
    file = export(run, tmp_path)
    assert key not in file.read_text() and "[secret]" in file.read_text()


def test_a_foreign_record_puts_no_code_into_the_file() -> None:
    evil = '"""\nraise SystemExit("evil")\n"""\\'
    head = RunHead(evil, evil, {"name": "react", "options": {}}, {}, settings={evil: [evil, {"now": evil}]})
    answered = RunRow(head, "answered", {"type": "answered", "answer": {evil: evil}}, {}, 0.0, 0.0, "")
    tree = ast.parse(write_test(answered, Timeline()))
    kinds = {type(each) for each in tree.body}
    assert kinds == {ast.Expr, ast.Import, ast.ImportFrom, ast.Assign, ast.FunctionDef}
    assert sum(isinstance(each, ast.Expr) for each in tree.body) == 1


def test_what_a_test_cannot_hold_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    agent = plait.Agent("react", model=plait.Scripted(["Final Answer: 4"]))
    run = agent.run("x", history=[Exchange("a", "b")])
    assert run_in_process(["export", run.id, "--test", str(tmp_path / "t.py")]) == 2
    assert "earlier turns" in capsys.readouterr().err
    assert not (tmp_path / "t.py").exists()
