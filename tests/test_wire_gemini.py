"""Gemini's own API: every recorded exchange, the exact requests, refusals, and whole runs over HTTP."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import plait
from conftest import examples, for_each
from models_server import Asked, Server, completion, event
from plait.core import Call, Message, ProviderState, Reply, Think, ToolSpec, Usage, assistant, system, user
from plait.core.errors import (
    AuthenticationError,
    BadRequest,
    BadResponse,
    ContextOverflow,
    ModelError,
    RateLimited,
    ReplayDiffers,
    ServerFailed,
    Unsupported,
)
from plait.journal.store import Journal
from plait.models.base import Abilities, Response
from plait.models.config import ModelConfig
from plait.models.resolve import resolve
from plait.models.wires.chat_completions import GO_ON
from plait.models.wires.gemini import NO_SIGNATURE
from plait.models.wires.refusals import Target, failure
from plait.runtime.phase_models import models_of_run
from wire_exchanges import (
    STREAMED,
    WHOLE,
    Exchange,
    Imitation,
    body_of,
    decode,
    decode_damaged,
    events_of,
    model_of,
    read_exchanges,
    run_tools,
)

HOST = "generativelanguage.googleapis.com"
ASK = (system("Be brief."), user("How many?"))
PEOPLE = ToolSpec("people", "People in a city.", {"type": "object", "properties": {"city": {"type": "string"}}})
IGNORED = {"groundingMetadata", "urlContextMetadata", "avgLogprobs", "finishMessage"}
"""Fields of a candidate that no reply shows."""


def body(think: Think, name: str = "gemini-2.5-flash", **options: Any) -> dict[str, Any]:
    return json.loads(model_of("gemini", name, **options).encode(think).body)


def plain(value: Any) -> Any:
    """A request without what the service does not depend on: the name of a result, the alphabet of a signature."""
    if isinstance(value, list):
        return [plain(each) for each in value]
    if not isinstance(value, dict):
        return value
    if "thoughtSignature" in value:
        value = {**value, "thoughtSignature": value["thoughtSignature"].replace("-", "+").replace("_", "/")}
    if "response" in value:
        value = {**value, "response": list(value["response"].values())}
    return {key: plain(each) for key, each in value.items()}


def name_in(exchange: Exchange) -> str:
    return exchange["path"].split("models/")[1].split(":")[0]


def native(exchange: Exchange) -> bool:
    return "generateContent" in exchange["path"] or "streamGenerateContent" in exchange["path"]


def candidates_of(exchange: Exchange) -> list[dict[str, Any]]:
    return [each["candidates"][0] for each in events_of(exchange)]


def parts_of(exchange: Exchange) -> list[dict[str, Any]]:
    return [part for each in candidates_of(exchange) for part in each.get("content", {}).get("parts", [])]


# -- recorded exchanges


def test_every_recorded_exchange_arrives_whole() -> None:
    seen = 0
    for name, exchanges in read_exchanges(HOST):
        for exchange in filter(native, exchanges):
            reply = decode("gemini", name_in(exchange), exchange)
            parts, candidates = parts_of(exchange), candidates_of(exchange)
            assert {key for part in parts for key in part} <= {"text", "thought", "functionCall", "thoughtSignature"}
            assert {key for each in candidates for key in each} <= {"content", "finishReason", "index"} | IGNORED, name
            said = [part for part in parts if "text" in part]
            assert reply.text == "".join(part["text"] for part in said if not part.get("thought")), name
            assert reply.reasoning == "".join(part["text"] for part in said if part.get("thought")), name
            calls = [part["functionCall"] for part in parts if "functionCall" in part]
            assert [(call.tool, call.input or {}, call.id) for call in reply.calls] == [
                (call["name"], call.get("args", {}), call.get("id", "")) for call in calls
            ], name
            (reason,) = [each["finishReason"] for each in candidates if "finishReason" in each]
            finish = {"STOP": "calls" if calls else "stop", "MAX_TOKENS": "length"}
            assert reply.finish == finish[reason], name
            usage = events_of(exchange)[-1]["usageMetadata"]
            asked, written = (
                sum(usage.get(key, 0) for key in keys)
                for keys in (
                    ("promptTokenCount", "toolUsePromptTokenCount"),
                    ("candidatesTokenCount", "thoughtsTokenCount"),
                )
            )
            cached, thought = usage.get("cachedContentTokenCount", 0), usage.get("thoughtsTokenCount", 0)
            assert reply.usage == Usage(asked, written, cached, reasoning_tokens=thought), name
            assert asked + written == usage["totalTokenCount"], name
            signed = [part for part in parts if "thoughtSignature" in part]
            kept = reply.state.data if reply.state else []
            assert [part for part in kept if "thoughtSignature" in part] == signed, name
            assert reply.model.removeprefix("models/").startswith("gemini-")
            seen += 1
    assert seen >= 54


def test_a_recorded_conversation_is_rebuilt_from_its_replies() -> None:
    """Each model turn of a recorded request is sent from what Plait keeps of it, with the client's ids."""
    turns = signed = 0
    for name, exchanges in read_exchanges(HOST):
        replies: list[Reply] = []
        for exchange in filter(native, exchanges):
            contents = plain(exchange["request"]["contents"])
            messages: list[Message] = []
            later = list(replies)
            for content in contents:
                calls = tuple(
                    Call(part["functionCall"]["name"], part["functionCall"]["args"], part["functionCall"].get("id", ""))
                    for part in content["parts"]
                    if "functionCall" in part
                )
                if content["role"] == "model":
                    text = "".join(part.get("text", "") for part in content["parts"])
                    known = [i for i, each in enumerate(later) if is_turn(each, text, calls)][:1]
                    state = later[known[0]].state if known else None
                    del later[: known[0] + 1 if known else 0]
                    messages.append(Message("assistant", text, calls, state=state))
                    turns += bool(known)
                    signed += state is not None
                    continue
                for part in content["parts"]:
                    if "functionResponse" in part:
                        result = part["functionResponse"]
                        (text,) = result["response"]
                        messages.append(Message("tool", text, call_id=result.get("id", "")))
                    else:
                        messages.append(user(part.get("text", "(a file)")))
            sent = plain(body(Think("act", tuple(messages)), name_in(exchange))["contents"])
            if "inlineData" not in str(contents) and "empty_assistant" not in name:  # no files, no empty turns
                numbered = "'id'" in str(contents)  # older clients send no ids
                assert (sent if numbered else without_ids(sent)) == contents, name
            replies.append(decode("gemini", name_in(exchange), exchange))
    assert turns >= 19 and signed >= 14


def without_ids(value: Any) -> Any:
    if isinstance(value, list):
        return [without_ids(each) for each in value]
    return {key: without_ids(each) for key, each in value.items() if key != "id"} if isinstance(value, dict) else value


def is_turn(reply: Reply, text: str, calls: tuple[Call, ...]) -> bool:
    given = [(call.tool, call.input or {}) for call in reply.calls]
    return reply.text == text and given == [(call.tool, call.input or {}) for call in calls]


# -- responses by hand


def chunk(*parts: Any, reason: str = "", **more: Any) -> dict[str, Any]:
    candidate = {"content": {"parts": list(parts), "role": "model"}, **({"finishReason": reason} if reason else {})}
    return {"candidates": [candidate], "usageMetadata": {"promptTokenCount": 5, "candidatesTokenCount": 2}, **more}


def read(*chunks: Any, streamed: bool = True, name: str = "gemini-3-pro", **fields: Any) -> Reply:
    data = b"".join(map(event, chunks)) if streamed else json.dumps(chunks[0] if len(chunks) == 1 else chunks).encode()
    return model_of("gemini", name).decode(Response(200, data), Think("act", **fields))


THOUGHT = {"text": "Which city?", "thought": True}
USED = {"functionCall": {"name": "people", "args": {"city": "Nîmes"}, "id": "a1"}, "thoughtSignature": "c2ln+/=="}
MORE = {"functionCall": {"name": "people", "args": {}}}


@pytest.mark.parametrize("streamed", [True, False])
def test_parts_of_all_kinds(streamed: bool) -> None:
    ran = {"executableCode": {"language": "PYTHON", "code": "1"}}
    result = {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}}
    end = {"text": "", "thoughtSignature": "ZW5k"}
    chunks = (
        chunk({"text": "Which ", "thought": True}),
        chunk({"text": "city?", "thought": True}, {"text": "Let me "}),
        chunk({"text": "look."}, ran, result),
        chunk(USED, MORE),
        chunk(end, {"text": ""}, reason="STOP", modelVersion="gemini-3-pro-001"),
    )
    reply = read(*chunks, streamed=streamed)
    assert (reply.text, reply.reasoning, reply.finish) == ("Let me look.", "Which city?", "calls")
    assert reply.calls == (Call("people", {"city": "Nîmes"}, "a1"), Call("people"))
    parts = [THOUGHT, {"text": "Let me look."}, ran, result, USED, MORE, end]
    assert reply.state == ProviderState("gemini", "gemini-3-pro", parts)
    assert (reply.model, reply.usage) == ("gemini-3-pro-001", Usage(5, 2))


@for_each(
    ("reason", "finish"),
    [
        ("STOP", "stop"),
        ("MAX_TOKENS", "length"),
        ("SAFETY", "filter"),
        ("RECITATION", "filter"),
        ("PROHIBITED_CONTENT", "filter"),
        ("OTHER", "stop"),
        ("A_NEW_REASON", "stop"),
    ],
)
def test_the_reasons_to_stop(reason: str, finish: str) -> None:
    for streamed in (True, False):
        assert read(chunk({"text": "So"}, reason=reason), streamed=streamed).finish == finish
        assert read({"candidates": [{"finishReason": reason}]}, streamed=streamed).finish == finish


def test_a_call_that_google_could_not_read_is_no_text() -> None:
    candidate = {
        "finishReason": "MALFORMED_FUNCTION_CALL",
        "finishMessage": "Malformed function call: print(default_api.people(city='Lyon'))",
    }
    reply = read({"candidates": [candidate]})
    assert (reply.text, reply.finish, reply.unread) == ("", "broken", candidate["finishMessage"])


def test_a_blocked_prompt_is_a_filtered_reply() -> None:
    reply = read({"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 9}})
    assert (reply.text, reply.finish, reply.usage) == ("", "filter", Usage(9))


def test_usage_counts_thoughts_tools_and_the_cache() -> None:
    counts = {
        "promptTokenCount": 100,
        "cachedContentTokenCount": 80,
        "toolUsePromptTokenCount": 30,
        "candidatesTokenCount": 7,
        "thoughtsTokenCount": 40,
    }
    reply = read(chunk({"text": "So"}), chunk(reason="STOP", usageMetadata=counts))
    assert reply.usage == Usage(130, 47, 80, reasoning_tokens=40)


def test_a_damaged_response_is_a_reply_or_an_error_of_plait() -> None:
    number = examples(20_000)
    assert decode_damaged(HOST, "gemini", "gemini-3-pro", number) > number / 2


def test_what_is_unknown_never_loses_a_reply() -> None:
    odd = [
        [],
        {"news": 1},
        {"candidates": None},
        {"candidates": [None, {"index": 1, "content": {"parts": [{"text": "another"}]}}]},
        {"candidates": [{"content": {"parts": [None, {"newPart": 1}, {"text": 3}], "x": 1}}]},
        {"candidates": [{"content": None}]},
    ]
    reply = read(chunk({"text": "So"}), *odd, chunk({"text": " it is."}, reason="STOP"))
    assert (reply.text, reply.finish) == ("So it is.", "stop")
    with pytest.raises(BadResponse):
        read({"usageMetadata": {"promptTokenCount": 5}})
    with pytest.raises(BadResponse):
        read(chunk({"text": "So"}))


# -- requests


def test_the_bytes_of_a_request() -> None:
    stops = ("\nObservation:", *"abcde")
    think = Think("act", ASK, stop=stops, temperature=0.0, max_tokens=9, tools=(PEOPLE,))
    request = model_of("gemini", "gemini-2.5-flash").encode(think)
    assert request.path == "models/gemini-2.5-flash:streamGenerateContent?alt=sse"
    assert request.body == (
        b'{"systemInstruction":{"parts":[{"text":"Be brief."}]},'
        b'"contents":[{"role":"user","parts":[{"text":"How many?"}]}],'
        b'"tools":[{"functionDeclarations":[{"name":"people","description":"People in a city.",'
        b'"parametersJsonSchema":{"type":"object","properties":{"city":{"type":"string"}}}}]}],'
        b'"generationConfig":{"stopSequences":["\\nObservation:","a","b","c","d"],'
        b'"temperature":0.0,"maxOutputTokens":9}}'
    )
    assert model_of("gemini", "gemini-2.5-flash").encode(think).body == request.body
    assert model_of("gemini", "tunedModels/x", abilities=WHOLE).encode(think).path == "tunedModels/x:generateContent"
    assert "generationConfig" not in body(Think("act", ASK))


def test_a_small_model_without_a_system_instruction_gets_it_as_a_message() -> None:
    sent = body(Think("act", ASK), "gemma-3-27b-it")
    assert sent["contents"][0] == {"role": "user", "parts": [{"text": "Be brief."}]}
    assert "systemInstruction" not in sent
    assert body(Think("act", (system("Only this."),))) == {
        "contents": [{"role": "user", "parts": [{"text": "Only this."}]}]
    }


def calls_and_results(state: ProviderState | None = None) -> tuple[Message, ...]:
    turn = Message("assistant", "Look.", (Call("people", {"city": "Lyon"}, "a"), Call("people", [1], "b")), state=state)
    return (*ASK, turn, Message("tool", "522250", call_id="a"), Message("tool", "1", call_id="b"))


def test_results_stand_in_one_content_of_their_own() -> None:
    sent = body(Think("act", (*calls_and_results(), user("Answer now."), user("Please.")), tools=(PEOPLE,)))["contents"]
    assert sent[1:] == [
        {
            "role": "model",
            "parts": [
                {"text": "Look."},
                {"functionCall": {"id": "a", "name": "people", "args": {"city": "Lyon"}}},
                {"functionCall": {"id": "b", "name": "people", "args": {"input": [1]}}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"id": "a", "name": "people", "response": {"result": "522250"}}},
                {"functionResponse": {"id": "b", "name": "people", "response": {"result": "1"}}},
            ],
        },
        {"role": "user", "parts": [{"text": "Answer now."}, {"text": "Please."}]},
    ]
    words = body(Think("act", calls_and_results(), tools=(PEOPLE,)), abilities=Abilities(tools=False))
    assert "tools" not in words and "functionCall" not in json.dumps(words)


def test_the_error_of_a_call_is_marked_as_one() -> None:
    asked = (*ASK, Message("assistant", "", (Call("people", None, "a"),)), Message("tool", "No.", (), "a", failed=True))
    sent = body(Think("act", asked, tools=(PEOPLE,)))["contents"][-1]["parts"]
    assert sent == [{"functionResponse": {"id": "a", "name": "people", "response": {"error": "No."}}}]


def test_the_state_goes_back_unchanged_with_the_ids_of_the_run() -> None:
    parts = [THOUGHT, {"text": "Look.", "thoughtSignature": "eA=="}, USED, MORE]
    state = ProviderState("gemini", "gemini-3-pro", parts)
    sent = body(Think("act", calls_and_results(state)), "gemini-3-pro")["contents"][1]["parts"]
    first = {"functionCall": {**USED["functionCall"], "id": "a"}, "thoughtSignature": "c2ln+/=="}  # type: ignore[dict-item]
    assert sent == [*parts[:2], first, {"functionCall": {**MORE["functionCall"], "id": "b"}}]
    more = ProviderState("gemini", "gemini-3-pro", [*parts, MORE])
    assert body(Think("act", calls_and_results(more)), "gemini-3-pro")["contents"][1]["parts"] == sent


def test_calls_of_another_model_get_the_documented_placeholder() -> None:
    state = ProviderState("gemini", "gemini-2.5-flash", [USED, MORE])
    for given in (None, state, ProviderState("chat", "gemini-3-pro", {"reasoning_content": "x"})):
        text, first, second = body(Think("act", calls_and_results(given)), "gemini-3-pro")["contents"][1]["parts"]
        assert first["thoughtSignature"] == NO_SIGNATURE
        assert "thoughtSignature" not in second and "thoughtSignature" not in text
    assert NO_SIGNATURE not in json.dumps(body(Think("act", calls_and_results())))


def test_a_schema_constrains_the_reply() -> None:
    schema = {"type": "object", "properties": {"a": {"const": "x"}, "b": {"anyOf": [{"const": "y"}]}}}
    asked = Think("act", ASK, schema=schema)
    config = body(asked, abilities=Abilities(schema=True))["generationConfig"]
    assert config == {
        "responseMimeType": "application/json",
        "responseJsonSchema": {
            "type": "object",
            "properties": {"a": {"enum": ["x"]}, "b": {"anyOf": [{"enum": ["y"]}]}},
        },
    }
    assert "generationConfig" not in body(asked)
    both = Think("act", ASK, schema=schema, tools=(PEOPLE,))
    assert "generationConfig" not in body(both, abilities=Abilities(schema=True))
    assert "generationConfig" in body(both, "gemini-3-pro", abilities=Abilities(schema=True))


def test_params_go_where_they_belong() -> None:
    params = {
        "seed": 7,
        "top_p": 0.9,
        "max_tokens": 90,
        "thinkingConfig": {"thinkingLevel": "low"},
        "generationConfig": {"topK": 4, "stopSequences": None},
        "safetySettings": [],
        "contents": None,
    }
    sent = body(Think("act", ASK, stop=("x",), max_tokens=50), params={**params, "contents": ASK and [{"parts": []}]})
    assert sent["generationConfig"] == {
        "maxOutputTokens": 50,
        "topK": 4,
        "seed": 7,
        "topP": 0.9,
        "thinkingConfig": {"thinkingLevel": "low"},
    }
    assert sent["safetySettings"] == [] and sent["contents"] == [{"parts": []}]
    assert body(Think("act", ASK), params={"temperature": 0.2})["generationConfig"] == {"temperature": 0.2}
    lacking = Abilities(temperature=False)
    assert "generationConfig" not in body(Think("act", ASK), params={"temperature": 0.2}, abilities=lacking)


def test_a_prefill_is_asked_for_or_continued() -> None:
    think = Think("act", (*ASK, assistant("one"), user("two")), prefill="Thought:")
    sent = body(think)["contents"]
    assert [each["role"] for each in sent] == ["user", "model", "user", "model", "user"]
    assert sent[-1]["parts"] == [{"text": GO_ON}]
    assert body(think, abilities=Abilities(prefill=True))["contents"][-1] == {
        "role": "model",
        "parts": [{"text": "Thought:"}],
    }


# -- the host


def test_the_host_speaks_this_wire_and_can_speak_the_old_one() -> None:
    model = resolve("gemini:gemini-3-pro", env={"GEMINI_API_KEY": "k"})
    assert (model.wire, model.endpoint) == ("gemini", "https://generativelanguage.googleapis.com/v1beta")
    base = "https://generativelanguage.googleapis.com/v1beta/openai"
    table = {"base_url": base, "kind": "gemini", "wire": "chat", "model": "gemini-3-pro"}
    other = resolve("mine", ModelConfig.from_mapping({"endpoints": {"mine": table}}), env={})
    assert other.wire == "chat" and other.encode(Think("act", ASK)).path == "chat/completions"


def test_a_run_that_was_recorded_on_the_old_wire_resumes_on_it_and_a_replay_shows_the_change(journal: Path) -> None:
    async def main() -> list[Asked]:
        async with Server(Imitation(completion("A waits."), completion("Nice."))) as server:
            old = server.model(spec="gemini:m", endpoint=f"{server.url}/openai", wire="chat")
            first = await plait.Agent("react", model=old, journal=journal).arun("Where?")
            for base in (server.url, "http://other.example/v1"):
                agent = plait.Agent(
                    "react", model=server.model(spec="gemini:m", endpoint=base, wire="gemini"), journal=journal
                )
                with pytest.raises(ReplayDiffers):
                    await asyncio.to_thread(agent.replay, first.id)
                (model,) = models_of_run(
                    {"": agent.model}, Journal.at(journal).run(first.id).head, asks_for_tools=True
                ).values()
                assert model.endpoint == (f"{server.url}/openai" if base == server.url else base)
            return server.asked

    assert len(asyncio.run(main())) == 1


# -- refusals


def error(code: int, status: str, message: str, *details: Any) -> bytes:
    return json.dumps({"error": {"code": code, "message": message, "status": status, "details": details}}).encode()


KEY = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}
WAIT = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "37.5s"}
QUOTA = "You exceeded your current quota, please check your plan and billing details."


@for_each(
    ("code", "status", "message", "details", "expected"),
    [
        (400, "INVALID_ARGUMENT", "Request contains an invalid argument.", (), BadRequest),
        (400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key.", (KEY,), AuthenticationError),
        (
            400,
            "INVALID_ARGUMENT",
            "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
            (),
            ContextOverflow,
        ),
        (400, "INVALID_ARGUMENT", "Function calling is not enabled for models/gemma-3-27b-it", (), Unsupported),
        (400, "INVALID_ARGUMENT", "JSON mode is not enabled for models/gemma-3-27b-it", (), BadRequest),
        (400, "FAILED_PRECONDITION", "User location is not supported for the API use.", (), BadRequest),
        (401, "UNAUTHENTICATED", "Request had invalid authentication credentials.", (), AuthenticationError),
        (403, "PERMISSION_DENIED", "The caller does not have permission", (), AuthenticationError),
        (404, "NOT_FOUND", "models/gemini-9 is not found for API version v1beta", (), BadRequest),
        (429, "RESOURCE_EXHAUSTED", QUOTA, (WAIT,), RateLimited),
        (429, "RESOURCE_EXHAUSTED", "Resource has been exhausted (e.g. check quota).", (), RateLimited),
        (500, "INTERNAL", "An internal error has occurred.", (), ServerFailed),
        (502, "INTERNAL", "Bad gateway", (), ServerFailed),
        (503, "UNAVAILABLE", "The model is overloaded. Please try again later.", (), ServerFailed),
        (504, "DEADLINE_EXCEEDED", "Deadline expired before operation could complete.", (), ServerFailed),
    ],
)
def test_refusals(code: int, status: str, message: str, details: tuple[Any, ...], expected: type[ModelError]) -> None:
    think = Think("act", ASK, tools=(PEOPLE,), schema={"type": "object", "properties": {}})
    asked = model_of("gemini", "gemini-3-pro", abilities=Abilities(schema=True)).encode(think)
    made = failure(
        code, error(code, status, message, *details), Target("h", "m"), asked=asked.body, path=asked.path, headers={}
    )
    assert type(made) is expected
    assert made.retry == (expected in (RateLimited, ServerFailed))
    assert made.after == (37.5 if WAIT in details else None)
    if isinstance(made, ContextOverflow):
        assert (made.tokens, made.room) == (1200000, 1048576)
    if isinstance(made, Unsupported):
        assert made.ability == "tools"


def test_an_error_inside_a_stream() -> None:
    with pytest.raises(ServerFailed):
        read(chunk({"text": "So"}), json.loads(error(503, "UNAVAILABLE", "The model is overloaded.")))
    with pytest.raises(RateLimited):
        read(chunk({"text": "So"}), json.loads(error(429, "RESOURCE_EXHAUSTED", "Slow down.")))


# -- whole runs


@plait.tool
def get_country() -> str:
    """The user's country."""
    return "Mexico"


@pytest.mark.parametrize("wait", [False, True])
@pytest.mark.parametrize("streamed", [True, False])
def test_a_run_sends_the_signatures_back(journal: Path, streamed: bool, wait: bool) -> None:
    recorded = dict(read_exchanges(HOST))["google_streaming_tool_call_thought_signature"]
    replies: list[Any] = [body_of(each) for each in recorded]
    if not streamed:
        end = {"finishReason": "STOP", "index": 0}
        replies = [{"candidates": [{"content": {"parts": parts_of(each)}, **end}]} for each in recorded]
    model = {"wire": "gemini", "name": "gemini-3-pro-preview", "abilities": STREAMED if streamed else WHOLE}
    run, asked = run_tools(model, [get_country], journal, *replies, wait=wait)
    assert (run.status, run.answer) == ("answered", "The capital of Mexico is Mexico City.")
    path = "/v1/models/gemini-3-pro-preview:" + ("streamGenerateContent?alt=sse" if streamed else "generateContent")
    assert [each.path for each in asked] == [path] * len(asked)
    assert asked[0].headers["x-goog-api-key"] == "sk-secret" and "Authorization" not in asked[0].headers
    first, second = (plain(each) for each in (asked[-1].body["contents"][1:], recorded[1]["request"]["contents"][1:]))
    ids = {part["functionCall"]["id"] for part in first[0]["parts"] if "functionCall" in part}
    assert ids == {first[1]["parts"][0]["functionResponse"]["id"]}
    for contents in (first, second):
        contents[0]["parts"][0]["functionCall"]["id"] = contents[1]["parts"][0]["functionResponse"]["id"] = ""
    assert first == second
    assert (replies[0].count(b"thoughtSignature") if streamed else 1) == 1
