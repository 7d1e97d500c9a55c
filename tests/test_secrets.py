"""A key is never shown, read or stored, whole or in pieces; a short key changes nothing."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import plait
from conftest import for_each
from models_server import Asked, Server
from plait.core import events as ev
from plait.core.secrets import Scrubber, StreamScrubber
from plait.models.resolve import _warn_of_short_secret, resolve
from plait.models.wires.stream import scrub_pieces

KEY = "sk-0123456789abcdef"
USAGE = {"prompt_tokens": 7, "completion_tokens": 5}


def events(*pieces: str, field: str = "content", answer: str = "") -> bytes:
    """A stream whose text comes in these pieces; with `answer` a final answer follows them."""
    deltas = [{field: piece} for piece in pieces] + ([{"content": f"Final Answer: {answer}"}] if answer else [])
    chunks: list[object] = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": USAGE})
    return b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks) + b"data: [DONE]\n\n"


async def answered(body: bytes, key: str, journal: Path) -> tuple[plait.Run, str, str]:
    """A run at an endpoint that sends this stream: the run, its streamed text, and all that the journal holds."""

    async def answer(asked: Asked) -> None:
        await asked.begin()
        for line in body.splitlines(keepends=True):
            await asked.piece(line)
        await asked.end()

    shown = []
    async with Server(answer) as server:
        agent = plait.Agent("react", model=server.model(key=key), journal=journal)
        async for event in agent.stream("Which key?"):
            if isinstance(event, (ev.Answer, ev.Thought)):
                shown.append(event.text)
            if isinstance(event, ev.Ended):
                run = event.run
    stored = b"".join(path.read_bytes() for path in journal.parent.glob(f"{journal.name}*"))
    return run, "".join(shown), stored.decode("utf-8", "replace")


@pytest.mark.parametrize("field", ["content", "reasoning_content"])
async def test_a_key_split_over_the_chunks_of_a_stream_is_neither_shown_nor_stored(field: str, journal: Path) -> None:
    pieces = ("it is sk-0", "123456", "789abcdef", ", yes.")
    body = events("Final Answer: ", *pieces) if field == "content" else events(*pieces, field=field, answer="no.")
    run, shown, stored = await answered(body, KEY, journal)
    assert (run.status, run.answer) == ("answered", "it is [secret], yes." if field == "content" else "no.")
    assert run.usage.output_tokens == 5
    assert not any(piece in text for piece in (KEY, "123456", "789abcdef") for text in (shown, stored))


@pytest.mark.parametrize(("key", "text"), [("ollama", "ollama runs it."), ("token", "A token is a piece.")])
async def test_a_short_key_changes_neither_the_reply_nor_its_usage(key: str, text: str, journal: Path) -> None:
    run, _, _ = await answered(events(f"Final Answer: {text}"), key, journal)
    assert (run.answer, run.usage.tokens) == (text, 12)


def test_a_short_key_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    _warn_of_short_secret.cache_clear()
    with caplog.at_level(logging.WARNING, "plait"):
        for _ in range(3):
            resolve("openai:gpt-5", env={"OPENAI_API_KEY": "short"})
            resolve("openai:gpt-5", env={"OPENAI_API_KEY": KEY})
    assert [record.args for record in caplog.records] == [("OPENAI_API_KEY", 8)]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 50])
def test_a_streamed_text_is_scrubbed_however_it_is_cut(size: int) -> None:
    text = f"a {KEY} b {KEY[:9]} c sk-sk-{KEY}{KEY}sk-"
    scrubber = StreamScrubber(Scrubber([KEY]))
    shown = "".join(scrubber.feed(text[at : at + size]) for at in range(0, len(text), size))
    assert shown == Scrubber([KEY]).text(text).removesuffix("sk-")


def test_only_events_with_a_part_of_the_key_change() -> None:
    before = events("x ", "sk-01234", "56789abcdef y", " z")
    after = scrub_pieces(before, Scrubber([KEY]))
    assert after.split(b"\n\n")[0] == before.split(b"\n\n")[0] and after.split(b"\n\n")[3:] == before.split(b"\n\n")[3:]
    texts = [json.loads(line[6:])["choices"][0]["delta"].get("content") for line in after.split(b"\n\n")[:4]]
    assert texts == ["x ", "[secret]", " y", " z"]


ODD_KEY = 'kJ8+aV5LTE/yMz=Q1"N\\jcé😀x'


def escape_all(text: str) -> str:
    """JSON of a text with each character as an escape, in capitals."""
    units = text.encode("utf-16-be").hex().upper()
    return '"' + "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4)) + '"'


def escape_some(text: str) -> str:
    """JSON as .NET, Gson and PHP write it."""
    return (
        json.dumps(text).replace("+", "\\u002B").replace("=", "\\u003d").replace("/", "\\/").replace('\\"', "\\u0022")
    )


@for_each("outer", [str, json.dumps, escape_some])
@for_each("inner", [json.dumps, escape_some, escape_all])
def test_a_key_is_found_however_json_escapes_it(inner: Callable[[str], str], outer: Callable[[str], str]) -> None:
    body = outer('{"error":' + inner(f"bad key {ODD_KEY}!") + "}")
    scrubbed = json.loads(Scrubber([ODD_KEY])(body.encode()))
    error = (scrubbed if isinstance(scrubbed, dict) else json.loads(scrubbed))["error"]
    assert error == "bad key [secret]!"
    assert Scrubber([KEY])(body.encode()).decode() == body


def test_escapes_do_not_make_the_search_for_keys_slow() -> None:
    before = time.process_time()
    for secret in ("\\" * 30, "a\\" * 15, "a" * 60):
        Scrubber([secret])(b"a\\\\u005c" * 20_000 + b"\\" * 100_000)
    assert time.process_time() - before < 2
