"""The account of the Python-session agent, reproduced: its requests byte for byte, its table, its search results."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any, Optional

import pytest

import plait
from cli_support import Shell
from conftest import data_file, some_of
from plait.core import Answered, Stopped
from plait.journal.store import Journal
from plait.lab import load_grader, load_suite
from plait.lab.world import world_of
from plait.loops.codeact.loop import CodeAct
from plait.runtime.run import Run
from plait.toolkits.frame import Table
from plait.toolkits.image import Image
from repl_account import Account, clock_of
from repl_logs import MODELS, Log, read_all

NAMES = some_of((f"{letter}-{model}" for model in MODELS for letter in "ABCDEF"), 2, 1)
"""The runs. Those that differ from the account are always among them."""

DIFFERENT_PROMPTS = {"F-gpt-3.5-turbo": 4, "F-text-davinci-003": 4}
"""The first turn whose prompt differs. Before it, the code took an entry of a table. The account's class of tables
refused that in words of its own; Plait's code has a handle of the table, and the error is Python's."""

DIFFERENT_STEPS = {"F-gpt-4": (15, 14)}
"""The published steps, and those of the run. The recorded run has 14."""

DIFFERENT_MARKS = {"D-gpt-3.5-turbo": ("flaw", "not done"), "D-gpt-4": ("done", "flaw")}
"""The published marks, and Plait's. D-gpt-3.5-turbo sent another town's weather, because it invented coordinates.
D-gpt-4 sent "❓" for most days, where an emoji was asked for."""


@pytest.fixture(scope="module")
def account() -> Account:
    return Account(data_file("published", "repl-agent.txt").read_text(), read_all(data_file("repl-logs")))


def run_log(account: Account, log: Log, folder: Path, transcript: Any = "completion") -> Run:
    """Run the loop with the account's prompts, the recorded replies and stand-ins for the tools."""
    account.write_prompts(folder / "prompts", log, transcript)
    agent = plait.Agent(
        CodeAct(transcript=transcript, repeats=0, imports=False),
        model=plait.Scripted(account.replies(log), by_turn=False),
        tools=[str(account.write_tools(folder, log))],
        prompts=folder / "prompts",
        journal=folder / "runs.db",
        limits=plait.Limits(repeats=0, compact_at=None),
        sandbox="process",
    )
    return agent.run(log.task, now=clock_of(log))


def requests_of(run: Run) -> list[dict[str, Any]]:
    """The requests after the one that takes the task apart."""
    return [json.loads(call.request) for call in run.timeline.model_calls][1:]


@pytest.fixture(scope="module")
def runs(account: Account, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    folder = tmp_path_factory.mktemp("golden")
    return {name: run_log(account, account.logs[name], folder / name) for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_golden_requests_are_the_growing_prompt(account: Account, runs: dict[str, Run], name: str) -> None:
    """Every request is the recorded log up to its turn, byte for byte. Two runs differ from their fourth turn on."""
    log = account.logs[name]
    wanted = account.prompts_before(log)
    sent = [request["prompt"] for request in requests_of(runs[name])][: len(wanted)]
    assert len(sent) == len(wanted) == len(log.steps) - 1 + (log.end == "overflow")
    same = len(wanted) if name not in DIFFERENT_PROMPTS else DIFFERENT_PROMPTS[name] - 2
    for n, (one, other) in enumerate(zip(sent, wanted, strict=True), 2):
        assert (one == other) == (n - 2 < same), f"turn {n}"


def test_golden_one_user_message(account: Account, tmp_path: Path) -> None:
    """A chat model receives the same prompt as one user message."""
    log = account.logs["E-gpt-4"]
    sent = [request["messages"] for request in requests_of(run_log(account, log, tmp_path, "user"))]
    assert sent == [[{"role": "user", "content": prompt}] for prompt in account.prompts_before(log)]


def test_golden_command_line(account: Account, tmp_path: Path) -> None:
    """`plait run --prompts FOLDER` sends the same prompts."""
    log = account.logs["E-gpt-4"]
    account.write_prompts(tmp_path / "prompts", log)
    tools = account.write_tools(tmp_path, log)
    (tmp_path / "replies.json").write_text(json.dumps({"replies": account.replies(log), "by_turn": False}))
    words = ["run", log.task, "--prompts", "prompts", "--loop", "codeact", "--set", "transcript=completion"]
    done = Shell(tmp_path)(*words, "--model", "scripted:replies.json", "--tools", str(tools), "--journal", "runs.db")
    assert done.code == 0, done.err
    journal = Journal(tmp_path / "runs.db")
    (row,) = journal.runs()
    calls = journal.timeline(row.head.run).model_calls[1:]
    assert [json.loads(call.request)["prompt"] for call in calls] == account.prompts_before(log)


def test_golden_table_of_steps(account: Account, runs: dict[str, Run]) -> None:
    """Plait counts the published number of steps in 17 of 18 runs."""
    found = {name: (account.table[name][0], runs[name].steps) for name in NAMES}
    assert {name: both for name, both in found.items() if both[0] != both[1]} == DIFFERENT_STEPS


def test_golden_ends(account: Account, runs: dict[str, Run]) -> None:
    for name in NAMES:
        log, outcome = account.logs[name], runs[name].outcome
        if log.end == "stop":
            assert isinstance(outcome, Answered)
        else:
            assert isinstance(outcome, Stopped) and outcome.limit == "context"


# -- the tasks in the account's words, in the offline world

WORLD = "world:400"
"""A world in which the user's next days have the weather codes that one of the recorded runs made a table of."""


def tasks_of(account: Account) -> list[str]:
    """The six tasks as the account lists them."""
    text = account.published[account.published.rindex("The six tasks are:") :]
    return re.findall(r"^- (.+)$", text, re.M)[:6]


def test_golden_table_of_marks(account: Account, tmp_path: Path) -> None:
    """A suite file with the account's tasks grades the recorded runs: 16 of 18 marks are as published."""
    suite_file = tmp_path / "tasks.jsonl"
    lines = [
        {"id": letter, "question": question, "grader": f"world:{letter}", "tools": [WORLD]}
        for letter, question in zip("ABCDEF", tasks_of(account), strict=True)
    ]
    suite_file.write_text("\n".join(map(json.dumps, lines)))
    tasks = {task.id: task for task in load_suite(str(suite_file)).tasks}
    found = {}
    for name in NAMES:
        log = account.logs[name]
        task = tasks[log.letter]
        agent = plait.Agent(
            CodeAct(transcript="completion", repeats=0),
            model=plait.Scripted(account.replies(log), by_turn=False),
            tools=list(task.tools),
            limits=plait.Limits(repeats=0, tools=0),
            journal=False,
            grounding="note",
        )
        run = agent.run(task.question, now=world_of(WORLD).now.timestamp())
        grade = asyncio.run(load_grader(task.grader)(task, run))
        found[name] = (account.table[name][1], grade.mark)
    assert {name: both for name, both in found.items() if both[0] != both[1]} == DIFFERENT_MARKS


# -- the search's results

HITS = """{% for tool in hits %}
{% set sep = joiner(", ") %}
`{{ tool.name }}(
{%- for each in tool.arguments -%}
{{ sep() }}{{ each.name }}: {{ "Optional[" ~ each.inner_type ~ "]" if each.nullable else each.type -}}
{{ "=" ~ each.default if each.default }}
{%- endfor -%}
){{ " -> " ~ tool.result if tool.result }}`: {{ tool.description }}
{% endfor %}
"""


def test_golden_search_results(account: Account, tmp_path: Path) -> None:
    """A template prints what Plait's own search finds as the account does, for all its functions."""
    hit = re.compile(r"^`([a-z_]+)\((.*)\)((?: -> \w+)?)`: (.+)$", re.M)
    found = (match for log in account.logs.values() for match in hit.finditer(log.text))
    lines = {match[1]: match for match in found if match[1] not in ("foo", "datetime")}
    assert len(lines) == 14
    names: dict[str, Any] = {"Optional": Optional, "Image": Image, "Table": Table}
    for line in lines.values():
        exec(f"def {line[1]}({line[2]}){line[3]}: {line[4]!r}", names)
    (tmp_path / "codeact").mkdir()
    (tmp_path / "codeact" / "search_result.j2").write_text(HITS)
    code = "\n".join(f"method_search({name!r})" for name in lines)
    agent = plait.Agent(
        "codeact",
        model=plait.Scripted(
            ["1. Look.", f"all.\nACTION 2:\n```python\n{code}\n```", "\nACTION 3:\n```python\nstop()\n```"]
        ),
        tools=[names[name] for name in lines],
        prompts=tmp_path,
        journal=tmp_path / "runs.db",
    )
    run = agent.run("What is there?")
    messages = json.loads(run.timeline.model_calls[-1].request)["messages"]
    shown = [message["content"] for message in messages if message["role"] == "user"][-1].split("\n")[1:]
    assert set(shown) == {line[0] for line in lines.values()}
