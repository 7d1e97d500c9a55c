"""Plait's own loops at the same endpoint, on the same terms: `plait-react`, `plait-tool_calling` ..."""

from __future__ import annotations

import os

from common import Outcome, PeerTask, work

import plait
from plait.models.config import EndpointConfig, ModelConfig
from plait.models.resolve import resolve


def ask(task: PeerTask) -> Outcome:
    os.environ["PEERS_KEY"] = task.key
    endpoint = EndpointConfig(base_url=task.url, key_env="PEERS_KEY", kind="llamacpp", model=task.model)
    agent = plait.Agent(
        task.agent.removeprefix("plait-"),
        model=resolve("peers", ModelConfig(endpoints={"peers": endpoint})),
        tools=task.tools,
        limits=plait.Limits(steps=task.steps),
        can_ask=False,
        journal=False,
    )
    run = agent.run(task.question)
    status = run.status if run.status in ("answered", "stopped") else "crashed"
    return Outcome(status, run.answer, str(run.reason or ""))


work(ask, "plait")
