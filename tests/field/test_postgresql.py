"""PostgreSQL as people met it. README.md names the thread of each test."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest
from endpoint_runs import FINAL, WARM, run_agent

import plait
from models_server import delta, event, whole_stream
from plait.core.errors import JournalError
from postgres_server import shared_server

DONE = event(b"[DONE]")
ANSWER = "Thought: k\nFinal Answer: 21"


@pytest.fixture
def address() -> str:
    return shared_server().new_journal()


def scripted(journal: str) -> plait.Agent:
    return plait.Agent("react", model=plait.Scripted([ANSWER] * 9), journal=journal)


def test_a_nul_in_a_result_a_question_or_a_file_is_stored(address: str, tmp_path: Path) -> None:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "notes.txt").write_text("Grüße aus Lyon", "utf-16")

    @plait.tool(read_only=True)
    def read_bytes() -> str:
        """Reads a file as it is."""
        return (folder / "notes.txt").read_bytes().decode("latin-1") + "\x00\x01\ud83d"

    call = {"index": 0, "id": "a", "function": {"name": "read_bytes", "arguments": "{}"}}
    replies = (delta(tool_calls=[call], finish="tool_calls") + DONE, WARM)
    made = run_agent([], [read_bytes], *replies, journal=address, question="What is in \x00 it?", session="s")
    assert (made.status, made.answer) == ("answered", "21 degrees.") and made.replays()
    read = 'Thought: x\nAction:\n```json\n{"action": "read_file", "action_input": {"path": "notes.txt"}}\n```'
    made = run_agent([], [f"files:{folder}"], whole_stream(read), FINAL, loop="react", journal=address, session="s")
    assert made.status == "answered" and "Grüße aus Lyon" in made.requests[1].raw.decode() and made.replays()


def test_connections_that_the_server_closed_are_replaced(address: str) -> None:
    agent = scripted(address)
    assert agent.run("one", session="s").answer == "21"
    ended = (
        "select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid() and usename is not null"
    )
    with psycopg.connect(shared_server().address, autocommit=True) as connection:
        assert connection.execute(ended).fetchall()
    assert agent.run("two", session="s").answer == "21"


def test_a_session_that_was_idle_too_long_is_opened_again(address: str) -> None:
    agent = scripted(f"{address}%20-cidle_session_timeout%3D100")
    assert agent.run("one").answer == "21"
    time.sleep(0.3)
    assert agent.run("two").answer == "21"


def test_a_user_who_may_not_create_tables_is_told_what_to_do() -> None:
    name = f"guest_{os.getpid()}"
    with psycopg.connect(shared_server().address, autocommit=True) as connection:
        connection.execute(f"create role {name} login")
    server = shared_server().address.replace("postgres@", f"{name}@")
    places = {server: "database postgres", f"{server}?options=-csearch_path%3Dpublic": "schema public"}
    for place, what in places.items():
        with pytest.raises(JournalError, match=f"permission denied for {what}") as raised:
            scripted(place).run("?")
        assert "GRANT CREATE" in raised.value.hint


@pytest.mark.skipif(shutil.which("pgbouncer") is None, reason="pgbouncer is not installed")
@pytest.mark.parametrize("mode", ["transaction", "session"])
def test_pgbouncer_is_refused_in_words(mode: str, tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for each in (tmp_path, *tmp_path.parents[:2]):
        each.chmod(0o755)
    (tmp_path / "users").write_text('"postgres" ""\n')
    (tmp_path / "ini").write_text(
        f"[databases]\npostgres = host=127.0.0.1 port={shared_server().port}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n"
        f"listen_port = {port}\nunix_socket_dir =\nauth_type = trust\nauth_file = {tmp_path / 'users'}\n"
        f"pool_mode = {mode}\nignore_startup_parameters = options,extra_float_digits\n"
    )
    as_user = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
    pooler = subprocess.Popen(["pgbouncer", "-q", tmp_path / "ini"], stderr=subprocess.DEVNULL, **as_user)  # type: ignore[call-overload]
    try:
        while pooler.poll() is None:
            with socket.socket() as one:
                if one.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.02)
        with pytest.raises(JournalError, match="leads to a connection pooler") as raised:
            scripted(f"postgresql://postgres@127.0.0.1:{port}/postgres?sslmode=disable").run("?")
        assert "Give the server's own address" in raised.value.hint
    finally:
        pooler.terminate()
        pooler.wait(10)


def test_words_in_other_scripts_are_found_in_both_stores(address: str, journal: Path) -> None:
    from window_server import serving

    for place in (address, str(journal)):
        agent = scripted(place)
        agent.run("里昂的天气怎么样？")
        agent.run("How warm is it in Lyon?")
        with serving(agent) as server:
            _, _, listed = server.ask("GET", f"/api/runs?words={quote('天气')}")
        assert [row["question"] for row in listed["runs"]] == ["里昂的天气怎么样？"]
