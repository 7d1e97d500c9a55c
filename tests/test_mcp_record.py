"""Runs with tools of MCP servers on record: resumed, replayed, forked, also when the server changed or is gone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import plait
from fork_server import start_forked
from journal_rows import is_result
from mcp_support import ODD, command, lines, pids, trusted
from mcp_talker import act, done
from patience import patience
from plait import Agent, ConfigError, Limits, Scripted
from plait.journal.store import Journal
from plait.tools import anchor_word
from plait.tools.mcp import connection
from plait.tools.mcp.server import parse_server, parse_word
from window_server import script


@pytest.fixture(autouse=True)
def ended() -> Iterator[None]:
    yield
    connection.close()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


def agent(folder: Path, journal: Path, *replies: str, tools: Any, **fields: Any) -> Agent:
    return Agent("react", model=script(folder, *replies), tools=tools, journal=journal, **fields)


def recorded(journal: Path, run: str) -> Agent:
    """The agent as another process finds it."""
    connection.close()
    connection._connections.clear()
    return Agent.from_journal(Journal.at(journal).run(run).head, journal=journal, load_tools=True)


def seen(run: plait.Run) -> list[str]:
    return [row.record.value.text for row in run.rows() if is_result(row.record)]


def test_a_replay_needs_no_server(log: Path, journal: Path, tmp_path: Path) -> None:
    made = agent(tmp_path, journal, act("price", item="pear"), done("3"), tools=[f"mcp:{command(log)}"])
    run = made.run("How much?")
    assert run.status == "answered"
    assert recorded(journal, run.id).replay(run.id).whole
    assert len(pids(log)) == 1


def test_a_run_that_waits_is_gone_on_with_in_another_process(log: Path, journal: Path, tmp_path: Path) -> None:
    order = act("order", item="pear", colour="red", to={"city": "Lyon"})
    made = agent(tmp_path, journal, order, done("ok"), tools=[f"shop=mcp:{command(log)}"], approve="effects")
    made = made.using(model=script(tmp_path, order.replace("order", "shop_order"), done("ok")))
    run = made.run("Order.")
    assert run.status == "waiting" and "order pear" not in "".join(lines(log))
    again = recorded(journal, run.id).resume(run, "yes")
    assert again.status == "answered" and seen(again) == ["pear in red goes to Lyon"]
    assert lines(log)[-1] == "order pear red Lyon None" and len(pids(log)) == 2


def test_a_server_is_found_again_from_another_folder(
    log: Path, journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    word = f"mcp:{command(log)}".replace(str(ODD.parent) + "/", "")
    monkeypatch.chdir(ODD.parent)
    made = agent(tmp_path, journal, act("price", item="pear"), done("3"), tools=[word])
    run = made.run("How much?")
    monkeypatch.chdir("/")
    forked = recorded(journal, run.id).fork(run.id, 1)
    assert seen(forked) == ["3"]


def stage(log: Path, name: str) -> None:
    Path(f"{log}.stage").write_text(name)


def test_tools_that_changed_since_are_as_recorded_and_say_so_when_called(
    log: Path, journal: Path, tmp_path: Path
) -> None:
    word = f"mcp:{command(log, 'changed', script=ODD)}"
    replies = [act("keep"), act("go"), act("turn", x=1), done("ok")]
    made = agent(tmp_path, journal, *replies, tools=[word])
    run = made.run("Go.")
    assert seen(run) == ["keep: {}", "go: {}", 'turn: {"x": 1}']
    stage(log, "2")
    forked = recorded(journal, run.id).fork(run.id, 1)
    texts = seen(forked)
    assert texts[0] == "keep: {}"
    assert "no longer has a tool go" in texts[1]
    assert "y is missing" in texts[2] and "has changed its description of this tool since the run began" in texts[2]


def test_the_same_agent_goes_on_with_what_its_run_was_shown(log: Path, journal: Path, tmp_path: Path) -> None:
    word = f"mcp:{command(log, 'changed', script=ODD)}"
    replies = [act("keep"), act("go"), done("ok")]
    first = agent(tmp_path, journal, *replies, tools=[word], approve=lambda call: call.tool == "go")
    run = first.run("Go.")
    assert run.status == "waiting"
    stage(log, "2")
    connection.close()
    connection._connections.clear()
    second = agent(tmp_path, journal, *replies, tools=[word], approve=lambda call: call.tool == "go")
    assert "more" in {spec.name for spec in second.specs}
    again = second.resume(run, "yes")
    assert again.status == "answered" and "no longer has a tool go" in seen(again)[-1]


def test_a_call_that_began_when_the_process_ended_is_in_doubt(log: Path, journal: Path, tmp_path: Path) -> None:
    """What began and has no end on record: a read-only tool of a server is called again, another is not."""
    import time

    program = (
        "import sys, plait\n"
        "plait.Agent('react', model=sys.argv[1], tools=[sys.argv[2]], journal=sys.argv[3]).run('Go.')\n"
    )
    for tool, trouble in (("stay", "in_doubt"), ("look", "")):
        kind = tmp_path / tool
        replies = script(tmp_path, act(tool, seconds=60), done("ok"), name=f"{tool}.json")
        word = trusted(command(kind, script=ODD.parent / "mcp_stay.py"))
        process = start_forked(["-c", program, replies, word, journal], stdin=0, stdout=1, stderr=2)
        end = time.monotonic() + patience(60)
        while not any("called" in line for line in lines(kind)) and time.monotonic() < end:
            time.sleep(0.05)
        process.kill()
        process.wait()
        kind.with_suffix(".quick").write_text("")
        run = Journal.at(journal).run("last").head.run
        again = recorded(journal, run).resume(run)
        observed = [row.record.value for row in again.rows() if is_result(row.record)]
        assert [each.trouble for each in observed] == [trouble]
        assert len([line for line in lines(kind) if "called" in line]) == (1 if trouble else 2)


# -- words


def test_a_word_on_the_record_has_the_folder_and_no_values_that_may_be_secret(tmp_path: Path) -> None:
    here = os.getcwd()
    assert anchor_word("mcp:npx -y server") == f'mcp:{{"command": ["npx", "-y", "server"], "cwd": "{here}"}}'
    assert anchor_word("mcp:https://example.com/mcp") == "mcp:https://example.com/mcp"
    kept = anchor_word("x=mcp:A=$A B=secret npx server")
    assert '"env": {"A": "$A", "B": null}' in kept and "secret" not in kept and kept.startswith("x=mcp:{")
    assert anchor_word(kept) == kept
    server = parse_server("https://example.com/mcp", headers={"Authorization": "Bearer $T", "X": "y"}, only=("a",))
    assert parse_word(server.word).headers == {"Authorization": "Bearer $T", "X": None}
    assert parse_word(server.word).only == ("a",)
    assert '"env": {"A": null}' in anchor_word("mcp:A=$$secret npx server"), "$$ is a dollar and names no variable"


def test_a_value_that_was_left_off_the_record_is_asked_for(log: Path, journal: Path, tmp_path: Path) -> None:
    tools = plait.mcp(command(log), env={"MODE": "quick"})
    run = agent(tmp_path, journal, act("price", item="pear"), done("3"), tools=tools).run("How much?")
    forked = recorded(journal, run.id).fork(run.id, 1)
    assert "The journal does not store the value of MODE" in seen(forked)[0]


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("mcp:", "The MCP server is missing"),
        ("mcp:npx 'server", "cannot read the command"),
        ('mcp:{"comand": "x"}', "Possible keys: command"),
        ("mcp:{", "cannot read"),
        ("mcp:https://user:pass@example.com/mcp", "a password in its address"),
        ("mcp:https:///mcp", "has no host"),
        ("mcp:ws://127.0.0.1:9/mcp", "would need ws, which Plait does not support. Write mcp:http"),
        ('mcp:{"url": "ftp://127.0.0.1/mcp"}', "would need ftp"),
        ('mcp:{"command": "x", "headers": {"a": "b"}}', "takes no url or headers"),
        ('mcp:{"url": "http://x", "timeout": -1}', "timeout=-1"),
    ],
)
def test_a_word_that_cant_be_says_what_is_wrong(word: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parse_word(word)


def test_a_limit_is_kept_while_a_server_takes_long(log: Path, journal: Path, tmp_path: Path) -> None:
    tools = plait.mcp(command(log), only=["slow"])
    limits = Limits(seconds=2)
    run = Agent(
        "react", model=Scripted([act("slow", seconds=60), done()]), tools=tools, journal=False, limits=limits
    ).run("?")
    assert run.status == "stopped"
