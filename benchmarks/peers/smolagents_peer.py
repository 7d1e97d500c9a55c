"""smolagents: `CodeAgent` (smolagents-code) and `ToolCallingAgent` (smolagents-tools), as its guided tour makes them.

A tool's exception is shown to the model by smolagents itself. At the step limit it asks the model for an answer from
what there is: such a run is counted as stopped. `ToolCallingAgent` reads a call out of the text where the endpoint
gave none.
"""

from __future__ import annotations

from common import Outcome, PeerTask, functions, work
from smolagents import CodeAgent, LogLevel, OpenAIModel, ToolCallingAgent, tool


def ask(task: PeerTask) -> Outcome:
    model = OpenAIModel(model_id=task.model, api_base=task.url, api_key=task.key, temperature=task.temperature)
    kind = {"smolagents-code": CodeAgent, "smolagents-tools": ToolCallingAgent}[task.agent]
    agent = kind(
        tools=[tool(function) for function in functions(task)],
        model=model,
        max_steps=task.steps,
        verbosity_level=LogLevel.OFF,
        return_full_result=True,
    )
    result = agent.run(task.question)
    return Outcome("answered" if result.state == "success" else "stopped", result.output)


work(ask, "smolagents", "openai")
