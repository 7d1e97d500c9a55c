"""The recipes for Langfuse, Phoenix and Logfire in docs/telemetry.md: as they stand there, against a local receiver.

What each backend needs of a span is from its documentation and its source, as of November 2026. With PHOENIX_URL set to
the address of a running Phoenix, its recipe is also checked against that.
"""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from cli_support import Shell
from test_telemetry_otlp import Collector, attributes, collector

__all__ = ["collector"]

DOCS = Path(__file__).parent.parent / "docs" / "telemetry.md"
KEYS = {
    "LANGFUSE_PUBLIC_KEY": "pk-lf-1",
    "LANGFUSE_SECRET_KEY": "sk-lf-22",
    "PHOENIX_API_KEY": "px-3",
    "LOGFIRE_TOKEN": "pylf-4",
}
TOOL = '''
import plait

@plait.tool(read_only=True)
def people(city: str) -> int:
    """Counts the people of a city."""
    return 522250
'''
SCRIPT = [{"text": "", "calls": [{"tool": "people", "input": {"city": "Lyon"}, "id": "c1"}]}, {"text": "522,250."}]


def read_recipe(name: str) -> dict[str, str]:
    """The variables that the recipe of a backend sets, as a shell sets them."""
    text = DOCS.read_text().partition(f"**{name}**")[2].partition("```console")[2].partition("```")[0]
    lines = [line[2:] for line in text.splitlines() if line.startswith("$ export ")]
    names = re.findall(r"\b((?:PLAIT|OTEL)_\w+)=", " ".join(lines))
    shown = "; ".join(f'printf "%s\\0" "${each}"' for each in names)
    done = subprocess.run(["bash", "-c", "\n".join([*lines, shown])], env={**os.environ, **KEYS}, capture_output=True)
    assert done.returncode == 0, done.stderr
    return dict(zip(names, done.stdout.decode().split("\0"), strict=False))


def run_with(tmp_path: Path, recipe: dict[str, str]) -> None:
    shell = Shell(tmp_path)
    (tmp_path / "script.json").write_text(json.dumps(SCRIPT))
    (tmp_path / "people.py").write_text(TOOL)
    shell.env = {key: value for key, value in shell.env.items() if not key.startswith("OTEL_")}
    words = ("--model", "scripted:script.json", "--loop", "tool_calling", "--tools", "people.py", "--session", "talk")
    done = shell("run", "How many?", *words, "--quiet", env=recipe)
    assert (done.code, done.out, done.err) == (0, "522,250.\n", "")


SENT = {
    "Langfuse": (
        "/api/public/otel/v1/traces",
        f"Basic {base64.b64encode(b'pk-lf-1:sk-lf-22').decode()}",
        False,
    ),
    "Phoenix": ("/v1/traces", "Bearer px-3", False),
    "Logfire": ("/v1/traces", "pylf-4", True),
}


@pytest.mark.parametrize("name", SENT)
def test_a_recipe_sends_what_the_backend_reads(name: str, tmp_path: Path, collector: Collector) -> None:
    path, key, takes_metrics = SENT[name]
    recipe = read_recipe(name)
    place = recipe["OTEL_EXPORTER_OTLP_ENDPOINT"]
    recipe["OTEL_EXPORTER_OTLP_ENDPOINT"] = re.sub(r"^https?://[^/]+", collector.url, place)
    run_with(tmp_path, recipe)
    assert {"/v1/metrics" in each for each, _ in collector.got} == ({True, False} if takes_metrics else {False})
    [raw] = [raw for each, raw in collector.got if each == path]
    assert {each["authorization"] for each in collector.headers} == {key}
    assert {each["content-type"] for each in collector.headers} == {"application/x-protobuf"}
    [resource] = ExportTraceServiceRequest.FromString(raw).resource_spans
    spans = [span for scope in resource.scope_spans for span in scope.spans]
    found: dict[str, list[dict[str, Any]]] = {}
    for span in spans:
        values = attributes(span)
        found.setdefault(str(values["gen_ai.operation.name"]), []).append(values)
    # The operation decides what a span is shown as, the conversation which session it is in.
    assert {kind: len(each) for kind, each in found.items()} == {"invoke_agent": 1, "chat": 2, "execute_tool": 1}
    assert {values["gen_ai.conversation.id"] for each in found.values() for values in each} == {"talk"}
    for values in (*found["chat"], *found["invoke_agent"]):
        assert {"gen_ai.request.model", "gen_ai.input.messages", "gen_ai.output.messages"} <= set(values)
    [tool] = found["execute_tool"]
    assert (tool["gen_ai.tool.name"], tool["gen_ai.tool.call.arguments"]) == ("people", '{"city":"Lyon"}')
    # Tokens are counted once: backends add up all spans that have them.
    assert all({"gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"} <= set(each) for each in found["chat"])
    assert not any(name.startswith("gen_ai.usage.") for name in found["invoke_agent"][0])
    project = {"openinference.project.name": "towns"} if name == "Phoenix" else {}
    assert project.items() <= attributes(resource.resource).items()


@pytest.mark.skipif("PHOENIX_URL" not in os.environ, reason="PHOENIX_URL names no running Phoenix")
def test_phoenix_shows_the_run_with_its_messages_and_counts_tokens_once(tmp_path: Path) -> None:
    place = os.environ["PHOENIX_URL"]
    project = f"towns-{time.time_ns()}"
    recipe = {**read_recipe("Phoenix"), "OTEL_EXPORTER_OTLP_ENDPOINT": place}
    run_with(tmp_path, {**recipe, "OTEL_RESOURCE_ATTRIBUTES": f"openinference.project.name={project}"})
    spans: list[dict[str, Any]] = []
    for _ in range(50):
        try:
            with urllib.request.urlopen(f"{place}/v1/projects/{project}/spans?limit=20") as answer:
                spans = json.load(answer)["data"]
        except OSError:  # it does not have the project yet
            pass
        if len(spans) == 4:
            break
        time.sleep(0.2)
    assert sorted(span["span_kind"] for span in spans) == ["AGENT", "LLM", "LLM", "TOOL"]
    last = next(
        span["attributes"] for span in spans if "522,250." in str(span["attributes"]) and span["span_kind"] == "LLM"
    )
    assert last["llm.output_messages.0.message.content"] == "522,250."
    assert last["session.id"] == "talk"
