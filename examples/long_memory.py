"""Continue a long conversation: the newest turns stand before the chat, and an action searches all others by meaning.

    python examples/long_memory.py "Where do I sleep in Lyon?"
    python examples/long_memory.py "What can't my sister eat?" --store trip.json --model openai:gpt-4.1-mini

The program keeps the conversation in a file, as [question, answer] pairs. The model sees the newest of them. If it
needs an older one, it chooses the action `chat_history` and gives it a few words.
"""

import argparse
import asyncio
import json
import sys
from pathlib import Path

import plait
from plait.core import Exchange, events

STORE = Path(__file__).parent / "conversation.json"


def continue_conversation(question: str, earlier: list[Exchange], model: str = "local") -> plait.Run:
    agent = plait.Agent(plait.Phased(max_tokens=200), model=model, history=plait.History(share=0.002))
    return asyncio.run(agent.arun(question, session="long-memory", history=earlier))


def main() -> int:
    options = argparse.ArgumentParser(description="Continue a long conversation.")
    options.add_argument("question")
    options.add_argument("--store", type=Path, default=STORE)
    options.add_argument("--model", default="local")
    given = options.parse_args()
    pairs = json.loads(given.store.read_text(encoding="utf-8")) if given.store.exists() else []
    run = continue_conversation(given.question, [Exchange(*pair) for pair in pairs], given.model)
    for event in run.events:
        if isinstance(event, events.Observed):
            print(f"searched {event.call.input}:\n{event.observation.text}\n", file=sys.stderr)
    if run.status != "answered":
        print(f"{run.status}: {run.reason}", file=sys.stderr)
        return 1
    print(run.answer)
    if given.store != STORE:
        given.store.write_text(json.dumps([*pairs, [given.question, run.answer]], indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
