"""Hosted tools on the wires: declarations, calls and citations in recorded and written replies, prices, words."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from hosted_blocks import FOUND, SAID, SEARCH, blocks_as_events, events
from plait.core import Call, HostedCall, Message, Think, ToolSpec, user
from plait.core.errors import ConfigError
from plait.core.hosted import HostedTool, read_hosted_word
from plait.models.base import Model, Response
from plait.models.chat import ChatModel
from plait.models.presets import HOSTS
from plait.models.recorded import recorded_model
from recorded_wires import body_of, decoded, model_of, recorded

LOOK_UP = ToolSpec("look_up", "Looks something up.")
ASKED = Think("act", (user("Who won?"),), tools=(LOOK_UP,))


def hosting(spec: str, *words: str) -> ChatModel:
    """A model at a provider's own address, with these hosted tools as far as it has them."""
    provider, _, name = spec.partition(":")
    host = HOSTS[provider]
    model = ChatModel(spec=spec, name=name, endpoint=host.base_url, wire=host.wire, provider=provider)
    return model.with_hosted(tuple(read_hosted_word(f"hosted:{word}") for word in words))


def sent(model: Model, think: Think = ASKED) -> dict[str, Any]:
    return dict(json.loads(model.encode(think).body))


@pytest.mark.parametrize(
    ("spec", "word", "declared"),
    [
        ("anthropic:claude-haiku-5-5", "web_search", {"type": "web_search_20250305", "name": "web_search"}),
        ("anthropic:claude-haiku-5-5", "code_execution", {"type": "code_execution_20250825", "name": "code_execution"}),
        ("openai:gpt-6-sol", "web_search:a.org", {"type": "web_search", "filters": {"allowed_domains": ["a.org"]}}),
        ("openai:gpt-6-sol", "code_execution", {"type": "code_interpreter", "container": {"type": "auto"}}),
        ("openai:gpt-6-sol", "file_search:vs_1,vs_2", {"type": "file_search", "vector_store_ids": ["vs_1", "vs_2"]}),
        ("openai:gpt-6-sol", "image_generation", {"type": "image_generation"}),
        ("gemini:gemini-3.8-flash", "web_search", {"googleSearch": {}}),
        ("gemini:gemini-3.8-flash", "code_execution", {"codeExecution": {}}),
        ("openrouter:any/model", "web_search", {"type": "openrouter:web_search"}),
        ("groq:openai/gpt-oss-120b", "web_search", {"type": "browser_search"}),
    ],
)
def test_a_word_becomes_the_declaration_of_the_provider(spec: str, word: str, declared: dict[str, Any]) -> None:
    tools = [{**each, "cache_control": None} for each in sent(hosting(spec, word))["tools"]]
    assert {**declared, "cache_control": None} in tools
    assert len(tools) == 2  # beside the function


def test_an_mcp_server_is_declared_where_the_provider_takes_one() -> None:
    claude = hosting("anthropic:claude-haiku-5-5", "mcp:https://mcp.example.org/mcp")
    assert sent(claude)["mcp_servers"] == [
        {"type": "url", "url": "https://mcp.example.org/mcp", "name": "mcp_example_org"}
    ]
    assert "mcp-client" in claude_headers(claude)["anthropic-beta"]
    openai = sent(hosting("openai:gpt-6-sol", "mcp:https://mcp.example.org/mcp"))["tools"][1]
    assert openai["server_url"] == "https://mcp.example.org/mcp"
    assert hosting("gemini:gemini-3.8-flash", "mcp:https://a.org").hosted == ()


def claude_headers(model: ChatModel) -> dict[str, str]:
    from plait.models.wires.wire import load_wire

    return dict(load_wire(model.wire).make_headers("", model.name, model.hosted))


def test_a_recorded_description_encodes_the_same_bytes() -> None:
    for model in (hosting("openai:gpt-6-sol", "web_search"), hosting("anthropic:claude-haiku-5-5", "web_fetch:a.org")):
        again = recorded_model(json.loads(json.dumps(model.describe())))
        assert not isinstance(again, str)
        assert again.encode(ASKED) == model.encode(ASKED)


def test_functions_beside_hosted_tools_ask_gemini_to_show_both() -> None:
    assert sent(hosting("gemini:gemini-3.8-flash", "web_search"))["toolConfig"] == {
        "includeServerSideToolInvocations": True
    }


@pytest.mark.parametrize("word", ["", "web_serch", "file_search", "mcp", "mcp:http://a.org", "mcp:https://k@a.org"])
def test_a_wrong_word_is_an_error_with_a_hint(word: str) -> None:
    with pytest.raises(ConfigError) as why:
        read_hosted_word(f"hosted:{word}")
    assert why.value.hint


# -- replies


def test_a_recorded_fetch_of_anthropic_is_a_hosted_call_and_goes_back_unchanged() -> None:
    [(_, first), (_, second)] = [
        each for each in recorded("anthropic", path="/messages") if "web_fetch_tool[" in each[0]
    ]
    model = model_of(first, "anthropic")
    reply = decoded(first, model)
    [call] = reply.hosted
    assert (call.tool, call.input, call.failed) == ("web_fetch", {"url": "https://ai.pydantic.dev"}, False)
    assert call.text.startswith("Pydantic AI")
    assert call.outside
    # The next request has the provider's own blocks, as the recorded client sent them.
    asked = Think("act", (user("?"), Message("assistant", reply.text, state=reply.state), user("And?")))
    assert sent(model, asked)["messages"][1]["content"] == first["response"]["content"]
    assert second["request"]["messages"][1]["content"][1]["id"] == first["response"]["content"][1]["id"]


def test_recorded_searches_of_openai_have_queries_and_sources() -> None:
    found = [
        (exchange, decoded(exchange, model_of(exchange, "responses")))
        for name, exchange in recorded("openai-responses")
        if "raw_annotations" in name and "tools" in exchange["request"]
    ]
    assert found
    for exchange, reply in found:
        assert b"web_search_call" in body_of(exchange)
        assert [each.tool for each in reply.hosted if each.billed] == ["web_search"] * len(
            [each for each in reply.hosted if each.billed]
        )
        assert reply.hosted[0].input
        assert all(each.url.startswith("http") for each in reply.citations)
        assert reply.citations
        assert reply.state is not None
        assert "web_search_call" in {item["type"] for item in reply.state.data}


def test_a_recorded_page_that_gemini_read_is_a_hosted_call_streamed_or_not() -> None:
    found = [each for each in recorded("google") if "web_fetch_tool" in each[0]]
    assert len(found) == 2
    for _, exchange in found:
        reply = decoded(exchange, model_of(exchange, "gemini"))
        assert [(each.tool, each.input) for each in reply.hosted] == [("web_fetch", {"url": "https://ai.pydantic.dev"})]
    assert decoded(found[0][1], model_of(found[0][1], "gemini")).citations[0].title == "Pydantic AI"


CLAUDE = hosting("anthropic:claude-haiku-5-5", "web_search")


def test_a_streamed_search_of_anthropic_is_read_priced_and_kept() -> None:
    reply = CLAUDE.decode(Response(200, blocks_as_events(SEARCH, FOUND, SAID)), ASKED)
    assert reply.hosted == (HostedCall("web_search", {"query": "final 2026"}, "1. A (https://a.org)"),)
    assert (reply.citations[0].url, reply.citations[0].quote) == ("https://a.org", "Spain won")
    assert reply.state is not None
    assert reply.state.data == [SEARCH, FOUND, SAID]
    assert CLAUDE.rate.per_call == {"web_search": 0.01}


def test_a_failed_search_has_its_reason_and_costs_nothing() -> None:
    failed = {**FOUND, "content": {"type": "web_search_tool_result_error", "error_code": "max_uses_exceeded"}}
    [call] = CLAUDE.decode(Response(200, blocks_as_events(SEARCH, failed)), ASKED).hosted
    assert (call.failed, call.text) == (True, "max_uses_exceeded")


def test_items_of_openai_are_hosted_calls() -> None:
    output = [
        {"type": "code_interpreter_call", "code": "1+1", "outputs": [{"type": "logs", "logs": "2"}]},
        {"type": "file_search_call", "queries": ["q"], "results": [{"filename": "a.txt", "text": "words"}]},
        {"type": "image_generation_call", "result": "AAAA", "revised_prompt": "a cat"},
        {"type": "mcp_call", "name": "roll", "arguments": '{"n": 2}', "output": "7"},
        {"type": "mcp_call", "name": "roll", "arguments": "{}", "error": "no dice"},
        {"type": "web_search_call", "action": {"type": "open_page", "url": "https://a.org"}},
    ]
    body = json.dumps({"object": "response", "status": "completed", "output": output}).encode()
    reply = hosting("openai:gpt-6-sol", "web_search").decode(Response(200, body), ASKED)
    assert [(each.tool, each.name, each.text, each.failed, each.billed) for each in reply.hosted] == [
        ("code_execution", "", "2", False, True),
        ("file_search", "", "a.txt: words", False, True),
        ("image_generation", "", "an image (3 bytes)", False, True),
        ("mcp", "roll", "7", False, True),
        ("mcp", "roll", "no dice", True, True),
        ("web_search", "open_page", "", False, False),
    ]


def test_parts_and_metadata_of_gemini_are_hosted_calls() -> None:
    parts = [
        {"executableCode": {"code": "print(1)"}},
        {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1\n"}},
        {"text": "One."},
    ]
    web = [{"web": {"uri": "https://a.org", "title": "a.org"}}]
    grounding = {"webSearchQueries": ["one", "two"], "groundingChunks": web}
    candidate = {"content": {"parts": parts}, "finishReason": "STOP", "groundingMetadata": grounding}
    model = hosting("gemini:gemini-2.5-flash", "web_search")
    body = json.dumps({"candidates": [candidate], "modelVersion": "gemini-2.5-flash"}).encode()
    reply = model.decode(Response(200, body), ASKED)
    assert [(each.tool, each.text, each.billed) for each in reply.hosted] == [
        ("code_execution", "1\n", True),
        ("web_search", "1. a.org (https://a.org)", True),
        ("web_search", "", False),
    ]


def test_citations_of_chat_completions_are_a_search() -> None:
    cited = {"type": "url_citation", "url_citation": {"url": "https://a.org", "title": "A", "content": "Spain won"}}
    stream = events(
        {"choices": [{"delta": {"content": "Spain."}}]},
        {"choices": [{"delta": {"content": "", "annotations": [cited]}, "finish_reason": "stop"}]},
    )
    reply = hosting("openrouter:any/model", "web_search").decode(Response(200, stream), ASKED)
    assert reply.text == "Spain."
    assert [each.tool for each in reply.hosted] == ["web_search"]
    executed = [{"type": "browser_search", "arguments": '{"query": "q"}', "output": "pages"}]
    body = {"choices": [{"message": {"content": "Spain.", "executed_tools": executed}, "finish_reason": "stop"}]}
    [call] = (
        hosting("groq:openai/gpt-oss-120b", "web_search").decode(Response(200, json.dumps(body).encode()), ASKED).hosted
    )
    assert (call.tool, call.input, call.text, call.name) == ("web_search", {"query": "q"}, "pages", "browser_search")


def test_deep_values_and_halves_of_characters_in_hosted_parts_are_clean() -> None:
    deep: Any = "a\ud83d"
    for _ in range(400):
        deep = {"content": [deep] if isinstance(deep, dict) else deep}
    half = {"url": "https://a.org", "title": "A\ud83d", "cited_text": "\ud83d"}
    for content in ([deep], [half]):
        blocks = {**SEARCH, "input": {"query": deep}}, {**FOUND, "content": content}, {**SAID, "citations": [half]}
        reply = CLAUDE.decode(Response(200, blocks_as_events(*blocks)), ASKED)
        msgspec.json.encode((reply.hosted, reply.citations))
        assert reply.hosted[0].title and (reply.hosted[0].text == "") == (content == [deep])
    parts = [{"toolCall": {"id": "1", "args": deep}}, {"toolResponse": {"id": "1", "response": deep}}, {"text": "a"}]
    body = json.dumps({"candidates": [{"content": {"parts": parts}, "finishReason": "STOP"}]}).encode()
    msgspec.json.encode(hosting("gemini:gemini-3.8-flash", "web_search").decode(Response(200, body), ASKED).hosted)


def test_odd_values_in_hosted_parts_are_no_error() -> None:
    for odd in (None, 1, "x", [], {}, [None], [{"url": 3, "title": []}], True):
        CLAUDE.decode(
            Response(200, blocks_as_events(SEARCH, {**FOUND, "content": odd}, {**SAID, "citations": odd})), ASKED
        )
        item = {"type": "web_search_call", "action": odd, "results": odd, "outputs": odd}
        items = [
            item,
            {**item, "type": "file_search_call"},
            {**item, "type": "mcp_call", "arguments": odd, "output": odd},
        ]
        body = json.dumps({"object": "response", "status": "completed", "output": items}).encode()
        hosting("openai:gpt-6-sol", "web_search").decode(Response(200, body), ASKED)
        candidate = {
            "content": {"parts": [{"toolCall": odd}, {"text": "a"}]},
            "groundingMetadata": {"webSearchQueries": odd},
        }
        body = json.dumps({"candidates": [{**candidate, "finishReason": "STOP"}]}).encode()
        hosting("gemini:gemini-3.8-flash", "web_search").decode(Response(200, body), ASKED)


def test_a_call_of_a_function_beside_a_search_stays_a_call() -> None:
    call = {"type": "tool_use", "id": "t1", "name": "look_up", "input": {"q": 1}}
    reply = CLAUDE.decode(Response(200, blocks_as_events(SEARCH, FOUND, call, reason="tool_use")), ASKED)
    assert reply.calls == (Call("look_up", {"q": 1}, "t1"),)
    assert [each.tool for each in reply.hosted] == ["web_search"]
    assert HostedTool("web_search", ("a.org",)).word == "hosted:web_search:a.org"
