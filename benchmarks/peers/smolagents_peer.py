"""smolagents: `CodeAgent` (smolagents-code) and `ToolCallingAgent` (smolagents-tools), as its guided tour makes them.

A tool's exception is shown to the model by smolagents itself. At the step limit it asks the model for an answer from
what there is: such a run is counted as stopped. `ToolCallingAgent` reads a call out of the text where the endpoint
gave none.
"""

from __future__ import annotations

from common import Outcome, RunSpec, functions, work
from smolagents import CodeAgent, LogLevel, OpenAIModel, ToolCallingAgent, tool


def ask(run_spec: RunSpec) -> Outcome:
    model = OpenAIModel(
        model_id=run_spec.model, api_base=run_spec.url, api_key=run_spec.key, temperature=run_spec.temperature
    )
    kind = {"smolagents-code": CodeAgent, "smolagents-tools": ToolCallingAgent}[run_spec.agent]
    agent = kind(
        tools=[tool(function) for function in functions(run_spec)],
        model=model,
        max_steps=run_spec.steps,
        verbosity_level=LogLevel.OFF,
        return_full_result=True,
    )
    result = agent.run(run_spec.question)
    return Outcome("answered" if result.state == "success" else "stopped", result.output)


work(ask, "smolagents", "openai")
