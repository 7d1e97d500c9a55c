"""LangChain: `create_agent` with `ChatOpenAI`, as its agents page makes it.

Without the middleware for tool errors the first key that is not there would end the run; without the one for model
calls there would be no limit of steps. Both are LangChain's own.
"""

from __future__ import annotations

from common import Outcome, PeerTask, functions, work
from langchain.agents import create_agent
from langchain.agents.middleware import ModelCallLimitMiddleware, ToolErrorMiddleware
from langchain.agents.middleware.model_call_limit import ModelCallLimitExceededError
from langchain.tools import tool
from langchain_openai import ChatOpenAI

from plait.core.errors import ToolError


def ask(task: PeerTask) -> Outcome:
    agent = create_agent(
        model=ChatOpenAI(model=task.model, base_url=task.url, api_key=task.key, temperature=task.temperature),
        tools=[tool(function, parse_docstring=True) for function in functions(task)],
        middleware=[
            ModelCallLimitMiddleware(run_limit=task.steps, exit_behavior="error"),
            ToolErrorMiddleware(lambda error, request: str(error) if isinstance(error, ToolError) else None),
        ],
    )
    try:
        state = agent.invoke({"messages": [{"role": "user", "content": task.question}]})
    except ModelCallLimitExceededError as error:
        return Outcome("stopped", None, str(error))
    return Outcome("answered", state["messages"][-1].text)


work(ask, "langchain", "langchain-core", "langchain-openai", "langgraph", "openai")
