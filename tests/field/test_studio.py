"""Traces and chats in the browser's pages as people met them elsewhere. README.md names the thread of each test."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from endpoint_runs import WARM, run_agent

import plait
from models_server import delta, event
from plait.journal.store import Journal
from window_server import Here, serving

DONE = event(b"[DONE]")
CALLS, LETTERS = 10, 100_000


@plait.tool(read_only=True)
def read_page(number: int) -> str:
    """A page."""
    return f"page {number}: " + "<b>word</b> " * (LETTERS // 12)


def calls(turn: int) -> bytes:
    each = [
        {
            "index": n,
            "id": f"c{turn}-{n}",
            "function": {"name": "read_page", "arguments": json.dumps({"number": n + turn})},
        }
        for n in range(CALLS)
    ]
    return delta(tool_calls=each, finish="tool_calls") + DONE


def size(found: Any) -> int:
    return len(json.dumps(found))


def test_a_run_with_megabytes_of_results_opens_with_the_beginning_of_each(journal: Path) -> None:
    limits = plait.Limits(observation_chars=2000)
    made = run_agent([], [read_page], calls(0), calls(100), WARM, journal=journal, limits=limits, session="long")
    again = run_agent([], [read_page], calls(200), WARM, journal=journal, limits=limits, session="long")
    assert (made.status, again.status) == ("answered", "answered")
    with serving(made.agent) as server:
        status, _, found = server.ask("GET", f"/api/runs/{made.run.id}")
        assert status == 200 and size(found) < 2 * CALLS * LETTERS / 10
        assert "page 0" in json.dumps(found)
        for path in (f"/api/runs/{made.run.id}/waterfall", "/api/runs"):
            status, _, found = server.ask("GET", path)
            assert status == 200 and size(found) < 200_000
        # A conversation shows questions and answers, not what the tools returned.
        status, _, found = server.ask("GET", "/api/conversations/turns?session=long")
        assert status == 200 and len(found["turns"]) == 2 and size(found) < 20_000


def test_turns_out_of_sight_are_not_laid_out() -> None:
    with serving(plait.Agent("react", model=plait.Scripted([]))) as server:
        _, _, style = server.ask("GET", "/page/chat.css")
    rule = re.search(r"\.turn:not\(:last-child\) \{([^}]*)\}", style)
    assert rule is not None and "content-visibility: auto" in rule[1]


def test_thousands_of_pasted_lines_are_one_message_with_a_short_title(journal: Path) -> None:
    log = "\n".join(f"[{n:05}] INFO worker {n % 7}: GET /items/{n} <div> *done* in {n} ms" for n in range(3921))
    agent = plait.Agent("react", model=plait.Scripted(["Thought: k\nFinal Answer: It worked."] * 3), journal=journal)
    with serving(agent) as server:
        status, _, begun = server.ask("POST", "/api/conversations/messages", {"agent": "plait", "text": log})
        assert status == 201
        wait(server, begun["run"])
        status, _, listed = server.ask("GET", "/api/conversations")
        assert status == 200 and size(listed) < 2_000 and len(listed["conversations"][0]["title"]) < 200
        status, _, shown = server.ask("GET", f"/api/conversations/turns?session={begun['session']}")
        assert status == 200 and size(shown) < 2 * len(log) + 20_000
        assert "worker 0: GET /items/3920" in json.dumps(shown)
        more = {"agent": "plait", "session": begun["session"], "text": "And now?", "after": begun["run"]}
        status, _, begun = server.ask("POST", "/api/conversations/messages", more)
        assert status == 201
        wait(server, begun["run"])
        assert size(server.ask("GET", "/api/runs")[2]) < 10_000
    assert Journal(journal).run(begun["run"]).status == "answered"


def wait(server: Here, run: str) -> None:
    """Wait for a run's end: the stream of its events ends with it."""
    status, _, _ = server.ask("GET", f"/v1/runs/{run}/events")
    assert status == 200


def test_no_page_names_an_address_from_the_root_so_any_prefix_works() -> None:
    agent = plait.Agent("react", model=plait.Scripted([]))
    with serving(agent) as server:
        _, _, page = server.ask("GET", "/")
        assert not re.findall(r'(?:src|href|action)="/', page)
        modules = Path(plait.__file__).parent.joinpath("view", "page").glob("*.js")
        for module in modules:
            text = module.read_text()
            found = re.findall(
                r"""(?:fetch|import|EventSource|WebSocket|location\.assign)\(\s*[`'"]/|from ['"]/""", text
            )
            assert not found, f"{module.name}: {found}"
        status, _, found = server.ask("GET", "/no/such/page")
        assert status == 404 and isinstance(found, dict)


def test_a_message_that_is_none_is_refused_in_words(journal: Path) -> None:
    agent = plait.Agent("react", model=plait.Scripted([]), journal=journal)
    with serving(agent) as server:
        for body in (b'{"agent": "plait", "text": ""}', b"[]", b"{"):
            kind = {"content-type": "application/json"}
            status, _, found = server.ask("POST", "/api/conversations/messages", body, kind)
            assert status in (400, 422) and found["error"]["message"].endswith(".")
