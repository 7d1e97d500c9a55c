"""Plait's own loops at the same endpoint, on the same terms: `plait-react`, `plait-tool_calling` ..."""

from __future__ import annotations

import os

from common import Outcome, RunSpec, work

import plait
from plait.models.config import EndpointConfig, ModelConfig
from plait.models.resolve import resolve


def ask(job: RunSpec) -> Outcome:
    os.environ["PEERS_KEY"] = job.key
    endpoint = EndpointConfig(base_url=job.url, key_env="PEERS_KEY", kind="llamacpp", model=job.model)
    agent = plait.Agent(
        job.agent.removeprefix("plait-"),
        model=resolve("peers", ModelConfig(endpoints={"peers": endpoint})),
        tools=job.tools,
        limits=plait.Limits(steps=job.steps),
        can_ask=False,
        journal=False,
    )
    run = agent.run(job.question)
    status = run.status if run.status in ("answered", "stopped") else "crashed"
    return Outcome(status, run.answer, str(run.reason or ""))


work(ask, "plait")
