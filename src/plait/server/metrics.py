"""The metrics that the server counts for /metrics, and the wait that it estimates from them."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from plait.runtime.run import Run

SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)


class ServerMetrics:
    """Prometheus metrics in a registry of their own."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self._runs = Counter("plait_runs", "Runs that ended.", ["agent", "status"], registry=registry)
        self._seconds = Histogram(
            "plait_run_seconds", "Wall time of runs.", ["agent"], buckets=SECONDS, registry=registry
        )
        self._tokens = Counter("plait_tokens", "Tokens of model calls.", ["agent", "kind"], registry=registry)
        self._cost = Counter("plait_cost_usd", "USD of model calls, where known.", ["agent"], registry=registry)
        self._refused = Counter("plait_refused", "Requests refused.", ["reason"], registry=registry)
        self.running = Gauge("plait_runs_running", "Runs under way.", registry=registry)
        self.queued = Gauge("plait_runs_queued", "Requests that wait for a place.", registry=registry)
        self._usual_seconds = 1.0

    def add_run(self, agent: str, run: Run, seconds: float) -> None:
        self._usual_seconds += (seconds - self._usual_seconds) / 8
        self._runs.labels(agent, run.status).inc()
        self._seconds.labels(agent).observe(seconds)
        self._tokens.labels(agent, "input").inc(run.tree.usage.input_tokens)
        self._tokens.labels(agent, "output").inc(run.tree.usage.output_tokens)
        if run.tree.cost_usd is not None:
            self._cost.labels(agent).inc(run.tree.cost_usd)

    def add_refusal(self, reason: str) -> None:
        self._refused.labels(reason).inc()

    def estimate_wait(self, waiting: int, concurrent: int) -> float:
        """Estimate the seconds until a run can start, from 1 to 60, by the wall time of the last runs."""
        return min(60.0, max(1.0, self._usual_seconds * (1 + waiting) / concurrent))
