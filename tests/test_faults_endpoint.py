"""Whatever an endpoint does: a clear message, the right exit code, each attempt on record; and a way to go on."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from cli_support import Shell, action, final, turn
from faults_support import (
    KEY,
    REPLIES,
    Endpoint,
    Handler,
    after,
    attempts,
    bodies_sent,
    calls_begun,
    endpoint,
    failing,
    of,
    plait_resume,
    plait_run,
    record,
    sent,
    serving,
    shell,
    told_clearly,
    turn_of,
)
from journal_rows import is_result
from models_server import Asked, completion, delta, whole_stream
from patience import patience
from plait.journal.records import NoteRecord
from plait.journal.store import Journal

__all__ = ["shell"]


def mended(shell: Shell, at: Endpoint) -> None:
    """The fault is gone: the run goes on to its answer, and what was sent is not sent again."""
    at.handler = serving()
    done = plait_resume(shell, at)
    assert (done.code, done.out) == (0, "all is sent\n"), done.err
    assert sent(shell) == ["one", "two"]
    assert calls_begun(shell) == ["one", "two"]
    assert Journal(shell.env["PLAIT_JOURNAL"]).run("last").status == "answered"


async def hang_up(asked: Asked) -> None:
    asked.writer.transport.abort()


async def garbage(asked: Asked) -> None:
    await asked.answer(200, b"\x00\xffnothing that is JSON", "application/json")


async def a_web_page(asked: Asked) -> None:
    await asked.answer(200, b"<html><body>Please log in to the network</body></html>", "text/html")


async def half_a_stream(asked: Asked) -> None:
    await asked.begin()
    await asked.piece(whole_stream("Thought: half a")[:180])
    asked.writer.transport.abort()


FAULTS: list[tuple[str, Handler, int, str, tuple[str, ...]]] = [
    # name, what the endpoint does, attempts made of it, the error's kind, what the message says
    ("500", failing(500), 4, "ServerFailed", ("failed (500)", "the engine is on fire")),
    ("hangs up", hang_up, 4, "Unreachable", ("the connection broke", "OPENAI_BASE_URL")),
    ("garbage", garbage, 4, "BadResponse", ("It begins:",)),
    ("a web page", a_web_page, 4, "BadResponse", ("That is a web page; check the address",)),
    ("half a stream", half_a_stream, 4, "BadResponse", ("half a",)),
    ("401 with the key", failing(401, f"Incorrect API key {KEY}"), 1, "AuthenticationError", ("[secret]",)),
    ("no credit", failing(402, "top up"), 1, "AuthenticationError", ("no credit left", "another model")),
    ("400", failing(400, "messages: too rude"), 1, "BadRequest", ("refused the request (400)", "too rude")),
    ("429 for an hour", failing(429, "slow down", Retry_After="3600"), 1, "RateLimited", ("(429)", "wait 3600 s")),
    ("429 for ever", failing(429, "slow down", Retry_After="0"), 4, "RateLimited", ("asks to slow down (429)",)),
]


def meet(folder: Path, fault: Handler, tries: int, kind: str, words: tuple[str, ...]) -> None:
    """A run that meets a fault after its first step, and goes on when the fault is gone."""
    shell = Shell(folder)
    with endpoint(after(1, fault)) as at:
        began = time.monotonic()
        done = plait_run(shell, at)
        assert time.monotonic() - began < patience(15)
        told_clearly(done, 1, "crashed: ", *words)
        assert done.err.splitlines()[-1].startswith("To continue after fixing this, run: plait resume ")
        assert sent(shell) == ["one"]
        assert [error for n, _, error in attempts(shell) if n > 0] == [kind] * tries
        # Each attempt's body stands on the record exactly as it went out.
        assert bodies_sent(shell) == [asked.raw for asked in at.asked]
        assert len(at.asked) == 1 + tries
        run = Journal(shell.env["PLAIT_JOURNAL"]).run("last")
        assert run.status == "crashed" and run.outcome is not None and run.outcome["error"] == kind
        mended(shell, at)
    stored = [path.read_bytes() for path in shell.folder.rglob("journal.db*") if path.is_file()]
    assert KEY.encode() not in b"".join(stored)


@pytest.fixture(scope="module")
def met(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future[None]]]:
    """Every fault, four at a time: most of it is waiting for the next attempt."""
    with ThreadPoolExecutor(4) as pool:
        yield {name: pool.submit(meet, tmp_path_factory.mktemp("fault"), *fault) for name, *fault in FAULTS}


@pytest.mark.parametrize("fault", [each[0] for each in FAULTS])
def test_a_fault_in_the_middle_of_a_run(met: dict[str, Future[None]], fault: str) -> None:
    met[fault].result()


def test_nothing_listens_at_the_address(shell: Shell) -> None:
    with endpoint(serving()) as gone:
        pass
    done = plait_run(shell, gone)
    told_clearly(done, 1, "crashed: ", "connection refused", "Is the server running?", "OPENAI_BASE_URL")
    assert len(bodies_sent(shell)) == 1 and sent(shell) == []
    with endpoint(serving()) as at:
        # The server is up again, at another address: the record names the model, the environment its address.
        mended(shell, at)


def test_with_json_the_object_says_what_broke(shell: Shell) -> None:
    with endpoint(failing(401)) as at:
        done = plait_run(shell, at, "--json")
    assert done.code == 1
    found = done.object
    assert (found["status"], found["answer"], found["calls"]) == ("crashed", None, 0)
    assert "refused the key (401)" in found["reason"]


def test_429_is_waited_for_as_long_as_it_asks_and_no_longer(shell: Shell) -> None:
    times: list[float] = []

    async def busy(asked: Asked) -> None:
        times.append(time.monotonic())
        if len(times) == 1:
            await asked.answer(429, {"error": {"message": "slow down"}}, Retry_After="1")
        else:
            await serving()(asked)

    with endpoint(busy) as at:
        done = plait_run(shell, at)
    assert (done.code, done.out) == (0, "all is sent\n")
    assert 1.0 <= times[1] - times[0] < 2.0
    assert "Note (retry): " in done.err and "Trying again in 1.0 s (1 of 3)." in done.err
    assert attempts(shell) == [(0, 429, "RateLimited"), (0, 200, ""), (2, 200, ""), (4, 200, "")]
    assert [note.kind for note in of(record(shell), NoteRecord)] == ["retry"]
    assert sent(shell) == ["one", "two"]


@pytest.mark.parametrize("times", [1, 3])
def test_a_server_that_comes_back_in_time_costs_nothing_but_time(shell: Shell, times: int) -> None:
    failed = 0

    async def shaky(asked: Asked) -> None:
        nonlocal failed
        if turn_of(asked) == 1 and failed < times:
            failed += 1
            await failing(502)(asked)
        else:
            await serving()(asked)

    with endpoint(shaky) as at:
        done = plait_run(shell, at)
        assert (done.code, done.out) == (0, "all is sent\n")
        assert [status for _, status, _ in attempts(shell)] == [200, *[502] * times, 200, 200]
        assert bodies_sent(shell) == [asked.raw for asked in at.asked]
    assert sent(shell) == ["one", "two"]
    # Replay makes the same requests, the failed ones as well.
    replayed = shell("replay", "last", env=at.env)
    assert replayed.code == 0 and f"{3 + times} requests" in replayed.out + replayed.err


def test_what_was_shown_of_half_a_stream_is_no_part_of_the_answer(shell: Shell) -> None:
    broken = 0

    async def breaks_once(asked: Asked) -> None:
        nonlocal broken
        broken += 1
        if broken > 1:
            await serving([final("forty-two, and no more")])(asked)
            return
        await asked.begin()
        for part in ("Thought: I know the answer now.\n", "Final Answer: forty-two, ", "and"):
            await asked.piece(delta(part))
            await asyncio.sleep(0.05)
        asked.writer.transport.abort()

    with endpoint(breaks_once) as at:
        done = plait_run(shell, at)
    assert (done.code, done.out) == (0, "forty-two, and no more\n")
    # What broke off is not shown: a thought is shown when it is complete.
    shown = done.err.splitlines()
    thoughts = [k for k, line in enumerate(shown) if line == "Thought: I know the answer now."]
    (retry,) = [k for k, line in enumerate(shown) if line.startswith("Note (retry): ")]
    assert len(thoughts) == 1 and retry < thoughts[0], done.err
    assert attempts(shell) == [(0, 200, "BadResponse"), (0, 200, "")]


def test_events_of_a_repeated_reply_begin_anew_after_the_retry_is_noted(shell: Shell) -> None:
    import plait
    from plait.core import events as ev

    broken = 0

    async def breaks_once(asked: Asked) -> None:
        nonlocal broken
        broken += 1
        await asked.begin()
        # Cut where a splitter holds text back: within the label.
        parts = ["Thought: first I th", "ink.\nFinal Ans"] if broken == 1 else ["Thought: again.\nFinal Answer: 7"]
        for part in parts:
            await asked.piece(delta(part))
            await asyncio.sleep(0.02)
        if broken == 1:
            asked.writer.transport.abort()
        else:
            await asked.piece(delta(finish="stop") + b"data: [DONE]\n\n")
            await asked.end()

    with endpoint(breaks_once) as at:
        from plait.models.chat import ChatModel

        model = ChatModel(spec="t:m", name="m", endpoint=at.server.url)
        agent = plait.Agent("react", model=model, journal=shell.folder / "j.db")

        async def watched() -> list[Any]:
            return [event async for event in agent.stream("q")]

        events = asyncio.run(watched())
    told = ""
    for event in events:
        match event:
            case ev.Thought(text=text):
                told += text
            case ev.Answer(text=text):
                told += f"<{text}>"
            case ev.Noted(kind="retry"):
                told += "|"
    before, _, behind = told.partition("|")
    assert before.startswith("first I think.") and behind.startswith("again.")
    assert behind.replace("><", "").endswith("<7>") and "<" not in before
    assert events[-1].run.answer == "7"


# ---- the context is full


def narrow(room: int) -> Handler:
    """An endpoint whose context holds so many characters."""

    async def handle(asked: Asked) -> None:
        length = sum(len(message["content"]) for message in asked.body["messages"])
        if length <= room:
            await serving([action("long"), final("it was long")])(asked)
            return
        said = f"This model's maximum context length is {room} tokens, but the messages resulted in {length} tokens."
        await asked.answer(400, {"error": {"message": said, "code": "context_length_exceeded"}})

    return handle


def test_a_prompt_that_is_too_long_is_made_shorter_and_the_record_keeps_all(shell: Shell) -> None:
    with endpoint(narrow(5_000)) as at:
        done = plait_run(shell, at)
        assert (done.code, done.out) == (0, "it was long\n"), done.err
        refused = [error for _, _, error in attempts(shell) if error]
        assert refused and set(refused) == {"ContextOverflow"}
        (seen,) = [row.record for row in record(shell) if is_result(row.record)]
        assert len(seen.value.text) == 100_000
        assert "observations are cut to" in done.err
        assert shell("replay", "last", env=at.env).code == 0


def test_a_prompt_that_never_fits_stops_the_run_and_says_so(shell: Shell) -> None:
    with endpoint(narrow(10)) as at:
        done = plait_run(shell, at)
        told_clearly(done, 4, "stopped: ", "does not fit the model's context", "room for 10")
        run = Journal(shell.env["PLAIT_JOURNAL"]).run("last")
        assert run.outcome is not None and (run.status, run.outcome["limit"]) == ("stopped", "context")
        assert 1 <= len(at.asked) <= 8
        # A stopped run has ended, and says so again; a model of more room goes on from any of its steps.
        assert plait_resume(shell, at).code == 4
        at.handler = narrow(10**6)
        done = shell("fork", "last", "--at", "1", env=at.env)
        assert (done.code, done.out) == (0, "it was long\n"), done.err


# ---- what it can't do


def test_an_ability_the_endpoint_lacks_is_left_out_and_found_out_once(shell: Shell) -> None:
    async def old_fashioned(asked: Asked) -> None:
        if "stop" in asked.body:
            error = {"message": "Unsupported parameter: 'stop' is not supported with this model.", "param": "stop"}
            await asked.answer(400, {"error": error})
        else:
            # It writes on, and makes up what the tool says.
            invented = f"{REPLIES[turn_of(asked)]}\nObservation: it was sent a hundred times\nThought: fine"
            await asked.answer(200, completion(invented if turn_of(asked) < 2 else REPLIES[2]))

    with endpoint(old_fashioned) as at:
        done = plait_run(shell, at)
    assert (done.code, done.out) == (0, "all is sent\n"), done.err
    assert [status for _, status, _ in attempts(shell)] == [400, 200, 200, 200]
    assert "hundred times" not in json.dumps(json.loads(at.asked[-1].raw))
    assert sent(shell) == ["one", "two"]


def test_a_model_that_talks_nonsense_fails_and_is_no_answer(shell: Shell) -> None:
    nonsense = ["Thought: well, hello there, how are you?"] * 10
    with endpoint(serving(nonsense)) as at:
        done = plait_run(shell, at, "--loop", "json")
    told_clearly(done, 3, "failed: ", "could not be read")
    with endpoint(serving([turn("fail_task", "there is no such city")])) as at:
        done = plait_run(shell, at, "--loop", "json")
    told_clearly(done, 3, "failed: ", "there is no such city")
