"""Clients and terminals get the calls of a provider and the pages that an answer cites, as text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import plait
from cli_support import run_in_process
from hosted_blocks import FOUND, SAID, SEARCH
from lazily import skip_without
from plait.core import Think
from test_hosted_runs import Blocks, played

skip_without("server", "starlette", "uvicorn", "prometheus_client")

from window_server import Here, serving  # noqa: E402

TEXT, BAD = "Spain.", {"cited_text": "x", "title": "bad", "url": "javascript:window.ran=1"}
CITED = [
    {"cited_text": "x", "title": "A\u202e <b>", "url": 'https://a.org/"><script>'},
    BAD,
]
PAGE = {"title": "A[U+202E] <b>", "url": "https://a.org/%22%3E%3Cscript%3E"}


def play(think: Think) -> tuple[Blocks, str]:
    return [SEARCH, FOUND, {**SAID, "citations": CITED}], "end_turn"


def agent(journal: Path) -> plait.Agent:
    return plait.Agent("tool_calling", model=played(play), tools=["hosted:web_search"], journal=journal, name="plait")


def post(here: Here, path: str, body: Any) -> Any:
    status, _, found = here.ask("POST", path, body)
    assert status == 200, found
    if not isinstance(found, str | bytes):
        return found
    text = found if isinstance(found, str) else found.decode()
    data = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    return [json.loads(each) for each in data if each != "[DONE]"]


def test_every_format_has_the_cited_pages(tmp_path: Path) -> None:
    asked, said = {"model": "plait", "messages": [{"role": "user", "content": "Who won?"}]}, {"model": "plait"}
    flat = {"type": "url_citation", "start_index": 0, "end_index": len(TEXT), **PAGE}
    nested = {"type": "url_citation", "url_citation": {name: flat[name] for name in flat if name != "type"}}
    with serving(agent(tmp_path / "j.db")) as here:
        message = post(here, "/v1/chat/completions", asked)["choices"][0]["message"]
        assert (message["content"], message["annotations"]) == (TEXT, [nested])
        assert message["reasoning_content"] == 'web_search {"query": "final 2026"}'
        deltas = [each["choices"][0]["delta"] for each in post(here, "/v1/chat/completions", {**asked, "stream": True})]
        assert [each["annotations"] for each in deltas if "annotations" in each] == [[nested]]
        whole = post(here, "/v1/responses", {**said, "input": "Who won?"})
        assert whole["output"][-1]["content"][0]["annotations"] == [flat]
        again = here.ask("GET", f"/v1/responses/{whole['id']}")[2]
        assert again["output"] == whole["output"]
        events = post(here, "/v1/responses", {**said, "input": "Who won?", "stream": True})
        assert [each["part"] for each in events if "part" in each][-1]["annotations"] == [flat]
        numbers = [each["sequence_number"] for each in events]
        assert numbers == sorted(set(numbers))


def test_ag_ui_has_the_call_with_its_result_and_the_cited_pages(tmp_path: Path) -> None:
    with serving(agent(tmp_path / "j.db")) as here:
        messages = [{"id": "m", "role": "user", "content": "Who won?"}]
        given = {"threadId": "t", "runId": "r", "messages": messages, "tools": [], "context": []}
        events = post(here, "/ag-ui/plait", {**given, "state": {}, "forwardedProps": {}})
    kinds = [each["type"] for each in events]
    at = kinds.index("TOOL_CALL_START")
    assert kinds[at : at + 4] == ["TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END", "TOOL_CALL_RESULT"]
    started, given, _, result = events[at : at + 4]
    assert started["toolCallName"] == "web_search" and json.loads(given["delta"]) == SEARCH["input"]
    assert result["toolCallId"] == started["toolCallId"] and "https://a.org" in result["content"]
    (cited,) = [each["value"] for each in events if each["type"] == "CUSTOM"]
    assert [(each["title"], each["url"]) for each in cited] == [(PAGE["title"], PAGE["url"])]


def test_the_terminal_names_calls_and_sources(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = agent(tmp_path / "j.db").run("Who won?")
    assert run_in_process(["show", run.id, "--journal", str(tmp_path / "j.db")]) == 0
    shown = capsys.readouterr().out
    assert 'web_search {"query": "final 2026"}' in shown and "Sources: A" in shown
    assert 'https://a.org/"><script>' in shown and "\u202e" not in shown
