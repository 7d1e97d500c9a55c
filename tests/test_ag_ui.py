"""AG-UI: what the official client of the protocol sees of an agent, on a real server."""

from __future__ import annotations

import atexit
import base64
import json
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest
from ag_ui.core import Event
from pydantic import TypeAdapter

import plait
from plait.config import ServeTable
from plait.core import Call, Reply
from plait.journal.store import wait_for
from plait.models.base import Abilities
from plait.server import ag_ui
from plait.server.agents import ServedAgent, serve_agent
from plait.user_folders import cache_folder
from postgres_server import shared_server
from test_window_loops import LOOPS, add, scripted
from window_server import FULL, ONE, TWO, Process, script, serving

CLIENT = "@ag-ui/client@1.0.0"
HERE = Path(__file__).parent
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
EVENT: TypeAdapter[Any] = TypeAdapter(Event)


@cache
def client_folder() -> Path:
    """Return the folder with the official client. npm fetches it once for this user."""
    if not (shutil.which("node") and shutil.which("npm")):
        pytest.skip("NOT CHECKED: there is no node with npm (apt-get install nodejs npm)")
    found = cache_folder() / "npm" / CLIENT.replace("/", "-")
    if not found.is_dir():
        found.parent.mkdir(parents=True, exist_ok=True)
        making = Path(tempfile.mkdtemp(dir=found.parent))
        words = ["npm", "install", "--no-save", "--no-package-lock", "--no-audit", "--no-fund", "--prefix", str(making)]
        done = subprocess.run([*words, CLIENT], capture_output=True, text=True)
        if done.returncode:
            shutil.rmtree(making)
            pytest.skip(f"NOT CHECKED: npm can't fetch {CLIENT}: {done.stderr[-300:]}")
        with suppress(OSError):  # another process was faster
            making.rename(found)
        shutil.rmtree(making, ignore_errors=True)
    return found


IDLE: list[subprocess.Popen[str]] = []
"""Processes of the client that have no talk now. To start one takes half a second."""


def talk(url: str, *steps: dict[str, Any], thread: str = "t", token: str = "", **page: Any) -> list[dict[str, Any]]:
    """Take some steps with the official client; return what the page has after each. Checks every event."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    talk = {"url": url, "headers": headers, "threadId": thread, "messages": [], "state": {}, **page, "steps": steps}
    words = ["node", str(HERE / "ag_ui_client.mjs"), str(client_folder())]
    if IDLE:
        client = IDLE.pop()
    else:
        client = subprocess.Popen(words, stdin=PIPE, stdout=PIPE, text=True)
        atexit.register(client.communicate, timeout=30)
    assert client.stdin is not None and client.stdout is not None
    client.stdin.write(json.dumps(talk) + "\n")
    client.stdin.flush()
    line = client.stdout.readline()
    assert line, f"the client ended with {client.wait()}"
    IDLE.append(client)
    answer = json.loads(line)
    assert not any("[ag-ui]" in each for each in answer["warned"])  # the client warns of what is not in the protocol
    told: list[dict[str, Any]] = answer["told"]
    for each in told:
        for event in each["events"]:
            EVENT.validate_python(event)
    return told


def served(agent: plait.Agent, *, name: str = "plait", thoughts: bool = True) -> ServedAgent:
    return serve_agent(name, agent, ServeTable(), thoughts=thoughts)


def kinds(told: dict[str, Any]) -> list[str]:
    return [event["type"] for event in told["events"]]


def texts(told: dict[str, Any], role: str = "assistant") -> list[str]:
    return [each["content"] for each in told["messages"] if each["role"] == role and each.get("content")]


@plait.tool
def book_table(day: str, guests: int) -> str:
    """Book a table."""
    return f"Booked for {day}, {guests} guests."


@plait.tool(read_only=True)
def count_guests(ctx: plait.Context, guests: int) -> str:
    """Count the guests."""
    before = ctx.state
    assert isinstance(before, dict)
    ctx.set_state({**before, "guests": guests})
    assert ctx.state == {**before, "guests": guests}
    ctx.report_progress("counted")
    return f"{guests} guests, {before['day']}."


BOOKING: list[Any] = [
    {"calls": [{"name": "book_table", "input": {"day": "Friday", "guests": 4}}]},
    {"answer": "Your table is booked."},
]


def booking(journal: Path | str, replies: Any = BOOKING, **more: Any) -> plait.Agent:
    given: dict[str, Any] = {"tools": [book_table], "approve": "effects", "journal": journal, **more}
    return plait.Agent("tool_calling", model=plait.Scripted(replies, chunk=5), **given)


def test_the_client_takes_the_events_of_every_loop(journal: Path) -> None:
    agents = {loop: plait.Agent(loop, model=scripted(loop), tools=[add], journal=journal) for loop in LOOPS}
    with serving(*(served(each, name=loop) for loop, each in agents.items())) as here:
        steps = [{"url": f"{here.url}/ag-ui/{loop}", "thread": loop, "say": "What is 2 + 3?"} for loop in LOOPS]
        said = talk(here.url, *steps)
        answers = {row.head.session: (row.outcome or {})["answer"] for row in here.manager.journal.runs()}
    for loop, told in zip(LOOPS, said, strict=True):
        assert "error" not in told and texts(told) == [answers[loop]] and told["result"] == answers[loop]
        assert texts(told, "tool") == ["5"]
        (call,) = [each for message in told["messages"] for each in message.get("toolCalls", ())]
        given = json.loads(call["function"]["arguments"])  # as the model wrote them
        assert call["function"]["name"] == "add" and given in ({"a": 2, "b": 3}, [2, 3], "2, 3")
        assert kinds(told)[0] == "RUN_STARTED" and kinds(told)[-1] == "RUN_FINISHED" and "STEP_STARTED" in kinds(told)
        if loop in ("react", "json", "codeact"):
            assert "x" in "".join(texts(told, "reasoning"))


@pytest.mark.parametrize("thoughts", [True, False])
def test_an_approval_is_an_interrupt_that_another_server_process_can_answer(thoughts: bool, journal: Path) -> None:
    with serving(served(booking(journal), thoughts=thoughts)) as here:
        (told,) = talk(f"{here.url}/ag-ui", {"say": "A table, please."})
    (interrupt,) = told["pendingInterrupts"]
    assert interrupt["reason"] == "tool_call" and "book_table" in interrupt["message"]
    assert interrupt["metadata"]["plait"]["input"] == {"day": "Friday", "guests": 4}
    calls = {call["id"]: call["function"] for each in told["messages"] for call in each.get("toolCalls", ())}
    assert json.loads(calls[interrupt["toolCallId"]]["arguments"]) == {"day": "Friday", "guests": 4}
    edit = {"approved": True, "editedArgs": {"day": "Sunday", "guests": 2}}
    yes = [{"interruptId": interrupt["id"], "status": "resolved", "payload": edit}]
    with serving(served(booking(journal), thoughts=thoughts)) as here:
        url = f"{here.url}/ag-ui/plait"
        told, again, late = talk(
            url,
            {"resume": yes, "runId": "r2"},
            {"resume": yes, "runId": "r2"},
            {"resume": yes},
            messages=told["messages"],
        )
        (row,) = here.manager.journal.runs()
    assert texts(told)[-1] == "Your table is booked." and not told["pendingInterrupts"]
    results = [each for each in told["messages"] if each["role"] == "tool"]
    assert [each["toolCallId"] for each in results] == [interrupt["toolCallId"]]
    assert "TOOL_CALL_START" not in kinds(told)
    assert ("Sunday" in results[0]["content"]) and (results[0]["content"].startswith("Booked") is thoughts)
    assert again["messages"] == told["messages"] and row.status == "answered"
    assert [event["code"] for event in late["events"]] == ["stale_answer"]


def test_only_an_approval_approves(journal: Path) -> None:
    payloads = [False, {"approved": False, "reason": "yes"}, "cancelled", "no thanks", {"approved": True}]
    with serving(booking(journal)) as here:
        url = f"{here.url}/ag-ui"
        steps = [
            ({"url": url, "thread": f"t{i}", "say": "A table."}, {"resume": each}) for i, each in enumerate(payloads)
        ]
        results = [texts(told, "tool") for told in talk(url, *(step for pair in steps for step in pair))[1::2]]
    assert [result.startswith("Booked") for (result,) in results] == [False, False, False, False, True]
    assert "no: yes" in results[1][0] and "no thanks" in results[3][0]


def test_a_bad_answer_changes_nothing_and_a_new_message_approves_nothing(journal: Path) -> None:
    with serving(booking(journal)) as here:
        url = f"{here.url}/ag-ui"
        odd, misfit = {"maybe": 1}, {"approved": True, "editedArgs": {"week": 1}}
        new_page = {"url": url, "thread": "t", "say": "Yes, do."}
        first, *refused = talk(url, {"say": "A table."}, {"resume": odd}, {"resume": misfit}, new_page)
        (row,) = here.manager.journal.runs()
    codes = [each["events"][-1].get("code") for each in refused]
    assert codes == ["bad_answer", "bad_answer", "stale_answer"]
    assert first["pendingInterrupts"] and row.status == "waiting"


def test_questions_plans_and_approvals_of_child_agents_are_interrupts(journal: Path) -> None:
    asks = plait.Agent(
        "json",
        model=plait.Scripted(['{"thought": "", "tool": "ask_user", "tool_input": "Which day?"}', _final("On Friday.")]),
        journal=journal,
    )
    plan = plait.Agent("rewoo", model=plait.Scripted(LOOPS["rewoo"]), tools=[add], approve="plan", journal=journal)
    inner = booking(journal).as_tool("inner")
    calls = [{"calls": [{"name": "inner", "input": {"question": "Book."}}]}, {"answer": "The child did it."}]
    above = plait.Agent("tool_calling", model=plait.Scripted(calls), tools=[inner], journal=journal)
    agents = {"asks": asks, "plan": plan, "above": above}
    with serving(*(served(each, name=name) for name, each in agents.items())) as here:
        status, _, said = here.ask("POST", "/ag-ui", {"threadId": "t", "runId": "r", "messages": []})
        assert status == 404 and "/ag-ui/NAME" in said["error"]["message"]
        for name, payload, reason, end in (
            ("asks", "Friday", "input_required", "On Friday."),
            ("plan", True, "confirmation", "It is 5,\nas   computed."),
            ("above", {"approved": True}, "tool_call", "The child did it."),
        ):
            first, done = talk(f"{here.url}/ag-ui/{name}", {"say": "Go."}, {"resume": payload}, thread=name)
            (interrupt,) = first["pendingInterrupts"]
            assert interrupt["reason"] == reason and texts(done)[-1] == end, done
            assert "RUN_ERROR" not in kinds(done)
            open_calls = {call["id"] for each in done["messages"] for call in each.get("toolCalls", ())}
            assert {each["toolCallId"] for each in done["messages"] if each["role"] == "tool"} == open_calls


def _final(text: str) -> str:
    return json.dumps({"thought": "", "tool": "final_answer", "tool_input": text})


def test_tools_share_the_state_of_the_page_also_after_a_restart(journal: Path) -> None:
    calls = [{"name": "count_guests", "input": {"guests": 4}}]
    replies = [{"calls": calls}, BOOKING[0], {"calls": [{"name": "count_guests", "input": {"guests": 5}}]}, "Done."]

    def agent() -> plait.Agent:
        return booking(journal, replies, tools=[book_table, count_guests], approve="effects")

    with serving(agent()) as here:
        (told,) = talk(f"{here.url}/ag-ui", {"say": "Go."}, state={"day": "Friday", "a/b": [1]})
    assert told["state"] == {"day": "Friday", "a/b": [1], "guests": 4}
    assert kinds(told)[:2] == ["RUN_STARTED", "STATE_SNAPSHOT"] and "STATE_DELTA" in kinds(told)
    assert {"type": "CUSTOM", "name": "progress", "value": {"text": "count_guests: counted", "data": None}} in told[
        "events"
    ]
    resume = [{"interruptId": told["pendingInterrupts"][0]["id"], "status": "resolved", "payload": True}]
    with serving(agent()) as here:
        ended, again = talk(
            f"{here.url}/ag-ui", {"resume": resume, "runId": "r"}, {"runId": "r"}, messages=told["messages"]
        )
        head = here.manager.journal.run("last").head
    for each in (ended, again):
        assert each["events"][1]["snapshot"] == {"day": "Friday", "a/b": [1], "guests": 4}
        assert each["state"] == {"day": "Friday", "a/b": [1], "guests": 5}
    assert head.metadata == {"state": {"day": "Friday", "a/b": [1]}}


def test_a_message_has_files_context_and_earlier_turns(journal: Path) -> None:
    seen: list[Any] = []

    def reply(think: Any) -> str:
        seen.append(think)
        return "A pixel."

    content = [
        {"type": "text", "text": "What is this?"},
        {"type": "image", "source": {"type": "data", "value": PIXEL, "mimeType": "image/png"}},
        {
            "type": "document",
            "source": {"type": "data", "value": base64.b64encode(b"a letter").decode(), "mimeType": "text/plain"},
            "metadata": {"filename": "letter.txt"},
        },
    ]
    earlier = [
        {"id": "1", "role": "user", "content": "Hello, I am Ada."},
        {"id": "2", "role": "assistant", "content": "Hello."},
    ]
    context = [{"description": "The open page", "value": "prices"}]
    model = plait.Scripted(reply, abilities=Abilities(images=True, tools=True))
    agent = plait.Agent("tool_calling", model=model, journal=journal)
    with serving(agent) as here:
        step = {"say": content, "context": context, "forwardedProps": {"theme": "dark"}}
        first, then = talk(f"{here.url}/ag-ui", step, {"say": "And now?"}, messages=earlier)
        two, one = (row.head for row in here.manager.journal.runs())
        url = [{"type": "image", "source": {"type": "url", "value": "http://example.com/a.png"}}]
        (refused,) = talk(f"{here.url}/ag-ui", {"say": url}, thread="u")
    assert texts(first)[-1] == texts(then)[-1] == "A pixel."
    assert [(each.name, each.media_type) for each in one.attachments] == [
        ("", "image/png"),
        ("letter.txt", "text/plain"),
    ]
    assert one.question == "The open page:\nprices\n\nWhat is this?" and one.metadata == {
        "forwarded_props": {"theme": "dark"}
    }
    assert "I am Ada" in str(seen[0]) and "What is this?" in str(seen[1]) and two.session == one.session == "t"
    assert "No address is fetched" in refused["error"]


def test_a_client_that_lost_its_stream_gets_the_rest_and_the_run_is_made_once(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ag_ui, "GRACE", 3.0)
    go_on = journal.with_name("go on")

    @plait.tool(read_only=True)
    def wait_for_it() -> str:
        """Wait."""
        until = time.monotonic() + 60
        while not go_on.exists() and time.monotonic() < until:
            time.sleep(0.02)
        return "now"

    replies = [Reply("I wait.", calls=(Call("wait_for_it", {}, "c"),)), "It is over, and well."]
    with serving(booking(journal, replies, tools=[wait_for_it])) as here:
        lost = {"say": "Wait.", "runId": "r1", "leaveAfter": "TOOL_CALL_END"}
        (told,) = talk(f"{here.url}/ag-ui", lost)
        assert "TOOL_CALL_END" in kinds(told) and here.manager.running == 1
        go_on.touch()
        # The same request again; and a page that was loaded again, and knows nothing but its thread.
        new_page = {"url": f"{here.url}/ag-ui", "thread": "t", "runId": "r2"}
        rests = talk(f"{here.url}/ag-ui", {"runId": "r1"}, new_page, messages=told["messages"])
        (row,) = here.manager.journal.runs()
    for rest in rests:
        assert texts(rest, "user") == ["Wait."] and texts(rest)[-1] == "It is over, and well."
        assert texts(rest, "tool") == ["now"] and texts(rest, "reasoning") == ["I wait."]
        assert kinds(rest)[-1] == "RUN_FINISHED"
    assert [rest["events"][0]["runId"] for rest in rests] == ["r1", "r2"] and row.status == "answered"


def test_of_many_equal_requests_one_starts_a_run_and_whoever_follows_it_elsewhere_keeps_it(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ag_ui, "GRACE", 0.5)
    go_on = threading.Event()

    @plait.tool(read_only=True)
    def wait_for_it() -> str:
        """Wait."""
        assert go_on.wait(60)
        return "now"

    replies = [{"calls": [{"name": "wait_for_it", "input": {}}]}, "Over."]
    body = {"threadId": "t", "runId": "r", "messages": [{"id": "1", "role": "user", "content": "Wait."}]}
    agent = booking(journal, replies, tools=[wait_for_it])
    with serving(agent) as here, serving(agent) as other, ThreadPoolExecutor() as pool:
        lost = socket.create_connection(("127.0.0.1", here.port))
        text = json.dumps(body).encode()
        head = [
            "POST /ag-ui HTTP/1.1",
            "Host: localhost",
            "Content-Type: application/json",
            f"Content-Length: {len(text)}",
        ]
        lost.sendall("\r\n".join([*head, "", ""]).encode() + text)
        while b"RUN_STARTED" not in lost.recv(65536):
            pass
        followers = [pool.submit(each.ask, "POST", "/ag-ui", body) for each in (other, here, other)]
        while len(wait_for(here.manager.journal.store.list_kept("request"))) < 2:
            time.sleep(0.01)
        lost.close()
        while not here.manager._beside:
            time.sleep(0.01)
        while here.manager._beside:  # until it is decided that the run goes on
            time.sleep(0.01)
        assert here.manager.running == 1
        go_on.set()
        told = [each.result()[2] for each in followers]
        (row,) = here.manager.journal.runs()
    assert row.status == "answered" and all("Over." in each and "RUN_FINISHED" in each for each in told)


def test_a_run_that_its_client_left_is_cancelled_unless_somebody_follows_it(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ag_ui, "GRACE", 0.2)
    agent = plait.Agent("tool_calling", model=plait.Scripted(["Late."], delay=60), journal=journal)
    with serving(agent) as here:
        talk(f"{here.url}/ag-ui", {"say": "Wait.", "leaveAfter": "RUN_STARTED"})
        while here.manager.running:
            time.sleep(0.02)
        (row,) = here.manager.journal.runs()
        (told,) = talk(f"{here.url}/ag-ui", {})
    assert row.status == "cancelled" and (row.outcome or {})["reason"] == "the client went away"
    assert told["events"][-1]["outcome"] == {"type": "cancelled"}


def test_the_client_of_a_server_that_was_killed_learns_that_the_run_is_interrupted(tmp_path: Path) -> None:
    journal, model = str(tmp_path / "runs.db"), script(tmp_path, "Late.", delay=60)
    with Process("--loop", "tool_calling", "--model", model, "--journal", journal, cwd=tmp_path) as killed:
        talk(f"{killed.url}/ag-ui", {"say": "Wait.", "runId": "r", "leaveAfter": "RUN_STARTED"})
        killed.process.kill()
    with serving(booking(journal)) as here:
        (told,) = talk(f"{here.url}/ag-ui", {"runId": "r"})
    assert told["events"][-1]["code"] == "run_interrupted"


def test_errors_and_other_peoples_threads(journal: Path) -> None:
    agent = plait.Agent("tool_calling", model=plait.Scripted([OSError("broken")]), journal=journal)
    with serving(agent, tokens=(FULL,), clients=(ONE, TWO)) as here:
        failed, again = talk(f"{here.url}/ag-ui", {"say": "Hello", "runId": "r"}, {"runId": "r"}, token=ONE)
        assert kinds(failed)[-1] == kinds(again)[-1] == "RUN_ERROR"
        page: dict[str, Any] = {"threadId": "t", "runId": "r", "messages": []}
        status, _, said = here.ask("POST", "/ag-ui", page, token=TWO)
        assert status == 400 and "knows no such thread" in said["error"]["message"]
        page["messages"], tool = [{"id": "1", "role": "user", "content": "x"}], {"name": "t", "description": "d"}
        for more, why in (({"tools": [tool]}, "those of a page"), ({"state": "x" * 20_000}, "metadata")):
            status, _, said = here.ask("POST", "/ag-ui", {**page, "threadId": "new", **more}, token=ONE)
            assert status == 400 and why in said["error"]["message"]
        for body in ({}, {"threadId": "t", "runId": "r", "messages": [{"role": "odd", "id": "1"}]}, b"\xff", b"[1]"):
            status, _, said = here.ask("POST", "/ag-ui", body, token=ONE)
            assert status == 400 and said["error"]["message"], body
        assert here.ask("POST", "/ag-ui", {})[0] == 401
        assert here.ask("POST", "/ag-ui/none", {}, token=ONE)[0] == 404
        assert here.ask("POST", "/ag-ui", {}, {"origin": "http://evil.example"}, token=ONE)[0] == 403


def test_all_of_it_works_on_postgresql() -> None:
    journal = shared_server().new_journal()
    with serving(booking(journal)) as here:
        (told,) = talk(f"{here.url}/ag-ui", {"say": "A table.", "runId": "r"}, state={"day": 1})
    with serving(booking(journal)) as here:
        url = f"{here.url}/ag-ui"
        again, done, page = talk(url, {"runId": "r"}, {"resume": True}, {"thread": "t", "url": url}, state={"day": 1})
    assert again["pendingInterrupts"] == told["pendingInterrupts"] and again["state"] == {"day": 1}
    assert texts(done)[-1] == texts(page)[-1] == "Your table is booked."
    calls = {call["id"] for each in page["messages"] for call in each.get("toolCalls", ())}
    assert {each["toolCallId"] for each in page["messages"] if each["role"] == "tool"} == calls != set()
