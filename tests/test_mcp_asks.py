"""MCP servers that ask during a call: the user (elicitation), or a model (sampling). The run waits, and goes on."""

from __future__ import annotations

import json
import os
import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp.server.mcpserver import Context, MCPServer
from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitResult, InputRequiredResult

import plait
from conftest import for_each, some_of
from fork_server import start_forked
from journal_rows import is_result
from loop_scripts import LOOPS, QUESTION, SCRIPTS, SENT, reply_of
from mcp_http import RawServer, Reply, rpc
from mcp_support import HERE, _answers, command, free_port, lines, pids, until
from mcp_talker import act, done
from patience import patience
from plait import Agent, Scripted
from plait.journal.store import Journal
from plait.tools.mcp import connection, session
from plait.tools.mcp.elicitation import read_elicited, write_question
from postgres_server import shared_server
from window_server import script, serving

ASKS = HERE / "mcp_asks.py"


@pytest.fixture(autouse=True)
def ended() -> Iterator[None]:
    yield
    restart()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


def restart() -> None:
    """Forget what a new process would not know."""
    connection.close()
    connection._connections.clear()
    session._ASKERS.clear()


def word(log: Path, **options: Any) -> str:
    start = command(log, script=ASKS)

    return "mcp:" + json.dumps({"command": shlex.split(start), **options})


def agent(folder: Path, journal: Path, *replies: str, tools: Any, **fields: Any) -> Agent:
    return Agent("react", model=script(folder, *replies), tools=tools, journal=journal, **fields)


def answer(made: Agent, run: plait.Run, text: str) -> plait.Run:
    assert run.status == "waiting", run.outcome
    return made.resume(run.id, text, question=run.outcome.question)


def seen(run: plait.Run) -> list[str]:
    return [row.record.value.text for row in run.rows() if is_result(row.record) and row.record.work == "call"]


# -- the user


def test_a_call_that_asks_goes_on_in_the_same_process(log: Path, journal: Path, tmp_path: Path) -> None:
    made = agent(tmp_path, journal, act("book", city="Rome"), done("ok"), tools=[word(log)])
    run = made.run("Book.")
    assert "> How many nights in Rome?" in run.outcome.reason and "give no passwords" in run.outcome.reason
    run = answer(made, run, "none")
    assert "does not fit: answer.nights must be a whole number" in run.outcome.reason
    run = answer(made, run, "3")
    assert (run.status, seen(run)) == ("answered", ["booked 3 nights in Rome"])
    assert lines(log)[1:] == ["can elicitation", "called book", "asks elicitation/create", "booked 3"]
    restart()
    assert made.replay(run.id).whole and len(pids(log)) == 1


@pytest.mark.parametrize(("text", "call"), [("3", "booked 3 nights in Rome"), ("decline", "The user declined")])
def test_after_a_restart_the_call_is_made_from_the_start_with_the_answer(
    log: Path, journal: Path, tmp_path: Path, text: str, call: str
) -> None:
    made = agent(tmp_path, journal, act("book", city="Rome"), done("ok"), tools=[word(log)])
    run = made.run("Book.")
    restart()
    run = answer(made, run, text)
    assert run.status == "answered" and seen(run)[0].startswith(call)
    assert len([each for each in lines(log) if each.startswith("booked")]) == (text == "3")
    assert lines(log).count("called book") == (2 if text == "3" else 1), "a call that the user declines is not made"


def test_a_killed_process_leaves_the_question_and_a_used_answer_a_doubt(
    log: Path, journal: Path, tmp_path: Path
) -> None:
    """SIGKILL while the server waits: the answer goes to a new call. SIGKILL after the answer: the call is in doubt."""
    replies = script(tmp_path, act("book", city="Rome"), done("ok"))
    program = (
        "import sys, os, signal, plait\n"
        "def kill(waiting): os.kill(os.getpid(), signal.SIGKILL)\n"
        "def say(waiting): return '3'\n"
        "made = plait.Agent('react', model=sys.argv[1], tools=[sys.argv[2]], journal=sys.argv[3])\n"
        "made.run('Book.', on_wait=kill if sys.argv[4] == 'kill' else say)\n"
    )
    for how, trouble in (("kill", ""), ("say", "in_doubt")):
        kind = tmp_path / how
        if how == "say":
            kind.with_suffix(".stay").touch()
        process = start_forked(["-c", program, replies, word(kind), journal, how], stdin=0, stdout=1, stderr=2)
        if how == "say":
            end = time.monotonic() + patience(60)
            while "booked 3" not in lines(kind) and time.monotonic() < end:
                time.sleep(0.05)
            process.kill()
        process.wait()
        made = Agent("react", model=replies, tools=[word(kind)], journal=journal)
        run = Journal.at(journal).run("last").head.run
        again = made.resume(run)
        again = answer(made, again, "3") if how == "kill" else again
        assert again.status == "answered"
        assert [row.record.value.trouble for row in again.rows() if is_result(row.record)] == [trouble]
        assert lines(kind).count("booked 3") == 1, "an effect is not repeated"
        restart()
        assert made.replay(run).whole


@pytest.mark.parametrize(("loop", "store"), [("react", "postgres"), *((loop, "sqlite") for loop in some_of(LOOPS))])
def test_every_loop_waits_and_goes_on(loop: str, store: str, log: Path, tmp_path: Path) -> None:
    journal: Any = tmp_path / "runs.db" if store == "sqlite" else shared_server().new_journal()
    first = agent(tmp_path, journal, act("wipe"), done("ok"), tools=[word(log)], can_ask=False)
    assert first.run("Wipe.").status == "answered"  # from now on, Plait knows that this server asks
    model = Scripted({phase: [*map(reply_of, turns)] for phase, turns in SCRIPTS[loop].items()})
    limits = plait.Limits(tools=0 if loop == "codeact" else None)
    made = Agent(loop, model=model, tools=[word(log, only=["fetch", "send"])], journal=journal, limits=limits)
    run, rounds = made.run(QUESTION), 0
    while run.status == "waiting":
        if rounds % 2:
            restart()
        run, rounds = answer(made, run, "yes"), rounds + 1
    assert run.status == "answered", run.outcome
    sent = [each for each in lines(log) if each.startswith("sent")]
    assert sorted(sent) == sorted(f"sent {each}" for each in SENT), "each is sent once"
    restart()
    assert made.replay(run.id).whole


def test_questions_in_words_of_a_bank_are_quoted_and_addresses_are_not_opened(
    log: Path, journal: Path, tmp_path: Path
) -> None:
    replies = (act("phish"), act("visit"), act("bad"), done("ok"))
    made = agent(tmp_path, journal, *replies, tools=[word(log)])
    run = made.run("Go.")
    asked = run.outcome.reason.splitlines()
    assert all(line.startswith(("> ", "The MCP server /", "Answer with the value", "The server has")) for line in asked)
    assert "\x1b" not in run.outcome.reason and len(run.outcome.reason) < 3_000
    run = answer(made, run, "decline")
    assert "at the host pay.example:\n> https://pay.example/x" in run.outcome.reason
    run = answer(made, run, "yes")
    assert run.status == "answered"
    assert [json.loads(each) for each in seen(run)[:2]] == [{"action": "decline"}, {"action": "accept"}]
    assert "not a web address" in seen(run)[2]


def test_where_nobody_can_be_asked_the_server_hears_that(log: Path, journal: Path, tmp_path: Path) -> None:
    made = agent(tmp_path, journal, act("wipe"), done("ok"), tools=[word(log)], can_ask=False)
    run = made.run("Wipe.")
    assert (run.status, json.loads(seen(run)[0])) == ("answered", {"action": "cancel"})


@for_each(
    "text, schema, found",
    [
        ("yes", {"ok": {"type": "boolean"}}, {"ok": True}),
        ("Dark red", {"c": {"type": "string", "oneOf": [{"const": "r1", "title": "Dark red"}]}}, {"c": "r1"}),
        ("a, b", {"l": {"type": "array", "items": {"enum": ["a", "b"]}}}, {"l": ["a", "b"]}),
        ('{"x": 1, "y": "z"}', {"x": {"type": "number"}, "y": {"type": "string"}}, {"x": 1, "y": "z"}),
        ("1", {"x": {"type": "number"}, "y": {"type": "string"}}, None),
        ("green", {"c": {"enum": ["red"]}}, None),
        ("DECLINE", {"c": {"enum": ["red"]}}, "decline"),
    ],
)
def test_answers_are_read_by_the_servers_form(text: str, schema: Any, found: Any) -> None:
    params = {"message": "?", "requestedSchema": {"type": "object", "properties": schema}}
    assert write_question("s", params, True).startswith("The MCP server s asks you.")
    got = read_elicited(text, params)
    expected = {"action": found} if isinstance(found, str) else {"action": "accept", "content": found}
    assert isinstance(got, str) if found is None else got == expected


@for_each(
    "schema",
    [
        *(None, [], "x", {"properties": [1]}, {"properties": {"a": 3}, "required": 7}),
        *({"properties": {"a": {"enum": ["x"], "enumNames": names}}} for names in (5, {"x": 1}, [[1]])),
        {"properties": {"a": {"type": ["integer", "null"], "oneOf": 5, "default": {"b": 1}}}},
        {"properties": {"a": {"type": "array", "items": {"anyOf": [{"const": [1]}, {"const": {}}]}}}},
    ],
)
def test_an_odd_form_is_still_a_question(schema: Any) -> None:
    params = {"message": {"not": "a text"}, "requestedSchema": schema}
    assert "> (nothing)" in write_question("s", params, True)
    assert all(read_elicited(text, params) for text in ("decline", "x", "[1]", '{"a": [[1]]}'))
    with pytest.raises(ValueError, match="more than 40 fields"):
        write_question("s", {"requestedSchema": {"properties": {f"f{i}": {} for i in range(99)}}}, True)


def test_a_flood_of_questions_has_an_end(log: Path, journal: Path, tmp_path: Path) -> None:
    made = agent(tmp_path, journal, act("flood"), done("ok"), tools=[word(log)])
    assert seen(made.run("Go.", on_wait=lambda _: "x")) == ["30"]


def test_a_server_of_the_protocol_of_2026_asks_in_its_result(journal: Path, tmp_path: Path) -> None:
    server, made_calls = MCPServer("hotel"), []
    form = {"type": "object", "properties": {"nights": {"type": "integer"}}, "required": ["nights"]}

    @server.tool()
    async def book(city: str, ctx: Context[Any, Any]) -> str | InputRequiredResult:
        """Books."""
        made_calls.append((city, ctx.request_state))
        if ctx.input_responses is None:
            params = ElicitRequestFormParams(message=f"Nights in {city}?", requested_schema=form)
            return InputRequiredResult(input_requests={"n": ElicitRequest(params=params)}, request_state="42")
        answer = ctx.input_responses["n"]
        assert isinstance(answer, ElicitResult) and answer.content is not None
        return f"{answer.content['nights']} nights"

    made = agent(tmp_path, journal, act("book", city="Rome"), done("ok"), tools=plait.mcp(server))
    run = made.run("Book.")
    assert "from the start" not in run.outcome.reason
    restart()
    made = agent(tmp_path, journal, act("book", city="Rome"), done("ok"), tools=plait.mcp(server))
    run = answer(made, run, "2")
    assert run.status == "answered" and seen(run) == ["2 nights"]
    assert made_calls == [("Rome", None), ("Rome", "42")], "the call goes on, and is not made again"


def test_the_same_question_of_a_later_round_gets_its_own_answer(journal: Path, tmp_path: Path) -> None:
    server, heard = MCPServer("disk"), []

    @server.tool()
    async def wipe(ctx: Context[Any, Any]) -> str | InputRequiredResult:
        """Wipes."""
        if ctx.input_responses is not None:
            reply = ctx.input_responses["n"]
            assert isinstance(reply, ElicitResult)
            heard.append(reply.action)
        params = ElicitRequestFormParams(message="Sure?", requested_schema={"type": "object", "properties": {}})
        asks = InputRequiredResult(input_requests={"n": ElicitRequest(params=params)}, request_state="s")
        return asks if len(heard) < 2 else "end"

    made = agent(tmp_path, journal, act("wipe"), done("ok"), tools=plait.mcp(server))
    run = answer(made, made.run("Wipe."), "yes")
    restart()
    made = agent(tmp_path, journal, act("wipe"), done("ok"), tools=plait.mcp(server))
    assert answer(made, run, "no").status == "answered"
    assert heard == ["accept", "decline"]


INPUTS = ([1], {"n": 5}, {"n": {"method": "elicitation/create", "params": [1]}}, {"n": {"method": ["x"]}})


def test_odd_requests_for_input_have_an_end(journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "PAUSE_SECONDS", 0.0)
    asked: list[dict[str, Any]] = [
        {"result": {"resultType": "input_required", "inputRequests": each}} for each in INPUTS
    ]
    missing: tuple[Any, ...] = ([], [5], [{"url": 5}])  # more errors in a row would end the run
    asked += [{"error": {"code": -32042, "message": "Pay.", "data": {"elicitations": each}}} for each in missing]
    left = iter(asked)
    kept: list[dict[str, Any]] = []

    def reply(message: dict[str, Any]) -> Reply | None:
        if message["method"] != "tools/call":
            return None
        if "inputResponses" not in message["params"]:
            kept.append(next(left))
        return 200, {}, rpc(message, **kept[-1])

    with RawServer(reply) as server:
        calls = [act("weather", city=str(number)) for number in range(len(asked))]
        made = agent(tmp_path, journal, *calls, done("ok"), tools=[f"mcp:{server.url}"])
        run = made.run("Go.", on_wait=lambda _: "decline")
    assert run.status == "answered", run.outcome
    assert [text for text in seen(run) if not text.startswith("Error: ")] == []
    assert not any("'" in text and "object" in text for text in seen(run)), "no error of Python"
    assert len(server.calls) < 2 * connection.MAX_ROUNDS + len(asked)


def test_a_call_within_a_tool_of_the_user_asks_nobody(log: Path, journal: Path, tmp_path: Path) -> None:
    """The user's answer could reach it only if the tool around it began again, with all its effects."""
    [wipe] = plait.mcp(command(log, script=ASKS), only=["wipe"])
    effects = []

    @plait.tool
    async def prepare() -> Any:
        """Prepares."""
        effects.append("prepared")
        return await wipe()

    run = agent(tmp_path, journal, act("prepare"), done("ok"), tools=[prepare]).run("Go.")
    assert (run.status, json.loads(seen(run)[0]), effects) == ("answered", {"action": "cancel"}, ["prepared"])


def test_a_closed_server_is_called_again_or_its_call_is_in_doubt(log: Path, journal: Path, tmp_path: Path) -> None:
    made = agent(tmp_path, journal, act("flood"), done("ok"), tools=[word(log)])
    run = answer(made, made.run("Go."), "x")
    connection.close()
    run = answer(made, run, "x")
    assert [row.record.value.trouble for row in run.rows() if is_result(row.record)] == ["in_doubt"]
    assert lines(log).count("called flood") == 1


def test_a_server_of_runs_holds_the_call_until_a_client_answers(log: Path, journal: Path, tmp_path: Path) -> None:
    made = agent(tmp_path, journal, act("book", city="Rome"), done("ok"), tools=[word(log)])
    with serving(made) as server:
        run = server.ask("POST", "/v1/runs", {"agent": "plait", "question": "Book."})[2]["run"]
        until(lambda: server.manager.journal.run(run).status == "waiting")
        [waits] = server.ask("GET", f"/api/runs/{run}")[2]["waiting"]
        given = {"answer": "2", "question": waits["question"]}
        assert server.ask("POST", f"/v1/runs/{run}/answer", given)[0] == 202
        until(lambda: server.manager.journal.run(run).status == "answered")
    assert lines(log).count("called book") == 1 and lines(log)[-1] == "booked 2"


def test_over_http_each_question_belongs_to_its_call_however_the_server_orders_them(
    log: Path, journal: Path, tmp_path: Path
) -> None:
    port = free_port()
    calls = (("confirm", {"text": "a", "seconds": 0.3}), ("confirm", {"text": "b", "seconds": 0.0}))
    with open(os.devnull, "r+b") as nothing:
        ways = dict.fromkeys(("stdin", "stdout", "stderr"), nothing.fileno())
        process = start_forked([HERE / "mcp_more.py", log, str(port), "http"], **ways)
    until(lambda: _answers(port))
    word = "mcp:" + json.dumps({"url": f"http://127.0.0.1:{port}/mcp", "protocol": "2025", "only": ["confirm"]})
    made = Agent("tool_calling", model=Scripted([reply_of(calls), "ok"]), tools=[word], journal=journal)
    run = made.run("Go.")
    asked = {row.record.key[:3]: row.record.asked.text for row in run.rows() if row.record.key[3:5] == ":q"}
    assert [f"Really {name}?" in asked[key] for name, key in (("a", "1.0"), ("b", "1.1"))] == [True, True]
    while run.status == "waiting":
        run = answer(made, run, "yes")
    assert (run.status, seen(run)) == ("answered", ["a: accept", "b: accept"])
    process.kill()
    process.wait()


# -- the run's model


def test_a_server_asks_the_runs_model_within_its_limits(log: Path, journal: Path, tmp_path: Path) -> None:
    replies = (act("think", about="tea"), done("ok"))  # the first reply of each phase
    made = agent(tmp_path, journal, *replies, tools=[word(log, sampling=True)])
    run = made.run("Think.")
    assert run.status == "answered" and "Thought: I call it" in json.loads(seen(run)[0])["content"]["text"]
    assert "can elicitation sampling" in lines(log)
    restart()
    assert made.replay(run.id).whole and len(pids(log)) == 1


def test_sampling_is_off_and_limits_refuse_it(log: Path, journal: Path, tmp_path: Path) -> None:
    made = agent(tmp_path, journal, act("think", about="tea"), done("ok"), tools=[word(log)])
    assert "Sampling not supported" in seen(made.run("Think."))[0]
    restart()
    replies = (act("think", about="tea"), done("ok"))
    limited = agent(tmp_path, journal, *replies, tools=[word(log, sampling=True)], limits=plait.Limits(calls=2))
    assert "limit of the run is reached" in seen(limited.run("Think."))[0]
