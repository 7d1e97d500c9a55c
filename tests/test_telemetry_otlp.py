"""Spans and metrics over OTLP/HTTP: a real receiver on loopback, the real SDK, the command line and programs."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from cli_support import Shell, action, final, question
from fork_server import run_forked


class Collector:
    """Takes what an exporter sends. `status` is what it answers, `silent` that it answers nothing."""

    def __init__(self) -> None:
        self.status, self.silent = 200, False
        self.headers: list[dict[str, str]] = []
        self.got: list[tuple[str, bytes]] = []
        self._over = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                raw = self.rfile.read(int(self.headers["Content-Length"]))
                if outer.silent:
                    outer._over.wait(60)
                    return
                outer.headers.append({name.lower(): value for name, value in self.headers.items()})
                outer.got.append((self.path, raw))
                self.send_response(outer.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    @property
    def spans(self) -> list[Any]:
        """Every span received, as protobuf."""
        sent = [ExportTraceServiceRequest.FromString(raw) for path, raw in self.got if path == "/v1/traces"]
        return [span for each in sent for r in each.resource_spans for s in r.scope_spans for span in s.spans]

    @property
    def service(self) -> set[str]:
        """What the senders call themselves."""
        sent = [ExportTraceServiceRequest.FromString(raw) for path, raw in self.got if path == "/v1/traces"]
        return {
            each
            for request in sent
            for r in request.resource_spans
            for each in [attributes(r.resource)["service.name"]]
        }

    @property
    def metrics(self) -> set[str]:
        """The metrics received, by name."""
        sent = [ExportMetricsServiceRequest.FromString(raw) for path, raw in self.got if path == "/v1/metrics"]
        return {m.name for each in sent for r in each.resource_metrics for s in r.scope_metrics for m in s.metrics}

    def close(self) -> None:
        self._over.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def attributes(of: Any) -> dict[str, Any]:
    """The attributes of a protobuf message as Python values."""
    found = {}
    for each in of.attributes:
        kind = each.value.WhichOneof("value")
        value = getattr(each.value, kind)
        found[each.key] = [v.string_value for v in value.values] if kind == "array_value" else value
    return found


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    yield made
    made.close()


@pytest.fixture
def plait(tmp_path: Path) -> Shell:
    shell = Shell(tmp_path)
    shell.env = {key: value for key, value in shell.env.items() if not key.startswith("OTEL_")}
    shell.script([action("hostile"), final("so it is")])
    return shell


RUN = ("run", "What is it?", "--model", "scripted:script.json", "--tools", "tools.py", "--quiet")


def on(place: str, **more: str) -> dict[str, str]:
    return {"PLAIT_TELEMETRY": "on", "OTEL_EXPORTER_OTLP_ENDPOINT": place, **more}


def test_a_run_of_the_command_line_is_sent_before_it_ends(plait: Shell, collector: Collector) -> None:
    done = plait(*RUN, env=on(collector.url))
    assert (done.code, done.out, done.err) == (0, "so it is\n", "")
    spans = {span.name: span for span in collector.spans}
    assert sorted(span.name for span in collector.spans) == [
        "chat script",
        "chat script",
        "execute_tool hostile",
        "invoke_agent react",
    ]
    top = spans["invoke_agent react"]
    assert all(
        span.parent_span_id == top.span_id for span in collector.spans if span is not top and span.name != top.name
    )
    known = attributes(top)
    assert known["gen_ai.operation.name"] == "invoke_agent" and known["plait.run.steps"] == 2
    assert known["plait.run.id"] == plait("runs", "--json").out.split('"run": "')[1].split('"')[0]
    assert collector.service == {"plait"}
    assert collector.metrics == {"gen_ai.client.token.usage", "gen_ai.client.operation.duration"}
    assert b"What is it?" not in b"".join(raw for _, raw in collector.got)


def test_resumed_forked_and_chatted_runs_are_sent_a_replay_is_not(plait: Shell, collector: Collector) -> None:
    env = on(collector.url, OTEL_METRICS_EXPORTER="none")
    plait.script([action("send", "hello"), final("sent")])
    asked = plait(*RUN, "--approve", "effects", env=env)
    assert asked.code == 5 and len(collector.spans) == 2
    assert plait("resume", "last", *question(plait), "--answer", "yes", "--quiet", env=env).out == "sent\n"
    assert sorted(span.name for span in collector.spans[2:]) == [
        "chat script",
        "execute_tool send",
        "invoke_agent react",
    ]
    assert plait("replay", "last", env=env).code == 0
    assert plait("show", "last", env=env).code == 0
    assert len(collector.spans) == 5
    assert plait("fork", "last", "--at", "2", "--quiet", env=env).code == 0
    assert [attributes(s).get("plait.run.fork_at") for s in collector.spans[5:] if s.name.startswith("invoke")] == [2]
    before = len(collector.spans)
    (plait.folder / "talk.json").write_text('{"by_turn": false, "replies": ["Final Answer: a", "Final Answer: b"]}')
    talked = plait(
        "chat", "--session", "trip", "--loop", "react", "--model", "scripted:talk.json", given="x\ny\n", env=env
    )
    assert talked.out == "a\nb\n"
    tops = [span for span in collector.spans[before:] if span.name.startswith("invoke")]
    assert [attributes(span)["gen_ai.conversation.id"] for span in tops] == ["trip", "trip"]
    assert len({span.trace_id for span in tops}) == 2
    assert all(path == "/v1/traces" for path, _ in collector.got)


def test_plait_toml_switches_it_on_and_the_standard_variables_say_where(plait: Shell, collector: Collector) -> None:
    (plait.folder / "plait.toml").write_text("[telemetry]\non = true\ncontent = true\n")
    env = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url + "/",
        "OTEL_EXPORTER_OTLP_HEADERS": "x-team=team-secret-key",
        "OTEL_SERVICE_NAME": "house",
    }
    done = plait(*RUN, env=env)
    assert (done.code, done.err) == (0, "")
    assert len(collector.spans) == 4 and collector.service == {"house"}
    assert {headers["x-team"] for headers in collector.headers} == {"team-secret-key"}
    assert any("What is it?" in attributes(span).get("gen_ai.input.messages", "") for span in collector.spans)
    before = len(collector.got)
    assert plait(*RUN, env={**env, "PLAIT_TELEMETRY": "off"}).out == "so it is\n"
    assert len(collector.got) == before


def test_the_name_of_the_service_may_stand_among_the_resource_attributes(plait: Shell, collector: Collector) -> None:
    assert plait(*RUN, env=on(collector.url, OTEL_RESOURCE_ATTRIBUTES="service.name=mine,team=a")).code == 0
    assert collector.service == {"mine"}


@pytest.mark.parametrize(
    ("variable", "value"), [("OTEL_TRACES_EXPORTER", "zipkin"), ("OTEL_EXPORTER_OTLP_PROTOCOL", "carrier-pigeon")]
)
def test_an_exporter_that_is_not_installed_is_told(plait: Shell, variable: str, value: str) -> None:
    done = plait(*RUN, env=on("http://127.0.0.1:9", **{variable: value}))
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("Error: OpenTelemetry cannot be set up: ") and value in done.err


def test_what_a_run_starts_gets_the_environment_as_the_user_set_it(plait: Shell, collector: Collector) -> None:
    (plait.folder / "seen.py").write_text(
        "import os\nimport plait\n\n\n@plait.tool(read_only=True)\ndef hostile() -> str:\n"
        "    \"Looks.\"\n    return str(sorted(name for name in os.environ if name.startswith('OTEL')))\n"
    )
    assert plait(*RUN[:4], "--tools", "seen.py", "--quiet", env=on(collector.url)).code == 0
    assert "['OTEL_EXPORTER_OTLP_ENDPOINT']" in plait("show", "last").out


def nobody() -> str:
    """An address that refuses connections."""
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{made.getsockname()[1]}"


@pytest.mark.parametrize("how", ["away", "silent", "failing"])
def test_a_collector_that_does_not_take_it_holds_nobody_up(plait: Shell, collector: Collector, how: str) -> None:
    collector.status, collector.silent = (500 if how == "failing" else 200), how == "silent"
    place = nobody() if how == "away" else collector.url
    began = time.monotonic()
    plain = plait(*RUN)
    usual = time.monotonic() - began
    began = time.monotonic()
    done = plait(*RUN, env=on(place))
    took = time.monotonic() - began
    assert (plain.code, plain.err) == (0, "")
    assert (done.code, done.out) == (0, "so it is\n")
    (line,) = [line for line in done.err.splitlines() if line]
    assert line.startswith("Telemetry was not delivered: ")
    assert took < 3 * usual + 12  # at most 3 seconds more, and what the machine is slow


def test_the_console_exporter_leaves_stdout_alone(plait: Shell) -> None:
    done = plait(
        *RUN, env={"PLAIT_TELEMETRY": "on", "OTEL_TRACES_EXPORTER": "console", "OTEL_METRICS_EXPORTER": "none"}
    )
    assert (done.code, done.out) == (0, "so it is\n")
    assert '"name": "invoke_agent react"' in done.err


def test_what_a_tool_traces_itself_is_sent_by_the_command_line(plait: Shell, collector: Collector) -> None:
    (plait.folder / "traced.py").write_text(
        "import plait\nfrom opentelemetry import trace\n\n\n@plait.tool(read_only=True)\ndef hostile() -> str:\n"
        '    "Fetches."\n    with trace.get_tracer("a library").start_as_current_span("GET /page"):\n'
        '        return "x"\n'
    )
    done = plait(*RUN[:4], "--tools", "traced.py", "--quiet", env=on(collector.url))
    assert done.code == 0
    spans = {span.name: span for span in collector.spans}
    assert spans["GET /page"].parent_span_id == spans["execute_tool hostile"].span_id


PROGRAM = """
import plait
{first}
made = plait.Agent(model=plait.Scripted(["Final Answer: so"]), journal=False)
{then}
print(made.run("q").answer)
from opentelemetry import trace
print(type(trace.get_tracer_provider()).__name__)
"""
ITS_OWN = (
    "from opentelemetry import trace\n"
    "from opentelemetry.sdk.trace import TracerProvider\n"
    "from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor\n"
    "its_own = TracerProvider()\n"
    "its_own.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(formatter=lambda s: s.name + '\\n')))\n"
    "trace.set_tracer_provider(its_own)"
)


def test_in_a_program_the_sdk_is_the_applications(plait: Shell, collector: Collector) -> None:
    def program(first: str, then: str = "", **variables: str) -> str:
        env = {**plait.env, "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, **variables}
        done = run_forked(["-c", PROGRAM.format(first=first, then=then)], env=env)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    traced = "chat scripted\ninvoke_agent react\nso\nTracerProvider\n"
    on = "plait.telemetry.on()"
    assert program(on) == "so\nProxyTracerProvider\n"
    assert program(ITS_OWN, on) == traced
    assert program(on, ITS_OWN) == traced, "it may be set later"
    assert program("", ITS_OWN, PLAIT_TELEMETRY="on") == traced
    assert program("", ITS_OWN) == "so\nTracerProvider\n"
    assert collector.got == []
