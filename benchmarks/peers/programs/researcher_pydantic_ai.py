"""`examples/researcher.py` with pydantic-ai."""

import argparse
import asyncio
import re
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from pydantic_ai import Agent, RunContext, UsageLimits


@dataclass(frozen=True)
class Library:
    folder: Path
    model: str
    limits: UsageLimits


reader = Agent(deps_type=Library)
agent = Agent(deps_type=Library)


@reader.tool
def lookup(ctx: RunContext[Library], words: str) -> str:
    """Find the three paragraphs of the documents that have most of these words."""
    wanted = set(re.findall(r"\w+", words.lower()))
    texts = [part for path in ctx.deps.folder.glob("*.md") for part in path.read_text().split("\n\n")]
    best = sorted(texts, key=lambda text: len(wanted & set(re.findall(r"\w+", text.lower()))), reverse=True)
    return "\n\n".join(best[:3])


@agent.tool
async def research(ctx: RunContext[Library], topics: list[str]) -> dict[str, str]:
    """Research several topics at once.

    Args:
        topics: one question for each topic
    """
    shared = {"deps": ctx.deps, "model": ctx.deps.model, "usage": ctx.usage, "usage_limits": ctx.deps.limits}
    runs = await asyncio.gather(*(reader.run(topic, **shared) for topic in topics))
    return {topic: run.output for topic, run in zip(topics, runs, strict=True)}


options = argparse.ArgumentParser()
options.add_argument("question")
options.add_argument("--folder", type=Path, default=Path("documents"))
options.add_argument("--model", default="gpt-5.6")
options.add_argument("--usd", type=Decimal)
given = options.parse_args()
limits = UsageLimits(request_limit=40, cost_limit=given.usd)
library = Library(given.folder, f"openai-chat:{given.model}", limits)
run = agent.run_sync(given.question, model=library.model, deps=library, usage_limits=limits)
print(run.output)
