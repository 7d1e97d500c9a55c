"""`examples/long_run.py` with pydantic-ai, and a history processor that folds old results and summarizes old turns."""

import argparse
from pathlib import Path

from pydantic_ai import Agent, ModelRetry, UsageLimits
from pydantic_ai.capabilities import ProcessHistory
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, ToolReturnPart, UserPromptPart
from pydantic_ai.messages import ModelMessagesTypeAdapter as Messages

options = argparse.ArgumentParser()
options.add_argument("question")
options.add_argument("--folder", type=Path, default=Path("documents"))
options.add_argument("--model", default="gpt-5.6")
options.add_argument("--context", type=int, default=128_000)
given = options.parse_args()
files = {path.name: path for path in sorted(given.folder.iterdir()) if path.is_file()}
model = f"openai-chat:{given.model}"
summarizer = Agent(model, instructions="Summarize this conversation for the agent that continues it.")


async def compact(messages: list[ModelMessage]) -> list[ModelMessage]:
    """Fold the results of all but the last two turns; if that is not enough, replace these turns by a summary."""
    last = next((each for each in reversed(messages) if isinstance(each, ModelResponse)), None)
    if last is None or last.usage.input_tokens < given.context * 7 // 10:
        return messages
    first, old, recent = messages[0], messages[1:-4], messages[-4:]
    for message in old:
        for part in message.parts:
            if isinstance(part, ToolReturnPart) and len(str(part.content)) > 300:
                part.content = f"[{part.tool_name}: {len(str(part.content))} characters]"
    if len(Messages.dump_json(old)) > given.context:
        summary = (await summarizer.run(Messages.dump_json(old).decode())).output
        return [first, ModelRequest([UserPromptPart(f"What happened so far: {summary}")]), *recent]
    return [first, *old, *recent]


agent = Agent(model, capabilities=[ProcessHistory(compact)])


@agent.tool_plain
def list_files() -> list[str]:
    """List the names of all files."""
    return list(files)


@agent.tool_plain
def read_file(name: str) -> str:
    """Read one file."""
    if name not in files:
        raise ModelRetry(f"There is no file {name!r}. Call list_files.")
    return files[name].read_text(errors="replace")


print(agent.run_sync(given.question, usage_limits=UsageLimits(request_limit=500)).output)
