"""`examples/researcher.py` with openai-agents: the model starts several readers by calling the tool several times."""

import argparse
import re
from dataclasses import dataclass
from pathlib import Path

from agents import Agent, RunContextWrapper, Runner, function_tool, set_default_openai_api, set_tracing_disabled

set_default_openai_api("chat_completions")
set_tracing_disabled(True)


@dataclass(frozen=True)
class Library:
    folder: Path


@function_tool
def lookup(ctx: RunContextWrapper[Library], words: str) -> str:
    """Find the three paragraphs of the documents that have most of these words."""
    wanted = set(re.findall(r"\w+", words.lower()))
    texts = [part for path in ctx.context.folder.glob("*.md") for part in path.read_text().split("\n\n")]
    best = sorted(texts, key=lambda text: len(wanted & set(re.findall(r"\w+", text.lower()))), reverse=True)
    return "\n\n".join(best[:3])


options = argparse.ArgumentParser()
options.add_argument("question")
options.add_argument("--folder", type=Path, default=Path("documents"))
options.add_argument("--model", default="gpt-5.6")
given = options.parse_args()
reader = Agent[Library](name="reader", model=given.model, tools=[lookup])
research = reader.as_tool("research", "Research one topic. Call it several times at once for several topics.")
agent = Agent[Library](name="researcher", model=given.model, tools=[research])
print(Runner.run_sync(agent, given.question, context=Library(given.folder), max_turns=40).final_output)
