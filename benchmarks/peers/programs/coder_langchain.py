"""`examples/coder.py` with LangChain, and LangGraph's checkpoints in an SQLite file."""

import argparse
from pathlib import Path

from langchain.agents import create_agent
from langchain.agents.middleware import (
    FilesystemFileSearchMiddleware,
    HostExecutionPolicy,
    HumanInTheLoopMiddleware,
    ShellToolMiddleware,
    ToolErrorMiddleware,
)
from langchain.tools import tool
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.types import Command

RULES = """Read the files that matter before you change anything. Make the smallest change that solves the task.
Then run the tests, and say in your answer what you changed and what the tests said."""

options = argparse.ArgumentParser()
options.add_argument("folder", type=Path)
options.add_argument("task", nargs="?")
options.add_argument("--thread", default="1")
options.add_argument("--model", default="gpt-5.6")
given = options.parse_args()
ROOT = given.folder.resolve()


def inside(path: str) -> Path:
    found = (ROOT / path).resolve()
    if not found.is_relative_to(ROOT):
        raise ValueError("The path is outside the folder.")
    return found


@tool
def read_file(path: str) -> str:
    """Read a file."""
    return inside(path).read_text()


@tool
def write_file(path: str, content: str) -> str:
    """Write a whole file."""
    inside(path).write_text(content)
    return "written"


@tool
def edit_file(path: str, old: str, new: str) -> str:
    """Replace a text in a file. It must occur exactly once."""
    text = inside(path).read_text()
    if text.count(old) != 1:
        raise ValueError(f"The text occurs {text.count(old)} times.")
    inside(path).write_text(text.replace(old, new))
    return "edited"


asks = {"allowed_decisions": ["approve", "reject"]}
with SqliteSaver.from_conn_string("checkpoints.db") as saver:
    agent = create_agent(
        f"openai:{given.model}",
        tools=[read_file, write_file, edit_file],
        system_prompt=RULES,
        middleware=[
            FilesystemFileSearchMiddleware(root_path=str(ROOT)),
            ShellToolMiddleware(ROOT, execution_policy=HostExecutionPolicy()),
            HumanInTheLoopMiddleware({"write_file": asks, "edit_file": asks, "shell": asks}),
            ToolErrorMiddleware(lambda error, request: f"{type(error).__name__}: {error}"),
        ],
        checkpointer=saver,
    )
    config = {"configurable": {"thread_id": given.thread}, "recursion_limit": 400}
    asked = {"messages": [{"role": "user", "content": given.task}]} if given.task else None
    state = agent.invoke(asked, config)
    while "__interrupt__" in state:
        (waiting,) = state["__interrupt__"]
        decisions = []
        for request in waiting.value["action_requests"]:
            reply = input(f"{request['description']}\n> ")
            decisions.append({"type": "approve"} if reply == "yes" else {"type": "reject", "message": reply})
        state = agent.invoke(Command(resume={"decisions": decisions}), config)
    print(state["messages"][-1].text)
