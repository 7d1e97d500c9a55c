"""Runs against endpoints that are as strict as hosted providers: every loop, forks to other models, and refusals."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

import plait
from cli_support import Shell
from conftest import CAMPAIGN
from loop_scripts import LOOPS, QUESTION, SCRIPTS
from models_server import Asked, Server
from plait.core import Stopped
from plait.models.base import Abilities
from plait.models.fallback import join_models
from profile_matrix import ONE_OF_EACH_WIRE, PROFILES, Tally, make_agent, run_cell
from profile_servers import with_script


@pytest.mark.parametrize("name", PROFILES)
async def test_each_loop_is_answered_by_each_model_and_nothing_is_refused(name: str, tmp_path: Path) -> None:
    """Here each model has some of the loops; the campaign's part `profiles` has all pairs."""
    for loop in LOOPS[[*PROFILES].index(name) % 3 :: 3]:
        cell = await run_cell(PROFILES[name], loop, tmp_path)
        assert (cell.faults, cell.refused) == ([], [[], []]), loop


@pytest.mark.parametrize("name", PROFILES)
async def test_a_tool_calling_run_is_forked_to_other_models_and_replayed(name: str, tmp_path: Path) -> None:
    """The fork has the first turn's calls of one model, and its own model makes the second. Campaign: all pairs."""
    journal = tmp_path / "journal.db"
    async with AsyncExitStack() as stack:
        handlers = {each: profile.server() for each, profile in PROFILES.items()}
        servers = {each: await stack.enter_async_context(Server(handler)) for each, handler in handlers.items()}

        def agent(of: str, tally: Tally) -> plait.Agent:
            return make_agent(PROFILES[of].resolve(servers[of].url), "tool_calling", tally.tools(), journal)

        first = Tally()
        run = await agent(name, first).arun(QUESTION)
        assert first.find_fault(run) == ""
        for other in [*PROFILES] if CAMPAIGN else [*PROFILES][[*PROFILES].index(name) % 3 :: 3]:
            tally = Tally(first.sent[:1])
            forked = await agent(other, tally).afork(run.id, 2)
            assert (tally.find_fault(forked), handlers[other].refused) == ("", []), other
            replayed = agent(other, tally).replay(forked.id)
            assert replayed.whole and replayed.requests == len(SCRIPTS["tool_calling"]["act"]) - 1, other


@pytest.mark.parametrize("name", PROFILES)
async def test_a_run_that_reaches_its_limit_concludes_and_nothing_is_refused(name: str, tmp_path: Path) -> None:
    """The request to conclude follows results, which not every provider accepts."""
    handler = PROFILES[name].server()
    async with Server(handler) as server:
        model = PROFILES[name].resolve(server.url)
        run = await make_agent(model, "tool_calling", Tally().tools(), tmp_path / "j.db", calls=2).arun(QUESTION)
    assert (run.status, handler.refused, len(server.asked)) == ("stopped", [], 2)


WIDE = Abilities(schema=True, prefill=True)
"""Abilities of an endpoint of which nothing is known."""


@pytest.mark.parametrize(
    "name, fields",
    [
        ("Claude", {"temperature", "prefill"}),
        ("Claude, always thinking", {"temperature", "prefill"}),
        ("GPT-5.6", {"temperature"}),
        ("Grok", {"stop"}),
        ("Mistral", {"stream_options"}),
    ],
)
async def test_a_refused_field_is_left_out_and_the_run_is_answered(name: str, fields: set[str], tmp_path: Path) -> None:
    handler, tally = PROFILES[name].server(), Tally()
    async with Server(handler) as server:
        model = structs.replace(PROFILES[name].resolve(server.url), temperature=0.5, abilities=WIDE)
        run = await make_agent(model, "codeact", tally.tools(), tmp_path / "j.db").arun(QUESTION)
    assert tally.find_fault(run) == ""
    assert len(handler.refused) == len(fields)
    assert all(any(each in said for said in handler.refused) for each in fields)


OVERFLOWS: dict[str, dict[str, Any]] = {
    "Claude, fixed thinking": {
        "type": "error",
        "error": {"type": "invalid_request_error", "message": "prompt is too long: 210000 tokens > 200000 maximum"},
    },
    "GPT-5.6": {
        "error": {
            "message": "Your input exceeds the context window of this model. Please adjust your input and try again.",
            "type": "invalid_request_error",
            "param": "input",
            "code": "context_length_exceeded",
        }
    },
    "Gemini 3": {
        "error": {
            "code": 400,
            "message": "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
            "status": "INVALID_ARGUMENT",
        }
    },
    "DeepSeek V4": {
        "error": {
            "message": "This model's maximum context length is 131072 tokens. However, you requested 140000 tokens.",
            "type": "invalid_request_error",
        }
    },
    "Kimi K2": {
        "error": {
            "message": "Invalid request: Your request exceeded model token limit: 262144 (requested: 300000)",
            "type": "invalid_request_error",
        }
    },
    "Grok": {
        "code": "Client specified an invalid argument",
        "error": "This model's maximum prompt length is 131072 but the request contains 148000 tokens.",
    },
    "Mistral": {
        "object": "error",
        "message": "Prompt contains 140000 tokens and 0 draft tokens, too large for model with 131072 maximum context "
        "length",
        "type": "invalid_request_prompt",
        "code": "3051",
    },
    "Groq": {
        "error": {
            "message": "Please reduce the length of the messages or completion.",
            "type": "invalid_request_error",
            "code": "context_length_exceeded",
        }
    },
}
OVERFLOWS["Claude, always thinking"] = OVERFLOWS["Claude, fixed thinking"]


@pytest.mark.parametrize("name", OVERFLOWS)
async def test_a_prompt_that_is_too_long_is_sent_again_with_less_of_the_results(name: str, tmp_path: Path) -> None:
    handler, tally = PROFILES[name].server(), Tally(length=6_000)
    handler.answers = {3: (400, OVERFLOWS[name])}
    async with Server(handler) as server:
        agent = make_agent(PROFILES[name].resolve(server.url), "tool_calling", tally.tools(), tmp_path / "j.db")
        run = await agent.arun(QUESTION)
        sizes = [len(asked.raw) for asked in server.asked]
    assert (tally.find_fault(run), handler.refused) == ("", [])
    # A placeholder replaces the first result; the second one stays.
    assert len(sizes) == 4 and sizes[1] < sizes[2] and sizes[2] - 6_000 < sizes[3] < sizes[2] - 5_500
    # Claude's thinking of the second turn belongs to the longer result.
    assert handler.changed == (name == "Claude, always thinking")
    assert agent.replay(run.id).whole


FILTERED: dict[str, dict[str, Any]] = {
    "Claude": {"type": "message", "content": [], "stop_reason": "refusal", "usage": {"output_tokens": 1}},
    "GPT-5.6": {
        "object": "response",
        "status": "incomplete",
        "incomplete_details": {"reason": "content_filter"},
        "output": [],
    },
    "Gemini 3": {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}},
    "Grok": {"choices": [{"index": 0, "message": {"content": ""}, "finish_reason": "content_filter"}]},
}


@pytest.mark.parametrize("loop", ["react", "tool_calling"])
@pytest.mark.parametrize("name", FILTERED)
async def test_a_filtered_reply_stops_the_run_and_says_so(name: str, loop: str, tmp_path: Path) -> None:
    handler = PROFILES[name].server()
    handler.answers = dict.fromkeys(range(2, 9), (200, FILTERED[name]))
    async with Server(handler) as server:
        agent = make_agent(PROFILES[name].resolve(server.url), loop, Tally().tools(), tmp_path / "j.db")
        run = await agent.arun(QUESTION)
    assert isinstance(run.outcome, Stopped) and run.outcome.limit == "reply"
    assert "content filter" in str(run.reason)


@pytest.mark.parametrize("name", FILTERED)
async def test_a_busy_endpoint_is_asked_again(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plait.runtime.performers.ask_model._pause", lambda why, failures: 0.0)
    handler, tally = PROFILES[name].server(), Tally()
    handler.answers = {2: (429, {"error": {"message": "Rate limit reached", "type": "rate_limit_error"}})}
    async with Server(handler) as server:
        model = PROFILES[name].resolve(server.url)
        run = await make_agent(model, "tool_calling", tally.tools(), tmp_path / "j.db", retries=1).arun(QUESTION)
    assert (tally.find_fault(run), len(server.asked)) == ("", 4)


NO_SUCH_MODEL: dict[str, dict[str, Any]] = {
    "Claude": {"type": "error", "error": {"type": "not_found_error", "message": "model: claude-opus-4-7"}},
    "GPT-5.6": {"error": {"message": "The model `gpt-5.6` does not exist.", "code": "model_not_found"}},
    "Gemini 3": {"error": {"code": 404, "message": "models/gemini-3-pro-preview is not found", "status": "NOT_FOUND"}},
    "Grok": {"code": "not-found", "error": "The model grok-4.5 does not exist"},
}


@pytest.mark.parametrize("name", NO_SUCH_MODEL)
async def test_compare_does_not_measure_a_model_that_rejects_every_request(name: str, tmp_path: Path) -> None:
    async def reject(asked: Asked) -> None:
        await asked.answer(404, NO_SUCH_MODEL[name])

    spec, shell = PROFILES[name].spec, Shell(tmp_path)
    async with Server(reject) as server:
        ((provider, table),) = PROFILES[name].endpoints(server.url).items()
        lines = [f"[endpoints.{provider}]", *(f"{key} = {json.dumps(value)}" for key, value in table.items())]
        (tmp_path / "plait.toml").write_text("\n".join(lines))
        words = ("compare", "basics:report", "--loops", "tool_calling", "--models", spec, "--limit", "2")
        ended = await asyncio.to_thread(shell, *words)
    assert ended.code == 4 and "not measured" in ended.out
    assert "has no model " in ended.out and "0%" not in ended.out


@pytest.mark.parametrize("name", PROFILES)
async def test_runs_that_are_not_streamed_are_answered_and_replayed_with_equal_bytes(name: str, tmp_path: Path) -> None:
    for loop in ("react", "tool_calling"):
        cell = await run_cell(PROFILES[name], loop, tmp_path, stream=False)
        assert (cell.faults, cell.refused) == ([], [[], []]), loop


@pytest.mark.parametrize("name", ONE_OF_EACH_WIRE.values())
async def test_a_run_goes_on_with_a_fallback_model_of_another_wire_when_its_own_is_out(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for other in ONE_OF_EACH_WIRE.values():
        first, second, tally = PROFILES[name].server(), PROFILES[other].server(), Tally()
        first.answers = {2: (503, {"error": {"message": "The engine is overloaded."}})}
        async with Server(first) as one, Server(second) as two:
            members = (PROFILES[name].resolve(one.url), PROFILES[other].resolve(two.url))
            model = join_models(
                tuple(
                    with_script(structs.replace(each, spec=each.spec + str(at)), "tool_calling", "act")
                    for at, each in enumerate(members)
                )
            )
            limits = plait.Limits(retries=0)
            agent = plait.Agent(
                "tool_calling", model=model, tools=tally.tools(), journal=tmp_path / "j.db", limits=limits
            )
            run = await agent.arun(QUESTION)
        assert (tally.find_fault(run), first.refused, second.refused) == ("", [], []), other
        assert (len(one.asked), len(two.asked)) == (2, 2)
        assert agent.replay(run.id).whole


@pytest.mark.parametrize("loop", ["rewoo", "compiler", "phased", "codeact"])
async def test_each_phase_may_have_a_model_of_another_wire(loop: str, tmp_path: Path) -> None:
    handlers = [PROFILES[name].server() for name in ONE_OF_EACH_WIRE.values()]
    profiles = [PROFILES[name] for name in ONE_OF_EACH_WIRE.values()]
    for shift in (0, 2):
        tally = Tally()
        async with AsyncExitStack() as stack:
            servers = [await stack.enter_async_context(Server(handler)) for handler in handlers]
            models = {}
            for at, phase in enumerate(SCRIPTS[loop]):
                chosen = (at + shift) % len(profiles)
                models[phase] = with_script(profiles[chosen].resolve(servers[chosen].url), loop, phase)
            limits = plait.Limits(retries=0, tools=0 if loop == "codeact" else None)
            agent = plait.Agent(loop, models=models, tools=tally.tools(), journal=tmp_path / "j.db", limits=limits)
            run = await agent.arun(QUESTION)
        assert tally.find_fault(run) == ""
        assert [handler.refused for handler in handlers] == [[]] * len(handlers)
        assert agent.replay(run.id).whole
