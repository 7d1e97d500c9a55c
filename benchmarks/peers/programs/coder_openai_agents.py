"""`examples/coder.py` with openai-agents. A file has the state of a run that waits."""

import argparse
import asyncio
import re
import subprocess
from pathlib import Path

from agents import Agent, Runner, RunState, function_tool, set_default_openai_api, set_tracing_disabled

set_default_openai_api("chat_completions")
set_tracing_disabled(True)
RULES = """Read the files that matter before you change anything. Make the smallest change that solves the task.
Then run the tests, and say in your answer what you changed and what the tests said."""
STATE = Path("state.json")

options = argparse.ArgumentParser()
options.add_argument("folder", type=Path)
options.add_argument("task", nargs="?")
options.add_argument("--resume", action="store_true")
options.add_argument("--model", default="gpt-5.6")
given = options.parse_args()
ROOT = given.folder.resolve()


def inside(path: str) -> Path:
    found = (ROOT / path).resolve()
    if not found.is_relative_to(ROOT):
        raise ValueError("The path is outside the folder.")
    return found


@function_tool
def list_files() -> list[str]:
    """List all files."""
    return [str(path.relative_to(ROOT)) for path in sorted(ROOT.rglob("*")) if path.is_file()]


@function_tool
def read_file(path: str) -> str:
    """Read a file."""
    return inside(path).read_text()


@function_tool
def search_files(pattern: str) -> list[str]:
    """Find the lines of all files that match a regular expression."""
    found = []
    for path in filter(Path.is_file, sorted(ROOT.rglob("*"))):
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            if re.search(pattern, line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line}")
    return found


@function_tool(needs_approval=True)
def write_file(path: str, content: str) -> str:
    """Write a whole file."""
    inside(path).write_text(content)
    return "written"


@function_tool(needs_approval=True)
def edit_file(path: str, old: str, new: str) -> str:
    """Replace a text in a file. It must occur exactly once."""
    text = inside(path).read_text()
    if text.count(old) != 1:
        raise ValueError(f"The text occurs {text.count(old)} times.")
    inside(path).write_text(text.replace(old, new))
    return "edited"


@function_tool(needs_approval=True)
def run_command(command: str) -> str:
    """Run a shell command in the folder."""
    done = subprocess.run(command, shell=True, cwd=ROOT, capture_output=True, text=True, timeout=120)
    return f"exit code {done.returncode}\n{done.stdout}{done.stderr}"[:20_000]


TOOLS = [list_files, read_file, search_files, write_file, edit_file, run_command]
agent = Agent(name="coder", model=given.model, instructions=RULES, tools=TOOLS)


async def main() -> None:
    asked = await RunState.from_string(agent, STATE.read_text()) if given.resume else given.task
    while True:
        if isinstance(asked, RunState):
            for item in asked.get_interruptions():
                reply = input(f"May {item.name} be called with {item.arguments}?\n> ")
                asked.approve(item) if reply == "yes" else asked.reject(item, rejection_message=reply)
        run = await Runner.run(agent, asked, max_turns=100)
        if not run.interruptions:
            break
        asked = run.to_state()
        STATE.write_text(asked.to_string())
    print(run.final_output)
    STATE.unlink(missing_ok=True)


asyncio.run(main())
