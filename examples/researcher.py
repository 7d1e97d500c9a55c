"""Research several topics at once, each with an agent of its own, and write one summary.

    python examples/researcher.py "Compare the warranty and the delivery of the shop." --usd 0.05

The tool `research` runs one agent per topic, in parallel, as child runs. They share the journal and the limits of the
run that calls the tool. `plait show --tree last` shows all runs, and `plait resume last` continues them after a crash.
"""

import argparse
import asyncio
import sys
from dataclasses import dataclass
from pathlib import Path

import plait

DOCUMENTS = Path(__file__).parent / "documents"


@dataclass(frozen=True)
class Library:
    """What the tools need: a folder of texts, and the model that reads them."""

    folder: Path
    model: str | plait.Scripted


@plait.tool(idempotent=True)
async def research(ctx: plait.Context[Library], topics: list[str]) -> dict[str, str]:
    """Research several topics at once.

    Args:
        topics: one question for each topic
    """
    reader = plait.Agent(model=ctx.deps.model, tools=[plait.toolkits.lookup(ctx.deps.folder)])
    runs = await asyncio.gather(*(ctx.arun(reader, topic) for topic in topics))
    return {run.question: run.answer or f"Nothing was found: {run.reason}" for run in runs}


def make_agent(model: str | plait.Scripted = "local", usd: float | None = None) -> plait.Agent:
    return plait.Agent(model=model, tools=[research], deps=Library, limits=plait.Limits(calls=40, usd=usd))


def main() -> int:
    options = argparse.ArgumentParser(description="Research several topics at once.")
    options.add_argument("question")
    options.add_argument("--folder", type=Path, default=DOCUMENTS)
    options.add_argument("--model", default="local")
    options.add_argument("--usd", type=float)
    given = options.parse_args()
    run = make_agent(given.model, given.usd).run(given.question, deps=Library(given.folder, given.model))
    print(run.answer or f"{run.status}: {run.reason}")
    print(f"{run.tree.runs} runs, {run.tree.calls} model calls", file=sys.stderr)
    return 0 if run.status == "answered" else 1


if __name__ == "__main__":
    sys.exit(main())
