"""pydantic-ai: `Agent` with `OpenAIChatModel` over `OpenAIProvider`, as its page on OpenAI-compatible models makes it.

A tool's error becomes `ModelRetry`, as its page on tools says; how often a tool may be retried is left at the default.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from common import Outcome, PeerTask, functions, work
from pydantic_ai import Agent, ModelRetry, UsageLimitExceeded, UsageLimits
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from plait.core.errors import ToolError


def retried(function: Callable[..., Any]) -> Callable[..., Any]:
    """The tool, asking the model to try again where it raises."""

    @wraps(function)
    def call(**arguments: Any) -> Any:
        try:
            return function(**arguments)
        except ToolError as error:
            raise ModelRetry(str(error)) from error

    return call


def ask(task: PeerTask) -> Outcome:
    agent = Agent(
        OpenAIChatModel(task.model, provider=OpenAIProvider(base_url=task.url, api_key=task.key)),
        tools=[retried(function) for function in functions(task)],
        model_settings={"temperature": task.temperature},
    )
    try:
        result = agent.run_sync(task.question, usage_limits=UsageLimits(request_limit=task.steps))
    except UsageLimitExceeded as error:
        return Outcome("stopped", None, str(error))
    return Outcome("answered", result.output)


work(ask, "pydantic-ai-slim", "openai")
