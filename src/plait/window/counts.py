"""What the server counts of itself, for /metrics; and from that, when a place is likely to be free."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from plait.runtime.run import Run

SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)


class Counts:
    """The server's numbers, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._runs = Counter("plait_runs", "Runs that ended.", ["agent", "status"], registry=self.registry)
        self._seconds = Histogram(
            "plait_run_seconds", "Wall time of runs.", ["agent"], buckets=SECONDS, registry=self.registry
        )
        self._tokens = Counter("plait_tokens", "Tokens of model calls.", ["agent", "kind"], registry=self.registry)
        self._cost = Counter("plait_cost_usd", "USD of model calls, where known.", ["agent"], registry=self.registry)
        self._refused = Counter("plait_refused", "Requests refused.", ["reason"], registry=self.registry)
        self.running = Gauge("plait_runs_running", "Runs under way.", registry=self.registry)
        self.queued = Gauge("plait_runs_queued", "Requests that wait for a place.", registry=self.registry)
        self._usual = 1.0

    def ended(self, agent: str, run: Run, seconds: float) -> None:
        """Count a run that ended."""
        self._usual += (seconds - self._usual) / 8
        self._runs.labels(agent, run.status).inc()
        self._seconds.labels(agent).observe(seconds)
        self._tokens.labels(agent, "input").inc(run.usage.input_tokens)
        self._tokens.labels(agent, "output").inc(run.usage.output_tokens)
        if run.cost_usd is not None:
            self._cost.labels(agent).inc(run.cost_usd)

    def refused(self, reason: str) -> None:
        """Count a request that was refused."""
        self._refused.labels(reason).inc()

    def wait(self, waiting: int, at_once: int) -> float:
        """Seconds till a place is likely to be free, from 1 to 60: the last runs say how long one takes."""
        return min(60.0, max(1.0, self._usual * (1 + waiting) / at_once))
