"""Spans and metrics of runs, as an application's own tracer provider gets them."""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from opentelemetry.semconv._incubating.metrics import gen_ai_metrics
from opentelemetry.semconv.attributes import error_attributes, http_attributes, server_attributes
from opentelemetry.trace import SpanKind, StatusCode

import plait
from cli_support import action, final
from models_server import Asked, Server, whole_stream
from plait.core.errors import RateLimited, ToolError
from plait.runtime.tracing import UNWATCHED
from plait.telemetry import attributes, spans
from profile_matrix import ONE_OF_EACH_WIRE, PROFILES
from telemetry_support import LOOPS, QUESTION, Watched, agent, blocks, people, telemetry_as_it_was
from trip_agent import QUESTION as TRIP_QUESTION
from trip_agent import Db, make_profile_agent


@pytest.fixture
def watched() -> Iterator[Watched]:
    """Spans without content."""
    with telemetry_as_it_was():
        made = Watched()
        plait.telemetry.on(tracer_provider=made.tracers, meter_provider=made.meters)
        yield made


@pytest.fixture
def told() -> Iterator[Watched]:
    """Spans with content."""
    with telemetry_as_it_was():
        made = Watched()
        plait.telemetry.on(content=True, tracer_provider=made.tracers, meter_provider=made.meters)
        yield made


NAMES = {
    node.value
    for module in (spans, attributes)
    for node in ast.walk(ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8")))
    if isinstance(node, ast.Constant) and re.fullmatch(r"(gen_ai|error|server|http|plait)\.[a-z_.]+", str(node.value))
}
"""The attributes, events and metrics that these modules name."""


def test_every_name_is_the_conventions_own() -> None:
    modules: list[ModuleType] = [
        gen_ai_attributes,
        gen_ai_metrics,
        error_attributes,
        http_attributes,
        server_attributes,
    ]
    known = {value for module in modules for value in vars(module).values() if isinstance(value, str)}
    own = {name for name in NAMES if name.startswith("plait.")}
    assert len(own) > 20 and len(NAMES - own) > 25
    assert NAMES - own - known == {"gen_ai.usage.cost"}  # Langfuse's
    page = (Path(__file__).parents[1] / "docs" / "telemetry.md").read_text(encoding="utf-8")
    assert [name for name in own if name.removeprefix("plait.") not in page] == []
    values = {
        member.value
        for module in modules
        for _, each in inspect.getmembers(module, inspect.isclass)
        if issubclass(each, Enum)
        for member in each
    }
    assert {"invoke_agent", "chat", "text_completion", "execute_tool", *attributes.PROVIDERS.values()} <= values


@pytest.mark.parametrize("loop", LOOPS)
def test_each_loop_is_a_run_with_its_model_calls_and_tools_below(loop: str, tmp_path: Path, watched: Watched) -> None:
    made = agent(loop, tmp_path / "j.db")
    run = made.run(QUESTION)
    _, thinks, acts = LOOPS[loop]
    assert run.status == "answered"
    top = watched.one("invoke_agent")
    assert (top.name, top.kind, top.parent, top.status.status_code) == (
        f"invoke_agent {loop}",
        SpanKind.INTERNAL,
        None,
        StatusCode.UNSET,
    )
    assert top.attributes is not None
    assert top.attributes["plait.run.id"] == run.id
    assert top.attributes["plait.usage.input_tokens"] == run.usage.input_tokens
    asked, called = watched.named("chat "), watched.named("execute_tool ")
    assert (len(asked), len(called)) == (thinks or run.calls, acts)
    below = [span for span in watched.spans if span is not top]
    assert all(watched.parent(span) is top for span in below)
    assert {span.context.trace_id for span in watched.spans} == {top.context.trace_id}
    phases = {phase.phase for phase in run.phases if not phase.is_work}
    assert {span.attributes["plait.phase"] for span in asked if span.attributes} == phases
    for span in watched.spans:
        for key in span.attributes or {}:
            assert key in NAMES, key
    made.replay(run.id)
    assert len(watched.spans) == len(below) + 1, "a replay performs nothing"


def test_content_stays_here_unless_it_is_asked_for(tmp_path: Path, watched: Watched) -> None:
    failing = plait.Scripted(
        [action("people", "Atlantis"), action("peeple", "Lyon"), RateLimited("busy Atlantis"), final("174165")]
    )
    plait.Agent(model=failing, tools=[people], journal=False).run("Where is Atlantis?", session=None)
    agent("codeact", False, model=plait.Scripted(blocks("x = 174165\nboom = people('Atlantis')", "stop(1)"))).run(
        "Atlantis"
    )
    shown = "".join(span.to_json() for span in watched.spans)
    assert len(watched.spans) > 8
    for word in ("Atlantis", "peeple", "174165", "Thought", "Counts the people of a city. Input"):
        assert word not in shown
    metrics = watched.reader.get_metrics_data()
    assert metrics is not None and "Atlantis" not in metrics.to_json()


def test_content_that_is_asked_for_has_the_form_of_the_conventions(tmp_path: Path, told: Watched) -> None:
    agent("tool_calling", tmp_path / "j.db").run(QUESTION)
    top, (first, second) = told.one("invoke_agent"), told.named("chat ")
    (call, _) = told.named("execute_tool")
    read = lambda span, name: json.loads(span.attributes[name])  # noqa: E731
    assert read(top, "gen_ai.input.messages") == [{"role": "user", "parts": [{"type": "text", "content": QUESTION}]}]
    answer = [{"role": "assistant", "parts": [{"type": "text", "content": "174165"}], "finish_reason": "stop"}]
    assert read(top, "gen_ai.output.messages") == read(second, "gen_ai.output.messages") == answer
    parts = [
        {"type": "tool_call", "id": f"c{n}", "name": "people", "arguments": {"city": city}}
        for n, city in ((1, "Lyon"), (2, "Nice"))
    ]
    said = [{"role": "assistant", "parts": parts, "finish_reason": "tool_call"}]
    assert read(first, "gen_ai.output.messages") == said
    history = read(second, "gen_ai.input.messages")
    assert [message["role"] for message in history] == ["system", "user", "assistant", "tool", "tool"]
    assert history[3]["parts"] == [{"type": "tool_call_response", "id": "c1", "response": "522250"}]
    assert [tool["function"]["name"] for tool in read(first, "gen_ai.tool.definitions")][:1] == ["people"]
    assert (read(call, "gen_ai.tool.call.arguments"), read(call, "gen_ai.tool.call.result")) == (
        {"city": "Lyon"},
        522250,
    )
    assert (call.attributes or {})["gen_ai.tool.call.id"] == "c1"


@pytest.mark.parametrize("name", ONE_OF_EACH_WIRE.values(), ids=ONE_OF_EACH_WIRE)
async def test_messages_and_options_of_a_request_are_found_on_each_wire(
    name: str, tmp_path: Path, told: Watched
) -> None:
    async with Server(PROFILES[name].server()) as server:
        agent = make_profile_agent(name, server.url, tmp_path / "j.db")
        run = await replace(agent, settings=plait.ModelSettings(max_tokens=4000)).arun(
            TRIP_QUESTION, deps=Db(tmp_path / "d")
        )
    assert run.status == "answered", run.reason
    (*_, last) = told.named("chat ")
    found = last.attributes or {}
    messages = json.loads(str(found["gen_ai.input.messages"]))
    assert [each["role"] for each in messages[:3]] == ["system", "user", "assistant"] and messages[-1]["role"] == "tool"
    assert messages[1]["parts"] == [{"type": "text", "content": TRIP_QUESTION}]
    assert [part["name"] for part in messages[2]["parts"] if part["type"] == "tool_call"]
    assert all(part["response"] for each in messages if each["role"] == "tool" for part in each["parts"])
    assert found["gen_ai.request.max_tokens"] == 4000 and found["gen_ai.request.stream"] is True


async def test_an_endpoint_is_a_client_span_with_model_usage_cost_and_failed_attempts(watched: Watched) -> None:
    replies = iter([429, 200])

    async def handle(asked: Asked) -> None:
        if next(replies) == 429:
            await asked.answer(429, {"error": {"message": "slow down"}}, Retry_After="0")
        else:
            usage = {"prompt_tokens": 20, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 8}}
            await asked.stream(whole_stream(final("4"), usage=usage))

    async with Server(handle) as server:
        rate = plait.models.prices.Rate(kind="tokens", input=1.0, output=2.0)  # type: ignore[attr-defined]
        model = server.model(provider="mistral", rate=rate, params={"seed": 7, "top_p": 0.5})
        run = await plait.Agent("react", model=model, journal=False).arun("2 + 2?")
    assert run.answer == "4"
    span = watched.one("chat m")
    known = dict(span.attributes or {})
    assert span.kind is SpanKind.CLIENT and span.status.status_code is StatusCode.UNSET
    assert known["gen_ai.provider.name"] == "mistral_ai"
    assert (known["server.address"], known["server.port"]) == ("127.0.0.1", server.port)
    assert (known["gen_ai.request.seed"], known["gen_ai.request.top_p"], known["gen_ai.request.stream"]) == (
        7,
        0.5,
        True,
    )
    assert (known["gen_ai.usage.input_tokens"], known["gen_ai.usage.output_tokens"]) == (20, 5)
    assert known["gen_ai.usage.cache_read.input_tokens"] == 8
    assert known["plait.cost_usd"] == run.cost_usd and run.cost_usd
    assert known["gen_ai.response.finish_reasons"] == ("stop",) and known["plait.attempts"] == 2
    (event,) = span.events
    assert event.name == "plait.attempt_failed"
    assert dict(event.attributes or {}) == {
        "plait.attempt": 1,
        "error.type": "RateLimited",
        "http.response.status_code": 429,
    }
    assert {p.attributes["gen_ai.token.type"]: p.sum for p in watched.points("gen_ai.client.token.usage")} == {
        "input": 20,
        "output": 5,
    }
    (took,) = watched.points("gen_ai.client.operation.duration")
    assert took.count == 1 and took.attributes["gen_ai.request.model"] == "m" and "error.type" not in took.attributes


def test_errors_are_told_by_status_and_type(watched: Watched) -> None:
    @plait.tool(read_only=True)
    def broken(how: str) -> str:
        """Breaks."""
        raise {"value": ValueError, "tool": ToolError, "own": type("Paris", (Exception,), {})}[how](how)

    replies = [
        action("broken", "value"),
        action("broken", "tool"),
        action("broken", "own"),
        action("nope"),
        "a",
        "b",
        "c",
    ]
    run = plait.Agent(model=plait.Scripted(replies), tools=[broken], journal=False).run("q")
    assert run.status == "failed"
    calls = [(span.name, dict(span.attributes or {})["error.type"]) for span in watched.named("execute_tool")]
    assert calls == [
        ("execute_tool broken", "ValueError"),
        ("execute_tool broken", "raised"),
        ("execute_tool broken", "raised"),
        ("execute_tool _OTHER", "unknown_tool"),
    ]
    assert {span.status.status_code for span in watched.named("execute_tool")} == {StatusCode.ERROR}
    top = watched.one("invoke_agent")
    assert top.status.status_code is StatusCode.ERROR and top.status.description is None
    assert dict(top.attributes or {})["error.type"] == "format"


def test_a_model_that_can_not_be_asked_and_a_limit_are_errors(watched: Watched) -> None:
    refused = plait.Scripted([plait.core.errors.BadRequest("too odd")])  # type: ignore[attr-defined]
    assert plait.Agent(model=refused, journal=False).run("q").status == "crashed"
    (asked,), top = watched.named("chat"), watched.one("invoke_agent")
    for span in (asked, top):
        assert span.status.status_code is StatusCode.ERROR
        assert dict(span.attributes or {})["error.type"] == "BadRequest"
    assert [p.attributes["error.type"] for p in watched.points("gen_ai.client.operation.duration")] == ["BadRequest"]
    watched.exporter.clear()
    again = plait.Scripted([action("people", "Lyon")] * 9, by_turn=False)
    run = plait.Agent(model=again, tools=[people], limits=plait.Limits(steps=2), journal=False).run("q")
    known = dict(watched.one("invoke_agent").attributes or {})
    assert (run.status, run.answer, known["plait.run.limit"], known["error.type"]) == (
        "stopped",
        None,
        "steps",
        "limit_steps",
    )


async def test_calls_side_by_side_each_have_their_own_span_which_is_current_in_the_tool(watched: Watched) -> None:
    both, tracer = threading.Barrier(2), watched.tracers.get_tracer("a library")

    @plait.tool(read_only=True)
    def threaded(city: str) -> str:
        """Is traced by a library."""
        both.wait(20)
        with tracer.start_as_current_span(f"GET {city}"):
            return city

    @plait.tool(read_only=True)
    async def awaited(city: str) -> str:
        """The same, async."""
        with tracer.start_as_current_span(f"GET {city}"):
            await asyncio.sleep(0)
            return city

    code = [
        "import asyncio",
        "a, b = await asyncio.gather(threaded('Lyon'), threaded('Nice'))",
        "c, d = await asyncio.gather(awaited('Rome'), awaited('Oslo'))",
        "stop(a + b + c + d)",
    ]
    made = agent("codeact", False, model=plait.Scripted(blocks("\n".join(code[1:]))), tools=[threaded, awaited])
    with tracer.start_as_current_span("GET /ask") as request:
        run = await made.arun("q")
    assert run.answer == "LyonNiceRomeOslo"
    for city in ("Lyon", "Nice", "Rome", "Oslo"):
        above = watched.parent(watched.one(f"GET {city}"))
        assert above is not None and above.name.startswith("execute_tool ")
        assert watched.parent(above) is watched.one("invoke_agent")
    parents = {watched.one(f"GET {city}").parent.span_id for city in PEOPLE_AND_MORE}  # type: ignore[union-attr]
    assert len(parents) == 4
    top = watched.one("invoke_agent")
    assert top.parent is not None and top.parent.span_id == request.get_span_context().span_id
    assert trace.get_current_span() is trace.INVALID_SPAN


PEOPLE_AND_MORE = ("Lyon", "Nice", "Rome", "Oslo")


async def test_the_callers_span_is_above_the_run_however_it_is_run(tmp_path: Path, watched: Watched) -> None:
    tracer = watched.tracers.get_tracer("the application")
    made = agent("react", tmp_path / "j.db")
    with tracer.start_as_current_span("sync"):
        made.run(QUESTION)  # in a thread and an event loop of its own
    with tracer.start_as_current_span("async"):
        await asyncio.gather(made.arun(QUESTION), made.arun(QUESTION))
    with tracer.start_as_current_span("streamed"):
        assert [type(event).__name__ async for event in made.stream(QUESTION)][-1] == "Ended"
    above = [watched.parent(span) for span in watched.named("invoke_agent")]
    assert [span.name for span in above if span] == ["sync", "async", "async", "streamed"]
    assert all((watched.parent(span) or span).name == "invoke_agent react" for span in watched.named("chat"))


def test_an_agent_in_a_tool_is_below_that_tool(watched: Watched) -> None:
    inner = agent("json", False)

    @plait.tool(read_only=True)
    def ask(question: str) -> str:
        """Asks another agent, blocking."""
        return str(inner.run(question).answer)

    @plait.tool(read_only=True, inline=True)
    def ask_here(question: str) -> str:
        """The same, on the run's own thread."""
        return str(inner.run(question).answer)

    for tool in (ask, ask_here):
        watched.exporter.clear()
        replies = [action(tool.spec.name, "q"), final("so")]
        plait.Agent(model=plait.Scripted(replies), tools=[tool], journal=False).run("q")
        above = watched.parent(watched.one("invoke_agent json"))
        assert above is not None and above.name == f"execute_tool {tool.spec.name}"


def test_a_run_gone_on_with_has_spans_of_what_is_performed_then(tmp_path: Path, watched: Watched) -> None:
    sent: list[str] = []

    @plait.tool
    def send(text: str) -> str:
        """Sends."""
        sent.append(text)
        return "sent"

    replies = [action("people", "Lyon"), action("send", "hello"), final("done")]
    made = plait.Agent(
        model=plait.Scripted(replies), tools=[people, send], approve="effects", journal=tmp_path / "j.db"
    )
    first = made.run("q", session="trip")
    assert first.status == "waiting"
    before = watched.one("invoke_agent")
    assert [span.name for span in watched.named("execute_tool")] == ["execute_tool people"]
    assert len(watched.named("chat")) == 2
    assert dict(before.attributes or {})["plait.run.status"] == "waiting"
    assert before.status.status_code is StatusCode.UNSET
    watched.exporter.clear()
    run = made.resume(first, "yes")
    assert run.answer == "done"
    after = watched.one("invoke_agent")
    known = dict(after.attributes or {})
    assert (known["plait.run.id"], known["plait.run.resumed"], known["gen_ai.conversation.id"]) == (
        run.id,
        True,
        "trip",
    )
    assert [span.name for span in watched.named("execute_tool")] == ["execute_tool send"]
    (asked,) = watched.named("chat")
    assert known["plait.usage.input_tokens"] == dict(asked.attributes or {})["gen_ai.usage.input_tokens"]
    watched.exporter.clear()
    fork = made.using(approve="never").fork(run.id, 2)
    known = dict(watched.one("invoke_agent").attributes or {})
    assert (known["plait.run.parent"], known["plait.run.fork_at"], known["plait.run.resumed"]) == (run.id, 2, False)
    assert fork.status == "answered" and len(watched.named("chat")) == 2


async def test_a_cancelled_run_ends_its_spans_and_is_no_error(watched: Watched) -> None:
    began = asyncio.Event()

    @plait.tool(read_only=True)
    async def hang() -> str:
        """Hangs."""
        began.set()
        await asyncio.sleep(60)
        return ""

    made = plait.Agent(model=plait.Scripted([action("hang"), "x"]), tools=[hang], journal=False)
    task = asyncio.ensure_future(made.arun("q"))
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    call, top = watched.one("execute_tool"), watched.one("invoke_agent")
    assert dict(call.attributes or {})["plait.cancelled"] is True
    assert dict(top.attributes or {})["plait.run.status"] == "cancelled"
    assert {call.status.status_code, top.status.status_code} == {StatusCode.UNSET}


async def test_secrets_stay_here(told: Watched) -> None:
    key = "sk-verysecretindeed"

    @plait.tool(read_only=True)
    def leak(text: str) -> str:
        """Says a secret, and half of one where texts are shortened."""
        return "x" * 13_300 + key + "y" * 13_300 + f' "{key}"'

    async def handle(asked: Asked) -> None:
        done = sum(message["role"] == "assistant" for message in asked.body["messages"])
        if done == 1 and len(server.asked) == 2:
            await asked.answer(500, {"error": {"message": f"bad key {key}"}})
        else:
            await asked.stream(whole_stream([action("leak", f"the key is {key}"), final(f"it is {key}")][done]))

    async with Server(handle) as server:
        made = plait.Agent(model=server.model(key=key), tools=[leak], journal=False)
        run = await made.arun("x" * 13_250 + key * 8 + "y" * 13_300)
    assert run.status == "answered" and len(told.spans) == 4
    shown = "".join(span.to_json() for span in told.spans)
    assert "xxx" in shown and "yyy" in shown and shown.count("[secret]") >= 4
    assert key[:5] not in shown, "not even the half of it that is left where a long text is cut"


def test_what_goes_wrong_in_telemetry_harms_no_run(tmp_path: Path) -> None:
    class Broken(SpanProcessor):
        def on_start(self, span: Any, parent_context: Any = None) -> None:
            raise RuntimeError("no start")

        def on_end(self, span: Any) -> None:
            raise RuntimeError("no end")

    provider = TracerProvider()
    provider.add_span_processor(Broken())
    with telemetry_as_it_was():
        plait.telemetry.on(content=True, tracer_provider=provider)
        for loop in LOOPS:
            assert agent(loop, False).run(QUESTION).status == "answered"


def test_odd_text_is_sent_as_utf_8_can_hold_it(told: Watched) -> None:
    @plait.tool(read_only=True)
    def odd() -> str:
        "Fails in an odd way."
        raise ValueError("half \ud83d a pair")

    model = plait.Scripted([action("odd", {}), final("over")])
    assert plait.Agent(model=model, tools=[odd], journal=False).run("Do it").status == "answered"
    assert "half " in str((told.one("execute_tool").attributes or {})["gen_ai.tool.call.result"])
    for span in told.spans:
        for value in (span.name, span.status.description, *(span.attributes or {}).values()):
            str(value).encode()


# --- off


def test_off_nothing_is_imported_and_no_span_is_made(tmp_path: Path) -> None:
    program = f"""
import sys
sys.path[:0] = [{str(Path(__file__).parent)!r}]
import plait
from cli_support import action, final
made = plait.Agent(model=plait.Scripted([action("calculator", "1 + 1"), final("2")]), tools=["calculator"])
print(made.run("1 + 1?").answer, sorted(name for name in sys.modules if "opentelemetry" in name))
"""
    env = {key: value for key, value in os.environ.items() if not key.startswith("OTEL_")}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=env, capture_output=True, text=True, check=True
    )
    assert done.stdout == "2 []\n"


def test_off_every_span_is_the_one_object_that_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PLAIT_TELEMETRY", "OTEL_EXPORTER_OTLP_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    with telemetry_as_it_was():
        assert plait.telemetry.find_tracer() is UNWATCHED
    anything: Any = None
    run = UNWATCHED.run(anything, anything, anything, resumed=False)
    with run as entered:
        made = [run.model(1, anything, anything), run.tool(1, anything, anything), run.code(1, None)]
    assert all(each is UNWATCHED for each in (run, entered, *made))


# --- what switches it on


@pytest.mark.parametrize(
    ("variables", "file", "expected"),
    [
        ({}, "", (False, False)),
        ({"PLAIT_TELEMETRY": "on"}, "", (True, False)),
        *[({"PLAIT_TELEMETRY": word}, "", (True, False)) for word in ("ON", "true", "Yes", " 1 ")],
        *[({"PLAIT_TELEMETRY": word}, "on = true", (False, False)) for word in ("OFF", "false", "No", "0")],
        ({"PLAIT_TELEMETRY": "content"}, "", (True, True)),
        ({"PLAIT_TELEMETRY": "off"}, "on = true", (False, False)),
        ({"PLAIT_TELEMETRY": "content"}, "on = false", (True, True)),
        ({}, "on = true", (True, False)),
        ({}, "content = true", (False, True)),
        ({"PLAIT_TELEMETRY": "1"}, "content = true", (True, True)),
        (
            {"PLAIT_TELEMETRY": "1", "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "true"},
            "",
            (True, True),
        ),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}, "", (False, False)),
    ],
)
def test_environment_wins_over_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], file: str, expected: tuple[bool, bool]
) -> None:
    monkeypatch.setenv("PLAIT_CONFIG", str(tmp_path / "plait.toml"))
    (tmp_path / "plait.toml").write_text(f"[telemetry]\n{file}\n")
    assert plait.telemetry.read_settings(variables) == expected


def test_wrong_settings_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(plait.ConfigError, match=r"PLAIT_TELEMETRY is 'maybe'\. It is one of on, content, off"):
        plait.telemetry.read_settings({"PLAIT_TELEMETRY": "maybe"})
    monkeypatch.setenv("PLAIT_CONFIG", str(tmp_path / "plait.toml"))
    (tmp_path / "plait.toml").write_text("[telemetry]\ncontnt = true\n")
    with pytest.raises(plait.ConfigError, match="Did you mean content"):
        plait.config.load()  # type: ignore[attr-defined]


def test_without_an_sdk_runs_are_not_traced_and_cost_no_content(tmp_path: Path) -> None:
    program = f"""
import sys
sys.path[:0] = [{str(Path(__file__).parent)!r}]
import plait
from cli_support import final
plait.telemetry.on(content=True)
print(plait.Agent(model=plait.Scripted([final("2")]), journal=False).run("1 + 1?").answer)
print(any("opentelemetry.sdk" in name for name in sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("2\nFalse\n", "")


def test_without_the_extra_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "plait.telemetry.spans", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with telemetry_as_it_was():
        with pytest.raises(plait.ConfigError, match=r"pip install .*\[otel\]"):
            plait.telemetry.on()
        monkeypatch.setenv("PLAIT_TELEMETRY", "on")
        made = plait.Agent(model=plait.Scripted([final("x")]), journal=False)
        with pytest.raises(plait.ConfigError, match=r"pip install .*\[otel\]"):
            made.run("q")
        plait.telemetry.off()
        assert made.run("q").answer == "x"
