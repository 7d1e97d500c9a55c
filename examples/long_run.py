"""Answer a question from many long files, with a model whose context holds only a few of them.

    python examples/long_run.py "How long is the warranty of a lamp?"
    python examples/long_run.py "Which pump failed in May?" --folder logs --model openai:gpt-4.1-mini --compact-at 0.5

Plait folds old results and summarizes old turns, so the run may have any number of steps. It prints what it did.
"""

import argparse
import sys
from pathlib import Path

import plait
from plait.core import events
from plait.models.base import Model

DOCUMENTS = Path(__file__).parent / "documents"


def make_agent(folder: Path = DOCUMENTS, model: str | Model = "local", compact_at: float = 0.7) -> plait.Agent:
    files = {path.name: path for path in sorted(folder.iterdir()) if path.is_file()}

    @plait.tool(read_only=True)
    def list_files() -> list[str]:
        """List the names of all files."""
        return list(files)

    @plait.tool(read_only=True)
    def read_file(name: str) -> str:
        """Read one file."""
        if name not in files:
            raise plait.ToolError(f"There is no file {name!r}. Call list_files.")
        return files[name].read_text(encoding="utf-8", errors="replace")

    limits = plait.Limits(steps=500, compact_at=compact_at)
    return plait.Agent("tool_calling", model=model, tools=[list_files, read_file], limits=limits, journal="long_run.db")


def main() -> int:
    options = argparse.ArgumentParser(description="Answer a question from many long files.")
    options.add_argument("question")
    options.add_argument("--folder", type=Path, default=DOCUMENTS)
    options.add_argument("--model", default="local")
    options.add_argument("--compact-at", type=float, default=0.7)
    given = options.parse_args()
    run = make_agent(given.folder, given.model, given.compact_at).run(given.question)
    for event in run.events:
        if isinstance(event, events.Noted) and event.kind == "compacted":
            print(f"step {event.step}: {event.text}", file=sys.stderr)
    print(run.answer if run.status == "answered" else f"{run.status}: {run.reason}")
    print(f"{run.steps} steps, {run.usage.input_tokens:,} input tokens, run {run.id}", file=sys.stderr)
    return 0 if run.status == "answered" else 1


if __name__ == "__main__":
    sys.exit(main())
