"""LiteLLM, OpenRouter, Cloudflare and other gateways as people met them. README.md names the thread of each test."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from endpoint_runs import FINAL, QUESTION, WARM, Ran, run_against, run_agent

import plait
from models_server import USAGE, Asked, delta, event
from plait.core import Think, user
from plait.models.base import Response
from wire_exchanges import model_of

DONE = event(b"[DONE]")


def refusal(message: str, **fields: Any) -> dict[str, Any]:
    return {"error": {"message": message, **fields}}


def native(given: str) -> dict[str, Any]:
    return {"index": 0, "id": "a", "function": {"name": "weather", "arguments": given}}


CALL = delta(tool_calls=[native('{"city": "Lyon"}')], finish="tool_calls") + DONE


def retried_and_answered(made: Ran) -> None:
    assert (made.status, made.answer) == ("answered", "21 degrees.")
    assert len(made.pauses) == 1 and len(made.bodies) == 2 + len(made.cities)


# Errors inside a reply of status 200


def test_a_call_that_an_error_cuts_in_the_stream_is_not_made_and_the_request_is_repeated(journal: Path) -> None:
    half = delta("I look. ") + delta(tool_calls=[native('{"city": "Ly')])
    fault = {"code": 502, "message": "Provider disconnected", "metadata": {"error_type": "provider_unavailable"}}
    ends = event({"error": fault, "choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "error"}]})
    made = run_against(half + ends + DONE, CALL, WARM, journal=journal)
    retried_and_answered(made)
    assert made.cities == ["Lyon"] and made.replays()


def test_an_error_without_choices_is_no_empty_answer() -> None:
    fault = {"code": 502, "message": "Worker local total request limit reached (33/32)"}
    made = run_against(event({"choices": [], "error": fault}) + DONE, WARM)
    retried_and_answered(made)
    assert any("request limit reached (33/32)" in note for note in made.notes)


def test_an_error_in_a_whole_body_keeps_its_status() -> None:
    fault = {"code": 429, "message": "Provider returned error", "metadata": {"raw": "temporarily rate-limited"}}
    made = run_against({"error": fault, "choices": [{"message": {"content": None}}]}, WARM)
    retried_and_answered(made)
    assert any(note.startswith("RateLimited") and "temporarily rate-limited" in note for note in made.notes)


@pytest.mark.parametrize("reason", ["network_error", "error"])
def test_the_providers_own_reason_of_the_end_counts(reason: str) -> None:
    choice = {"index": 0, "delta": {"content": ""}, "finish_reason": "stop", "native_finish_reason": reason}
    retried_and_answered(run_against(event({"choices": [choice]}) + DONE, WARM))


def test_an_anthropic_stream_that_ends_in_an_error_is_no_turn() -> None:
    start = {
        "type": "content_block_start",
        "index": 0,
        "content_block": {"type": "tool_use", "id": "a", "name": "weather", "input": {}},
    }
    half = {
        "type": "content_block_delta",
        "index": 0,
        "delta": {"type": "input_json_delta", "partial_json": '{"city": "Ly'},
    }
    fault = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    text = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "21 degrees."}}
    end = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}
    replies = (b"".join(map(event, (start, half, fault))), b"".join(map(event, (text, end))))
    made = run_against(*replies, model={"wire": "anthropic"})
    retried_and_answered(made)
    assert made.cities == []


def test_chunks_without_choices_after_the_end_are_nothing() -> None:
    made = run_against(
        delta("21 degrees.", "stop") + event({"id": "x", "usage": USAGE}) + event({"choices": None}) + DONE
    )
    assert (made.status, made.answer, made.run.usage.input_tokens) == ("answered", "21 degrees.", 12)


# Cloudflare's pages

PAGE = b"""<!DOCTYPE html>
<!--[if lt IE 7]> <html class="no-js ie6 oldie" lang="en-US"> <![endif]-->
<head>
<title>api.example.com | %d: A timeout &amp; more</title>
<meta charset="UTF-8" /></head><body><div id="cf-wrapper">Error</div></body></html>"""


@pytest.mark.parametrize("status", [520, 524])
def test_a_page_of_cloudflare_is_retried_and_only_its_title_is_shown(status: int) -> None:
    page = (status, PAGE % status, "text/html; charset=UTF-8")
    retried_and_answered(run_against(page, WARM))
    made = run_against(*[page] * 4)
    assert (
        made.status == "crashed" and f"failed ({status}): api.example.com | {status}: A timeout & more." in made.reason
    )
    assert "<" not in made.reason


def test_each_request_streams_so_that_no_proxy_waits_for_a_whole_reply() -> None:
    made = run_against(CALL, WARM)
    assert [body["stream"] for body in made.bodies] == [True, True]


def test_a_date_to_retry_after_is_waited_for() -> None:
    async def asks_to_wait(asked: Asked) -> None:
        until = format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)
        await asked.answer(429, refusal("slow down"), Retry_After=until)

    made = run_against(asks_to_wait, WARM)
    retried_and_answered(made)
    assert 27 < made.pauses[0] <= 30


# Settings that the model behind a gateway does not take

GROK = {"code": "Client specified an invalid argument", "error": "Argument not supported on this model: stop"}
LITELLM = "litellm.BadRequestError: OpenAIException - Unsupported parameter: 'stop' is not supported with this model."


@pytest.mark.parametrize(
    "body", [GROK, refusal(f"{LITELLM}. Received Model Group=gpt-5\nAvailable Model Group Fallbacks=None", code="400")]
)
def test_stop_strings_that_a_model_does_not_take_are_cut_by_plait(body: Any) -> None:
    invents = FINAL.replace(b"21 degrees.", b"21 degrees.\\nObservation: 99")
    made = run_against((400, body), invents, loop="react")
    assert (made.status, made.answer) == ("answered", "21 degrees.")
    assert "stop" in made.bodies[0] and "stop" not in made.bodies[1]


def test_litellms_unsupported_parameters_are_left_out() -> None:
    said = "litellm.UnsupportedParamsError: groq does not support parameters: ['temperature'], for model=kimi-k3."
    made = run_against((400, refusal(said, code="400")), WARM, model={"temperature": 0.3})
    assert made.answer == "21 degrees." and "temperature" not in made.bodies[1]


# Usage


def test_null_details_of_usage_are_zero() -> None:
    usage = {
        **USAGE,
        "prompt_tokens_details": {"cached_tokens": None},
        "completion_tokens_details": {"reasoning_tokens": None},
    }
    ends = delta("", "stop") + event({"choices": [], "usage": usage}) + DONE
    made = run_against(delta(tool_calls=[native('{"city": "Lyon"}')]) + ends, delta("21 degrees.") + ends)
    assert (made.status, made.run.usage.input_tokens, made.run.usage.cached_tokens) == ("answered", 24, 0)


def test_null_counts_of_anthropics_last_event_do_not_undo_the_first_ones() -> None:
    counts = {"cache_creation_input_tokens": None, "cache_read_input_tokens": None, "input_tokens": None}
    events = [
        {"type": "message_start", "message": {"usage": {"input_tokens": 31, "output_tokens": 1}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "Hi"}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {**counts, "output_tokens": 43}},
    ]
    reply = model_of("anthropic", "m").decode(Response(200, b"".join(map(event, events))), Think("act", (user("?"),)))
    assert (reply.text, reply.usage.input_tokens, reply.usage.output_tokens) == ("Hi", 31, 43)


def test_a_usage_of_zeros_beside_a_text_is_estimated() -> None:
    zeros = {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}
    item = {"type": "message", "content": [{"type": "output_text", "text": "21 degrees."}]}
    done = {"type": "response.completed", "response": {"status": "completed", "output": [item], "usage": zeros}}
    made = run_against(event(done), model={"wire": "responses"})
    assert made.answer == "21 degrees." and made.run.usage.estimated and made.run.usage.input_tokens > 50


# Many tools


@cache
def many_tools(count: int) -> list[Any]:
    def make(number: int) -> Any:
        def tool(city: str) -> str:
            return f"{city}: {number}"

        tool.__name__, tool.__doc__ = f"weather_{number}", f"The weather of planet {number}."
        return plait.tool(read_only=True)(tool)

    return [make(number) for number in range(count)]


TOO_LONG = (
    "Invalid 'tools': array too long. Expected an array with maximum length 128, but got an array with length 152"
)


@pytest.mark.parametrize("status", [400, 429])
def test_too_many_tools_are_no_reason_to_wait_and_the_error_says_what_to_do(status: int) -> None:
    body = refusal(TOO_LONG, param="tools", code="array_above_max_length")
    made = run_agent([], many_tools(256)[:152], (status, body))
    assert (made.status, len(made.bodies), made.pauses) == ("crashed", 1, [])
    assert any("--max-tools 128" in note for note in made.notes)


def test_a_server_error_at_256_tools_names_their_number() -> None:
    fails = (500, refusal("The server had an error processing your request.", type="server_error"))
    made = run_agent([], many_tools(256), fails, limits=plait.Limits(retries=0))
    assert any("more than 128 tools" in note and "--max-tools 128" in note for note in made.notes)
    made = run_agent([], many_tools(256)[:100], fails, limits=plait.Limits(retries=0))
    assert not any("--max-tools" in note for note in made.notes)


# Secrets


def test_a_gateways_page_with_the_key_is_shown_without_it() -> None:
    made = run_against(
        (502, b"<html><title lang=en>Bad key sk-secret</title></html>", "text/html"), limits=plait.Limits(retries=0)
    )
    assert made.status == "crashed" and "sk-secret" not in made.reason and "Bad key" in made.reason


def test_the_question_is_not_lost_in_any_of_these(journal: Path) -> None:
    made = run_against((524, PAGE % 524, "text/html"), WARM, journal=journal)
    assert [json.dumps(body["messages"]).count(QUESTION) for body in made.bodies] == [1, 1] and made.replays()
