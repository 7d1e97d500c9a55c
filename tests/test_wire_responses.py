"""OpenAI's Responses: recorded exchanges decoded and asked again, and the exact bytes of requests."""

from __future__ import annotations

import contextlib
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import plait
from conftest import for_each
from models_server import Server, event
from plait.core import Call, Message, ProviderState, Reply, Think, ToolSpec, Usage, assistant, system, user
from plait.core.errors import (
    AuthenticationError,
    BadRequest,
    BadResponse,
    ContentFiltered,
    ContextOverflow,
    ModelError,
    RateLimited,
    ServerFailed,
    Unsupported,
)
from plait.models.base import Abilities, Response
from plait.models.chat import ChatModel
from plait.models.config import ModelConfig
from plait.models.resolve import resolve
from plait.models.wires.turns import GO_ON
from recorded_wires import WHOLE, Exchange, ask_again, chunks_of, decoded, model_of, odd_bodies, recorded
from wire_servers import ResponsesEndpoint

FOLDERS = ("anthropic", "deepseek", "google", "openai-chat", "openai-responses", "openrouter")
NO_REPLY = "/responses/input_tokens"
"""Counts the tokens of a request; no model is asked."""
IGNORED_ITEMS = {"web_search_call", "compaction"}
"""Items of a reply without text or calls of Plait's; they are only sent back."""


def exchanges() -> list[tuple[str, Exchange]]:
    return [(name, each) for name, each in recorded(*FOLDERS) if "/responses" in each["path"]]


def response_of(exchange: Exchange) -> dict[str, Any]:
    """The whole response: the body, or that of the stream's last event."""
    last = chunks_of(exchange)[-1]
    return last.get("response", last) if "sse" in exchange else last


def texts(response: dict[str, Any], item: str, field: str, *parts: str) -> list[str]:
    """The texts of parts in the output's items of a type."""
    return [
        part["text"]
        for each in response["output"]
        if each["type"] == item and each.get("role", "assistant") == "assistant"
        for part in each.get(field) or []
        if part["type"] in parts
    ]


def test_every_recorded_reply_arrives_whole():
    seen = 0
    for name, exchange in exchanges():
        if exchange["status"] != 200 or exchange["path"].endswith(NO_REPLY):
            continue
        response, reply = response_of(exchange), decoded(exchange, model_of(exchange, "responses"))
        calls = [each for each in response["output"] if each["type"] == "function_call"]
        assert reply.text == "".join(texts(response, "message", "content", "output_text")), name
        assert [(call.id, call.tool, call.input or {}) for call in reply.calls] == [
            (each["call_id"], each["name"], json.loads(each["arguments"])) for each in calls
        ], name
        thoughts = texts(response, "reasoning", "content", "reasoning_text")
        thoughts += texts(response, "reasoning", "summary", "summary_text")
        assert reply.reasoning == "\n\n".join(thoughts), name
        if (usage := response.get("usage")) and usage["total_tokens"]:  # one recording reports only zeros
            cached = usage["input_tokens_details"]["cached_tokens"]
            stored = usage["input_tokens_details"].get("cache_write_tokens", 0)
            thought = usage["output_tokens_details"]["reasoning_tokens"]
            assert reply.usage == Usage(usage["input_tokens"], usage["output_tokens"], cached, stored, thought), name
        assert reply.finish == ("calls" if calls else "stop"), name
        assert reply.model == response.get("model", ""), name
        kinds = {each["type"] for each in response["output"]}
        assert kinds <= {"message", "function_call", "reasoning", *IGNORED_ITEMS}, name
        if kinds - {"message"}:
            # A stream's last event may hold the same reasoning, encrypted anew.
            done = [each for each in chunks_of(exchange) if each.get("type") == "response.output_item.done"]
            items = [each["item"] for each in sorted(done, key=lambda each: each["output_index"])]
            assert reply.state is not None and reply.state.data == (items or response["output"]), name
        seen += 1
    assert seen == 87


def test_every_recorded_refusal_is_a_typed_error():
    refused = [(name, each) for name, each in exchanges() if each["status"] != 200]
    assert len(refused) == 2
    for name, exchange in refused:
        with pytest.raises(BadRequest) as caught:
            decoded(exchange, model_of(exchange, "responses"))
        assert exchange["response"]["error"]["message"] in str(caught.value), name


def test_a_count_of_tokens_is_not_a_reply():
    counts = [each for _, each in exchanges() if each["path"].endswith(NO_REPLY)]
    for exchange in counts:
        with pytest.raises(BadResponse):
            decoded(exchange, model_of(exchange, "responses"))
    assert len(counts) == 1


def test_the_second_request_of_a_recording_holds_the_first_replys_items():
    """Each item that a recorded client sent back is in Plait's request too, with every field that the client sent."""
    by_call = {}
    made = 0
    for name, exchange in exchanges():
        if exchange["status"] != 200 or exchange["path"].endswith(NO_REPLY):
            continue
        request = exchange["request"] or {}
        given = request.get("input")
        given = given if isinstance(given, list) else []
        for call_id, (model, reply) in list(by_call.items()):
            results = [each for each in given if each.get("call_id") == call_id and "output" in each]
            sent_back = [each for each in given if each.get("call_id") == call_id and "arguments" in each]
            if not results or not sent_back:
                continue  # the service keeps that conversation (previous_response_id), which Plait never asks for
            think = Think("act", (user("?"), *turn(reply, {call_id: results[0]["output"]})))
            sent = json.loads(model.encode(think).body)["input"]
            first = given.index(sent_back[0])
            before = [each for each in given[:first] if each.get("type") == "reasoning"][-1:]
            for each in (*before, sent_back[0], results[0]):
                assert any(same(mine, each) for mine in sent), (name, each)
            del by_call[call_id]
            made += 1
        model = model_of(exchange, "responses", abilities=WHOLE)
        reply = decoded(exchange, model)
        by_call.update({call.id: (model, reply) for call in reply.calls})
    assert made == 12


def turn(reply: Reply, results: dict[str, Any]) -> list[Message]:
    """The messages of a turn, as a loop keeps them: text stripped, ids made unique."""
    answers = [Message("tool", str(results.get(call.id, "-")), call_id=call.id) for call in reply.calls]
    return [Message("assistant", reply.text.strip(), reply.calls, state=reply.state), *answers]


def same(mine: dict[str, Any], theirs: dict[str, Any]) -> bool:
    return all(mine.get(key) == value for key, value in theirs.items() if value and key != "arguments")


def test_an_odd_value_in_a_reply_raises_nothing_but_a_models_error():
    for seed, (name, exchange) in enumerate(exchanges()):
        model = model_of(exchange, "responses")
        for body in odd_bodies(exchange, seed):
            with contextlib.suppress(ModelError):
                reply = model.decode(Response(exchange["status"], body), Think("act"))
                assert ask_again(model, reply), name


# Requests


def model(name: str = "gpt-5", abilities: Abilities = WHOLE, **options: Any) -> ChatModel:
    return ChatModel(
        spec=f"t:{name}", name=name, endpoint="http://h/v1", abilities=abilities, wire="responses", **options
    )


def body(think: Think, name: str = "gpt-5", abilities: Abilities = WHOLE, **options: Any) -> dict[str, Any]:
    return json.loads(model(name, abilities, **options).encode(think).body)


ASK = (system("Be brief."), user("2+2?"))


def test_the_bytes_of_a_request():
    request = model(abilities=Abilities(temperature=False)).encode(
        Think("act", ASK, tools=(ToolSpec("add", "Adds."),), temperature=0.0, stop=("x",), max_tokens=90)
    )
    assert request.path == "responses"
    assert request.body == (
        b'{"model":"gpt-5","instructions":"Be brief.","input":[{"role":"user","content":"2+2?"}],"store":false,'
        b'"include":["reasoning.encrypted_content"],"max_output_tokens":90,"tools":[{"type":"function","name":"add",'
        b'"description":"Adds.","parameters":{"type":"object","properties":{}},"strict":false}],"stream":true}'
    )


def test_a_longer_conversation_begins_with_the_bytes_of_a_shorter_one():
    short = model().encode(Think("act", ASK)).body
    longer = model().encode(Think("act", (*ASK, assistant("4"), system("Now German."), user("And 3+3?")))).body
    assert longer.startswith(short[: short.index(b"]")])
    assert [each["role"] for each in json.loads(longer)["input"]] == ["user", "assistant", "system", "user"]


def test_other_models_are_asked_for_no_encrypted_reasoning_and_get_a_temperature():
    sent = body(Think("act", ASK, temperature=0.5), "gpt-4.1")
    assert "include" not in sent
    assert sent["temperature"] == 0.5
    assert body(Think("act", ASK, temperature=0.5, resample=True), "gpt-4.1")["temperature"] == 0.7


def test_a_schema_goes_beside_the_users_verbosity():
    sent = body(Think("act", ASK, schema={"type": "object"}), params={"text": {"verbosity": "low"}})
    form = {"type": "json_schema", "name": "reply", "schema": {"type": "object"}, "strict": False}
    assert sent["text"] == {"format": form, "verbosity": "low"}


def test_parameters_of_chat_completions_go_to_their_place():
    params = {"reasoning_effort": "high", "verbosity": "low", "reasoning": {"summary": "auto"}, "max_tokens": 100}
    sent = body(Think("act", ASK, max_tokens=50), params=params)
    assert sent["reasoning"] == {"effort": "high", "summary": "auto"}
    assert sent["text"] == {"verbosity": "low"}
    assert sent["max_output_tokens"] == 50
    assert body(Think("act", ASK), params={"max_completion_tokens": 70})["max_output_tokens"] == 70
    assert "store" not in body(Think("act", ASK), params={"store": None, "reasoning_effort": None})


def test_no_request_has_fewer_tokens_than_the_service_accepts():
    assert body(Think("act", ASK, max_tokens=5))["max_output_tokens"] == 16


def test_a_prefill_becomes_a_request_to_continue():
    asked = Think("act", ASK, prefill="Thought: ")
    assert body(asked)["input"][1:] == [
        {"role": "assistant", "content": "Thought: "},
        {"role": "user", "content": GO_ON},
    ]
    assert model().decode(Response(200, whole(message("Thought: I go on."))), asked).text == "I go on."


CALLS = (Call("add", {"a": 1}, "c1"), Call("add", [2], ""))
RESULTS = (Message("tool", "1", call_id="c1"), Message("tool", "2"))
REASONING = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA", "status": None}
ITEMS = [
    REASONING,
    {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "phase": "commentary",
        "content": [{"type": "output_text", "text": "I add. "}],
    },
    {
        "type": "function_call",
        "id": "fc_1",
        "call_id": "x",
        "name": "add",
        "arguments": '{"a": 1}',
        "status": "completed",
    },
    {"type": "function_call", "id": "fc_2", "call_id": "y", "name": "add", "arguments": "{}", "status": "completed"},
]


def test_calls_of_another_model_are_plain_items():
    for state in (None, ProviderState("responses", "gpt-6", ITEMS), ProviderState("chat", "gpt-5", ITEMS)):
        said = Message("assistant", "I add.", CALLS, state=state)
        assert body(Think("act", (user("?"), said, *RESULTS)))["input"][1:] == [
            {"role": "assistant", "content": "I add."},
            {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a":1}'},
            {"type": "function_call", "call_id": "call_2", "name": "add", "arguments": '{"input":[2]}'},
            {"type": "function_call_output", "call_id": "c1", "output": "1"},
            {"type": "function_call_output", "call_id": "call_2", "output": "2"},
        ]


def test_a_models_own_items_go_back_unchanged_with_the_ids_of_the_calls():
    said = Message("assistant", "I add.", CALLS, state=ProviderState("responses", "gpt-5", ITEMS))
    sent = body(Think("act", (user("?"), said, *RESULTS)))["input"][1:]
    assert sent[:2] == ITEMS[:2]
    assert sent[2:4] == [{**ITEMS[2], "call_id": "c1"}, {**ITEMS[3], "call_id": "call_2"}]
    assert [each["call_id"] for each in sent[4:]] == ["c1", "call_2"]


def test_reasoning_that_the_service_did_not_return_is_left_out_with_all_ids():
    bare = [{"type": "reasoning", "id": "rs_1", "summary": []}, *ITEMS[2:]]
    said = Message("assistant", "", CALLS, state=ProviderState("responses", "gpt-5", bare))
    sent = body(Think("act", (user("?"), said, *RESULTS)))["input"]
    assert "id" not in sent[1] and sent[1]["type"] == "function_call"
    assert not any(each.get("type") == "reasoning" for each in sent)


def test_items_that_do_not_match_the_calls_are_not_sent():
    said = Message("assistant", "", CALLS[:1], state=ProviderState("responses", "gpt-5", ITEMS))
    sent = body(Think("act", (user("?"), said, RESULTS[0])))["input"]
    assert [each.get("type") for each in sent] == [None, "function_call", "function_call_output"]


def test_without_tools_a_history_of_calls_is_text():
    said = Message("assistant", "", CALLS[:1], state=ProviderState("responses", "gpt-5", ITEMS[:3]))
    sent = body(Think("act", (user("?"), said, RESULTS[0])), abilities=WHOLE.without("tools"))["input"]
    assert [each["role"] for each in sent] == ["user", "assistant", "user"]


# Replies


def message(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}], **more}


def whole(*items: dict[str, Any], status: str = "completed", **more: Any) -> bytes:
    return json.dumps({"id": "r", "object": "response", "status": status, "output": items, **more}).encode()


def read(raw: bytes, think: Think | None = None) -> Reply:
    return model().decode(Response(200, raw), think or Think("act", ASK))


@pytest.mark.parametrize(
    "reason, finish", [("max_output_tokens", "length"), ("content_filter", "filter"), ("new_reason", "length")]
)
def test_an_incomplete_reply_has_its_reason(reason, finish):
    details = {"incomplete_details": {"reason": reason}}
    assert read(whole(message("Half"), status="incomplete", **details)).finish == finish
    last = {
        "type": "response.incomplete",
        "response": json.loads(whole(message("Half"), status="incomplete", **details)),
    }
    reply = read(event(last))
    assert (reply.text, reply.finish) == ("Half", finish)


def test_a_refusal_is_text_that_the_filter_ended():
    part = {"type": "refusal", "refusal": "I cannot."}
    said = read(whole({"type": "message", "content": [part]}))
    assert (said.text, said.finish) == ("I cannot.", "filter")
    stream = [{"type": "response.refusal.delta", "output_index": 0, "delta": "I cannot."}, END]
    said = read(b"".join(map(event, stream)))
    assert (said.text, said.finish) == ("I cannot.", "filter")


END = {"type": "response.completed", "response": {"status": "completed", "output": []}}


def test_a_stream_of_only_whole_items_arrives():
    items = [REASONING | {"summary": [{"type": "summary_text", "text": "Hm."}]}, *ITEMS[1:]]
    events = [{"type": "response.output_item.done", "output_index": at, "item": item} for at, item in enumerate(items)]
    reply = read(b"".join(map(event, [*events, END])))
    assert (reply.text, reply.reasoning, len(reply.calls)) == ("I add. ", "Hm.", 2)
    assert reply.state is not None and reply.state.data == items
    last = {"type": "response.completed", "response": {"status": "completed", "output": items}}
    assert read(event(last)) == reply
    assert read(whole(*items)) == reply


def test_deltas_are_not_added_twice():
    item = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "add", "arguments": ""}
    full = item | {"arguments": '{"a":1}'}
    events = [
        {"type": "response.created", "response": {"model": "gpt-5-x", "status": "in_progress"}},
        {"type": "response.reasoning_summary_text.delta", "output_index": 0, "summary_index": 0, "delta": "One."},
        {"type": "response.reasoning_summary_text.delta", "output_index": 0, "summary_index": 1, "delta": "Two."},
        {"type": "response.output_text.delta", "output_index": 1, "content_index": 0, "delta": "He"},
        {"type": "response.output_text.delta", "output_index": 1, "content_index": 0, "delta": "llo"},
        {"type": "response.output_text.done", "output_index": 1, "content_index": 0, "text": "Hello"},
        {"type": "response.output_item.done", "output_index": 1, "item": message("Hello")},
        {"type": "response.output_item.added", "output_index": 2, "item": item},
        {"type": "response.function_call_arguments.delta", "output_index": 2, "delta": '{"a"'},
        {"type": "response.function_call_arguments.delta", "output_index": 2, "delta": ":1}"},
        {"type": "response.function_call_arguments.done", "output_index": 2, "arguments": '{"a":1}'},
        {"type": "response.output_item.done", "output_index": 2, "item": full},
        {"type": "response.event_of_tomorrow", "delta": {"x": 1}, "output_index": "?"},
        {"type": "response.completed", "response": {"status": "completed", "output": [message("Hello")]}},
    ]
    for shown in (events, [{k: v for k, v in each.items() if k != "output_index"} for each in events]):
        named = [each | {"item_id": f"i{events[at].get('output_index')}"} for at, each in enumerate(shown)]
        for each in named:
            if "item" in each:
                each["item"] = each["item"] | {"id": each["item_id"]}
        reply = read(b"".join(map(event, named)))
        assert (reply.text, reply.reasoning, reply.finish) == ("Hello", "One.\n\nTwo.", "calls")
        assert reply.calls == (Call("add", {"a": 1}, "c1"),)
        assert reply.model == "gpt-5-x"


@pytest.mark.parametrize(
    "error, kind",
    [
        ({"code": "server_error", "message": "Sorry."}, ServerFailed),
        ({"code": "rate_limit_exceeded", "message": "Slow down."}, RateLimited),
        ({"code": "context_length_exceeded", "message": "Your input exceeds the context window."}, ContextOverflow),
        ({"code": "invalid_prompt", "message": "Your prompt was flagged."}, ContentFiltered),
        (None, ServerFailed),
    ],
)
def test_a_failed_response_is_the_typed_error(error, kind):
    failed = {"status": "failed", "error": error, "output": []}
    named = b"event: error\n" + event({"type": "error", **(error or {}), "sequence_number": 3})
    bodies = [json.dumps(failed).encode(), event({"type": "response.failed", "response": failed})]
    for raw in (*bodies, *([named, event({"type": "error", "error": error})] if error else ())):
        with pytest.raises(kind):
            read(raw)


@for_each(
    "status, error, kind",
    [
        (400, {"code": "unsupported_parameter", "param": "foo", "message": "Unsupported parameter."}, BadRequest),
        (
            400,
            {"code": "context_length_exceeded", "message": "Your input exceeds the context window."},
            ContextOverflow,
        ),
        (400, {"message": "Your input exceeds the context window of this model."}, ContextOverflow),
        (400, {"code": "invalid_prompt", "message": "Your prompt was flagged."}, ContentFiltered),
        (400, {"param": "text.format.schema", "code": "invalid_json_schema", "message": "Invalid schema"}, BadRequest),
        (400, {"param": "text.verbosity", "code": "unsupported_value", "message": "Unsupported value"}, Unsupported),
        (400, {"param": "stream", "message": "Your organization must be verified to stream this."}, Unsupported),
        (400, {"param": "temperature", "message": "'temperature' is not supported with this model."}, Unsupported),
        (401, {"code": "invalid_api_key", "message": "Incorrect API key provided."}, AuthenticationError),
        (403, {"message": "Country not supported."}, AuthenticationError),
        (404, {"code": "model_not_found", "message": "The model does not exist."}, BadRequest),
        (408, {"message": "Timeout."}, ServerFailed),
        (409, {"message": "Conflict."}, ServerFailed),
        (413, {"message": "Payload too large."}, ContextOverflow),
        (422, {"message": "Unprocessable."}, BadRequest),
        (429, {"code": "rate_limit_exceeded", "message": "Rate limit reached."}, RateLimited),
        (429, {"code": "insufficient_quota", "message": "You exceeded your current quota."}, AuthenticationError),
        *[(status, {"message": "Sorry."}, ServerFailed) for status in (500, 502, 503, 529)],
    ],
)
def test_every_refusal_is_the_typed_error(status, error, kind):
    asked = Think("act", ASK, temperature=0.0, schema={"type": "object"})
    made = model("gpt-4.1", Abilities(schema=True), params={"text": {"verbosity": "low"}})
    with pytest.raises(ModelError) as caught:
        made.decode(Response(status, json.dumps({"error": error}).encode()), asked)
    assert type(caught.value) is kind


def test_half_a_stream_is_a_failed_attempt():
    with pytest.raises(BadResponse):
        read(event({"type": "response.output_text.delta", "output_index": 0, "delta": "Hel"}))


@for_each(
    "raw",
    [
        b'{"status":"completed","output":[{"type":"message","content":"odd"},7,{"type":"new"},{"type":"message"}]}',
        b'{"status":"completed","output":null,"usage":{"input_tokens":"?"}}',
        b'{"status":"completed","output":[{"type":"reasoning","summary":"odd","content":{}}]}',
        b'{"status":"completed","output":[{"type":"function_call","name":null,"arguments":{"a":1}}]}',
        event({"type": "response.output_item.done", "item": None}) + event({"type": "response.completed"}),
        event([1]) + event({"type": 7}) + event({"type": "response.output_text.delta", "delta": 3}) + event(END),
    ],
)
def test_odd_fields_lose_no_reply(raw):
    assert read(raw).finish in ("stop", "calls")


# Whole runs, against an endpoint that refuses what OpenAI's refuses


@plait.tool(read_only=True)
def people(city: str) -> int:
    """People living in a city."""
    return {"Lyon": 522250, "Nice": 348085}[city]


PLAN = (('people {"city": "Lyon"}', 'people {"city": "Nice"}'), ('people {"city": "Nice"}',), "174,165 more.")


def agent(server: Server, journal: Path, name: str, abilities: Abilities, **options: Any) -> plait.Agent:
    chosen = server.model(name=name, wire="responses", abilities=abilities, **options)
    limits = plait.Limits(retries=0)
    return plait.Agent("tool_calling", tools=[people], model=chosen, limits=limits, journal=journal)


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("name, reasons", [("gpt-5", True), ("gpt-4.1", False)])
async def test_a_run_with_tools_works_and_replays_with_equal_bytes(tmp_path, streamed, name, reasons):
    service = ResponsesEndpoint(*PLAN, reasons=reasons)
    async with Server(service) as server:
        made = agent(server, tmp_path / "j.db", name, Abilities(stream=streamed, temperature=not reasons))
        run = await made.arun("How many more people live in Lyon?")
        assert (run.status, run.answer) == ("answered", "174,165 more.")
        assert (service.refused, len(server.asked)) == ([], 3)
        assert run.usage == Usage(303, 60, 128, reasoning_tokens=36)
        bodies = [asked.raw for asked in server.asked]
    last = json.loads(bodies[-1])["input"]
    assert [each.get("type") for each in last].count("reasoning") == 2 * reasons
    ids = [each["call_id"] for each in last if each.get("type") == "function_call"]
    assert len(set(ids)) == 3 and ids[:2] == ["call_0", "call_1"]  # the endpoint gives the same ids in each turn
    assert all(later.startswith(before[: before.index(b'],"store"')]) for before, later in pairwise(bodies))
    replayed = made.replay(run.id)
    assert replayed.whole and replayed.requests == 3


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_run_that_broke_off_is_resumed_with_equal_bytes(tmp_path, streamed):
    whole_run, broken = ResponsesEndpoint(*PLAN), ResponsesEndpoint(*PLAN, fail=(2,))
    abilities = Abilities(stream=streamed, temperature=False)
    async with Server(whole_run) as server:
        await agent(server, tmp_path / "whole.db", "gpt-5", abilities).arun("How many more?")
        expected = [asked.raw for asked in server.asked]
    async with Server(broken) as server:
        made = agent(server, tmp_path / "j.db", "gpt-5", abilities)
        run = await made.arun("How many more?")
        assert run.status == "crashed"
        run = await made.aresume(run.id)
        assert (run.status, broken.refused) == ("answered", [])
        assert [asked.raw for asked in server.asked] == [expected[0], expected[1], *expected[1:]]
    assert made.replay(run.id).whole


async def test_a_server_without_the_endpoint_is_said_so():
    async with Server(lambda asked: asked.answer(404, {"detail": "Not Found"})) as server:
        made, think = server.model(wire="responses"), Think("act", ASK)
        with pytest.raises(BadRequest, match='set wire = "chat" in plait'):
            await made.send(made.encode(think), think)


async def test_a_temperature_that_the_model_refuses_is_left_out(tmp_path):
    service = ResponsesEndpoint(*PLAN)
    async with Server(service) as server:
        run = await agent(server, tmp_path / "j.db", "gpt-5", Abilities(), temperature=0.5).arun("How many more?")
    assert run.status == "answered"
    assert service.refused == ["Unsupported parameter: 'temperature' is not supported with this model."]


async def test_the_endpoint_refuses_a_turn_without_its_reasoning(tmp_path):
    """The endpoint of these tests is as strict as the real one."""
    service = ResponsesEndpoint(*PLAN)
    output = service.write_output(PLAN[1], 1)
    answer = {"type": "function_call_output", "call_id": "call_0", "output": "1"}
    bare = {key: value for key, value in output[0].items() if key != "encrypted_content"}
    assert service._find_missing_item([*output, answer]) == ""
    assert "without its required 'reasoning'" in service._find_missing_item([output[1], answer])
    assert "without its required following item" in service._find_missing_item([output[0], answer])
    assert "not persisted" in service._find_missing_item([bare, output[1], answer])
    assert "No tool output" in service._find_missing_item(output)


@for_each(
    "name, wire",
    [
        *[
            (each, "responses")
            for each in ("gpt-5", "gpt-5-pro", "o3-pro", "o1-pro", "gpt-5.1-codex", "codex-mini-latest")
        ],
        *[(each, "chat") for each in ("gpt-4.1", "gpt-4o", "gpt-5-chat-latest", "gpt-5-search-api")],
    ],
)
def test_openais_models_have_their_wire(name, wire):
    env = {"OPENAI_API_KEY": "sk-0123456789"}
    assert resolve(f"openai:{name}", env=env).describe()["wire"] == wire
    own = {"endpoints": {"openai": {"base_url": "http://gpu/v1", "wire": "chat"}}}
    assert resolve(f"openai:{name}", ModelConfig.from_mapping(own), env=env).describe()["wire"] == "chat"
    assert (
        resolve(f"openrouter:openai/{name}", env={"OPENROUTER_API_KEY": "sk-0123456789"}).describe()["wire"] == "chat"
    )
