"""Let an agent work on the code in a folder. It asks before each change and before each command.

    python examples/coder.py FOLDER "Make the tests pass." --model openai:gpt-5.6 --usd 1
    python examples/coder.py FOLDER --resume last

The agent reads, searches, writes and edits files of the folder, and runs commands there. Answer "yes", "no", or "no"
with a reason that the model reads. The journal stores each step, so a killed run can be resumed.
"""

import argparse
import sys
from pathlib import Path

import plait

RULES = """Read the files that matter before you change anything. Make the smallest change that solves the task.
Then run the tests, and say in your answer what you changed and what the tests said."""


def make_agent(folder: Path, model: str = "local", usd: float | None = None, commands: bool = True) -> plait.Agent:
    return plait.Agent(
        model=model,
        tools=[f"files:{folder}", *([f"shell:{folder}"] if commands else [])],
        instructions=RULES,
        limits=plait.Limits(steps=100, usd=usd),
    )


def main() -> int:
    options = argparse.ArgumentParser(description="Let an agent work on the code in a folder.")
    options.add_argument("folder", type=Path)
    options.add_argument("task", nargs="?", default="")
    options.add_argument("--resume", metavar="RUN")
    options.add_argument("--model", default="local")
    options.add_argument("--usd", type=float)
    options.add_argument("--no-commands", action="store_true", help="for a kernel that cannot confine a shell")
    given = options.parse_args()
    agent = make_agent(given.folder, given.model, given.usd, not given.no_commands)
    run = agent.resume(given.resume) if given.resume else agent.run(given.task)
    while run.status == "waiting":
        print(run.reason)
        run = agent.resume(run, input("> "))
    for done, observation in run.timeline.results:
        first_line = observation.text.partition("\n")[0]
        print(f"{done.call.tool}: {first_line}", file=sys.stderr)
    print(run.answer if run.status == "answered" else f"{run.status}: {run.reason}")
    return 0 if run.status == "answered" else 1


if __name__ == "__main__":
    sys.exit(main())
