"""LangChain: `create_agent` with `ChatOpenAI`, as its agents page makes it.

Without the middleware for tool errors the first key that is not there would end the run; without the one for model
calls there would be no limit of steps. Both are LangChain's own.
"""

from __future__ import annotations

from common import Outcome, RunSpec, functions, work
from langchain.agents import create_agent
from langchain.agents.middleware import ModelCallLimitMiddleware, ToolErrorMiddleware
from langchain.agents.middleware.model_call_limit import ModelCallLimitExceededError
from langchain.tools import tool
from langchain_openai import ChatOpenAI

from plait.core.errors import ToolError


def ask(run_spec: RunSpec) -> Outcome:
    agent = create_agent(
        model=ChatOpenAI(
            model=run_spec.model, base_url=run_spec.url, api_key=run_spec.key, temperature=run_spec.temperature
        ),
        tools=[tool(function, parse_docstring=True) for function in functions(run_spec)],
        middleware=[
            ModelCallLimitMiddleware(run_limit=run_spec.steps, exit_behavior="error"),
            ToolErrorMiddleware(lambda error, request: str(error) if isinstance(error, ToolError) else None),
        ],
    )
    try:
        state = agent.invoke({"messages": [{"role": "user", "content": run_spec.question}]})
    except ModelCallLimitExceededError as error:
        return Outcome("stopped", None, str(error))
    return Outcome("answered", state["messages"][-1].text)


work(ask, "langchain", "langchain-core", "langchain-openai", "langgraph", "openai")
