"""The metrics of a server or worker for Prometheus, and the wait that a server estimates from them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from threading import Lock
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from plait.core.errors import ConfigError, JournalError
from plait.journal.queue import require_queue
from plait.journal.store import Store, wait_for
from plait.runtime.run import Run
from plait.runtime.run_journal import performed
from plait.workers import QueueWorker

SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
FRESH = 5.0
"""Seconds for which counts of the queue are reported again."""


class ProcessMetrics(Collector):
    """Prometheus metrics in a registry of their own. Reading them may wait for the database of `store`."""

    def __init__(self, store: Store) -> None:
        self.registry = registry = CollectorRegistry()
        self._runs = Counter("plait_runs", "Runs that ended.", ["agent", "status"], registry=registry)
        self._seconds = Histogram(
            "plait_run_seconds", "Wall time of runs.", ["agent"], buckets=SECONDS, registry=registry
        )
        self._tokens = Counter("plait_tokens", "Tokens of model calls.", ["agent", "kind"], registry=registry)
        self._cost = Counter("plait_cost_usd", "USD of model calls, where known.", ["agent"], registry=registry)
        self.refused = Counter("plait_refused", "Requests refused.", ["reason"], registry=registry)
        self.running = Gauge("plait_runs_running", "Runs under way.", registry=registry)
        self.queued = Gauge("plait_runs_queued", "Requests that wait for a place.", registry=registry)
        taken = "Runs taken from the queue because the lease of another worker had ended."
        self.takeovers = Counter("plait_takeovers", taken, registry=registry)
        self._store, self._lock, self._until = store, Lock(), 0.0
        self._counts: list[tuple[str, str, int, float]] | None = None
        registry.register(self)
        self._usual_seconds = 1.0

    def add_run(self, agent: str, run: Run, seconds: float) -> None:
        self._usual_seconds += (seconds - self._usual_seconds) / 8
        self._runs.labels(agent, run.status).inc()
        self._seconds.labels(agent).observe(seconds)
        self._tokens.labels(agent, "input").inc(run.tree.usage.input_tokens)
        self._tokens.labels(agent, "output").inc(run.tree.usage.output_tokens)
        if run.tree.cost_usd is not None:
            self._cost.labels(agent).inc(run.tree.cost_usd)

    def estimate_wait(self, waiting: int, concurrent: int) -> float:
        """Estimate the seconds until a run can start, from 1 to 60, by the wall time of the last runs."""
        return min(60.0, max(1.0, self._usual_seconds * (1 + waiting) / concurrent))

    def collect(self) -> Iterator[Metric]:
        """Return what this process has performed and, for a journal with a queue, what all processes have to do."""
        steps = CounterMetricFamily("plait_steps", "Requests, tool calls and other work performed.", labels=["kind"])
        for kind, count in performed.copy().items():
            steps.add_metric([kind], count)
        yield steps
        if not hasattr(self._store, "take"):
            return
        with self._lock:
            if time.monotonic() > self._until:
                self._counts = None
                with suppress(JournalError):
                    self._counts = wait_for(require_queue(self._store).count_queue())
                self._until = time.monotonic() + FRESH
            counts = self._counts
        yield GaugeMetricFamily("plait_journal_up", "1: the database has answered.", value=counts is not None)
        labels = ["queue", "state"]
        runs = GaugeMetricFamily("plait_queue_runs", "Runs that have not ended.", labels=labels)
        ages = GaugeMetricFamily(
            "plait_queue_age_seconds", "Of the oldest in its state; running: since the last renewal.", labels=labels
        )
        for queue, state, count, seconds in counts or ():
            runs.add_metric([queue, state], count)
            ages.add_metric([queue, state], seconds)
        yield from (runs, ages)


def serve_status(worker: QueueWorker, address: str) -> None:
    """Count what a worker does, and answer /metrics and /health at HOST:PORT. Raises `ConfigError`."""
    worker.metrics = metrics = ProcessMetrics(worker.store)
    metrics.running.set_function(lambda: worker.running)
    host, _, port = address.rpartition(":")
    try:
        server, _ = start_http_server(int(port), host.strip("[]"), metrics.registry)
    except (OSError, OverflowError, ValueError) as why:
        hint = "Give HOST:PORT with a free port, such as 127.0.0.1:9464."
        raise ConfigError(f"Can't listen on --metrics {address!r}: {why}.", hint=hint) from why
    show_metrics: Any = server.get_app()

    def answer(environ: dict[str, Any], start: Any) -> Any:
        if environ["PATH_INFO"] != "/health":
            return show_metrics(environ, start)
        start("200 OK" if worker.takes_work() else "503 Service Unavailable", [("Content-Type", "text/plain")])
        return [b"ok" if worker.takes_work() else b"it drains, hangs, or its journal is away"]

    server.set_app(answer)
