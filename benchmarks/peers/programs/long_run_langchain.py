"""`examples/long_run.py` with LangChain."""

import argparse
from pathlib import Path

from langchain.agents import create_agent
from langchain.agents.middleware import ClearToolUsesEdit, ContextEditingMiddleware, SummarizationMiddleware
from langchain.tools import tool

options = argparse.ArgumentParser()
options.add_argument("question")
options.add_argument("--folder", type=Path, default=Path("documents"))
options.add_argument("--model", default="gpt-5.6")
options.add_argument("--context", type=int, default=128_000)
given = options.parse_args()
files = {path.name: path for path in sorted(given.folder.iterdir()) if path.is_file()}


@tool
def list_files() -> list[str]:
    """List the names of all files."""
    return list(files)


@tool
def read_file(name: str) -> str:
    """Read one file."""
    return files[name].read_text(errors="replace") if name in files else f"There is no file {name!r}."


model = f"openai:{given.model}"
agent = create_agent(
    model,
    tools=[list_files, read_file],
    middleware=[
        ContextEditingMiddleware(edits=[ClearToolUsesEdit(trigger=given.context // 2)]),
        SummarizationMiddleware(model, trigger=("tokens", given.context * 7 // 10)),
    ],
)
state = agent.invoke({"messages": [{"role": "user", "content": given.question}]}, {"recursion_limit": 2_000})
print(state["messages"][-1].text)
