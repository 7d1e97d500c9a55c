"""However a stream is cut into pieces on its way, the reply and what was shown of it are the same."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from conftest import for_each
from models_server import Server, completion, delta, event, whole_stream
from plait.core import Think, user
from plait.core.secrets import Scrubber
from plait.models.base import Abilities, Response
from plait.models.chat import ChatModel, _Watch
from plait.models.wires.repetition import EVERY, LONG, SHORT, ZEROS
from plait.models.wires.replies import ReplyReader
from plait.models.wires.reply_text import TextFilter
from plait.models.wires.stream import Events
from plait.models.wires.wire import CHAT, load_wire

MODEL = ChatModel(spec="t:m", name="m", endpoint="http://h/v1")


def cut(data, places):
    edges = [0, *sorted({p % (len(data) + 1) for p in places}), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(edges) if a < b]


TEXT = st.text(st.sampled_from("Obs:\n <think>/T{é日😀"), max_size=40)
STOPS = st.lists(st.sampled_from(["\nObs", "Obs:", "bs", "<think>", "\n\n", "日", "s:\nO"]), max_size=3, unique=True)
PREFILL = st.sampled_from(["", "T", "Thou:", "Obs: ", "<th", "é\n "])
PLACES = st.lists(st.integers(0, 5000), max_size=60)


@given(TEXT, STOPS, PREFILL, PLACES)
@example("bs:\nO", ["bs", "s:\nO"], "", [1, 2, 3])
@example("<think>x</think>\n\nObs: a", ["\nObs"], "Obs: ", list(range(30)))
def test_the_text_filter_gives_the_same_for_any_pieces(text, stops, prefill, places):
    whole, pieces = TextFilter(stops, prefill), TextFilter(stops, prefill)
    expected = whole.feed(text)
    expected += whole.close()
    found = "".join(pieces.feed(piece) for piece in cut(text, places)) + pieces.close()
    assert found == expected
    assert pieces.reasoning == whole.reasoning
    assert pieces.cut == whole.cut
    assert not any(stop in found for stop in stops)


CIRCLES = st.builds(
    lambda before, unit, times, after: before + unit * times + after,
    st.text(st.sampled_from("ab\nObs:"), max_size=600),
    st.text(st.sampled_from("ab\nObs:"), min_size=1, max_size=700),
    st.integers(1, 40),
    st.text(st.sampled_from("ab\nObs:"), max_size=100),
)


@given(CIRCLES, STOPS, PREFILL, st.lists(st.integers(0, 30_000), max_size=60))
def test_a_circle_is_seen_at_the_same_place_for_any_pieces(text, stops, prefill, places):
    whole, pieces = TextFilter(stops, prefill), TextFilter(stops, prefill)
    expected = whole.feed(text)
    expected += whole.close()
    assert "".join(pieces.feed(piece) for piece in cut(text, places)) + pieces.close() == expected
    assert pieces.cut == whole.cut


@pytest.mark.parametrize("unit", ["a", "no. ", '{"tool": "lookup", "tool_input": "x"}\n', "word " * 100])
def test_a_reply_that_says_the_same_over_and_over_is_cut_soon(unit):
    text = TextFilter()
    found = text.feed("The plan is this. " + unit * (20_000 // len(unit)))
    assert text.cut == "circle" and SHORT <= len(found) <= 18 + (LONG if len(unit) > 448 else SHORT) + EVERY


@given(CIRCLES, st.booleans(), st.lists(st.integers(0, 30_000), max_size=60))
def test_reasoning_that_circles_is_cut_at_the_same_place_for_any_pieces(thought, closed, places):
    text = f"<think>{thought}" + ("</think>So it is." if closed else "")
    whole, pieces = TextFilter(), TextFilter()
    expected = whole.feed(text)
    expected += whole.close()
    assert "".join(pieces.feed(piece) for piece in cut(text, places)) + pieces.close() == expected
    assert (pieces.cut, pieces.reasoning) == (whole.cut, whole.reasoning)


LOOKS_ALIKE = {
    "a table": "".join(f"| {i:4} | Lyon | {i * 7 % 90:3} | no | no | no |\n" for i in range(600)),
    "a list": "".join(f"- item {i}: {i * i * 7919 % 100_003} of them, as of all the others\n" for i in range(400)),
    "code": "".join(f"    if x == {i}:\n        return table[{i * i}]\n" for i in range(400)),
    "a rule": "=" * 1500 + "\nTitle\n" + "=" * 1500,
}


@for_each("text", LOOKS_ALIKE.values())
@for_each("where", ["text", "reasoning", "think", "input"])
def test_what_is_alike_and_goes_on_is_cut_nowhere(where, text):
    reply = MODEL.decode(Response(200, written(where, text)), Think("act", (user("q"),)))
    assert reply.finish != "circle"
    found = {"text": reply.text, "input": reply.calls and reply.calls[0].input["text"]}.get(where, reply.reasoning)
    assert found.strip() == text.strip()


def test_an_input_may_be_a_file_full_of_noughts():
    reply = MODEL.decode(Response(200, written("input", "0, " * 2000)), Think("act", (user("q"),)))
    assert reply.finish == "calls" and reply.calls[0].input == {"text": "0, " * 2000}


def written(where, text):
    """A stream whose text, reasoning or call is that, in pieces."""
    pieces = [text[at : at + 700] for at in range(0, len(text), 700)]
    if where == "input":
        whole = json.dumps({"text": text})
        first = {"index": 0, "id": "c1", "function": {"name": "write", "arguments": ""}}
        calls = [first] + [
            {"index": 0, "function": {"arguments": whole[at : at + 700]}} for at in range(0, len(whole), 700)
        ]
        said = [event({"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]}) for call in calls]
        return b"".join(said) + event({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})
    if where == "reasoning":
        said = [event({"choices": [{"index": 0, "delta": {"reasoning_content": piece}}]}) for piece in pieces]
        return b"".join(said) + whole_stream("so")
    return whole_stream(*(["<think>", *pieces, "</think>so"] if where == "think" else pieces))


@pytest.mark.parametrize(
    ("piece", "most"),
    [
        ({"reasoning_content": "Wait, let me look at that once more.\n"}, LONG),
        ({"reasoning": "Wait, let me look at that once more.\n"}, LONG),
        ({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "Wait, once more.\n"}]}]}, LONG),
        ({"tool_calls": [{"index": 0, "id": "c1", "function": {"name": "f", "arguments": '{\\"x\\": '}}]}, ZEROS),
        (
            {
                "tool_calls": [
                    {"index": 0, "id": "c1", "function": {"name": "f", "arguments": '{\\"to\\": {\\"me\\": '}}
                ]
            },
            LONG,
        ),
    ],
)
async def test_an_endpoint_whose_reasoning_or_call_goes_in_circles_is_left(piece, most):
    left = asyncio.Event()

    async def handler(asked):
        await asked.begin()
        with contextlib.suppress(ConnectionError):
            while True:
                await asked.piece(event({"choices": [{"index": 0, "delta": piece}]}))
        left.set()

    think = Think("act", (user("Who?"),))
    async with Server(handler) as server:
        model, shown = server.model(), []
        response = await model.send(model.encode(think), think, shown.append)
        await asyncio.wait_for(left.wait(), 30)
    reply = response.reply
    assert reply.finish == "circle" and response.cut and not reply.text and not shown
    again = model.decode(response, think)
    assert (again.finish, again.reasoning, again.calls) == (reply.finish, reply.reasoning, reply.calls)
    length = len(reply.calls[0].input if reply.calls else reply.reasoning)
    assert most - 1 <= length <= most + EVERY


@for_each("where", ["text", "reasoning", "think", "input"])
@for_each(
    "text",
    [
        "ha " * 5000,
        "| Lyon | 522250 | France |\n" * 80,
        "no " * 400,
        "".join(f"{i}. I look again.\n" for i in range(400)),
    ],
)
def test_a_reply_that_comes_whole_is_cut_where_a_streamed_one_is(where, text):
    def body(**message):
        made = completion("so")
        made["choices"][0]["message"].update(message)
        return json.dumps(made).encode()

    function = {"name": "write", "arguments": json.dumps({"text": text})}
    whole = {
        "text": body(content=text),
        "reasoning": body(reasoning_content=text),
        "think": body(content=f"<think>{text}</think>so"),
        "input": body(content=None, tool_calls=[{"id": "c1", "type": "function", "function": function}]),
    }[where]
    think = Think("act", (user("q"),))
    found, streamed = (MODEL.decode(Response(200, each), think) for each in (whole, written(where, text)))
    assert (found.finish, found.calls, found.reasoning) == (streamed.finish, streamed.calls, streamed.reasoning)
    assert found.text == streamed.text or (where == "input" and not found.calls)
    cut_at = SHORT if where == "text" else ZEROS if where == "input" and text.startswith("ha") else LONG
    assert (found.finish == "circle") == (len(text) > cut_at)


async def test_an_endpoint_that_goes_in_circles_is_left_and_the_reply_says_so():
    left = asyncio.Event()

    async def handler(asked):
        await asked.begin()
        with contextlib.suppress(ConnectionError):
            while True:
                await asked.piece(delta("I look it up once more.\n"))
        left.set()

    think = Think("act", (user("Who?"),))
    async with Server(handler) as server:
        model, shown = server.model(), []
        response = await model.send(model.encode(think), think, shown.append)
        await asyncio.wait_for(left.wait(), 30)
    assert response.reply.finish == "circle" and response.cut
    assert SHORT <= len(response.reply.text) <= SHORT + EVERY
    assert "".join(shown) == response.reply.text == model.decode(response, think).text


@given(
    st.lists(TEXT, min_size=1, max_size=5),
    STOPS,
    PREFILL,
    PLACES,
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.booleans(),
)
def test_any_pieces_of_a_stream_give_the_same_reply_and_show_it(texts, stops, prefill, places, newline, done):
    body = whole_stream(*texts)
    if not done:
        body = body[: body.rindex(b"data:")]
    # Raw UTF-8 in place of escapes, so that characters are cut in two; comments and other fields between.
    lines = [line for line in body.split(b"\n\n") if line]
    values = [json.loads(line[6:]) if line[6:7] == b"{" else None for line in lines]
    body = b"".join(
        event(json.dumps(value, ensure_ascii=False).encode()) if value else line + b"\n\n"
        for line, value in zip(lines, values, strict=True)
    )
    body = b": hello\n\nid: 7\nretry: 10\n" + body.replace(b"\n\n", b"\n: comment\n\n")
    body = body.replace(b"\n", newline.encode())
    think = Think("act", (user("q"),), stop=tuple(stops), prefill=prefill)
    reply = MODEL.decode(Response(200, body), think)
    shown: list[str] = []
    watch = _Watch(ReplyReader(load_wire(CHAT), think, MODEL._repeatable_prefill(think)), shown.append, Scrubber())
    came = b""
    for piece in cut(body, places):
        came += piece
        if watch.take(piece):
            break
    response = Response(200, came, cut=bool(watch.reader.draft.cut))
    again = MODEL.decode(response, think)
    assert watch.reader.finish(response, MODEL.target, b"") == again
    watch.show_rest(again)
    assert again.text == reply.text == "".join(shown)
    assert again.reasoning == reply.reasoning
    assert again.finish == reply.finish


@given(st.binary(max_size=300), PLACES)
def test_events_are_the_same_for_any_bytes_in_any_pieces(body, places):
    body = body.replace(b"a", b"\ndata: a\r\n\r").replace(b"b", b"\r\n")
    whole, pieces = Events(), Events()
    expected = [*whole.feed(body), *whole.close()]
    found = [data for piece in cut(body, places) for data in pieces.feed(piece)]
    assert [*found, *pieces.close()] == expected


def test_data_of_several_lines_is_one_event():
    events = Events()
    assert events.feed(b'data: {"a":\ndata:1}\n') == []
    assert events.feed(b"\n") == [b'{"a":\n1}']


def test_a_byte_order_mark_and_an_error_field():
    events = Events()
    assert events.feed(b'\xef\xbb\xbfdata: 1\n\nerror: {"code": 500}\n\n') == [b"1"]
    assert events.errors == [b'{"code": 500}']


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
async def test_over_a_real_connection_the_size_of_the_pieces_does_not_matter(size):
    body = whole_stream("<think>é日</think>", "\nThought: 日", "本 😀\nObs", "tacle\nObservation: no")
    think = Think("act", (user("q"),), stop=("\nObservation:",))

    async def handler(asked):
        await asked.begin()
        for start in range(0, len(body), size):
            await asked.piece(body[start : start + size])
        await asked.end()

    async with Server(handler) as server:
        model, shown = server.model(), []
        response = await model.send(model.encode(think), think, shown.append)
    reply = model.decode(response, think)
    assert reply.text == "Thought: 日本 😀\nObstacle" == "".join(shown)
    assert reply.reasoning == "é日"


@pytest.mark.parametrize("content", ["json", "events"])
def test_reasoning_is_kept_apart(content):
    if content == "json":
        body = json.dumps(completion("<think>in</think> out", reasoning_content="field")).encode()
    else:
        body = delta(reasoning_content="fi") + delta(reasoning="eld") + whole_stream("<thi", "nk>in</th", "ink> out")
    reply = MODEL.decode(Response(200, body), Think("act", (user("q"),)))
    assert (reply.text, reply.reasoning) == ("out", "field\nin")


def test_an_unclosed_think_block_is_all_reasoning():
    body = json.dumps(completion("<think>on and on", finish="length")).encode()
    reply = MODEL.decode(Response(200, body), Think("act", (user("q"),)))
    assert (reply.text, reply.reasoning, reply.finish) == ("", "on and on", "length")


def test_think_in_the_middle_is_text():
    body = json.dumps(completion("a <think>b</think>")).encode()
    assert MODEL.decode(Response(200, body), Think("act", (user("q"),))).text == "a <think>b</think>"


async def test_without_streaming_the_text_is_shown_once():
    async def handler(asked):
        assert "stream" not in asked.body
        await asyncio.sleep(0)
        await asked.answer(200, completion("all of it"))

    async with Server(handler) as server:
        model, shown = server.model(abilities=Abilities(stream=False)), []
        think = Think("act", (user("q"),))
        await model.send(model.encode(think), think, shown.append)
    assert shown == ["all of it"]
