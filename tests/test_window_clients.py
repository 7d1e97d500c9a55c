"""The official client of chat completions against a real server: unchanged, it gets what it expects."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import plait
from lazily import Lazy
from patience import patience
from plait.config import ServeTable
from plait.core import Call, Reply, Think
from plait.core.errors import BadRequest
from plait.journal.store import Journal
from plait.server.agents import serve_agent
from window_server import FULL, ONE, Here, asked, serving

openai = Lazy("openai")
ADD = 'Thought: I add.\nAction:\n```\n{"action": "add", "action_input": {"a": 2, "b": 3}}\n```'


@plait.tool(read_only=True)
def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


@pytest.fixture
def agent(journal: Path) -> plait.Agent:
    model = plait.Scripted([ADD, "Thought: So.\nFinal Answer: It is 5."], chunk=4)
    return plait.Agent("react", model=model, tools=[add], journal=journal)


@pytest.fixture
def here(agent: plait.Agent) -> Iterator[Here]:
    with serving(agent) as server:
        yield server


def client(here: Here, key: str = "none", **options: Any) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{here.url}/v1", api_key=key, timeout=120, **{"max_retries": 0, **options})


MESSAGES: list[Any] = [{"role": "user", "content": "What is 2 + 3?"}]


def test_an_agent_answers_as_a_model(here: Here) -> None:
    with client(here) as api:
        got = api.chat.completions.create(model="plait", messages=MESSAGES)
    choice = got.choices[0]
    assert (choice.message.content, choice.finish_reason) == ("It is 5.", "stop")
    assert got.id.startswith("chatcmpl-") and got.model == "plait" and abs(got.created - time.time()) < 300
    assert got.usage is not None and got.usage.total_tokens == got.usage.prompt_tokens + got.usage.completion_tokens > 0
    (run,) = here.manager.journal.runs()
    assert got.id == f"chatcmpl-{run.head.run}" and run.status == "answered"


def test_thoughts_and_actions_go_into_the_reasoning_and_never_into_the_answer(here: Here) -> None:
    with client(here) as api:
        message = api.chat.completions.create(model="plait", messages=MESSAGES).choices[0].message
        told = message.model_extra["reasoning_content"]  # type: ignore[index]
        assert "I add." in told and '"action": "add"' in told and "So." in told
        assert message.content == "It is 5."
        unwanted = api.chat.completions.create(model="plait", messages=MESSAGES, extra_body={"thoughts": False})
        assert "reasoning_content" not in (unwanted.choices[0].message.model_extra or {})


def test_an_agent_whose_thoughts_are_not_told_tells_none_whatever_is_asked(agent: plait.Agent) -> None:
    with serving(serve_agent("plait", agent, ServeTable())) as here, client(here) as api:
        got = api.chat.completions.create(model="plait", messages=MESSAGES, extra_body={"thoughts": True})
        assert "reasoning_content" not in (got.choices[0].message.model_extra or {})


@pytest.mark.parametrize("thoughts", [True, False])
@pytest.mark.parametrize("streams", [True, False])
def test_a_chat_has_progress_and_no_text_of_a_child_run(thoughts: bool, streams: bool, journal: Path) -> None:
    @plait.tool(read_only=True)
    def work(ctx: plait.Context[None]) -> str:
        """Work."""
        ctx.report_progress("half \ud83d", {"done": 1})
        return "worked"

    inner = plait.Agent("tool_calling", model=plait.Scripted(["The child says 3."], chunk=4))
    calls = (Call("work", {}, "a"), Call("inner", {"question": "i"}, "b"))
    script = [Reply("I ask the others.", calls=calls), "All in all 3."]
    model = plait.Scripted(script, chunk=4)
    agent = plait.Agent("tool_calling", model=model, tools=[work, inner.as_tool("inner")], journal=journal)
    with serving(agent) as here, client(here) as api:
        more: Any = {"model": "plait", "messages": MESSAGES, "extra_body": {"thoughts": thoughts}}
        if streams:
            chunks = list(api.chat.completions.create(stream=True, **more))
            deltas = [each.choices[0].delta for each in chunks]
            progress = [found for each in chunks if (found := (each.model_extra or {}).get("progress"))]
            assert progress == ([{"text": "work: half ?", "data": {"done": 1}}] if thoughts else [])
        else:
            deltas = [api.chat.completions.create(**more).choices[0].message]
        content = "".join(each.content or "" for each in deltas)
        reasoning = "".join((each.model_extra or {}).get("reasoning_content", "") for each in deltas)
    told = 'I ask the others.\nwork\ninner {"question":"i"}'
    assert (content, reasoning) == ("All in all 3.", told if thoughts else "")


def test_the_stream_says_the_same_as_the_whole_answer(here: Here) -> None:
    with client(here) as api:
        whole = api.chat.completions.create(model="plait", messages=MESSAGES)
        options: Any = {"include_usage": True}
        chunks = list(
            api.chat.completions.create(model="plait", messages=MESSAGES, stream=True, stream_options=options)
        )
    told = [chunk.choices[0] for chunk in chunks if chunk.choices]
    assert "".join(each.delta.content or "" for each in told) == whole.choices[0].message.content
    reasoning = "".join((each.delta.model_extra or {}).get("reasoning_content", "") for each in told)
    assert reasoning == whole.choices[0].message.model_extra["reasoning_content"]  # type: ignore[index]
    assert told[0].delta.role == "assistant" and [each.finish_reason for each in told[:-1]] == [None] * (len(told) - 1)
    assert told[-1].finish_reason == "stop"
    assert chunks[-1].choices == [] and chunks[-1].usage == whole.usage
    assert {chunk.usage for chunk in chunks[:-1]} == {None}
    assert len({chunk.id for chunk in chunks}) == 1


def test_without_being_asked_the_stream_has_no_usage(here: Here) -> None:
    with client(here) as api:
        chunks = list(api.chat.completions.create(model="plait", messages=MESSAGES, stream=True))
    assert all(chunk.usage is None and chunk.choices for chunk in chunks)


async def test_the_client_that_awaits_gets_the_same(here: Here) -> None:
    async with openai.AsyncOpenAI(base_url=f"{here.url}/v1", api_key="none", max_retries=0, timeout=120) as api:
        whole = await api.chat.completions.create(model="plait", messages=MESSAGES)
        assert whole.choices[0].message.content == "It is 5."
        said = ""
        async for chunk in await api.chat.completions.create(model="plait", messages=MESSAGES, stream=True):
            said += chunk.choices[0].delta.content or ""
        assert said == "It is 5."


async def test_the_clients_helper_for_streams_takes_it(here: Here) -> None:
    async with (
        openai.AsyncOpenAI(base_url=f"{here.url}/v1", api_key="none", max_retries=0, timeout=120) as api,
        api.chat.completions.stream(model="plait", messages=MESSAGES) as stream,
    ):
        async for _ in stream:
            pass
        final = await stream.get_final_completion()
    assert final.choices[0].message.content == "It is 5."


def test_agents_are_listed_as_models(agent: plait.Agent, journal: Path) -> None:
    other = agent.using(loop="json")
    table = ServeTable()
    adder = serve_agent("adder", agent, table, description="Adds.")
    with serving(adder, serve_agent("other", other, table)) as here, client(here) as api:
        assert [model.id for model in api.models.list()] == ["adder", "other"]
        assert api.models.retrieve("adder").owned_by == "plait"
        with pytest.raises(openai.NotFoundError) as wrong:
            api.models.retrieve("third")
    assert wrong.value.code == "model_not_found"


@pytest.mark.parametrize(("method", "path", "allowed"), [("GET", "/v1/chat/completions", "POST"), ("POST", "/", "GET")])
def test_a_method_that_is_not_taken_is_said_with_those_that_are(
    here: Here, method: str, path: str, allowed: str
) -> None:
    status, headers, told = here.ask(method, path)
    assert (status, told["error"]["code"]) == (405, "method_not_allowed")
    assert allowed in headers["allow"] and f"{method} can't be used here. Use " in told["error"]["message"]
    assert here.ask("GET", "/v1/nothing")[2]["error"]["code"] == "not_found"


def test_addresses_as_people_type_them_are_served_or_corrected(agent: plait.Agent) -> None:
    served = (
        "/v1//chat/completions",
        "//v1/chat/completions",
        "/v1/chat/completions/",
        "//v1///chat//completions//?a=b",
    )
    elsewhere = (
        *(
            "/chat/completions",
            "//chat/completions",
            "/v1/v1/chat/completions",
            "/v1/chat/completions/chat/completions",
        ),
        *("/api/chat", "/api/generate", "/v1/completions", "/v1/embeddings", "/v1/messages", "/v1/"),
    )
    with serving(agent, tokens=(FULL,), clients=(ONE,)) as here:
        for path in served:
            status, _, body = here.ask("POST", path, asked("What is 2 + 3?"), token=ONE)
            assert (status, body["choices"][0]["message"]["content"]) == (200, "It is 5."), path
            assert here.ask("POST", path, asked("?"))[0] == 401
        for token in (ONE, FULL):
            for path in elsewhere:
                status, _, body = here.ask("POST", path, asked("?"), token=token)
                said = body["error"]["message"].replace(path, "")
                assert status in (400, 403, 404) and "chat completions" in said and "/v1 as its base URL" in said, path
            for path in ("/v1/models/", "//v1/models", "/v1/models//plait"):
                assert here.ask("GET", path, token=token)[0] == 200
        for method in ("GET", "PUT"):
            status, _, body = here.ask(method, "/v1/chat/completions/", token=ONE)
            assert (status, body["error"]["message"]) == (405, f"{method} can't be used here. Use POST.")
        assert here.ask("HEAD", "/v1/chat/completions", token=ONE)[0] == 405
        assert here.ask("HEAD", "/v1/models", token=ONE)[0] == 200


def test_headers_that_are_refused_are_named_with_what_to_send(here: Here) -> None:
    def said(headers: dict[str, str]) -> tuple[int, str]:
        status, _, body = here.ask("POST", "/v1/chat/completions", asked("?"), headers)
        return status, body["error"]["message"] if status != 200 else ""

    for kind in ("application/json; charset=utf-8", "Application/JSON;charset=UTF-8"):
        assert said({"Content-Type": kind, "Content-Encoding": "identity"})[0] == 200
    for kind in ("application/x-www-form-urlencoded", ""):
        status, text = said({"Content-Type": kind})
        assert status == 415 and "Send JSON with the header Content-Type: application/json." in text
    assert said({"Content-Encoding": "gzip"}) == (
        415,
        "The body is compressed (gzip). Send it without Content-Encoding.",
    )
    status, text = said({"Host": "host.docker.internal:8765"})
    assert status == 421 and "add the host's name to hosts in [serve] of plait.toml" in text


def test_a_wrong_model_is_told_as_clients_expect(here: Here) -> None:
    with client(here) as api, pytest.raises(openai.NotFoundError, match="The model 'gpt-5' does not exist") as wrong:
        api.chat.completions.create(model="gpt-5", messages=MESSAGES)
    assert (wrong.value.code, wrong.value.param, wrong.value.type) == (
        "model_not_found",
        "model",
        "invalid_request_error",
    )
    assert not Path(here.manager.journal.place).exists()


def test_a_bad_key_is_told_as_clients_expect(agent: plait.Agent) -> None:
    with serving(agent, tokens=(FULL,), clients=(ONE,)) as here:
        with client(here, "wrong") as api, pytest.raises(openai.AuthenticationError) as wrong:
            api.chat.completions.create(model="plait", messages=MESSAGES)
        assert wrong.value.code == "invalid_api_key"
        with client(here, ONE) as api:
            assert api.chat.completions.create(model="plait", messages=MESSAGES).choices[0].message.content


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools"),
        ({"n": 2}, "n"),
        ({"stop": ["\n"]}, "stop"),
        ({"response_format": {"type": "yaml"}}, "response_format"),
        ({"stream": "yes"}, "stream"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "assistant", "content": "Hi."}]}, "messages"),
        ({"messages": [{"role": "tool", "content": "5", "tool_call_id": "1"}]}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": "  "}]}, "messages[0].content"),
        ({"session": "a\nb"}, "session"),
        ({"session": 5}, "session"),
    ],
)
def test_what_cant_be_done_is_refused_by_name(here: Here, field: dict[str, Any], said: str) -> None:
    status, _, body = here.ask("POST", "/v1/chat/completions", {**asked("Hi."), **field})
    assert (status, body["error"]["param"]) == (400, said)
    assert not Path(here.manager.journal.place).exists()


def test_what_the_agent_decides_itself_is_passed_over(here: Here) -> None:
    options: dict[str, Any] = {"temperature": 0.7, "max_tokens": 5, "seed": 1, "tools": [], "n": 1, "user": "u"}
    with client(here) as api:
        got = api.chat.completions.create(model="plait", messages=MESSAGES, **options)
    assert got.choices[0].message.content == "It is 5."


def test_text_in_parts_is_text(here: Here) -> None:
    parts = [{"type": "text", "text": "What is"}, {"type": "text", "text": "2 + 3?"}]
    status, _, _ = here.ask("POST", "/v1/chat/completions", asked("", messages=[{"role": "user", "content": parts}]))
    assert status == 200
    assert here.manager.journal.runs()[0].head.question == "What is\n2 + 3?"


def test_the_clients_instructions_stand_before_the_question(here: Here) -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "developer", "content": "In French."}, *MESSAGES]
    with client(here) as api:
        api.chat.completions.create(model="plait", messages=messages)
    assert here.manager.journal.runs()[0].head.question == "Be brief.\n\nIn French.\n\nWhat is 2 + 3?"


def test_an_answer_that_is_json_becomes_text(journal: Path) -> None:
    model = plait.Scripted(['{"thought": "x", "tool": "final_answer", "tool_input": {"sum": [5, null]}}'])
    with serving(plait.Agent("json", model=model, journal=journal)) as here, client(here) as api:
        said = api.chat.completions.create(model="plait", messages=MESSAGES).choices[0].message.content
    assert said == '{"sum":[5,null]}'


def test_a_run_that_gives_no_answer_is_an_error_and_is_not_asked_again(journal: Path) -> None:
    asked_for: list[str] = []

    def broken(think: Think) -> str:
        asked_for.append(think.phase)
        raise BadRequest("The endpoint wants money.")

    with serving(plait.Agent("react", model=plait.Scripted([broken] * 9), journal=journal)) as here:
        with client(here, max_retries=3) as api:
            with pytest.raises(openai.InternalServerError, match="wants money") as whole:
                api.chat.completions.create(model="plait", messages=MESSAGES)
            with pytest.raises(openai.APIError, match="wants money") as streamed:
                list(api.chat.completions.create(model="plait", messages=MESSAGES, stream=True))
        runs = here.manager.journal.runs()
    assert len(runs) == len(asked_for) == 2  # a client that retries would begin more runs
    assert {run.status for run in runs} == {"crashed"}
    assert whole.value.code == streamed.value.code == "run_crashed"
    assert runs[1].head.run in str(whole.value) and runs[0].head.run in str(streamed.value)


def test_an_answer_given_at_a_limit_is_cut_short_by_length(journal: Path) -> None:
    model = plait.Scripted([ADD, "Final Answer: About 5."])
    agent = plait.Agent("react", model=model, tools=[add], journal=journal, limits=plait.Limits(steps=1))
    with serving(agent) as here, client(here) as api:
        choice = api.chat.completions.create(model="plait", messages=MESSAGES).choices[0]
        assert (choice.message.content, choice.finish_reason) == ("About 5.", "length")
        streamed = list(api.chat.completions.create(model="plait", messages=MESSAGES, stream=True))
        assert streamed[-1].choices[0].finish_reason == "length"


def _wait_for(journal: Journal, status: str) -> None:
    _wait_until(lambda: [run.status for run in journal.runs()] == [status])


def _wait_until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + patience(60)
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_stream_that_is_left_cancels_its_run(journal: Path) -> None:
    model = plait.Scripted(["Thought: long\nFinal Answer: never"], delay=300)
    with serving(plait.Agent("react", model=model, journal=journal)) as here:
        with client(here) as api:
            stream = api.chat.completions.create(model="plait", messages=MESSAGES, stream=True)
            assert next(iter(stream)).choices[0].delta.role == "assistant"
            assert [run.status for run in here.manager.journal.runs()] == ["running"]
            stream.close()
        _wait_for(here.manager.journal, "cancelled")
        assert here.manager.journal.runs()[0].outcome["reason"] == "the client went away"  # type: ignore[index]
        _wait_until(lambda: here.manager.running == 0)


async def test_a_client_that_gives_up_waiting_cancels_its_run(journal: Path) -> None:
    model = plait.Scripted(["Final Answer: never"], delay=300)
    with serving(plait.Agent("react", model=model, journal=journal)) as here:
        async with openai.AsyncOpenAI(base_url=f"{here.url}/v1", api_key="none", max_retries=0) as api:
            task = asyncio.ensure_future(api.chat.completions.create(model="plait", messages=MESSAGES))
            while not (Path(here.manager.journal.place).exists() and here.manager.active):
                await asyncio.sleep(0.02)
            task.cancel()
            await asyncio.wait([task])
        await asyncio.to_thread(_wait_for, here.manager.journal, "cancelled")


def test_the_run_stands_on_record_before_the_first_byte(journal: Path) -> None:
    model = plait.Scripted(["Final Answer: x"], delay=300)
    with (
        serving(plait.Agent("react", model=model, journal=journal)) as here,
        client(here) as api,
        api.chat.completions.with_streaming_response.create(model="plait", messages=MESSAGES, stream=True) as reply,
    ):
        assert Journal(journal).run(reply.headers["x-plait-run"]).status == "running"


def test_a_long_silence_is_broken_by_comments_that_clients_pass_over(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plait.server.agent_turn.SILENCE", 0.1)
    model = plait.Scripted(["Final Answer: At last."], delay=1.0)
    with serving(plait.Agent("react", model=model, journal=journal)) as here:
        _, _, text = here.ask("POST", "/v1/chat/completions", asked("?", stream=True))
        assert text.count(": still at work\n\n") >= 2
        with client(here) as api:
            chunks = list(api.chat.completions.create(model="plait", messages=MESSAGES, stream=True))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "At last."


def test_the_server_says_what_it_did(here: Here) -> None:
    assert here.ask("GET", "/health")[2] == here.ask("GET", "/health/ready")[2] == {"status": "ok"}
    here.ask("POST", "/v1/chat/completions", asked("?"))
    status, headers, text = here.ask("GET", "/metrics")
    assert status == 200 and headers["content-type"].startswith("text/plain")
    assert 'plait_runs_total{agent="plait",status="answered"} 1.0' in text
    assert 'plait_run_seconds_count{agent="plait"} 1.0' in text
    (run,) = here.manager.journal.runs()
    assert f'plait_tokens_total{{agent="plait",kind="input"}} {float(run.totals["input_tokens"])}' in text
    assert "plait_runs_running 0.0" in text and "plait_runs_queued 0.0" in text


def test_a_client_that_is_told_to_come_again_does_so_by_itself(journal: Path) -> None:
    model = plait.Scripted(["Final Answer: 42"], delay=1.5)
    agent = plait.Agent("react", model=model, journal=journal)
    with serving(agent, concurrent=1, queued=0) as here:
        with client(here) as first, client(here, max_retries=20) as second:
            stream = first.chat.completions.create(model="plait", messages=MESSAGES, stream=True)
            next(iter(stream))
            with pytest.raises(openai.RateLimitError) as busy:
                first.chat.completions.create(model="plait", messages=MESSAGES)
            assert busy.value.code == "rate_limit_exceeded"
            got = second.chat.completions.create(model="plait", messages=MESSAGES)
            stream.close()
        assert got.choices[0].message.content == "42"
        assert len(here.manager.journal.runs()) == 2


def test_half_a_character_in_an_error_is_told_all_the_same(journal: Path) -> None:
    agent = plait.Agent("react", model=plait.Scripted([BadRequest("no \ud800")] * 2, by_turn=False), journal=journal)
    with serving(agent) as here, client(here) as api:
        for stream in (False, True):
            with pytest.raises(openai.APIError, match=r"no \?"):
                list(api.chat.completions.create(model="plait", messages=MESSAGES, stream=stream))
