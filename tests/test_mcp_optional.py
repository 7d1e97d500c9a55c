"""An optional MCP server that does not start: runs go on without it, their records say so, and later runs try again."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import plait
from fork_server import start_forked
from journal_rows import is_result
from mcp_http import RawServer
from mcp_support import ODD, command
from mcp_talker import act, done
from plait import Agent, ConfigError, Run, Scripted
from plait.core import events as ev
from plait.journal.store import Journal
from plait.tools.mcp import connection
from window_server import script


@pytest.fixture(autouse=True)
def ended() -> Iterator[None]:
    yield
    connection.close()


def optional(server: str, **options: Any) -> str:
    """The word of an optional server."""
    where = "url" if server.startswith("http") else "command"
    return "mcp:" + json.dumps({where: server, "optional": True, **options})


def notes(run: Run) -> list[str]:
    return [each.text for each in run.events if isinstance(each, ev.Noted) and each.kind == "absent"]


def observed(run: Run) -> list[Any]:
    return [row.record.value for row in run.rows() if is_result(row.record)]


def agent(journal: Path, *replies: str, tools: Any, **fields: Any) -> Agent:
    return Agent("react", model=Scripted(list(replies)), tools=tools, journal=journal, **fields)


def test_a_run_goes_on_without_it_and_says_why(tmp_path: Path) -> None:
    endless = shlex.join([sys.executable, str(ODD), str(tmp_path / "log"), "endless"])
    with RawServer(lambda message: (401, {}, "Who are you?")) as closed:
        cases = {
            optional("no-such-program"): "there is no program 'no-such-program'",
            optional("http://127.0.0.1:9/mcp"): "cannot be reached",
            optional(closed.url): "refuses the request (401",
            optional(endless): "its list does not end",
            optional(closed.url, headers={"X": "$NO_SUCH_KEY"}): "needs $NO_SUCH_KEY, which is not set",
            optional(f"{sys.executable} -c 'import sys; sys.exit(\"No licence\")'"): "No licence",
        }
        for word, why in cases.items():
            replies = act("calculator", expression="6*7"), done("42")
            run = agent(tmp_path / "runs.db", *replies, tools=[word, "calculator"]).run("How much is 6*7?")
            assert run.answer == observed(run)[0].text == "42", word
            (note,) = notes(run)
            assert note.startswith("An optional server has no tools now. ") and why in note, word
            assert "make it optional" not in note


def test_a_server_that_is_required_is_the_default_and_the_error_names_the_option(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no program 'no-such-program'.*If runs can go on without it, make it opt"):
        agent(tmp_path / "runs.db", done(), tools=["mcp:no-such-program"]).run("Go.")
    with pytest.raises(ConfigError, match=r"plain value\. Write \$NAME"):
        plait.mcp("http://127.0.0.1:9/mcp", headers={"X": "secret"}, optional=True)
    with pytest.raises(ConfigError, match="takes no url"):  # a wrong description is an error all the same
        agent(tmp_path / "runs.db", done(), tools=[optional("a", url="http://b")]).run("Go.")


def test_the_next_run_tries_again_and_a_recorded_one_keeps_its_tools(tmp_path: Path) -> None:
    server, journal = tmp_path / "server", tmp_path / "runs.db"
    tools = plait.mcp([str(server)], optional=True)
    replies = [act("price", item="pear"), done("3")]
    made = agent(journal, *replies, *replies, *replies, tools=[*tools, "ask-user"])
    first = made.run("How much?")
    assert len(notes(first)) == 1 and "There is no tool named 'price'" in observed(first)[0].text
    server.write_text(f"#!/bin/sh\nexec {command(tmp_path / 'log')}\n")
    server.chmod(0o755)
    second = made.run("How much?")
    assert not notes(second) and [each.result for each in second.calls_of("price")] == [3]
    assert made.replay(first.id).whole and made.replay(second.id).whole
    server.unlink()
    connection.close()
    connection._connections.clear()
    without = agent(journal, *replies, tools=[*tools, "ask-user"])
    assert without.replay(first.id).whole and without.replay(second.id).whole
    assert len(notes(without.run("How much?"))) == 1


def test_a_killed_run_resumes_with_the_tools_that_it_had(tmp_path: Path) -> None:
    server, journal = tmp_path / "server", tmp_path / "runs.db"
    word = optional(str(server))
    model = script(tmp_path, act("end"), act("price", item="pear"), done("ok"))
    program = (
        "import os, sys, plait\n"
        "@plait.tool(read_only=True)\ndef end() -> str:\n    'Ends.'\n    os.kill(os.getpid(), 9)\n"
        "plait.Agent('react', model=sys.argv[1], tools=[sys.argv[2], end], journal=sys.argv[3]).run('Go.')\n"
    )
    assert start_forked(["-c", program, model, word, journal], stdin=0, stdout=1, stderr=2).wait() != 0
    server.write_text(f"#!/bin/sh\nexec {command(tmp_path / 'log')}\n")
    server.chmod(0o755)

    @plait.tool(read_only=True)
    def end() -> str:
        "Ends."
        return "not this time"

    made = Agent("react", model=model, tools=[word, end], journal=journal)
    assert "price" in {spec.name for spec in made.specs}
    run = made.resume(Journal.at(journal).run("last").head.run)
    assert run.answer == "ok" and len(notes(run)) == 1
    assert "There is no tool named 'price'" in observed(run)[1].text
    assert made.replay(run.id).whole


def test_progress_gives_a_call_its_time_again(tmp_path: Path) -> None:
    word = "mcp:" + json.dumps({"command": command(tmp_path / "log"), "only": ["slow"], "timeout": 0.4})
    made = agent(tmp_path / "runs.db", act("slow", seconds=1), act("slow", seconds=60), done(), tools=[word])
    run = made.run("Wait.")
    first, second = observed(run)
    assert first.text == "done" and first.trouble == ""
    assert second.trouble == "in_doubt" and "despite its progress" in second.text
