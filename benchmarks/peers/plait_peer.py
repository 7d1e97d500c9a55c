"""Plait's own loops at the same endpoint, on the same terms: `plait-react`, `plait-tool_calling` ..."""

from __future__ import annotations

import os

from common import Outcome, RunSpec, work

import plait
from plait.models.config import EndpointConfig, ModelConfig
from plait.models.resolve import resolve


def ask(run_spec: RunSpec) -> Outcome:
    os.environ["PEERS_KEY"] = run_spec.key
    endpoint = EndpointConfig(base_url=run_spec.url, key_env="PEERS_KEY", kind="llamacpp", model=run_spec.model)
    agent = plait.Agent(
        run_spec.agent.removeprefix("plait-"),
        model=resolve("peers", ModelConfig(endpoints={"peers": endpoint})),
        tools=run_spec.tools,
        limits=plait.Limits(steps=run_spec.steps),
        can_ask=False,
        journal=False,
    )
    run = agent.run(run_spec.question)
    status = run.status if run.status in ("answered", "stopped") else "crashed"
    return Outcome(status, run.answer, str(run.reason or ""))


work(ask, "plait")
