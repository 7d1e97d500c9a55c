"""`plait serve` as a process: what it says, how it stops, and what is left when it is killed."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from cli_support import trusting
from fork_server import run_forked
from patience import patience
from plait.journal.store import Journal, NoJournal
from window_server import FULL, ONE, Process, ask, asked, script

CHAT = "/v1/chat/completions"
ANSWER = "Thought: x\nFinal Answer: It is 42."


def wait_for(journal: Journal, wanted: dict[str, int]) -> None:
    """Until so many runs have each status."""
    end = time.monotonic() + patience(90)
    while True:
        try:
            runs = journal.runs(1000)
        except NoJournal:
            runs = []
        found = {status: sum(run.status == status for run in runs) for status in wanted}
        if found == wanted:
            return
        assert time.monotonic() < end, found
        time.sleep(0.05)


def in_background(port: int, text: str, got: list[Any], **more: Any) -> threading.Thread:
    """A request that may take long; what comes of it is put into `got`."""

    def request() -> None:
        try:
            got.append(ask(port, "POST", CHAT, asked(text, **more)))
        except (OSError, http.client.HTTPException) as why:
            got.append(why)

    thread = threading.Thread(target=request, daemon=True)
    thread.start()
    return thread


def test_one_agent_from_the_flags_of_run(tmp_path: Path) -> None:
    model = script(tmp_path, ANSWER)
    with Process("--model", model, "--loop", "react", "--name", "oracle", "--thoughts", cwd=tmp_path) as server:
        status, _, body = ask(server.port, "POST", CHAT, {**asked("?"), "model": "oracle"})
        assert status == 200
        message = body["choices"][0]["message"]
        assert (message["content"], message["reasoning_content"].rstrip()) == ("It is 42.", "x")
        assert ask(server.port, "GET", "/health/ready")[2] == {"status": "ok"}
        assert server.stop() == 0
    words = "".join(server.words)
    assert "oracle" in words and "only this machine" in words and "Traceback" not in words


def test_the_agents_of_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "plait.toml").write_text(
        f"""
[run]
model = "{script(tmp_path, ANSWER)}"

[serve]
concurrent = 3

[agents.oracle]
loop = "react"
description = "Knows."

[agents.plain]
model = "{script(tmp_path, "Thought: y" + chr(92) + "nFinal Answer: Plain.", name="other.json")}"
thoughts = true
tools = ["calculator"]
"""
    )
    with Process(cwd=tmp_path, env={"PLAIT_LOOP": "json"}) as server:
        models = ask(server.port, "GET", "/v1/models")[2]["data"]
        assert [model["id"] for model in models] == ["oracle", "plain"]
        assert models[0]["description"] == "Knows." and "calculator" in models[1]["description"]
        body = ask(server.port, "POST", CHAT, {**asked("?"), "model": "oracle"})[2]
        assert body["choices"][0]["message"] == {"role": "assistant", "content": "It is 42."}
    for flags, said in ((["--max-steps", "5"], "describes another"), (["--name", "no good"], "can't be an agent")):
        done = run_forked(["-m", "plait", "serve", *flags], cwd=tmp_path, env={**os.environ, **trusting(tmp_path)})
        assert (done.returncode, said in done.stderr) == (2, True), done.stderr


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("[serve]\nport = 99999", "plait.toml, table [serve]: port is 99999"),
        ("[serve]\nport = 'abc'", "table [serve]: port is 'abc', and must be a whole number."),
        ("[serve]\nconcurent = 5", "Did you mean concurrent?"),
        ("[serve]\nconcurrent = 0", "plait.toml, table [serve]: concurrent is 0. Give a whole number above 0"),
        ('[serve]\nhost = "0.0.0.0"', "PLAIT_SERVE_TOKEN"),
        ("[agents.a]\nlooop = 'json'", "Did you mean loop?"),
        ("[agents.a]\njournal = 'x.db'", "share the server's journal"),
        ("[agents.a]\nloop = 'jsn'", "Did you mean json"),
        ("[agents.a]\nloop = 'jsn'", "plait.toml, table [agents.a]: loop: "),
        ("[agents.a]\nset = {max_parse_errors = 2, max_parse_eror = 5}", "plait.toml, table [agents.a]: set: "),
        (
            "[agents.a]\napprove = 'maybe'",
            "plait.toml, table [agents.a]: approve: Agent(approve='maybe') is invalid",
        ),
        ("[agents.a]\nmodel = 'opnai:x'", "plait.toml, table [agents.a]: model: 'opnai:x'"),
        ("[agents.a]\nmodels = {act = 'opnai:x'}", "plait.toml, table [agents.a]: models: 'opnai:x'"),
        ("[agents.a]\nmodels = {atc = 'local'}", "plait.toml, table [agents.a]: models: "),
        ("[agents.a]\ntools = ['nothing-there']", "plait.toml, table [agents.a]: tools: "),
        (
            "[agents.a]\nmax_steps = -1",
            "plait.toml, table [agents.a]: max_steps is -1. Give a whole number above 0",
        ),
        ("[agents.a]\nmax_cost = 'much'", "table [agents.a]: max_cost is 'much', and must be a number."),
        ("[agents.a]\ntools = ['calculator', 5]", "table [agents.a]: tools.1 is 5, and must be text."),
        ("[agents.a]\nmodels = {act = 5}", "table [agents.a]: models.act is 5, and must be text."),
        ("[agents.a]\nthoughts = 1", "table [agents.a]: thoughts is 1, and must be true or false."),
        (
            "[run]\nmax_steps = 0\n[agents.a]",
            "plait.toml, table [run]: max_steps is 0. Give a whole number above 0",
        ),
        ("[run]\ntools = ['nothing-there']\n[agents.a]", "plait.toml, table [run]: tools, for agents.a: "),
        ("[agents]\na = 5", "an agent is a table"),
    ],
)
def test_what_the_configuration_has_wrong_is_said_before_anything_is_bound(
    tmp_path: Path, table: str, said: str
) -> None:
    (tmp_path / "plait.toml").write_text(table)
    done = run_forked(["-m", "plait", "serve", "--config", "plait.toml"], cwd=tmp_path)
    assert done.returncode == 2 and said in done.stderr and "Traceback" not in done.stderr, done.stderr
    assert "$" not in done.stderr and "`int" not in done.stderr


def test_a_file_of_another_name_is_named_as_it_is(tmp_path: Path) -> None:
    where = '[endpoints.mine]\nbase_url = "http://127.0.0.1:9/v1"\nheaders = {X-Team = "$NO_TEAM"}\n'
    (tmp_path / "other.toml").write_text(where + '[agents.a]\nmodel = "mine:x"\n')
    words = ["-m", "plait", "serve", "--config", "other.toml"]
    done = run_forked(words, cwd=tmp_path)
    assert done.returncode == 2 and "plait.toml" not in done.stderr, done.stderr
    assert "other.toml, table [agents.a]: model: other.toml: endpoints.mine.headers.X-Team needs NO_TEAM" in done.stderr


@pytest.mark.parametrize("port", ["abc", "99999", "-1", "1.5"])
def test_a_port_that_is_none_is_said_in_plain_words(tmp_path: Path, port: str) -> None:
    words = ["-m", "plait", "serve", f"--port={port}"]
    done = run_forked(words, cwd=tmp_path)
    said = f"{port} is not a whole number from 0 to 65535." if port[-1] in "91" else f"'{port}' is not a whole number."
    assert done.returncode == 2 and said in done.stderr and "range" not in done.stderr, done.stderr


def test_a_journal_that_is_none_is_said_before_anybody_is_served(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no journal, but somebody's notes")
    words = ("--journal", "notes.txt", "--port", "0", "--model", script(tmp_path, ANSWER))
    done = run_forked(["-m", "plait", "serve", *words], cwd=tmp_path)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "notes.txt is not a journal" in done.stderr and "Listening" not in done.stderr


def test_a_flag_beside_the_agents_of_the_configuration_is_named_as_it_is_typed(tmp_path: Path) -> None:
    (tmp_path / "plait.toml").write_text("[agents.a]")
    for command, flag in (
        ("serve", ("--model", "local")),
        ("mcp", ("--set", "max_parse_errors=1")),
        ("serve", ("--thoughts",)),
    ):
        words = ["-m", "plait", command, *flag]
        done = run_forked(words, cwd=tmp_path)
        assert done.returncode == 2 and f"defines agents, and {flag[0]} describes another" in done.stderr


def test_who_cannot_open_the_window_is_said_at_the_start(tmp_path: Path) -> None:
    words = ("--model", script(tmp_path, ANSWER))
    for env, said in (
        ({"PLAIT_SERVE_CLIENT_TOKENS": ONE}, True),
        ({"PLAIT_SERVE_CLIENT_TOKENS": ONE, "PLAIT_SERVE_TOKEN": FULL}, False),
    ):
        with Process(*words, cwd=tmp_path, env=env) as server:
            server.stop()
        assert ("nobody can open the web page" in "".join(server.words)) == said


def test_a_port_that_is_taken_is_said(tmp_path: Path) -> None:
    with Process("--model", script(tmp_path, ANSWER), cwd=tmp_path) as server:
        done = run_forked(["-m", "plait", "serve", "--port", str(server.port)], cwd=tmp_path)
    assert done.returncode == 2 and f"port {server.port}: Address already in use. Choose" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_run_that_ends_in_time_is_answered_though_the_server_stops(tmp_path: Path, number: int) -> None:
    journal = Journal(tmp_path / "journal.db")
    got: list[Any] = []
    with Process("--model", script(tmp_path, ANSWER, delay=2), cwd=tmp_path) as server:
        request = in_background(server.port, "?", got)
        wait_for(journal, {"running": 1})
        assert server.stop(number) == 0
        request.join(60)
    status, _, body = got[0]
    assert status == 200 and body["choices"][0]["message"]["content"] == "It is 42."
    assert [run.status for run in journal.runs()] == ["answered"]


def test_what_does_not_end_in_time_is_cancelled_told_and_gone_on_with(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.db")
    (tmp_path / "plait.toml").write_text("[serve]\ngrace = 0.5")
    slow = script(tmp_path, ANSWER, delay=300)
    whole: list[Any] = []
    stream: list[Any] = []
    with Process("--model", slow, cwd=tmp_path) as server:
        requests = [in_background(server.port, "One?", whole), in_background(server.port, "Two?", stream, stream=True)]
        wait_for(journal, {"running": 2})
        assert server.stop() == 0
        for request in requests:
            request.join(60)
    status, headers, body = whole[0]
    assert (status, body["error"]["code"], headers["x-should-retry"]) == (503, "run_cancelled", "false")
    assert "the server stopped" in body["error"]["message"]
    last = json.loads(stream[0][2].strip().rpartition("data: ")[2])
    assert last["error"]["code"] == "run_cancelled" and "[DONE]" not in stream[0][2]
    wait_for(journal, {"cancelled": 2})
    script(tmp_path, ANSWER)  # the same file: the same model, quick now
    with Process("--model", slow, cwd=tmp_path) as server:
        assert "2 runs of an earlier server did not end. `plait resume" in "".join(server.words) + _more(server)
        server.stop()
    with Process("--model", slow, "--resume", cwd=tmp_path) as server:
        wait_for(journal, {"answered": 2, "cancelled": 0})
        server.stop()


def test_what_cannot_be_gone_on_with_is_said_run_by_run_and_the_others_go_on(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.db")
    (tmp_path / "plait.toml").write_text("[serve]\ngrace = 0.5")
    (tmp_path / "gone.py").write_text('import plait\n\n\n@plait.tool\ndef f() -> int:\n    "F."\n    return 1\n')
    slow = script(tmp_path, ANSWER, delay=300)
    ids = []
    for more, runs in (((), 1), (("--tools", "gone.py"), 2)):
        with Process("--model", slow, *more, cwd=tmp_path) as server:
            request = in_background(server.port, "?", [])
            wait_for(journal, {"running": 1})
            ids.append(journal.run("last").head.run)
            server.stop()
            request.join(60)
        wait_for(journal, {"cancelled": runs})
    (tmp_path / "gone.py").unlink()
    script(tmp_path, ANSWER)
    with Process("--model", slow, "--resume", cwd=tmp_path) as server:
        wait_for(journal, {"answered": 1, "cancelled": 1})
        said = _more(server)
        server.stop()
    assert re.search(rf"Run {ids[1]} is not resumed: .*gone\.py", said) and "Traceback" not in said, said
    assert said.count("is not resumed") == 1 and journal.run(ids[0]).status == "answered"


def _more(server: Process) -> str:
    time.sleep(1)  # the lines after the one that is waited for
    return "".join(server.words)


def test_kill_leaves_every_accepted_run_finished_or_to_be_gone_on_with(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.db")
    model = script(tmp_path, ANSWER, delay=1.0, chunk=3)
    got: list[Any] = []
    with Process("--model", model, cwd=tmp_path) as server:
        requests = [in_background(server.port, f"Question {i}?", got, stream=bool(i % 2)) for i in range(30)]
        wait_for(journal, {"answered": 16, "running": 14})
        os.kill(server.process.pid, signal.SIGKILL)
        server.process.wait(60)
        for request in requests:
            request.join(60)
    assert len(got) == 30
    # Whatever a client was told of stands on record.
    accepted = {reply[1]["x-plait-run"] for reply in got if isinstance(reply, tuple)}
    on_record = {run.head.run: run.status for run in journal.runs(1000)}
    assert accepted <= on_record.keys() and len(on_record) == 30
    assert set(on_record.values()) == {"answered", "interrupted"}
    with Process("--model", model, "--resume", cwd=tmp_path) as server:
        wait_for(journal, {"answered": 30})
        server.stop()


def test_the_second_signal_does_not_wait(tmp_path: Path) -> None:
    (tmp_path / "plait.toml").write_text("[serve]\ngrace = 300")
    journal = Journal(tmp_path / "journal.db")
    got: list[Any] = []
    with Process("--model", script(tmp_path, ANSWER, delay=300), cwd=tmp_path) as server:
        request = in_background(server.port, "?", got)
        wait_for(journal, {"running": 1})
        server.process.send_signal(signal.SIGINT)
        time.sleep(0.5)
        assert server.process.poll() is None
        assert server.stop(signal.SIGINT) == 0
        request.join(60)
    assert [run.status for run in journal.runs()] == ["cancelled"]


def test_a_token_is_asked_for_and_a_client_that_leaves_makes_no_noise(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.db")
    env = {"PLAIT_SERVE_CLIENT_TOKENS": ONE}
    with Process("--model", script(tmp_path, ANSWER, delay=300), cwd=tmp_path, env=env) as server:
        assert ask(server.port, "POST", CHAT, asked("?"))[0] == 401
        for stream in (False, True):
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
            body = json.dumps(asked("?", stream=stream))
            headers = {"content-type": "application/json", "authorization": f"Bearer {ONE}"}
            connection.request("POST", CHAT, body, headers)
            wait_for(journal, {"running": 1})
            with contextlib.suppress(OSError):
                connection.close()
            wait_for(journal, {"running": 0, "cancelled": 1 + stream})
        server.stop()
    assert "Traceback" not in "".join(server.words) and "Exception" not in "".join(server.words)
    assert ONE not in "".join(server.words)
