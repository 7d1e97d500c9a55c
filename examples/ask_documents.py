"""Answer a question from your own documents, and name the documents.

    python examples/ask_documents.py "How long is the warranty of a lamp?"
    python examples/ask_documents.py "What does delivery abroad cost?" --folder notes --model openai:gpt-4.1-mini

The tool `lookup` searches a folder of .txt and .md files and returns the best passages. With `grounding="refuse"` the
agent may not search for a name or number that nobody mentioned.
"""

import argparse
import re
import sys
from pathlib import Path

import plait
from plait.core import events

DOCUMENTS = Path(__file__).parent / "documents"


def make_agent(folder: str | Path = DOCUMENTS, model: str = "local") -> plait.Agent:
    return plait.Agent(
        "react",
        model=model,
        tools=[plait.toolkits.lookup(folder)],
        limits=plait.Limits(steps=6),
        grounding="refuse",
        can_ask=False,
    )


def list_sources(run: plait.Run) -> list[str]:
    """The documents whose passages the model read. Each passage starts with [file: heading]."""
    passages = [event.observation.text for event in run.events if isinstance(event, events.Observed)]
    return sorted({name for text in passages for name in re.findall(r"^\[([^:\]]+)", text, re.MULTILINE)})


def main() -> int:
    options = argparse.ArgumentParser(description="Answer a question from your own documents.")
    options.add_argument("question")
    options.add_argument("--folder", default=DOCUMENTS)
    options.add_argument("--model", default="local")
    given = options.parse_args()
    run = make_agent(given.folder, given.model).run(given.question)
    if run.status != "answered":
        print(f"{run.status}: {run.reason}", file=sys.stderr)
        return 1
    print(run.answer)
    print(f"read: {', '.join(list_sources(run)) or 'no document'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
