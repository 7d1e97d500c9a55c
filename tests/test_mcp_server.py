"""A client of the official package calls agents over MCP: real HTTP on loopback, and a real process over stdio."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

import plait
from fork_server import start_forked
from lazily import Lazy
from mcp_support import until
from mcp_talker import act, agent, done
from plait.config import ServeTable
from plait.core.errors import BadRequest, JournalError
from plait.journal.store import Journal
from plait.server.agents import serve_agent
from plait.server.mcp_http import McpEndpoint
from plait.server.runs import RunManager
from window_server import ALICE, BOB, FULL, ONE, TWO, USERS, script, serving

mcp, mcp_types = Lazy("mcp"), Lazy("mcp_types")
http_client, stdio = Lazy("mcp.client.streamable_http"), Lazy("mcp.client.stdio")
MODES = pytest.mark.parametrize("mode", ["legacy", "auto"])
"""The protocol with a handshake (2025), and the one without (2026)."""


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


@asynccontextmanager
async def client(url: str, token: str = "", **more: Any) -> AsyncIterator[Any]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    http = httpx2.AsyncClient(headers=headers, timeout=60)
    async with http, mcp.Client(http_client.streamable_http_client(f"{url}/mcp", http_client=http), **more) as one:
        yield one


def text(result: Any) -> str:
    return str(result.content[0].text)


# -- answers


@MODES
async def test_an_agent_is_a_tool_that_answers_with_text_and_structure(mode: str, journal: Path) -> None:
    two = agent(journal, act("population", town="Lyon"), done("522250"))
    with serving(two) as here:
        async with client(here.url, mode=mode) as one:
            (tool,) = (await one.list_tools()).tools
            assert tool.name == "plait" and "population" in str(tool.description)
            assert tool.annotations is not None and tool.annotations.read_only_hint is False
            said: list[str] = []

            async def heard(progress: float, total: float | None, message: str | None) -> None:
                said.append(message or "")

            result = await one.call_tool("plait", {"question": "Lyon?"}, progress_callback=heard)
        row = Journal.at(journal).run("last")
        assert not result.is_error and text(result) == "522250"
        assert result.structured_content is not None
        assert result.structured_content["run"] == row.head.run
        assert (result.structured_content["status"], result.structured_content["answer"]) == ("answered", "522250")
        assert result.structured_content["steps"] == 2 and "cost_usd" in result.structured_content
        assert any("population is called" in each for each in said), said


async def test_conversations_go_by_their_session(journal: Path) -> None:
    with serving(agent(journal, done("one"))) as here:
        async with client(here.url) as one:
            first = await one.call_tool("plait", {"question": "First?", "session": "s"})
            second = await one.call_tool("plait", {"question": "Second?", "session": "s"})
        assert (text(first), text(second)) == ("one", "one")
        assert second.structured_content["session"] == "s"
        assert [turn.question for turn in Journal.at(journal).turns("s")] == ["First?", "Second?"]


async def test_a_run_without_an_answer_is_an_error_with_its_id(journal: Path) -> None:
    lost = agent(journal, act("population", town="Lyon"))  # its model has no more to say
    with serving(lost) as here:
        async with client(here.url) as one:
            result = await one.call_tool("plait", {"question": "Lyon?"})
        run = Journal.at(journal).run("last").head.run
        assert result.is_error and run in text(result)
        assert result.structured_content["run"] == run


async def test_an_answer_that_came_early_says_so(journal: Path) -> None:
    script = [act("population", town="Lyon"), act("population", town="Nice"), done("Many.")]
    short = agent(journal, *script, limits=plait.Limits(steps=2))
    with serving(short) as here:
        async with client(here.url) as one:
            result = await one.call_tool("plait", {"question": "Lyon?"})
        assert not result.is_error and text(result).startswith("Many.\n\n(Stopped early:")
        assert result.structured_content["status"] == "stopped"


async def test_what_is_asked_wrongly_is_told(journal: Path) -> None:
    with serving(agent(journal, done())) as here:
        async with client(here.url) as one:
            await one.call_tool("plait", {"question": "?"})
            assert "'question' is missing" in text(await one.call_tool("plait", {}))
            assert "no argument 'questoin'" in text(await one.call_tool("plait", {"questoin": "?"}))
            assert "no run 'nope'" in text(await one.call_tool("plait", {"question": "yes", "run": "nope"}))
            with pytest.raises(mcp.MCPError, match="There is no agent 'other'"):
                await one.call_tool("other", {"question": "?"})


async def test_more_runs_than_there_is_room_for_are_told_to_come_again(journal: Path) -> None:
    with serving(agent(journal, act("wait", seconds=60), done()), concurrent=1, queued=0) as here:
        async with client(here.url) as one:
            first = asyncio.create_task(one.call_tool("plait", {"question": "?"}))
            await asyncio.to_thread(until, lambda: here.manager.active)
            second = await one.call_tool("plait", {"question": "?"})
            assert second.is_error and "Ask again in a while" in text(second)
            first.cancel()


# -- cancelling


@MODES
async def test_a_cancelled_call_cancels_its_run(mode: str, journal: Path) -> None:
    with serving(agent(journal, act("wait", seconds=60), done())) as here:
        async with client(here.url, mode=mode) as one:
            call = asyncio.create_task(one.call_tool("plait", {"question": "?"}))
            await asyncio.to_thread(until, lambda: here.manager.active)
            call.cancel()
            await asyncio.to_thread(until, lambda: not here.manager.active)
        row = Journal.at(journal).run("last")
        assert row.status == "cancelled" and (row.outcome or {})["reason"] == "the client cancelled the call"


# -- runs that wait


async def test_a_run_that_waits_says_what_it_asks_and_how_to_answer(journal: Path) -> None:
    asks = agent(journal, act("send", text="hi"), done("ok"), approve="effects")
    with serving(asks) as here:
        async with client(here.url) as one:
            first = await one.call_tool("plait", {"question": "Send hi."})
            waits = first.structured_content
            assert waits["status"] == "waiting" and waits["answer"] is None and not first.is_error
            assert "send" in waits["asks"] and f'run="{waits["run"]}"' in text(first)
            to = {"run": waits["run"], "reply_to": waits["reply_to"]}
            second = await one.call_tool("plait", {"question": "yes", **to})
        assert text(second) == "ok" and second.structured_content["run"] == waits["run"]


async def test_in_a_session_the_next_message_is_the_answer(journal: Path) -> None:
    asks = agent(journal, act("send", text="hi"), done("ok"), approve="effects")
    with serving(asks) as here:
        async with client(here.url) as one:
            first = await one.call_tool("plait", {"question": "Send hi.", "session": "s"})
            to = first.structured_content["reply_to"]
            second = await one.call_tool("plait", {"question": "yes", "session": "s", "reply_to": to})
        assert first.structured_content["run"] == second.structured_content["run"] and text(second) == "ok"


@MODES
async def test_a_client_that_can_ask_its_person_is_asked(mode: str, journal: Path) -> None:
    asked: list[str] = []

    async def person(context: Any, params: Any) -> Any:
        asked.append(params.message)
        return mcp_types.ElicitResult(action="accept", content={"answer": "yes"})

    asks = agent(journal, act("send", text="hi"), act("send", text="ho"), done("ok"), approve="effects")
    with serving(asks) as here:
        async with client(here.url, mode=mode, elicitation_callback=person) as one:
            result = await one.call_tool("plait", {"question": "Send hi and ho."})
        assert text(result) == "ok" and len(asked) == 2 and "ho" in asked[1]


BAD, GOOD = 'edit {"txt": "ho"}', 'edit {"text": "ho"}'


@MODES
async def test_a_person_whose_edit_does_not_fit_is_told_and_asked_again(mode: str, journal: Path) -> None:
    asked: list[str] = []

    async def person(context: Any, params: Any) -> Any:
        asked.append(params.message)
        return mcp_types.ElicitResult(action="accept", content={"answer": GOOD if len(asked) > 1 else BAD})

    asks = agent(journal, act("send", text="hi"), done("ok"), approve="effects")
    with serving(asks) as here:
        async with client(here.url, mode=mode, elicitation_callback=person) as one:
            result = await one.call_tool("plait", {"question": "Send hi."})
        assert text(result) == "ok" and len(asked) == 2
        assert "no parameter 'txt'" in asked[1] and "Approve this call?" in asked[1]


@pytest.mark.parametrize("named", ["run", "session"])
async def test_an_edit_that_does_not_fit_is_an_error_that_says_what_the_run_waits_for(
    named: str, journal: Path
) -> None:
    asks = agent(journal, act("send", text="hi"), done("ok"), approve="effects")
    with serving(asks) as here:
        async with client(here.url) as one:
            first = await one.call_tool("plait", {"question": "Send hi.", "session": "s"})
            run = first.structured_content["run"]
            to = {"run": {"run": run}, "session": {"session": "s"}}[named]
            to["reply_to"] = first.structured_content["reply_to"]
            bad = await one.call_tool("plait", {"question": BAD, **to})
            assert bad.is_error and "no parameter 'txt'" in text(bad) and f'run="{run}"' in text(bad)
            assert bad.structured_content["status"] == "waiting" and bad.structured_content["run"] == run
            assert text(await one.call_tool("plait", {"question": GOOD, **to})) == "ok"


@MODES
async def test_a_client_that_edits_badly_for_ever_is_not_asked_for_ever(mode: str, journal: Path) -> None:
    asked: list[str] = []

    async def person(context: Any, params: Any) -> Any:
        asked.append(params.message)
        return mcp_types.ElicitResult(action="accept" if len(asked) < 20 else "cancel", content={"answer": BAD})

    asks = agent(journal, act("send", text="hi"), done("ok"), approve="effects")
    with serving(asks) as here:
        async with client(here.url, mode=mode, elicitation_callback=person) as one:
            try:
                result = await one.call_tool("plait", {"question": "Send hi."})
            except Exception as why:  # the newer protocol's client gives up by itself
                assert "input" in str(why).lower(), why
            else:
                assert result.structured_content["status"] == "waiting"
        assert len(asked) < 20 and Journal.at(journal).run("last").status == "waiting"


@MODES
async def test_a_person_who_gives_no_answer_leaves_the_run_waiting(mode: str, journal: Path) -> None:
    async def person(context: Any, params: Any) -> Any:
        return mcp_types.ElicitResult(action="cancel")

    asks = agent(journal, act("send", text="hi"), done("ok"), approve="effects")
    with serving(asks) as here:
        async with client(here.url, mode=mode, elicitation_callback=person) as one:
            result = await one.call_tool("plait", {"question": "Send hi."})
        assert result.structured_content["status"] == "waiting"
        assert Journal.at(journal).run("last").status == "waiting"


# -- who may


async def test_without_a_token_or_with_a_wrong_one_nothing_is_listed(journal: Path) -> None:
    with serving(agent(journal, done()), tokens=(FULL,), clients=(ONE,)) as here:
        for token in ("", "wrong-token-wrong-token"):
            with pytest.raises(BaseException):  # noqa: B017 - the client raises it as a group
                async with client(here.url, token):
                    pass
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        assert here.ask("POST", "/mcp", call)[0] == 401
        async with client(here.url, ONE) as one:
            assert len((await one.list_tools()).tools) == 1


async def test_a_run_and_a_session_belong_to_their_token(journal: Path) -> None:
    asks = agent(journal, act("send", text="hi"), done("ok"), approve="effects")
    with serving(asks, tokens=(FULL,), clients=(ONE, TWO), users=USERS) as here:
        for mine, theirs in ((ONE, TWO), (ALICE, BOB)):
            async with client(here.url, mine) as one, client(here.url, theirs) as two:
                asked = (await one.call_tool("plait", {"question": "Send.", "session": "s"})).structured_content
                run = asked["run"]
                other = await two.call_tool("plait", {"question": "yes", "run": run})
                assert other.is_error and f"no run '{run}'" in text(other)
                if mine == ALICE:
                    own = {"question": "yes", "run": run, "reply_to": asked["reply_to"]}
                    assert "the role 'approve'" in text(await one.call_tool("plait", own))
            assert Journal.at(journal).run(run).status == "waiting"


def test_a_session_of_the_transport_belongs_to_its_token(journal: Path) -> None:
    hello = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}},
    }
    takes = {"accept": "application/json, text/event-stream"}
    with serving(agent(journal, done()), tokens=(FULL,), clients=(ONE, TWO)) as here:
        status, headers, _ = here.ask("POST", "/mcp", hello, takes, token=ONE)
        assert status == 200
        session = {**takes, "mcp-session-id": headers["mcp-session-id"], "mcp-protocol-version": "2025-11-25"}
        call = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
        assert here.ask("POST", "/mcp", call, session, token=TWO)[0] == 404
        assert here.ask("POST", "/mcp", call, session, token=ONE)[0] == 200


def test_a_page_of_another_site_is_refused(journal: Path) -> None:
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    with serving(agent(journal, done())) as here:
        assert here.ask("POST", "/mcp", call, {"origin": "https://evil.example"})[0] == 403
        assert here.ask("POST", "/mcp", call, {"host": "evil.example"})[0] == 421
        assert here.ask("POST", "/mcp", b"{", {"content-type": "text/plain"})[0] == 415


# -- stdio


def command(folder: Path, *replies: str, **options: Any) -> Any:
    model = script(folder, *replies)
    args = ["-m", "plait", "mcp", "--model", model, "--tools", "calculator", "--journal", str(folder / "runs.db")]
    return stdio.StdioServerParameters(command=sys.executable, args=args, cwd=folder, env={"HOME": str(folder)})


@MODES
async def test_the_same_over_stdio(mode: str, tmp_path: Path) -> None:
    quiet = open(tmp_path / "stderr", "w")  # noqa: SIM115 - a process writes on it
    with quiet:
        transport = stdio.stdio_client(command(tmp_path, act("calculator", expression="6*7"), done("42")), errlog=quiet)
        async with mcp.Client(transport, mode=mode) as one:
            assert [tool.name for tool in (await one.list_tools()).tools] == ["plait"]
            assert text(await one.call_tool("plait", {"question": "Six times seven?"})) == "42"
    assert Journal.at(tmp_path / "runs.db").run("last").status == "answered"


LOUD = """
import plait
print("hello from an import")

@plait.tool(read_only=True)
def loud(word: str) -> str:
    "Prints."
    import os, sys
    print("printed by a tool")
    sys.stdout.write("and written\\n")
    os.write(1, b"and below\\n")
    os.system("echo by a child")
    return word
"""


def test_nothing_but_the_protocol_is_on_stdout(tmp_path: Path) -> None:
    (tmp_path / "loud.py").write_text(LOUD)
    given = command(tmp_path, act("loud", word="x"), done("ok"))
    args = [*given.args[:-4], "--tools", "loud.py", "--journal", str(tmp_path / "runs.db")]
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "x", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    call = {"name": "plait", "arguments": {"question": "?"}, "_meta": meta}
    process = subprocess.Popen(
        [given.command, *args], cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None
    with process:
        process.stdin.write(
            json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}).encode() + b"\n"
        )
        process.stdin.flush()
        answer = json.loads(process.stdout.readline())
        process.stdin.close()
        rest, errors = process.stdout.read(), process.stderr.read()
    assert answer["result"]["structuredContent"]["answer"] == "ok" and rest == b""
    for words in (b"printed by a tool", b"and written", b"and below", b"by a child"):
        assert words in errors
    assert process.returncode == 0


def begun(journal: Path) -> bool:
    try:
        return bool(Journal.at(journal).runs(1))
    except JournalError:  # the file is just being made
        return False


def test_sigterm_ends_it_and_leaves_the_run_resumable_and_an_ignored_ctrl_c_does_not(tmp_path: Path) -> None:
    (tmp_path / "plait.toml").write_text("[serve]\ngrace = 0.2\n")
    (tmp_path / "slow.py").write_text(
        "import plait, time\n@plait.tool(read_only=True)\ndef slow() -> str:\n    'Slow.'\n    time.sleep(60)\n"
    )
    given = command(tmp_path, act("slow"), done("ok"))
    args = [*given.args[:-4], "--config", "plait.toml", "--tools", "slow.py", "--journal", str(tmp_path / "runs.db")]
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    process = subprocess.Popen(
        [given.command, *args],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),  # as a script starts what is in its background
    )
    assert process.stdin is not None and process.stdout is not None
    with process:
        for message in (
            {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello},
            {"jsonrpc": "2.0", "method": "notifications/initialized"},
            {
                "jsonrpc": "2.0",
                "id": 2,
                "method": "tools/call",
                "params": {"name": "plait", "arguments": {"question": "?"}},
            },
        ):
            process.stdin.write(json.dumps(message).encode() + b"\n")
            process.stdin.flush()
        journal = tmp_path / "runs.db"
        until(lambda: begun(journal))
        os.kill(process.pid, signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1)
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(60) == 0
        process.stdout.read()
    assert Journal.at(tmp_path / "runs.db").run("last").status in ("cancelled", "interrupted")


async def test_half_a_character_in_an_error_is_told_all_the_same(journal: Path) -> None:
    with serving(agent(journal, BadRequest("no \ud800"))) as here:
        async with client(here.url) as one:
            result = await one.call_tool("plait", {"question": "?"})
        assert result.is_error and "no ?" in text(result)


# -- the transport


async def test_requests_that_come_at_once_meet_one_transport(journal: Path) -> None:
    manager = RunManager([serve_agent("plait", agent(journal, done()), ServeTable())])
    endpoint = McpEndpoint(manager)
    managers = await asyncio.gather(*(endpoint._start() for _ in range(5)))
    assert len({id(each) for each in managers}) == 1
    await manager.stop(0)
    assert endpoint._holder is not None
    await endpoint._holder


async def test_a_transport_that_cant_be_begun_is_told_and_not_waited_for(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(manager: RunManager) -> Any:
        raise OSError("no room")

    monkeypatch.setattr("plait.server.mcp_server.make_server", broken)
    endpoint = McpEndpoint(RunManager([serve_agent("plait", agent(journal, done()), ServeTable())]))
    async with asyncio.timeout(30):
        with pytest.raises(OSError, match="no room"):
            await endpoint._start()


@pytest.mark.parametrize(
    ("table", "flags", "said", "code"),
    [
        ("[serve]\nconcurrent = 0", (), "Give a whole number above 0", 2),
        ("", ("--tools", "nothing-of-that-name"), "nothing-of-that-name", 2),
        ("", ("--tools", "reads.py"), "it read ''", 2),
        ("", ("--journal", "reads.py"), "reads.py is not a journal", 1),
    ],
)
def test_what_is_wrong_is_said_though_the_client_waits(
    tmp_path: Path, table: str, flags: tuple[str, ...], said: str, code: int
) -> None:
    (tmp_path / "plait.toml").write_text(table)
    (tmp_path / "none.json").write_text('["Final Answer: 1"]')
    (tmp_path / "reads.py").write_text("import sys\nprint('loud')\nraise ValueError(f'it read {sys.stdin.read()!r}')\n")
    words = ["-m", "plait", "mcp", "--model", "scripted:none.json", *flags]
    env = {**os.environ, "PLAIT_CONFIG": "plait.toml"}
    given, held = os.pipe()
    with (tmp_path / "out").open("wb") as out, (tmp_path / "err").open("wb") as err:
        process = start_forked(words, cwd=tmp_path, env=env, stdin=given, stdout=out.fileno(), stderr=err.fileno())
    os.close(given)
    try:
        assert process.wait(60) == code  # stdin stays open all the while
    finally:
        os.close(held)
    assert said in (tmp_path / "err").read_text() and (tmp_path / "out").read_bytes() == b""
