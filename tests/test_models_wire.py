"""The exact bytes of a request, for every dialect; and what the bytes of a response mean."""

from __future__ import annotations

import json

import pytest

from conftest import for_each
from plait.core import Call, Message, Think, ToolSpec, Usage, assistant, system, user
from plait.core.errors import BadResponse
from plait.models.base import Abilities, Response
from plait.models.chat import ChatModel
from plait.models.wires.turns import GO_ON

ASK = (system("Be brief."), user("Ünïcode?"))
NONE = Abilities()
ALL = Abilities(schema=True, grammar=True, prefill=True, completion=True)


def model(abilities=NONE, **options):
    return ChatModel(spec="t:m", name="m", endpoint="http://h/v1", abilities=abilities, **options)


def body(think, abilities=NONE, **options):
    return json.loads(model(abilities, **options).encode(think).body)


def test_the_bytes_of_a_request():
    think = Think("act", ASK, stop=("\nObservation:",), temperature=0.0, max_tokens=9)
    request = model().encode(think)
    assert request.path == "chat/completions"
    assert (
        request.body
        == (
            '{"model":"m","messages":[{"role":"system","content":"Be brief."},'
            '{"role":"user","content":"Ünïcode?"}],'
            '"stop":["\\nObservation:"],"temperature":0.0,"max_tokens":9,"stream":true,'
            '"stream_options":{"include_usage":true}}'
        ).encode()
    )
    assert model().encode(think).body == request.body


def test_a_longer_conversation_begins_with_the_bytes_of_a_shorter_one():
    short = model().encode(Think("act", ASK)).body
    long = model().encode(Think("act", (*ASK, assistant("a"), user("b")))).body
    assert long.startswith(short[: short.index(b"]")])


def test_every_ability_can_be_left_out():
    think = Think(
        "act",
        ASK,
        stop=("x",),
        temperature=0.0,
        schema={"type": "object"},
        tools=(ToolSpec("t", "d"),),
        max_tokens=5,
    )
    full = body(think, ALL)
    parts = {
        "stream": ("stream", "stream_options"),
        "stream_usage": ("stream_options",),
        "stop": ("stop",),
        "temperature": ("temperature",),
        "schema": ("response_format",),
        "tools": ("tools",),
        "max_tokens": ("max_tokens",),
    }
    for ability, keys in parts.items():
        less = body(think, ALL.without(ability))
        for key in keys:
            assert key in full
            assert key not in less
    assert body(think, ALL.without("max_tokens"))["max_completion_tokens"] == 5


def test_an_unknown_ability_is_refused():
    with pytest.raises(ValueError, match="not an ability"):
        Abilities().without("flying")


def test_at_most_four_stop_strings_are_sent_and_all_are_cut():
    stops = tuple("abcde")
    think = Think("act", ASK, stop=("", *stops))
    assert body(think)["stop"] == list("abcd")
    made = {"choices": [{"message": {"content": "xyz e rest"}, "finish_reason": "length"}]}
    reply = model().decode(Response(200, json.dumps(made).encode()), think)
    assert (reply.text, reply.finish) == ("xyz ", "stop")


def test_params_win_and_none_leaves_out():
    sent = body(Think("act", ASK), params={"temperature": None, "top_p": 0.5, "stream": False})
    assert "temperature" not in sent
    assert (sent["top_p"], sent["stream"]) == (0.5, False)


def test_no_temperature_is_sent_where_none_is_wanted():
    assert "temperature" not in body(Think("act", ASK))
    assert "temperature" not in body(Think("act", ASK, resample=True))


def test_a_models_own_temperature_is_sent_and_an_effects_or_the_users_wins():
    assert body(Think("act", ASK), temperature=0.0)["temperature"] == 0.0
    assert body(Think("act", ASK, temperature=0.3), temperature=0.0)["temperature"] == 0.3
    assert body(Think("act", ASK), temperature=0.0, params={"temperature": 1.0})["temperature"] == 1.0


def test_after_a_repetition_a_model_with_a_temperature_is_asked_at_a_higher_one():
    assert body(Think("act", ASK, resample=True), temperature=0.0)["temperature"] == 0.7
    assert body(Think("act", ASK, resample=True), temperature=0.9)["temperature"] == 0.9
    assert body(Think("act", ASK, resample=True), params={"temperature": 0.2})["temperature"] == 0.2


def test_a_raw_prompt_goes_to_completions_with_the_prefill_behind_it():
    request = model(ALL).encode(Think("act", prompt="Q: 2+2\n", prefill="A:", stop=("\n",)))
    assert request.path == "completions"
    sent = json.loads(request.body)
    assert sent["prompt"] == "Q: 2+2\nA:"
    assert "messages" not in sent


def test_a_raw_prompt_is_one_user_message_where_there_are_no_completions():
    request = model().encode(Think("act", prompt="Q: 2+2\nA:"))
    assert request.path == "chat/completions"
    assert json.loads(request.body)["messages"] == [{"role": "user", "content": "Q: 2+2\nA:"}]


@pytest.mark.parametrize(
    "provider, last, extra",
    [
        ("llamacpp", {"role": "assistant", "content": "Thought: "}, {}),
        ("deepseek", {"role": "assistant", "content": "Thought: ", "prefix": True}, {}),
        ("mistral", {"role": "assistant", "content": "Thought: ", "prefix": True}, {}),
        ("anthropic", {"role": "assistant", "content": "Thought:"}, {}),
        (
            "vllm",
            {"role": "assistant", "content": "Thought: "},
            {"add_generation_prompt": False, "continue_final_message": True},
        ),
    ],
)
def test_a_prefill_is_continued_in_each_dialect(provider, last, extra):
    sent = body(Think("act", ASK, prefill="Thought: "), ALL, provider=provider)
    assert sent["messages"][-1] == last
    assert len(sent["messages"]) == 3
    assert {key: sent[key] for key in extra} == extra
    assert "continue_final_message" in sent or provider != "vllm"


def test_a_prefill_is_asked_for_where_it_can_not_be_continued():
    sent = body(Think("act", ASK, prefill="Thought: "))
    assert sent["messages"][2:] == [
        {"role": "assistant", "content": "Thought: "},
        {"role": "user", "content": GO_ON},
    ]


@pytest.mark.parametrize(
    "provider, expected",
    [
        ("llamacpp", {"grammar": "root ::= x"}),
        ("", {"grammar": "root ::= x"}),
        ("vllm", {"structured_outputs": {"grammar": "root ::= x"}}),
        ("fireworks", {"response_format": {"type": "grammar", "grammar": "root ::= x"}}),
    ],
)
def test_a_grammar_in_each_dialect(provider, expected):
    think = Think("act", ASK, grammar="root ::= x")
    sent = body(think, ALL, provider=provider)
    assert {key: sent[key] for key in expected} == expected
    assert not {"grammar", "structured_outputs", "response_format"} & set(body(think, provider=provider))


def test_a_schema_is_strict_and_named():
    sent = body(Think("act", ASK, schema={"type": "object"}, grammar="root ::= x"), ALL)
    form = {"name": "reply", "schema": {"type": "object"}, "strict": True}
    assert sent["response_format"] == {"type": "json_schema", "json_schema": form}
    assert "grammar" not in sent


def test_tools_and_their_calls_in_openais_shape():
    tool = ToolSpec("add", "Adds.", {"type": "object", "properties": {"a": {}}}, returns="the sum")
    chat = (
        *ASK,
        Message("assistant", "", calls=(Call("add", {"a": 1}, "c9"), Call("add", "not json"))),
        Message("tool", "1", call_id="c9"),
        Message("tool", "error"),
    )
    sent = body(Think("act", chat, tools=(tool,)))
    function = {"name": "add", "description": "Adds.\nReturns: the sum", "parameters": tool.parameters}
    assert sent["tools"] == [{"type": "function", "function": function}]
    said, first, second = sent["messages"][2:]
    assert said["content"] is None
    assert [(c["id"], c["type"], json.loads(c["function"]["arguments"])) for c in said["tool_calls"]] == [
        ("c9", "function", {"a": 1}),
        ("call_2", "function", {"input": "not json"}),
    ]
    assert first == {"role": "tool", "tool_call_id": "c9", "content": "1"}
    assert second == {"role": "tool", "tool_call_id": "call_2", "content": "error"}


def test_a_history_of_calls_is_told_in_words_where_there_are_no_tools():
    chat = (
        *ASK,
        Message("assistant", "Hm.", calls=(Call("add", {"a": 1}, "c9"),)),
        Message("tool", "1", call_id="c9"),
    )
    sent = body(Think("act", chat, tools=(ToolSpec("add", ""),)), Abilities(tools=False))
    assert "tools" not in sent
    assert [m["role"] for m in sent["messages"][2:]] == ["assistant", "user"]
    assert 'add with {"a":1}' in sent["messages"][2]["content"]
    assert "1" in sent["messages"][3]["content"]


PLAIN = Think("act", ASK)


def decoded(message=None, think=PLAIN, finish="stop", **more):
    made = {"choices": [{"message": message or {"content": "x"}, "finish_reason": finish}], **more}
    return model().decode(Response(200, json.dumps(made).encode()), think)


@for_each(
    "usage, more, expected",
    [
        ({"prompt_tokens": 9, "completion_tokens": 2}, {}, Usage(9, 2)),
        (
            {"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}},
            {},
            Usage(9, 2, 4),
        ),
        ({"prompt_tokens": 9, "completion_tokens": 2, "prompt_cache_hit_tokens": 5}, {}, Usage(9, 2, 5)),
        ({"input_tokens": 9, "output_tokens": 2, "cache_read_input_tokens": 30}, {}, Usage(39, 2, 30)),
        ({"prompt_tokens": 9, "completion_tokens": 2}, {"timings": {"cache_n": 7}}, Usage(9, 2, 7)),
        # Reasoning that some endpoints put in the total alone is output as well.
        ({"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 61}, {}, Usage(9, 52)),
        ({"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": None}, {}, Usage(9, 2)),
    ],
)
def test_usage_as_each_endpoint_reports_it(usage, more, expected):
    assert decoded(usage=usage, **more).usage == expected


def test_usage_that_is_not_reported_is_estimated_and_says_so():
    long = Think("act", (user("w" * 4000),))
    usage = decoded({"content": "x" * 400}, long).usage
    assert usage.estimated
    assert 1000 <= usage.input_tokens <= 1010
    assert usage.output_tokens == 100


@for_each(
    "given, read",
    [
        ('{"a": 1}', {"a": 1}),
        ("", None),
        ("{}", None),
        ("[1, 2]", [1, 2]),
        ("{'a': 1", "{'a': 1"),
        ({"a": 1}, {"a": 1}),
    ],
)
def test_arguments_are_read_leniently(given, read):
    call = {"id": "c", "type": "function", "function": {"name": "t", "arguments": given}}
    reply = decoded({"content": None, "tool_calls": [call]}, finish="stop")
    assert reply.calls == (Call("t", read, "c"),)
    assert reply.finish == "calls"


@for_each(
    "said, meant",
    [
        ("stop", "stop"),
        ("eos", "stop"),
        (None, "stop"),
        ("length", "length"),
        ("max_tokens", "length"),
        ("content_filter", "filter"),
        ("SAFETY", "filter"),
        ("tool_use", "calls"),
    ],
)
def test_why_the_model_stopped(said, meant):
    assert decoded(finish=said).finish == meant


def test_content_in_parts_and_a_refusal():
    parts = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
        {"type": "text", "text": "a"},
        {"type": "text", "text": "b"},
    ]
    reply = decoded({"content": parts})
    assert (reply.text, reply.reasoning) == ("ab", "hm")
    refused = decoded({"content": None, "refusal": "No."})
    assert (refused.text, refused.finish) == ("No.", "filter")


def test_only_the_first_choice_counts():
    made = {
        "choices": [
            {"index": 1, "message": {"content": "other"}, "finish_reason": "stop"},
            {"index": 0, "message": {"content": "mine"}, "finish_reason": "stop"},
        ]
    }
    assert model().decode(Response(200, json.dumps(made).encode()), Think("act", ASK)).text == "mine"


def test_calls_that_are_all_numbered_0_stay_apart():
    calls = [{"index": 0, "id": f"c{i}", "function": {"name": "t", "arguments": f'{{"i": {i}}}'}} for i in range(2)]
    made = {"choices": [{"delta": {"tool_calls": calls}, "finish_reason": "tool_calls"}]}
    raw = b"data: " + json.dumps(made).encode() + b"\n\n"
    assert [c.input for c in model().decode(Response(200, raw), Think("act", ASK)).calls] == [
        {"i": 0},
        {"i": 1},
    ]


def test_a_short_prefill_that_recurs_is_meant_where_the_endpoint_continues_it():
    think = Think("act", ASK, prefill="[")
    made = json.dumps({"choices": [{"message": {"content": "[1], 2]"}, "finish_reason": "stop"}]}).encode()
    assert model(ALL).decode(Response(200, made), think).text == "[1], 2]"
    assert model().decode(Response(200, made), think).text == "1], 2]"


@for_each("raw", [b"", b"[]", b"null", b"{}", b'{"choices": []}', b'{"choices": 3}', b"\xff\xfe", b"data: 3\n\n"])
def test_what_is_no_reply_is_a_bad_response(raw):
    with pytest.raises(BadResponse) as caught:
        model().decode(Response(200, raw), Think("act", ASK))
    assert caught.value.response.body == raw
