"""A request that is sent again with its `Idempotency-Key` gets the answer of the first one, and starts nothing."""

from __future__ import annotations

import http.client
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from lazily import skip_without

skip_without("server", "starlette", "uvicorn", "prometheus_client")

from plait.journal.store import Journal  # noqa: E402
from window_server import ONE, TWO, Here, serving  # noqa: E402
from window_support import Held, action, answer, react  # noqa: E402

CHAT = {"model": "plait", "messages": [{"role": "user", "content": "How many?"}]}
RESPONSE = {"model": "plait", "input": "How many?"}
START = {"agent": "plait", "question": "How many?"}


def runs(journal: Path) -> int:
    return len(Journal(journal).runs(100)) if journal.exists() else 0


def send(server: Here, path: str, body: Any, key: str = "k", **more: Any) -> tuple[int, Any]:
    status, _, told = server.ask("POST", path, body, {"idempotency-key": key, **more.pop("headers", {})}, **more)
    return status, told


def content_of(told: str) -> str:
    """The content of a stream of chat completions."""
    chunks = [json.loads(line[6:]) for line in told.splitlines() if line.startswith("data: {")]
    return "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks if chunk["choices"])


@pytest.mark.parametrize(
    "path, body", [("/v1/runs", START), ("/v1/chat/completions", CHAT), ("/v1/responses", RESPONSE)]
)
def test_a_request_that_is_sent_again_starts_no_second_run(tmp_path: Path, path: str, body: Any) -> None:
    journal = tmp_path / "j.db"
    with serving(react(journal, [answer("x")])) as server:
        first, *others = (send(server, path, body) for _ in range(3))
    with serving(react(journal, [answer("another")])) as server:  # the server has been restarted
        others.append(send(server, path, body))
    made_at = ("created", "created_at")
    for status, told in others:
        assert status == first[0] in (200, 202)
        assert {k: v for k, v in told.items() if k not in made_at} == {
            k: v for k, v in first[1].items() if k not in made_at
        }
    assert runs(journal) == 1


def test_a_stream_is_made_again_in_the_same_words(tmp_path: Path) -> None:
    with serving(react(tmp_path / "j.db", [answer("Twelve of them.")])) as server:
        told = [content_of(send(server, "/v1/chat/completions", {**CHAT, "stream": True})[1]) for _ in range(2)]
    assert told == ["Twelve of them."] * 2


def test_a_repeat_waits_for_a_run_that_goes_on_and_the_run_goes_on_without_its_first_client(tmp_path: Path) -> None:
    journal, model = tmp_path / "j.db", Held([answer("Twelve.")])
    with serving(react(journal, model=model)) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
        headers = {"content-type": "application/json", "idempotency-key": "k"}
        connection.request("POST", "/v1/chat/completions", json.dumps({**CHAT, "stream": True}).encode(), headers)
        connection.getresponse().readline()
        connection.close()  # the client goes away
        got: list[Any] = []
        again = threading.Thread(
            target=lambda: got.append(send(server, "/v1/chat/completions", {**CHAT, "stream": True}))
        )
        again.start()
        time.sleep(0.3)
        assert not got
        model.go.set()
        again.join(30)
    assert content_of(got[0][1]) == "Twelve." and runs(journal) == 1


def test_an_answer_to_a_question_that_is_sent_again_is_given_once(tmp_path: Path) -> None:
    journal = tmp_path / "j.db"
    script = [action("send", {"text": "a"}), action("send", {"text": "b"}), answer("Sent.")]
    with serving(react(journal, script, approve="effects")) as server:
        asked = send(server, "/v1/chat/completions", CHAT, "1")[1]["choices"][0]["message"]
        reply = {**CHAT, "messages": [*CHAT["messages"], asked, {"role": "user", "content": "yes"}]}  # type: ignore[misc]
        second = send(server, "/v1/chat/completions", reply, "2")
        assert send(server, "/v1/chat/completions", reply, "2")[1]["choices"] == second[1]["choices"]
        messages = [*reply["messages"], second[1]["choices"][0]["message"], {"role": "user", "content": "yes"}]
        last = send(server, "/v1/chat/completions", {**CHAT, "messages": messages}, "3")
        assert last[1]["choices"][0]["message"]["content"] == "Sent."
        # The run has gone on: each key still stands for what its request was told.
        assert send(server, "/v1/chat/completions", reply, "2")[1]["choices"] == second[1]["choices"]
        first = send(server, "/v1/chat/completions", CHAT, "1")[1]["choices"][0]["message"]
        assert first["content"] == asked["content"]
    assert runs(journal) == 1


@pytest.mark.parametrize("session", [{}, {"session": "trip"}])
def test_answers_with_one_key_at_the_same_time_are_one_answer(tmp_path: Path, session: dict[str, str]) -> None:
    journal = tmp_path / "j.db"
    with ExitStack() as stack:
        script = [action("send", {"text": "a"}), answer("Sent.")]
        servers = [stack.enter_context(serving(react(journal, script, approve="effects"))) for _ in range(2)]
        pool = stack.enter_context(ThreadPoolExecutor(8))
        asked = send(servers[0], "/v1/chat/completions", {**CHAT, **session}, "1")[1]["choices"][0]["message"]
        reply = {**CHAT, **session, "messages": [*CHAT["messages"], asked, {"role": "user", "content": "yes"}]}  # type: ignore[misc]
        told = list(pool.map(lambda n: send(servers[n % 2], "/v1/chat/completions", reply, "2"), range(8)))
        said = {each["choices"][0]["message"]["content"] for status, each in told if status == 200}
        assert said == {"Sent."} and {status for status, _ in told} <= {200, 503}
    assert runs(journal) == 1


@pytest.mark.parametrize("path, body", [("/v1/runs", START), ("/v1/chat/completions", CHAT)])
def test_requests_with_one_key_at_the_same_time_start_one_run(tmp_path: Path, path: str, body: Any) -> None:
    journal = tmp_path / "j.db"
    with serving(react(journal, [answer("x")])) as server, ThreadPoolExecutor(8) as pool:
        told = list(pool.map(lambda _: send(server, path, body), range(8)))
        assert len({status for status, _ in told}) == 1 and told[0][0] in (200, 202)
        assert len({each.get("run") or each["id"] for _, each in told}) == 1
        assert runs(journal) == 1


def test_a_key_is_for_one_session_and_one_query(tmp_path: Path) -> None:
    journal = tmp_path / "j.db"
    with serving(react(journal, [answer("x")] * 9)) as server:

        def ask(path: str = "/v1/chat/completions", key: str = "k", **headers: str) -> int:
            return send(server, path, CHAT, key, headers=headers)[0]

        assert [ask(**{"x-plait-session": "a"}) for _ in range(2)] == [200, 200] and runs(journal) == 1
        assert [ask(), ask(**{"x-plait-session": "b"}), ask("/v1/chat/completions?x=1")] == [422] * 3
        assert (ask(**{"x-plait-session": "b", "key": "l"}), runs(journal)) == (200, 2)


def test_a_key_is_for_one_request_of_one_token(tmp_path: Path) -> None:
    with serving(react(tmp_path / "j.db", [answer("x")]), clients=(ONE, TWO)) as server:
        first = send(server, "/v1/runs", START, token=ONE)
        assert first[0] == 202 and send(server, "/v1/runs", START, token=TWO)[1]["run"] != first[1]["run"]
        status, said = send(server, "/v1/runs", {**START, "question": "?"}, token=ONE)
        assert status == 422 and said["error"]["code"] == "idempotency_key_reused"
        assert send(server, "/v1/runs", START, "k" * 300, token=ONE)[0] == 400


def test_a_key_whose_run_was_deleted_starts_a_new_one(tmp_path: Path) -> None:
    journal = tmp_path / "j.db"
    with serving(react(journal, [answer("x")] * 2)) as server:
        told = [send(server, "/v1/chat/completions", CHAT)[0]]
        (row,) = Journal(journal).runs()
        from plait.journal.store import wait_for

        wait_for(server.manager.journal.store.delete([row.head.run]))
        told.append(send(server, "/v1/chat/completions", CHAT)[0])
    assert told == [200, 200] and runs(journal) == 1
