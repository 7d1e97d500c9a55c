"""Chat completions and their dialects: recorded exchanges decoded and asked again, and the state of each dialect."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest

from conftest import for_each
from models_server import USAGE, event
from plait.core import Call, Message, ProviderState, Reply, Think, ToolSpec, Usage, user
from plait.core.errors import BadRequest, BadResponse, ContentFiltered, ModelError, RateLimited, ServerFailed
from plait.models.base import Response
from plait.models.chat import ChatModel
from recorded_wires import WHOLE, Exchange, ask_again, chunks_of, decoded, model_of, odd_bodies, recorded

HOSTS = ("cerebras", "deepseek", "groq", "huggingface", "mistral", "openai-chat", "openrouter", "zai")
CHATS = "/chat/completions"
TOOL = ToolSpec("add", "Adds.")
# Ignored on purpose: `moderation`, `annotations`, `logprobs`, `seed`, times, costs and ids. Mistral's
# `num_cached_tokens` too: it is the whole prompt but one token in every recording, also in a first request, so it does
# not count what a cache saved.


def exchanges() -> list[tuple[str, Exchange]]:
    return list(recorded(*HOSTS, path=CHATS))


def parts_of(exchange: Exchange) -> list[dict[str, Any]]:
    """The messages of a reply: one, or the pieces of a stream."""
    choices = [choice for chunk in chunks_of(exchange) for choice in chunk.get("choices") or ()]
    return [choice.get("message") or choice["delta"] for choice in choices]


def text_and_thought(parts: list[dict[str, Any]]) -> tuple[str, str]:
    text = thought = ""
    for part in parts:
        content = part.get("content") or ""
        for each in content if isinstance(content, list) else [{"text": content}]:
            text += each.get("text", "")
            thought += "".join([inner["text"] for inner in each.get("thinking", ())])
        thought += part.get("reasoning_content") or part.get("reasoning") or ""
    if text.lstrip().startswith("<think>"):
        inner, text = text.lstrip().removeprefix("<think>").split("</think>", 1)
        thought, text = thought + inner.strip(), text.lstrip()
    return text, thought


def test_every_recorded_reply_arrives_whole():
    seen = 0
    for name, exchange in exchanges():
        if exchange["status"] != 200:
            continue
        reply = decoded(exchange, model_of(exchange, "chat"))
        parts = parts_of(exchange)
        assert (reply.text, reply.reasoning) == text_and_thought(parts), name
        calls = [call for part in parts for call in part.get("tool_calls") or ()]
        assert [(call.id, call.tool, call.input or {}) for call in reply.calls] == [
            (each["id"], each["function"]["name"], json.loads(each["function"].get("arguments") or "{}"))
            for each in calls
        ], name
        usage = [chunk["usage"] for chunk in chunks_of(exchange) if chunk.get("usage")][-1]
        cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
        thought = (usage.get("completion_tokens_details") or usage).get("reasoning_tokens") or 0
        stored = (usage.get("prompt_tokens_details") or {}).get("cache_write_tokens") or 0
        stored = min(stored, usage["prompt_tokens"] - cached)  # one provider reports the same tokens as both
        assert reply.usage == Usage(usage["prompt_tokens"], usage["completion_tokens"], cached, stored, thought), name
        assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"], name
        thinking = (usage.get("completion_tokens_details") or {}).get("reasoning_tokens", 0)
        assert thinking <= reply.usage.output_tokens, name
        choices = [choice for chunk in chunks_of(exchange) for choice in chunk.get("choices") or ()]
        ended = [choice["finish_reason"] for choice in choices if choice["finish_reason"]]
        assert reply.finish == ("calls" if calls else ended[-1]), name
        seen += 1
    assert seen == 85


def test_every_recorded_refusal_is_a_typed_error():
    kinds = {400: BadRequest, 429: RateLimited}
    refused = [(name, each) for name, each in exchanges() if each["status"] != 200 and "groq" not in name]
    assert len(refused) == 4
    for name, exchange in refused:
        with pytest.raises(kinds[exchange["status"]]) as caught:
            decoded(exchange, model_of(exchange, "chat"))
        assert exchange["response"]["error"]["message"] in str(caught.value), name


def test_the_second_request_of_a_recording_holds_what_the_first_reply_demands():
    """Each turn of calls that a recorded client sent back is in Plait's request, with the fields of its dialect."""
    fields = {"deepseek": "reasoning_content", "groq": "reasoning", "openrouter": "reasoning_details"}
    made = with_state = 0
    by_call: dict[str, tuple[ChatModel, Reply, dict[str, Any]]] = {}
    for name, exchange in exchanges():
        provider = name.split("/")[0].removesuffix("-chat")
        for turn in (exchange["request"] or {}).get("messages", ()):
            for given in turn.get("tool_calls") or ():
                if given["id"] not in by_call:
                    continue
                model, reply, message = by_call.pop(given["id"])
                sent = json.loads(ask_again(model, reply))["messages"][1]
                mine = next(call for call in sent["tool_calls"] if call["id"] == given["id"])
                assert mine["function"]["name"] == given["function"]["name"], name
                assert json.loads(mine["function"]["arguments"]) == json.loads(given["function"]["arguments"] or "{}")
                if (field := fields.get(provider)) and message.get(field):
                    assert sent[field] == message[field], name
                    with_state += 1
                if field == "reasoning_content":
                    assert turn[field] == sent[field], name
                made += 1
        if exchange["status"] == 200:
            model = model_of(exchange, "chat", provider, abilities=WHOLE)
            reply = decoded(exchange, model)
            by_call.update({call.id: (model, reply, parts_of(exchange)[0]) for call in reply.calls})
    assert (made, with_state) == (14, 4)


def test_an_odd_value_in_a_reply_raises_nothing_but_a_models_error():
    for seed, (name, exchange) in enumerate(exchanges()):
        provider = name.split("/")[0].removesuffix("-chat")
        model = model_of(exchange, "chat", provider)
        for body in odd_bodies(exchange, seed):
            with contextlib.suppress(ModelError):
                reply = model.decode(Response(exchange["status"], body), Think("act"))
                assert ask_again(model, reply), name


def test_a_recorded_call_that_groq_refused_is_used():
    [exchange] = [each for name, each in exchanges() if each["status"] == 400 and "groq" in name]
    reply = decoded(exchange, model_of(exchange, "chat", "groq"), (ToolSpec("get_something_by_name", ""),))
    assert reply.calls == (Call("get_something_by_name", {"foo": "bar"}),)
    assert reply.finish == "calls" and reply.usage.estimated


# State


def model(provider: str, name: str = "m", **options: Any) -> ChatModel:
    return ChatModel(spec=f"t:{name}", name=name, endpoint="http://h/v1", provider=provider, abilities=WHOLE, **options)


def read(*parts: dict[str, Any], provider: str = "", name: str = "m", streamed: bool = True) -> Reply:
    """A reply in these pieces, or in one."""
    if not streamed:
        body = {"choices": [{"message": parts[0], "finish_reason": "stop"}], "usage": USAGE}
        return model(provider, name).decode(Response(200, json.dumps(body).encode()), Think("act", (user("?"),)))
    chunks = [{"choices": [{"index": 0, "delta": part}]} for part in parts]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    raw = b"".join(map(event, chunks)) + event(b"[DONE]")
    return model(provider, name).decode(Response(200, raw), Think("act", (user("?"),)))


def sent_back(reply: Reply, provider: str, name: str = "m", **options: Any) -> dict[str, Any]:
    """The message of a reply's turn in the next request. Its calls have other ids."""
    calls = tuple(Call(call.tool, call.input, f"id_{number}") for number, call in enumerate(reply.calls))
    said = Message("assistant", reply.text.strip(), calls, state=reply.state)
    results = [Message("tool", "3", call_id=call.id) for call in calls]
    sender = model(provider, name, **options)
    return json.loads(sender.encode(Think("act", (user("?"), said, *results))).body)["messages"][1]


CALL = {"index": 0, "id": "c", "type": "function", "function": {"name": "add", "arguments": "{}"}}


@pytest.mark.parametrize("provider", ["deepseek", "moonshot", "zai"])
def test_reasoning_goes_back_with_calls_and_only_with_them(provider):
    pieces = [{"reasoning_content": "I "}, {"reasoning_content": "add."}, {"content": " Now"}, {"tool_calls": [CALL]}]
    reply = read(*pieces, provider=provider)
    assert sent_back(reply, provider)["reasoning_content"] == "I add."
    alone = read(*pieces[:3], provider=provider)
    assert "reasoning_content" not in sent_back(alone, provider)
    preserved = sent_back(alone, provider, params={"thinking": {"type": "enabled", "clear_thinking": False}})
    assert preserved.get("reasoning_content") == ("I add." if provider == "zai" else None)
    for other in ("", "openai", "vllm", "xai", "together"):
        assert set(sent_back(reply, other)) == {"role", "content", "tool_calls"}
        assert read(*pieces, provider=other).state is None


def test_only_its_own_model_gets_a_state():
    reply = read({"reasoning_content": "I add."}, {"tool_calls": [CALL]}, provider="moonshot")
    assert sent_back(reply, "moonshot", "another")["reasoning_content"] == " "
    assert sent_back(reply, "deepseek", "another")["reasoning_content"] == ""  # both refuse a turn without it


def test_groq_gets_its_reasoning_back():
    reply = read({"reasoning": "I add."}, {"tool_calls": [CALL]}, provider="groq")
    assert sent_back(reply, "groq")["reasoning"] == "I add."


def test_openrouters_details_go_back_as_they_came():
    details = [
        {"type": "reasoning.summary", "summary": "I add.", "format": "openai-responses-v1", "index": 0},
        {"type": "reasoning.encrypted", "data": "gAAA", "id": "rs_1", "format": "openai-responses-v1", "index": 0},
        {"type": "reasoning.encrypted", "data": "gBBB", "id": "rs_2", "format": "openai-responses-v1", "index": 0},
    ]
    said = {"reasoning": "I add.", "reasoning_details": details, "tool_calls": [CALL]}
    reply = read(said, provider="openrouter", streamed=False)
    assert sent_back(reply, "openrouter")["reasoning_details"] == details
    assert "reasoning_details" not in sent_back(reply, "openai")
    alone = read({"content": "3", "reasoning_details": details}, provider="openrouter", streamed=False)
    assert sent_back(alone, "openrouter") == {"role": "assistant", "content": "3", "reasoning_details": details}
    assert alone.reasoning == "I add."


def test_openrouters_details_in_pieces_are_joined():
    def piece(**fields: Any) -> dict[str, Any]:
        return {
            "reasoning_details": [{"type": "reasoning.text", "format": "anthropic-claude-v1", "index": 0, **fields}]
        }

    second = {"type": "reasoning.text", "text": "Then", "format": "anthropic-claude-v1", "index": 1, "signature": "S2"}
    reply = read(
        piece(text="", signature=""),
        piece(text="I "),
        piece(text="add."),
        piece(signature="S1"),
        {"reasoning_details": [second]},
        {"reasoning_details": []},
        {"tool_calls": [CALL]},
        provider="openrouter",
    )
    assert sent_back(reply, "openrouter")["reasoning_details"] == [
        {"type": "reasoning.text", "format": "anthropic-claude-v1", "index": 0, "text": "I add.", "signature": "S1"},
        second,
    ]


def test_details_in_one_piece_are_not_joined():
    details = [{"type": "reasoning.text", "text": text, "index": 0} for text in ("I ", "add.")]
    reply = read({"content": "3", "reasoning_details": details}, provider="openrouter", streamed=False)
    assert sent_back(reply, "openrouter")["reasoning_details"] == details


def test_geminis_signatures_go_back_with_their_calls():
    extra = {"google": {"thought_signature": "SIG"}}
    second = {**CALL, "index": 1, "id": "d"}
    reply = read({"tool_calls": [{**CALL, "extra_content": extra}]}, {"tool_calls": [second]}, provider="gemini")
    calls = sent_back(reply, "gemini")["tool_calls"]
    assert [call.get("extra_content") for call in calls] == [extra, None]
    assert all("extra_content" not in call for call in sent_back(reply, "openai")["tool_calls"])


def test_gemini_3_gets_a_fixed_text_for_the_signature_of_another_model():
    reply = read({"tool_calls": [CALL]}, {"tool_calls": [{**CALL, "index": 1, "id": "d"}]})
    dummy = {"google": {"thought_signature": "skip_thought_signature_validator"}}
    calls = sent_back(reply, "gemini", "gemini-3-flash-preview")["tool_calls"]
    assert [call.get("extra_content") for call in calls] == [dummy, None]
    assert "extra_content" not in sent_back(reply, "gemini", "gemini-2.5-flash")["tool_calls"][0]


def test_mistrals_thinking_goes_back_in_the_content():
    def thinking(text: str, **more: Any) -> dict[str, Any]:
        return {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": text}], **more}]}

    pieces = [thinking("I "), thinking("add.", closed=True), {"content": "Now"}, {"content": " so"}]
    reply = read(*pieces, {"tool_calls": [CALL]}, provider="mistral")
    assert (reply.text, reply.reasoning) == ("Now so", "I add.")
    assert sent_back(reply, "mistral")["content"] == [
        {"type": "thinking", "thinking": [{"type": "text", "text": "I add."}], "closed": True},
        {"type": "text", "text": "Now so"},
    ]
    assert sent_back(reply, "openai")["content"] == "Now so"


def test_mistral_gets_ids_of_nine_characters_and_a_turn_behind_results():
    calls = (Call("add", {"a": 1}, "call_1"), Call("add", {"a": 2}, "aB3dE5678"))
    results = [Message("tool", "3", call_id=call.id) for call in calls]
    said = [user("?"), Message("assistant", "", calls), *results, user("Now answer.")]
    sent = json.loads(model("mistral").encode(Think("act", tuple(said))).body)["messages"]
    ids = [call["id"] for call in sent[1]["tool_calls"]]
    assert [each["tool_call_id"] for each in sent[2:4]] == ids and ids[1] == "aB3dE5678"
    assert len(ids[0]) == 9 and ids[0].isalnum()
    assert [each["role"] for each in sent] == ["user", "assistant", "tool", "tool", "assistant", "user"]
    plain = json.loads(model("openai").encode(Think("act", tuple(said))).body)["messages"]
    assert plain[1]["tool_calls"][0]["id"] == "call_1" and len(plain) == 5


def test_a_state_of_another_wire_changes_nothing():
    said = Message("assistant", "a", (Call("add", None, "c"),), state=ProviderState("responses", "m", [{"a": 1}]))
    plain = Message("assistant", "a", (Call("add", None, "c"),))
    for provider in ("", "openrouter", "groq", "mistral", "moonshot", "deepseek"):
        made = [model(provider).encode(Think("act", (user("?"), each))).body for each in (said, plain)]
        assert made[0] == made[1]


# Usage and ends


@pytest.mark.parametrize(
    "usage, tokens",
    [
        ({"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}}, Usage(9, 2, 4)),
        ({"prompt_tokens": 9, "completion_tokens": 2, "prompt_cache_hit_tokens": 4}, Usage(9, 2, 4)),  # DeepSeek
        ({"prompt_tokens": 9, "completion_tokens": 2, "cached_tokens": 4}, Usage(9, 2, 4)),  # Moonshot, Together
        ({"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 18}, Usage(9, 9)),  # xAI: thinking in the total
    ],
)
def test_each_dialects_usage(usage, tokens):
    reply = {"choices": [{"message": {"content": "x"}, "finish_reason": "stop"}], "usage": usage}
    think = Think("act", (user("?"),))
    assert model("").decode(Response(200, json.dumps(reply).encode()), think).usage == tokens
    pieces = [{"choices": [{"index": 0, "delta": {"content": "x"}, "finish_reason": "stop"}]}]
    moonshot = [{"choices": [{"index": 0, "delta": {"content": "x"}, "finish_reason": "stop", "usage": usage}]}]
    for chunks in ([*pieces, {"choices": [], "usage": usage}], moonshot, [*pieces, {"x_groq": {"usage": usage}}]):
        raw = b"".join(map(event, chunks)) + event(b"[DONE]")
        assert model("").decode(Response(200, raw), think).usage == tokens


@pytest.mark.parametrize("reason", ["network_error", "insufficient_system_resource", "error"])
def test_an_end_that_is_a_failure_is_one(reason):
    body = {"choices": [{"message": {"content": "x"}, "finish_reason": reason}]}
    with pytest.raises(ServerFailed):
        model("zai").decode(Response(200, json.dumps(body).encode()), Think("act", (user("?"),)))


@pytest.mark.parametrize(
    "status, error",
    [
        (400, {"code": "1301", "message": "System detected potentially unsafe or sensitive content in input."}),
        (403, {"code": 403, "message": "openai/x requires moderation on OpenAI. Your input was flagged."}),
        (400, {"code": "invalid_prompt", "message": "Invalid prompt: your prompt was flagged."}),
    ],
)
def test_a_prompt_that_a_filter_refused_is_said_so(status, error):
    with pytest.raises(ContentFiltered):
        model("").decode(Response(status, json.dumps({"error": error}).encode()), Think("act", (user("?"),)))


# Groq's refused calls


@for_each(
    "text, calls",
    [
        ('{"name": "add", "arguments": {"a": 1}}', [Call("add", {"a": 1})]),
        ('[{"name": "add", "parameters": {"a": 1}}, {"name": "add"}]', [Call("add", {"a": 1}), Call("add")]),
        ('<function=add>{"a": {"b": 1}}</function>', [Call("add", {"a": {"b": 1}})]),
        (
            '<function=add>{"a": 1}</function> <function=sub{"b": 2}</function>',
            [Call("add", {"a": 1}), Call("sub", {"b": 2})],
        ),
        ('Now.<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>', [Call("add", {"a": 1})]),
        ("I would rather not.", []),
        ('{"name": "add", "arguments": {"a": ', []),
        ('{"answer": 3}', []),
    ],
)
def test_a_refused_call_is_used_if_it_can_be_read(text, calls):
    error = {"code": "tool_use_failed", "message": "Failed to call a function.", "failed_generation": text}
    think = Think("act", (user("?"),), tools=(TOOL,))
    for response in (
        Response(400, json.dumps({"error": error}).encode()),
        Response(200, event({"error": error | {"status_code": 400}})),
        Response(200, b"event: error\n" + event({"error": error})),
    ):
        if calls:
            assert list(model("groq").decode(response, think).calls) == calls
        else:
            with pytest.raises(BadResponse):
                model("groq").decode(response, think)
        with pytest.raises(BadResponse):
            model("groq").decode(response, Think("act", (user("?"),)))
