"""A model behind real HTTP: what goes out, what comes back, and every way in which it goes wrong."""

from __future__ import annotations

import asyncio
import gc
import json
import socket
import time
import warnings
from email.utils import formatdate

import pytest

from conftest import for_each
from models_server import USAGE, Asked, Server, completion, delta, event, whole_stream
from plait.core import Think, Usage, assistant, user
from plait.core.errors import (
    AuthenticationError,
    BadRequest,
    BadResponse,
    ContextOverflow,
    ModelError,
    RateLimited,
    ServerFailed,
    Unreachable,
    Unsupported,
)
from plait.models import http
from plait.models.base import Abilities
from plait.models.chat import ChatModel
from plait.proxies import find_proxy

THINK = Think("act", (user("Where is Nice?"),), stop=("\nObservation:",))
PLAIN = Abilities(stream=False)


async def ask(model: ChatModel, think: Think = THINK) -> tuple[str, list[str]]:
    """One whole call: the reply's text, and what was shown while it came."""
    shown: list[str] = []
    response = await model.send(model.encode(think), think, shown.append)
    return model.decode(response, think).text, shown


async def failing(handler, expected: type[ModelError], think: Think = THINK, **options) -> ModelError:
    async with Server(handler) as server:
        model = server.model(**options)
        with pytest.raises(expected) as caught:
            await model.send(model.encode(think), think, lambda text: None)
    return caught.value


async def test_the_request_is_exactly_the_documented_headers_and_the_encoded_bytes():
    async def handler(asked: Asked):
        await asked.answer(200, completion("hi"))

    async with Server(handler) as server:
        model = server.model(abilities=PLAIN, headers={"X-Team": "blue"})
        request = model.encode(THINK)
        await model.send(request, THINK)
    (got,) = server.asked
    assert (got.method, got.path) == ("POST", "/v1/chat/completions")
    assert got.raw == request.body
    assert got.headers == {
        "Host": f"127.0.0.1:{server.port}",
        "User-Agent": "plait",
        "Content-Type": "application/json",
        "Authorization": "Bearer sk-secret",
        "X-Team": "blue",
        "Content-Length": str(len(request.body)),
    }


async def test_a_query_in_the_base_address_stays_behind_the_path():
    async def handler(asked: Asked):
        await asked.answer(200, completion("hi"))

    async with Server(handler) as server:
        await ask(server.model(endpoint=f"{server.url}/?api-version=7"))
    assert server.asked[0].path == "/v1/chat/completions?api-version=7"


async def test_a_query_of_the_path_stays_behind_that_of_the_base_address():
    async def handler(asked: Asked):
        await asked.answer(200, {"candidates": [{"content": {"parts": [{"text": "hi"}]}, "finishReason": "STOP"}]})

    async with Server(handler) as server:
        text, _ = await ask(server.model(endpoint=f"{server.url}/?team=7", wire="gemini"))
    assert (text, server.asked[0].path) == ("hi", "/v1/models/m:streamGenerateContent?team=7&alt=sse")


async def test_a_stream_is_shown_as_it_comes_and_kept_byte_for_byte():
    body = whole_stream("Thought: ", "here", " it is")

    async def handler(asked: Asked):
        await asked.stream(body)

    async with Server(handler) as server:
        model, shown = server.model(), []
        response = await model.send(model.encode(THINK), THINK, shown.append)
    reply = model.decode(response, THINK)
    assert (response.status, response.body, response.cut) == (200, body, False)
    assert reply.text == "Thought: here it is" == "".join(shown)
    assert reply.usage == Usage(12, 5)
    assert server.asked[0].body["stream_options"] == {"include_usage": True}


async def test_the_first_words_are_shown_before_the_last_are_written():
    seen = asyncio.Event()

    async def handler(asked: Asked):
        await asked.begin()
        await asked.piece(delta("first"))
        await asyncio.wait_for(seen.wait(), 5)
        await asked.piece(delta(" last", "stop") + event(b"[DONE]"))
        await asked.end()

    async with Server(handler) as server:
        model = server.model()
        response = await model.send(model.encode(THINK), THINK, lambda text: seen.set())
    assert model.decode(response, THINK).text == "first last"


async def test_json_where_a_stream_was_asked_for_is_read_all_the_same():
    async def handler(asked: Asked):
        await asked.answer(200, completion("whole\nObservation: no"), kind="text/event-stream")

    async with Server(handler) as server:
        assert await ask(server.model()) == ("whole", ["whole"])


async def test_a_server_that_ignores_stop_is_cut_off_and_notices():
    async def handler(asked: Asked):
        await asked.begin()
        for text in ("Action: x\nObs", "ervation: made up", *["more "] * 200):
            await asked.piece(delta(text))
            await asyncio.sleep(0.01)

    async with Server(handler) as server:
        model, shown = server.model(), []
        response = await model.send(model.encode(THINK), THINK, shown.append)
        await asyncio.wait_for(server.left.wait(), 5)
    reply = model.decode(response, THINK)
    assert response.cut
    assert reply.text == "Action: x" == "".join(shown)
    assert reply.finish == "stop"
    assert reply.usage.estimated
    assert reply.usage.output_tokens > 0


async def test_cancelling_closes_the_connection():
    async def handler(asked: Asked):
        await asked.begin()
        await asked.piece(delta("so"))
        await asyncio.sleep(60)

    async with Server(handler) as server:
        model, began = server.model(), asyncio.Event()
        call = asyncio.create_task(model.send(model.encode(THINK), THINK, lambda text: began.set()))
        await asyncio.wait_for(began.wait(), 5)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await asyncio.wait_for(server.left.wait(), 5)


async def test_cancelling_before_the_first_byte_closes_the_connection():
    async def handler(asked: Asked):
        await asyncio.sleep(60)

    async with Server(handler) as server:
        model = server.model()
        call = asyncio.create_task(model.send(model.encode(THINK), THINK))
        while not server.asked:
            await asyncio.sleep(0.01)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await asyncio.wait_for(server.left.wait(), 5)


async def test_an_error_of_the_watcher_is_its_own_and_closes_the_connection():
    async def handler(asked: Asked):
        await asked.begin()
        await asked.piece(delta("so"))
        await asyncio.sleep(60)

    def broken_pipe(text: str) -> None:
        raise BrokenPipeError("the terminal is gone")

    async with Server(handler) as server:
        model = server.model()
        with pytest.raises(BrokenPipeError, match="terminal"):
            await model.send(model.encode(THINK), THINK, broken_pipe)
        await asyncio.wait_for(server.left.wait(), 5)


async def test_nothing_at_the_address():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}/v1"
    model = ChatModel(spec="openai:m", name="m", endpoint=address, base_env="OPENAI_BASE_URL")
    with pytest.raises(Unreachable) as caught:
        await model.send(model.encode(THINK), THINK)
    assert address in str(caught.value)
    assert "refused" in str(caught.value)
    assert "Is the server running?" in str(caught.value)
    assert "OPENAI_BASE_URL" in str(caught.value)
    assert caught.value.response is None
    assert not caught.value.retry


async def test_a_name_that_is_none():
    model = ChatModel(spec="x:m", name="m", endpoint="http://no-such-host.invalid/v1")
    with pytest.raises(Unreachable, match=r"no-such-host\.invalid.*can't be reached"):
        await model.send(model.encode(THINK), THINK)


async def test_an_address_that_is_none():
    model = ChatModel(spec="x:m", name="m", endpoint="localhost:8000/v1")
    with pytest.raises(BadRequest, match=r"not an address.*https://host/v1"):
        await model.send(model.encode(THINK), THINK)


KEPT_ALIVE = {
    "comments": (b"", b": ping\n\n"),
    "comments after a word": (delta("so"), b": ping\n\n"),
    "blank lines": (delta("so"), b"\n"),
    "single bytes": (delta("so"), b"d"),
    "events without content": (delta("so"), delta("")),
    "named events": (b"", b'event: ping\ndata: {"type": "ping"}\n\n'),
    "empty data": (b"", b"data:\n\n"),
    "other objects": (delta("so"), b"data: {}\n\n"),
    "blanks before JSON": (b"", b" "),
    "JSON without end": (b'{"a": [', b"1,"),
}


@pytest.mark.parametrize("case", KEPT_ALIVE)
async def test_only_content_keeps_a_request_alive(case: str):
    first, again = KEPT_ALIVE[case]

    async def handler(asked: Asked):
        await asked.begin()
        if first:
            await asked.piece(first)
        while True:
            await asyncio.sleep(0.02)
            await asked.piece(again)

    began = time.monotonic()
    error = await failing(handler, ModelError, timeout=0.25)
    assert 0.2 < time.monotonic() - began < 5
    assert "silence for 0.25 s" in str(error) and error.retry


async def test_headers_without_end_keep_no_request_alive():
    async def handler(asked: Asked):
        while True:
            await asyncio.sleep(0.02)
            asked.writer.write(b"HTTP/1.1 103 Early Hints\r\n\r\n")
            await asked.writer.drain()

    began = time.monotonic()
    assert "silence for 0.2 s" in str(await failing(handler, Unreachable, timeout=0.2))
    assert time.monotonic() - began < 5


async def test_comments_behind_the_end_do_not_hold_the_reply_up():
    async def handler(asked: Asked):
        await asked.begin()
        await asked.piece(delta("Lyon.", finish="stop") + b"data: [DONE]\n\n")
        while True:
            await asyncio.sleep(0.02)
            await asked.piece(b": ping\n\n")

    began = time.monotonic()
    async with Server(handler) as server:
        assert (await ask(server.model(timeout=30)))[0] == "Lyon."
    assert time.monotonic() - began < 5


async def test_slow_content_keeps_a_request_alive():
    async def handler(asked: Asked):
        await asked.begin()
        for word in ["one", "two", "three", "four"]:
            await asyncio.sleep(0.15)
            await asked.piece(delta(f"{word} "))
        await asked.piece(delta("", finish="stop") + b"data: [DONE]\n\n")

    async with Server(handler) as server:
        assert (await ask(server.model(timeout=0.4)))[0].split() == ["one", "two", "three", "four"]


async def test_silence_is_unreachable_with_what_came_so_far():
    async def handler(asked: Asked):
        await asked.begin()
        await asked.piece(delta("so"))
        await asyncio.sleep(60)

    error = await failing(handler, Unreachable, timeout=0.2)
    assert "silence for 0.2 s" in str(error)
    assert error.response.body == delta("so")


@pytest.mark.parametrize("status", [401, 403])
async def test_a_refused_key_names_the_variable_and_never_the_key(status):
    async def handler(asked: Asked):
        await asked.answer(status, {"error": {"message": f"Bad key {asked.headers['Authorization']}!"}})

    error = await failing(handler, AuthenticationError, key_env="MY_KEY")
    assert "MY_KEY" in str(error)
    assert "Bad key" in str(error)
    assert error.response.status == status
    for text in (str(error), repr(error), repr(error.response), error.response.body.decode()):
        assert "sk-secret" not in text
    assert error.__cause__ is None
    assert not error.retry


async def test_a_key_echoed_in_a_good_reply_is_blacked_out_of_the_record():
    async def handler(asked: Asked):
        await asked.answer(200, completion("You sent sk-secret"))

    async with Server(handler) as server:
        model = server.model()
        response = await model.send(model.encode(THINK), THINK)
    assert b"sk-secret" not in response.body
    assert model.decode(response, THINK).text == "You sent [secret]"
    assert "sk-secret" not in repr(model) + str(model.describe()) + str(model.__rich_repr__())


async def test_429_with_seconds():
    async def handler(asked: Asked):
        await asked.answer(429, {"error": {"message": "slow down"}}, Retry_After="7")

    error = await failing(handler, RateLimited)
    assert error.after == 7.0
    assert "asks to wait 7 s" in str(error)
    assert error.response.status == 429


async def test_429_with_a_date():
    async def handler(asked: Asked):
        await asked.answer(429, b"", Retry_After=formatdate(time.time() + 30, usegmt=True))

    assert 27 < (await failing(handler, RateLimited)).after <= 30


async def test_429_with_milliseconds_or_nothing_or_nonsense():
    told = iter([{"retry_after_ms": "250"}, {}, {"Retry_After": "soon"}])

    async def handler(asked: Asked):
        await asked.answer(429, b"", **next(told))

    async with Server(handler) as server:
        model = server.model()
        waits = []
        for _ in range(3):
            with pytest.raises(RateLimited) as caught:
                await model.send(model.encode(THINK), THINK)
            waits.append(caught.value.after)
    assert waits == [0.25, None, None]


async def test_an_empty_account_is_no_rate_limit():
    async def handler(asked: Asked):
        await asked.answer(429, {"error": {"message": "You exceeded ...", "code": "insufficient_quota"}})

    assert "no credit" in str(await failing(handler, AuthenticationError))


@pytest.mark.parametrize("status", [500, 502, 503, 529, 408])
async def test_a_server_in_trouble(status):
    async def handler(asked: Asked):
        await asked.answer(status, b"<h1>upstream stream failed unexpectedly</h1>", kind="text/html")

    error = await failing(handler, ServerFailed)
    assert str(status) in str(error)
    assert error.retry
    assert b"upstream" in error.response.body


@pytest.mark.parametrize("clean_end", [True, False])
async def test_half_a_stream_is_no_reply(clean_end):
    async def handler(asked: Asked):
        await asked.begin()
        await asked.piece(delta("Thought: I was"))
        if clean_end:
            await asked.end()
        else:
            asked.writer.transport.abort()

    error = await failing(handler, BadResponse)
    assert "broke off" in str(error)
    assert error.retry
    assert error.response.body == delta("Thought: I was")


async def test_half_a_json_body_is_no_reply():
    async def handler(asked: Asked):
        asked.writer.write(b'HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{"choices": [')
        await asked.writer.drain()
        asked.writer.transport.abort()

    error = await failing(handler, BadResponse, abilities=PLAIN)
    assert error.response.body == b'{"choices": ['


async def test_a_missing_done_is_forgiven_where_the_reply_was_finished():
    async def handler(asked: Asked):
        await asked.stream(delta("fine") + delta(finish="stop"))

    async with Server(handler) as server:
        assert (await ask(server.model()))[0] == "fine"


async def test_a_connection_that_breaks_after_the_end_of_the_reply_loses_nothing():
    async def handler(asked: Asked):
        await asked.begin()
        await asked.piece(delta("fine", "stop") + b'data: {"choices": [], "usa')
        await asyncio.sleep(0.05)
        asked.writer.transport.abort()

    async with Server(handler) as server:
        assert (await ask(server.model()))[0] == "fine"


@for_each(
    "body",
    [b"<html>Welcome</html>", b"{]", b'{"ok": true}', b"", b"data: {]\n\n", b'"text"', b"data: [DONE]\n\n"],
)
async def test_garbage_is_shown(body):
    async def handler(asked: Asked):
        await asked.answer(200, body)

    error = await failing(handler, BadResponse)
    assert body.decode().strip()[:10] in str(error)
    assert error.response.body == body
    if body.startswith(b"<"):
        assert "web page" in str(error)


async def test_an_error_inside_a_stream_is_that_error():
    async def handler(asked: Asked):
        error = {"message": "Overloaded", "type": "overloaded_error", "code": 529}
        await asked.stream(delta("Thou") + event({"error": error}))

    error = await failing(handler, ServerFailed)
    assert "Overloaded" in str(error)
    assert error.response.status == 200


async def test_a_rate_limit_and_an_overflow_inside_a_stream():
    async def handler(asked: Asked):
        errors = [
            {"message": "slow", "type": "rate_limit_exceeded"},
            {"message": "too big", "code": "context_length_exceeded"},
        ]
        await asked.stream(event({"error": errors[len(server.asked) - 1]}))

    async with Server(handler) as server:
        model = server.model()
        with pytest.raises(RateLimited):
            await model.send(model.encode(THINK), THINK)
        with pytest.raises(ContextOverflow):
            await model.send(model.encode(THINK), THINK)


async def test_overflow_has_its_numbers():
    async def handler(asked: Asked):
        error = {
            "code": 400,
            "message": "the request exceeds the available context size",
            "type": "exceed_context_size_error",
            "n_prompt_tokens": 9000,
            "n_ctx": 8192,
        }
        await asked.answer(400, {"error": error})

    error = await failing(handler, ContextOverflow)
    assert (error.tokens, error.room) == (9000, 8192)
    assert "9000" in str(error)


async def test_a_refused_stop_is_named_and_the_model_without_it_still_stops():
    async def handler(asked: Asked):
        if "stop" in asked.body:
            said = "Unsupported parameter: 'stop' is not supported with this model."
            error = {"message": said, "param": "stop", "code": "unsupported_parameter"}
            await asked.answer(400, {"error": error})
        else:
            await asked.stream(whole_stream("Action: x\nObservation: made up"))

    async with Server(handler) as server:
        model = server.model()
        with pytest.raises(Unsupported) as caught:
            await model.send(model.encode(THINK), THINK)
        assert caught.value.ability == "stop"
        assert (await ask(model.without("stop")))[0] == "Action: x"


async def test_an_unknown_model_and_a_wrong_path():
    async def handler(asked: Asked):
        if len(server.asked) == 1:
            await asked.answer(404, {"error": {"message": "The model `m` does not exist", "code": "model_not_found"}})
        else:
            await asked.answer(404, b"404 page not found", kind="text/plain")

    async with Server(handler) as server:
        model = server.model(base_env="X_BASE_URL")
        with pytest.raises(BadRequest, match="Check the name 'm'"):
            await model.send(model.encode(THINK), THINK)
        with pytest.raises(BadRequest, match="X_BASE_URL"):
            await model.send(model.encode(THINK), THINK)


async def test_an_endpoint_without_raw_completions_says_so():
    async def handler(asked: Asked):
        if asked.path.endswith("/chat/completions"):
            await asked.stream(whole_stream("4"))
        else:
            await asked.answer(404, {"detail": "Not Found"})

    think = Think("act", prompt="2+2=")
    async with Server(handler) as server:
        model = server.model(abilities=Abilities(completion=True))
        with pytest.raises(Unsupported) as caught:
            await model.send(model.encode(think), think)
        assert caught.value.ability == "completion"
        assert (await ask(model.without("completion"), think))[0] == "4"
    assert server.asked[1].body["messages"] == [{"role": "user", "content": "2+2="}]


async def test_a_redirect_is_not_followed():
    async def handler(asked: Asked):
        await asked.answer(307, b"", Location="http://elsewhere.example/v1")

    assert "elsewhere.example" in str(await failing(handler, BadRequest))


async def test_64_at_once_each_get_their_own_reply():
    async def handler(asked: Asked):
        await asyncio.sleep(0.05)
        await asked.stream(whole_stream("echo ", asked.body["messages"][0]["content"]))

    async def one(i: int) -> str:
        think = Think("act", (user(f"q{i}"),))
        return (await ask(model, think))[0]

    async with Server(handler) as server:
        model = server.model()
        assert await asyncio.gather(*map(one, range(64))) == [f"echo q{i}" for i in range(64)]
        assert server.connections == 64


async def test_a_connection_is_used_again():
    async def handler(asked: Asked):
        await asked.stream(whole_stream("hi"))

    async with Server(handler) as server:
        model = server.model()
        for _ in range(5):
            await ask(model)
    assert server.connections == 1


def test_connections_are_closed_when_their_loop_ends():
    async def handler(asked: Asked):
        await asked.stream(whole_stream("hi"))

    async def run() -> None:
        async with Server(handler) as server:
            await asyncio.gather(ask(server.model()), ask(server.model()))

    before = len(http._sessions)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            asyncio.run(run())
        gc.collect()
    assert len(http._sessions) == before


async def test_a_prefill_that_the_model_repeats_is_dropped_in_the_stream_too():
    async def handler(asked: Asked):
        await asked.stream(whole_stream("Thou", "ght: the", " sea"))

    think = Think("act", (user("Why?"),), prefill="Thought:")
    async with Server(handler) as server:
        text, shown = await ask(server.model(), think)
    assert text == " the sea" == "".join(shown)
    assert server.asked[0].body["messages"][1] == {"role": "assistant", "content": "Thought:"}
    assert server.asked[0].body["messages"][2]["role"] == "user"


async def test_native_calls_come_in_pieces():
    async def handler(asked: Asked):
        parts = [
            {"index": 0, "id": "c1", "function": {"name": "add", "arguments": ""}},
            {"index": 0, "function": {"arguments": '{"a": 1,'}},
            {"index": 0, "function": {"arguments": ' "b": 2}'}},
            {"index": 1, "id": "c2", "function": {"name": "now", "arguments": "{}"}},
        ]
        await asked.stream(
            b"".join(delta(tool_calls=[p]) for p in parts)
            + delta(finish="tool_calls")
            + event({"choices": [], "usage": USAGE})
        )

    async with Server(handler) as server:
        model = server.model()
        reply = model.decode(await model.send(model.encode(THINK), THINK), THINK)
    assert [(c.tool, c.input, c.id) for c in reply.calls] == [
        ("add", {"a": 1, "b": 2}, "c1"),
        ("now", None, "c2"),
    ]
    assert reply.finish == "calls"


async def test_a_chat_that_ends_in_an_assistant_message_goes_out_as_it_is():
    async def handler(asked: Asked):
        await asked.answer(200, completion("b"))

    async with Server(handler) as server:
        await ask(server.model(), Think("act", (user("go"), assistant("a"))))
    assert server.asked[0].body["messages"] == [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": "a"},
    ]


async def test_a_proxy_of_the_environment_is_used_but_not_for_this_machine(monkeypatch):
    async def handler(asked: Asked):
        await asked.stream(whole_stream("hi"))

    find_proxy.cache_clear()
    async with Server(handler) as server:
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{server.port}")
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{server.port}")
        monkeypatch.setenv("no_proxy", "")
        assert (await ask(server.model(endpoint="http://far.invalid/v1")))[0] == "hi"
        assert (await ask(server.model()))[0] == "hi"
    find_proxy.cache_clear()
    assert [one.path for one in server.asked] == [
        "http://far.invalid/v1/chat/completions",
        "/v1/chat/completions",
    ]


async def test_a_body_without_a_length_ends_with_the_connection():
    async def handler(asked: Asked):
        asked.writer.write(b"HTTP/1.1 200 OK\r\n\r\n" + json.dumps(completion("hi")).encode())
        asked.writer.close()

    async with Server(handler) as server:
        assert (await ask(server.model()))[0] == "hi"


async def test_an_early_hint_is_not_taken_for_the_response():
    async def handler(asked: Asked):
        asked.writer.write(b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n")
        await asked.answer(200, completion("hi"))

    async with Server(handler) as server:
        assert (await ask(server.model()))[0] == "hi"


async def test_own_headers_win_in_any_case_of_letters():
    async def handler(asked: Asked):
        await asked.answer(200, completion("hi"))

    async with Server(handler) as server:
        await ask(server.model(headers={"user-agent": "mine"}))
    (got,) = server.asked
    headers = {name.lower(): value for name, value in got.headers.items()}
    assert headers["user-agent"] == "mine"


async def test_a_password_in_the_address_is_sent_as_aiohttp_sends_it():
    async def handler(asked: Asked):
        await asked.answer(200, completion("hi"))

    async with Server(handler) as server:
        await ask(server.model(key="", endpoint=server.url.replace("://", "://me:secret@")))
    assert server.asked[0].headers["Authorization"] == "Basic bWU6c2VjcmV0"


async def test_a_header_with_a_line_break_is_not_sent():
    async def handler(asked: Asked):
        await asked.answer(200, completion("hi"))

    async with Server(handler) as server:
        with pytest.raises(BadRequest):
            await ask(server.model(headers={"X-Team": "blue\r\nX-Other: red"}))
    assert server.asked == []
