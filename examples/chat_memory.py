"""Chat with an agent that remembers what was said, also after the program has ended.

    python examples/chat_memory.py
    python examples/chat_memory.py --session work --model openai:gpt-4.1-mini

Each line is a turn of a session, which the journal stores. The model sees the earlier turns with their tool calls. If
they do not fit any more, it finds the oldest by meaning with the tool `chat_history`. Ctrl-D ends the chat.
"""

import argparse
import sys

import plait


def make_agent(model: str = "local") -> plait.Agent:
    return plait.Agent(
        model=model,
        tools=["calculator"],
        instructions="You chat with one user. Use what the user told you before.",
        can_ask=False,
    )


def main() -> int:
    options = argparse.ArgumentParser(description="Chat with an agent that remembers.")
    options.add_argument("--session", default="chat")
    options.add_argument("--model", default="local")
    given = options.parse_args()
    agent = make_agent(given.model)
    print("> ", end="", file=sys.stderr, flush=True)
    for line in sys.stdin:
        run = agent.run(line.strip(), session=given.session)
        print(run.answer if run.status == "answered" else f"{run.status}: {run.reason}")
        print("> ", end="", file=sys.stderr, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
