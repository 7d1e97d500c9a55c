"""`examples/chat_memory.py` with LangChain, and LangGraph's checkpoints in an SQLite file. The model sees all turns."""

import argparse
import sys

from langchain.agents import create_agent
from langchain.tools import tool
from langgraph.checkpoint.sqlite import SqliteSaver


@tool
def add(a: float, b: float) -> float:
    """Add two numbers."""
    return a + b


options = argparse.ArgumentParser()
options.add_argument("--session", default="chat")
options.add_argument("--model", default="gpt-5.6")
given = options.parse_args()
with SqliteSaver.from_conn_string("checkpoints.db") as saver:
    agent = create_agent(
        f"openai:{given.model}",
        tools=[add],
        system_prompt="You chat with one user. Use what the user told you before.",
        checkpointer=saver,
    )
    config = {"configurable": {"thread_id": given.session}}
    print("> ", end="", file=sys.stderr, flush=True)
    for line in sys.stdin:
        state = agent.invoke({"messages": [{"role": "user", "content": line.strip()}]}, config)
        print(state["messages"][-1].text)
        print("> ", end="", file=sys.stderr, flush=True)
