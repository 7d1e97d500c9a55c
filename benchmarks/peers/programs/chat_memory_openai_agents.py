"""`examples/chat_memory.py` with openai-agents. The model sees the whole conversation."""

import argparse
import asyncio
import sys

from agents import Agent, Runner, SQLiteSession, function_tool, set_default_openai_api, set_tracing_disabled

set_default_openai_api("chat_completions")
set_tracing_disabled(True)


@function_tool
def add(a: float, b: float) -> float:
    """Add two numbers."""
    return a + b


async def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--session", default="chat")
    options.add_argument("--model", default="gpt-5.6")
    given = options.parse_args()
    rules = "You chat with one user. Use what the user told you before."
    agent = Agent(name="chat", model=given.model, instructions=rules, tools=[add])
    session = SQLiteSession(given.session, "chat.db")
    print("> ", end="", file=sys.stderr, flush=True)
    for line in sys.stdin:
        print((await Runner.run(agent, line.strip(), session=session)).final_output)
        print("> ", end="", file=sys.stderr, flush=True)


asyncio.run(main())
