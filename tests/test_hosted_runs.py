"""Runs with hosted tools: recorded in each loop, priced, from outside, replayed; refused where nobody can decide."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import plait
from hosted_blocks import FOUND, SEARCH, blocks_as_events
from loop_scripts import ANSWER, LOOPS, QUESTION, SCRIPTS
from plait.core import Call, Event, Reply, Think, Waiting
from plait.core import events as ev
from plait.core.errors import ConfigError, Unreachable
from plait.journal.store import Journal
from plait.models.base import OnText, Request, Response
from plait.models.chat import ChatModel
from plait.models.prices import Rate
from plait.view.timeline import build_timeline
from postgres_server import shared_server

Blocks = list[dict[str, Any]]
SEARCHED: Blocks = [SEARCH, FOUND]


class Played(ChatModel, frozen=True, kw_only=True):
    """A model at Anthropic whose replies a function makes: it returns the blocks, and how the turn ended."""

    play: Callable[[Think], tuple[Blocks, str]]
    sent: list[dict[str, Any]]
    cached: int = 0

    async def send(self, request: Request, think: Think, on_text: OnText | None = None) -> Response:
        self.sent.append(json.loads(request.body))
        blocks, reason = self.play(think)
        return Response(200, blocks_as_events(*blocks, reason=reason, cached=self.cached))


def played(play: Callable[[Think], tuple[Blocks, str]], **fields: Any) -> Played:
    rate = Rate("tokens", 1.0, 1.0)
    spec = {"spec": "anthropic:claude-haiku-5-5", "name": "claude-haiku-5-5", "endpoint": "http://127.0.0.1:9/v1"}
    return Played(
        **{**spec, "wire": "anthropic", "provider": "anthropic", "rate": rate, "play": play, "sent": [], **fields}
    )


def of_loop(loop: str) -> Played:
    """A model that searches before everything it says in the script of a loop."""
    scripts = {phase: iter(turns) for phase, turns in SCRIPTS[loop].items()}

    def play(think: Think) -> tuple[Blocks, str]:
        turn = next(scripts.get(think.phase) or scripts[""])
        if isinstance(turn, str):
            return [*SEARCHED, {"type": "text", "text": turn}], "end_turn"
        calls = [
            {"type": "tool_use", "id": f"t{i}{len(model.sent)}", "name": tool, "input": given}
            for i, (tool, given) in enumerate(turn)
        ]
        return [*SEARCHED, *calls], "tool_use"

    model = played(play)
    return model


SENT: list[str] = []


@plait.tool
def send(text: str) -> str:
    """Sends a text."""
    SENT.append(text)
    return f"sent {text}"


@plait.tool(read_only=True)
def fetch(key: str) -> str:
    """Looks into a table of ours."""
    return f"value of {key}"


def make(loop: str, model: Any, journal: Path | bool, **fields: Any) -> plait.Agent[Any]:
    tools = [fetch, send, "hosted:web_search"]
    limits = plait.Limits(tools=0 if loop == "codeact" else None)
    return plait.Agent(loop, model=model, journal=journal, **{"tools": tools, "limits": limits, **fields})


@pytest.fixture(autouse=True)
def _nothing_sent() -> None:
    SENT.clear()


@pytest.mark.parametrize("loop", LOOPS)
def test_each_loop_has_the_providers_calls_on_record_and_replays_them(loop: str, tmp_path: Path) -> None:
    model, seen = of_loop(loop), list[Event]()
    agent = make(loop, model, tmp_path / "j.db")
    run = agent.run(QUESTION, on_event=seen.append)
    assert (run.status, run.answer) == ("answered", ANSWER), run.outcome
    assert all(any("web_search" in str(tool.get("type")) for tool in body["tools"]) for body in model.sent)
    # The calls are in the record, in the events, on the page, and in the cost.
    replies = [reply for _, reply in run.timeline.replies]
    assert all([each.tool for each in reply.hosted] == ["web_search"] for reply in replies)
    assert len([each for each in seen if isinstance(each, ev.HostedCalled)]) == len(replies)
    usage = sum(reply.usage.tokens for reply in replies)
    assert run.cost_usd == pytest.approx(len(replies) * 0.01 + usage / 1_000_000)
    store = Journal.at(tmp_path / "j.db")
    shown = build_timeline(store.iter_rows(run.id), None)
    assert shown.search("final 2026")["count"] == len(replies)
    # A replay needs no provider, and a recorded run has the tool without the agent.
    count = len(model.sent)
    assert agent.replay(run.id).outcome.answer == ANSWER
    assert len(model.sent) == count
    assert store.run(run.id).head.settings["hosted"] == ["hosted:web_search"]


@pytest.mark.parametrize("loop", LOOPS)
def test_what_the_provider_found_is_content_from_outside(loop: str, tmp_path: Path) -> None:
    agent = make(loop, of_loop(loop), tmp_path / "j.db", taint="ask")
    run = agent.run(QUESTION)
    assert isinstance(run.outcome, Waiting), run.outcome
    assert "the result of the hosted 'web_search'" in run.outcome.reason
    assert SENT == []


@pytest.mark.parametrize(
    ("word", "policy"),
    [
        ("web_search", {"approve": "always"}),
        ("web_search", {"approve": plait.Reviewer(plait.Scripted(["approve"]), policy="Be strict.")}),
        ("mcp:https://a.org/mcp", {"approve": "effects"}),
        ("mcp:https://a.org/mcp", {"taint": "ask"}),
    ],
)
def test_calls_that_nobody_could_approve_are_refused_in_the_run_and_below_it(word: str, policy: Any) -> None:
    model = of_loop("react")
    run = make("react", model, False, tools=[fetch, f"hosted:{word}"], **policy).run(QUESTION)
    assert run.status == "failed"
    assert "nobody can be asked" in str(run.outcome.reason)
    child = make("react", model, False, tools=[f"hosted:{word}"]).as_tool("helper", "Helps.")
    script = [Reply("", "calls", calls=(Call("helper", {"question": "x"}),)), "done"]
    above = plait.Agent("tool_calling", model=plait.Scripted(script), tools=[child], journal=False, **policy)
    run = above.run("x", on_wait=lambda waiting: "yes")
    assert [call.status for call in run.timeline.tool_calls] == ["raised"]
    assert model.sent == []


@pytest.mark.parametrize("repeats", [False, True])
def test_a_lost_reply_with_calls_of_an_mcp_server_is_not_asked_for_again(repeats: bool) -> None:
    tries: list[int] = []

    def play(think: Think) -> tuple[Blocks, str]:
        tries.append(1)
        if len(tries) == 1:
            broken = Unreachable("The connection broke.")
            broken.sent = True
            raise broken
        return [{"type": "text", "text": "Done."}], "end_turn"

    policy: Any = {"on_interrupted_call": "repeat"} if repeats else {}
    run = make("tool_calling", played(play), False, tools=["hosted:mcp:https://a.org/mcp"], **policy).run("x")
    assert (run.status, len(tries)) == (("answered", 2) if repeats else ("failed", 1)), run.outcome


def test_a_turn_that_the_provider_paused_is_sent_back_and_goes_on(tmp_path: Path) -> None:
    call = {"type": "tool_use", "id": "t1", "name": "fetch", "input": {"key": "a"}}
    turns = iter(
        [
            ([*SEARCHED, {"type": "text", "text": "First, "}], "pause_turn"),
            ([SEARCH, FOUND, {"type": "text", "text": "then."}, call], "tool_use"),
            ([{"type": "text", "text": "Done."}], "end_turn"),
        ]
    )
    model = played(lambda think: next(turns))
    agent = make("tool_calling", model, tmp_path / "j.db")
    run = agent.run("x")
    assert run.answer == "Done."
    first, resumed, last = (body["messages"] for body in model.sent)
    assert resumed[:-1] == first
    kept = resumed[-1]["content"]
    assert [each["type"] for each in kept] == ["server_tool_use", "web_search_tool_result", "text"]
    # The next turn has the blocks of both parts, in their order.
    found = ["server_tool_use", "web_search_tool_result", "text"]
    assert [each["type"] for each in last[len(first)]["content"]] == [*found, *found, "tool_use"]
    assert agent.replay(run.id).outcome.answer == "Done."


def test_a_message_waits_until_a_paused_turn_has_ended(tmp_path: Path) -> None:
    call = {"type": "tool_use", "id": "t1", "name": "fetch", "input": {"key": "a"}}
    turns = iter([([SEARCH], "pause_turn"), ([FOUND, call], "tool_use"), ([{"type": "text", "text": "Done."}], "end")])
    model = played(lambda think: next(turns))

    class Sends(plait.Guard[Any]):
        """The user writes when the first part of the turn has come."""

        points = (Think,)

        async def after(self, entry: Any, result: Any, fresh: bool) -> Any:
            if fresh and len(model.sent) == 1:
                await agent.asend(entry.run, "Be brief.")
            return result

    agent = make("tool_calling", model, tmp_path / "j.db", hooks=[Sends()])
    run = agent.run("x")
    assert run.answer == "Done."
    assert ["Be brief." in json.dumps(body) for body in model.sent] == [False, False, True]
    assert agent.replay(run.id).whole


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_a_resumed_run_repeats_no_search_and_goes_on_with_the_tool(store: str, tmp_path: Path) -> None:
    journal: Any = tmp_path / "j.db" if store == "sqlite" else shared_server().new_journal()
    calls = iter([{"key": "a"}])
    fails = [True]

    def play(think: Think) -> tuple[Blocks, str]:
        if any(message.role == "tool" for message in think.messages):
            if fails:
                raise RuntimeError("the process dies")
            return [*SEARCHED, {"type": "text", "text": "Done."}], "end_turn"
        call = {"type": "tool_use", "id": "t1", "name": "fetch", "input": next(calls)}
        return [*SEARCHED, call], "tool_use"

    model = played(play)
    agent = make("tool_calling", model, journal)
    assert agent.run("x").status == "crashed"
    [row] = Journal.at(journal).runs()
    fails.clear()
    asked = len(model.sent)
    run = agent.resume(row.head.run)
    assert run.answer == "Done."
    assert len(model.sent) == asked + 1
    assert [len(reply.hosted) for _, reply in run.timeline.replies] == [1, 1]


def test_a_model_without_the_tool_gets_the_local_one_or_an_error_before_the_run() -> None:
    def agent(word: str) -> plait.Agent[Any]:
        return plait.Agent("react", model=plait.Scripted(["x"]), tools=[word], journal=False)

    assert [spec.name for spec in agent("hosted:web_search").specs] == ["web_search"]
    assert [spec.name for spec in agent("hosted:code_execution").specs] == ["run_python"]
    with pytest.raises(ConfigError, match="no local tool"):
        agent("hosted:image_generation").run("x")
    with pytest.raises(ConfigError, match="no hosted tool 'web_serch'"):
        agent("hosted:web_serch")


def test_functions_and_hosted_tools_together_are_an_error_before_gemini_3(tmp_path: Path) -> None:
    model = played(lambda think: ([], ""), wire="gemini", provider="gemini", name="gemini-2.5-flash")
    with pytest.raises(ConfigError, match="before Gemini 3"):
        make("tool_calling", model, tmp_path / "j.db").run("x")
    assert make("react", model, tmp_path / "j.db").specs  # a loop with text declares no functions


def test_only_some_fallback_models_with_the_tool_are_an_error() -> None:
    model = of_loop("react") | plait.Scripted(["x"])
    with pytest.raises(ConfigError, match="Not every model"):
        make("react", model, False).run("x")


def test_the_local_tool_runs_python_in_the_sandbox() -> None:
    script = [Reply("", "calls", calls=(Call("run_python", {"code": "print(2**10)"}),)), "1024"]
    run = plait.Agent("tool_calling", model=plait.Scripted(script), tools=["hosted:code_execution"], journal=False).run(
        "x"
    )
    assert [call.seen.text.strip() for call in run.timeline.tool_calls if call.seen] == ["1024"]


class Answered(Played, frozen=True, kw_only=True):
    """A model at OpenAI's Responses endpoint, whose output is given."""

    output: list[dict[str, Any]]

    async def send(self, request: Request, think: Think, on_text: OnText | None = None) -> Response:
        return Response(200, json.dumps({"object": "response", "status": "completed", "output": self.output}).encode())


def test_an_image_of_the_provider_is_a_file_of_the_run(tmp_path: Path) -> None:
    png = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(20)).decode()
    message = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Here it is."}]}
    output = [{"type": "image_generation_call", "result": png, "revised_prompt": "a cat"}, message]
    openai = {"spec": "openai:gpt-6-sol", "name": "gpt-6-sol", "endpoint": "http://h/v1", "provider": "openai"}
    model = Answered(**openai, wire="responses", play=lambda think: ([], ""), sent=[], output=output)
    agent = make("tool_calling", model, tmp_path / "j.db", tools=["hosted:image_generation"])
    run = agent.run("Draw a cat.")
    assert run.answer == "Here it is."
    [file] = run.files
    assert (file.media_type, file.tool, file.data) == ("image/png", "image_generation", base64.b64decode(png))
    assert run.cost_usd is None  # nobody knows what it costs


def test_a_foreign_journal_gets_no_hosted_tool_without_trust(tmp_path: Path) -> None:
    def fail(think: Think) -> tuple[Blocks, str]:
        raise RuntimeError("the process dies")

    tools = ["hosted:web_search", "hosted:mcp:https://eve.org/mcp"]
    agent = make("react", played(fail), tmp_path / "j.db", tools=tools)
    crashed = agent.run("x")
    row = Journal.at(tmp_path / "j.db").run(crashed.id)
    found = plait.Agent.from_journal(row.head, journal=tmp_path / "j.db")
    assert found.replay(crashed.id).requests == 1
    with pytest.raises(ConfigError, match=r"need your trust.*hosted:web_search, hosted:mcp:https://eve.org/mcp"):
        found.resume(crashed.id)


def test_a_fork_and_a_plan_keep_the_hosted_tools(tmp_path: Path) -> None:
    model = of_loop("tool_calling")
    agent = make("tool_calling", model, tmp_path / "j.db")
    run = agent.run(QUESTION)
    turns = iter([*SEARCHED, {"type": "text", "text": "Done."}] for _ in range(3))
    other = agent.using(model=played(lambda think: (next(turns), "end_turn")))
    assert other.fork(run, 2).answer == "Done."
    planner = of_loop("rewoo")
    planned = make("rewoo", planner, tmp_path / "j.db").plan(QUESTION)
    assert planned.plan is not None
    agent = make("rewoo", planner, tmp_path / "j.db").with_plan(planned.plan)
    agent.run(QUESTION)
    assert all("web_search" in {tool["name"] for tool in body["tools"]} for body in planner.sent)
    assert len(planner.sent) > 1


def test_a_limit_in_usd_needs_the_price_of_a_hosted_call() -> None:
    openai = {"spec": "openai:gpt-6-sol", "name": "gpt-6-sol", "endpoint": "http://h/v1", "provider": "openai"}
    model = played(lambda think: ([], ""), **openai, wire="responses")
    limited = {"model": model, "journal": False, "limits": plait.Limits(usd=1.0)}
    with pytest.raises(ConfigError, match="the price of a call of hosted:image_generation"):
        plait.Agent("react", tools=["hosted:image_generation"], **limited).run("x")
    run = plait.Agent("react", tools=["hosted:web_search"], **limited).run("x")
    assert run.status != "answered"  # the price is known, and the model says nothing that can be read


def test_calls_count_against_a_limit_in_usd(tmp_path: Path) -> None:
    run = make("react", of_loop("react"), tmp_path / "j.db", limits=plait.Limits(usd=0.015)).run(QUESTION)
    assert (run.status, run.outcome.limit) == ("stopped", "usd")  # type: ignore[union-attr]
    assert run.calls <= 3
