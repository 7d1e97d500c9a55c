"""What the tests of telemetry share: an application's own providers that keep spans, and one agent of each loop."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import plait
from cli_support import action, final, turn
from plait import telemetry
from plait.core import Call, Reply

PEOPLE = {"Lyon": 522250, "Nice": 348085}
QUESTION = "How many more people live in Lyon than in Nice?"


@plait.tool(read_only=True)
def people(city: str) -> int:
    """Counts the people of a city."""
    return PEOPLE[city]


class Watched:
    """The spans and metrics of an application that keeps them in memory."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.reader = InMemoryMetricReader()
        self.meters = MeterProvider([self.reader])

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        """In the order in which they ended."""
        return self.exporter.get_finished_spans()

    def named(self, start: str) -> list[ReadableSpan]:
        """The spans whose name begins so, in the order in which they began."""
        found = [span for span in self.spans if span.name.startswith(start)]
        return sorted(found, key=lambda span: span.start_time or 0)

    def one(self, start: str) -> ReadableSpan:
        """The only one."""
        (span,) = self.named(start)
        return span

    def parent(self, span: ReadableSpan) -> ReadableSpan | None:
        """The span above."""
        return next((each for each in self.spans if span.parent and each.context.span_id == span.parent.span_id), None)

    def points(self, metric: str) -> list[Any]:
        """The data points of a metric."""
        data = self.reader.get_metrics_data()
        found = [m for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics] if data else []
        return [point for each in found if each.name == metric for point in each.data.data_points]


@contextmanager
def telemetry_as_it_was() -> Iterator[None]:
    """Put back afterwards who observes."""
    before = telemetry._tracer
    telemetry._tracer = None
    try:
        yield
    finally:
        telemetry._tracer = before


def steps(*calls: tuple[Any, ...]) -> str:
    """An action list of the loop `phased`."""
    return json.dumps([{"ACTION": name, "ARGUMENTS": list(given), "EXPLANATION": "so"} for name, *given in calls])


def blocks(*codes: str) -> list[str]:
    """Turns of the loop `codeact`."""
    return [f" so.\nACTION {n}:\n```python\n{code}\n```" for n, code in enumerate(codes, 1)]


PLAN = 'Thought: both\n1. people("Lyon")\n2. people("Nice")\nThought: subtract\n3. calculator("$1 - $2")\n4. join()'
WORK = "Plan: a\n#E1 = people[Lyon]\nPlan: b\n#E2 = people[Nice]\nPlan: c\n#E3 = calculator[#E1 - #E2]"

LOOPS: dict[str, tuple[Any, int, int]] = {
    "react": (
        [action("people", "Lyon"), action("people", "Nice"), action("calculator", "522250 - 348085"), final("174165")],
        4,
        3,
    ),
    "json": ([turn("people", "Lyon"), turn("final_answer", "174165")], 2, 1),
    "phased": (["Look.", steps(("people", "Lyon"), ("people", "Nice")), steps(), "174165"], 0, 2),
    "rewoo": ({"plan": [WORK], "solve": ["174165"]}, 2, 3),
    "compiler": ({"plan": [PLAN], "join": ["Thought: so.\nFinish: 174165"]}, 2, 3),
    "codeact": (blocks("a = people('Lyon')\nb = people('Nice')\nstop(a - b)"), 1, 2),
    "tool_calling": (
        [
            Reply("", "calls", calls=(Call("people", {"city": "Lyon"}, "c1"), Call("people", {"city": "Nice"}, "c2"))),
            "174165",
        ],
        2,
        2,
    ),
}
"""Of each loop: replies, and how many model and tool calls they make (0: as many as the run says)."""


def agent(loop: str, journal: Path | bool, **more: Any) -> plait.Agent:
    """An agent of that loop whose model answers `QUESTION`."""
    replies, _, _ = LOOPS[loop]
    settings = {
        "model": plait.Scripted(replies, chunk=5),
        "tools": [people, "calculator"],
        "limits": plait.Limits(tools=9),
        **more,
    }
    return plait.Agent(loop, journal=journal, **settings)  # type: ignore[arg-type]
