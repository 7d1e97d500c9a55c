"""Runs the tasks of a suite through other frameworks' agents and through our loops, all at one local endpoint.

    python run.py --out OUT                                 every agent, the report split of `basics`
    python run.py --out OUT --suite basics:tuning --limit 2 --agents langchain
    python run.py --out OUT --template own --agents langchain,pydantic-ai
    python run.py --out OUT --temperature 0.7 --agents pydantic-ai

A line of JSON a task in OUT/AGENT.jsonl; what is there is not run again. One task at a time, each in a process of its
own; `report.py OUT` draws the table. See README.md for the environments.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parent.parent / "src"
STEPS = 12
SECONDS = 7200
"""A task that takes longer is ended and counts as crashed."""
SLOW = ("APITimeoutError", "APIConnectionError", "ConnectError", "ReadTimeout", "Request timed out", "Connection error")
"""How the endpoint's own failures read in a crash: they say nothing of the agent, and are not kept."""


COUNTS = ("calls", "native_calls", "tokens_in", "tokens_out", "cached", "refused", "cut")
"""What the endpoint counts: `refused` requests that it answered with an error, `cut` replies at the token limit."""


class Agent(NamedTuple):
    """Where an agent is written, and the folder of its environment ("" for the one that runs this)."""

    file: str
    environment: str


AGENTS = {
    "smolagents-code": Agent("smolagents_peer.py", "smolagents"),
    "smolagents-tools": Agent("smolagents_peer.py", "smolagents"),
    "langchain": Agent("langchain_peer.py", "langchain"),
    "pydantic-ai": Agent("pydantic_ai_peer.py", "pydantic-ai"),
    "plait-react": Agent("plait_peer.py", ""),
    "plait-rewoo": Agent("plait_peer.py", ""),
    "plait-codeact": Agent("plait_peer.py", ""),
    "plait-tool_calling": Agent("plait_peer.py", ""),
}


@contextlib.contextmanager
def endpoint(options: argparse.Namespace) -> Iterator[dict[str, str]]:
    """The model's server, in a process that ends with this one."""
    log = options.out / "calls.jsonl"
    command = [sys.executable, str(HERE / "serve.py"), "--template", options.template, "--log", str(log)]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=_environment())
    assert server.stdout
    try:
        said = server.stdout.readline()
        if not said:
            raise SystemExit("The model's server did not start; it says why above.")
        yield {**json.loads(said), "pid": str(server.pid)}
    finally:
        server.kill()
        server.wait()


def performed(
    name: str, task: Any, words: list[str], served: dict[str, str], options: argparse.Namespace
) -> dict[str, Any]:
    """One task by one agent, as a line of the results."""
    agent = AGENTS[name]
    python = str(options.venvs / agent.environment / "bin" / "python") if agent.environment else sys.executable
    label = f"{name}-{task.id}-{time.time_ns()}"
    request = {
        "agent": name,
        "question": task.question,
        "tools": words,
        "url": f"{served['url']}/{label}/v1",
        "key": served["key"],
        "model": served["model"],
        "steps": STEPS,
        "temperature": options.temperature,
    }
    # A session of its own: whatever the agent starts ends with it.
    worker = subprocess.Popen(
        [python, str(HERE / agent.file)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=_environment(),
        start_new_session=True,
    )
    try:
        said, errors = worker.communicate(json.dumps(request).encode(), SECONDS)
        came = json.loads(said) if said else _died(worker.returncode, errors)
    except subprocess.TimeoutExpired:
        os.killpg(worker.pid, signal.SIGKILL)
        worker.communicate()
        came = {"status": "crashed", "error": f"not done after {SECONDS} s", "seconds": float(SECONDS)}
    finally:
        if worker.poll() is None:
            os.killpg(worker.pid, signal.SIGKILL)
    spent = json.load(urllib.request.urlopen(f"{served['url']}/{label}/spent", timeout=60))
    return {
        "agent": name,
        "template": options.template,
        "temperature": options.temperature,
        "suite": options.suite,
        "task": task.id,
        "question": task.question,
        "gold": task.answer,
        "about": task.about,
        "label": label,
        "answer": None,
        "error": "",
        "versions": {},
        **came,
        **{count: int(spent.get(count, 0)) for count in COUNTS},
        "model_cpu": round(spent.get("model_cpu", 0.0), 2),
    }


def _died(code: int, errors: bytes) -> dict[str, Any]:
    last = errors.decode(errors="replace").strip().splitlines()[-3:]
    return {"status": "crashed", "error": f"the process ended with {code}: {' | '.join(last)}"[:800], "seconds": 0.0}


def _environment() -> dict[str, str]:
    """This tree's Plait on the path, and nobody reports anything to anyone."""
    quiet = {"LANGSMITH_TRACING": "false", "LANGCHAIN_TRACING_V2": "false", "HF_HUB_OFFLINE": "1"}
    return {**os.environ, **quiet, "PYTHONPATH": str(SOURCE), "NO_PROXY": "127.0.0.1"}


def main() -> None:
    from plait.lab.basics import load_basics

    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="the folder of the results")
    parser.add_argument("--suite", default="basics:report")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--agents", default=",".join(AGENTS))
    parser.add_argument("--template", choices=["fenced", "own"], default="fenced", help="see serve.py")
    parser.add_argument("--temperature", type=float, default=0.0, help="what other frameworks ask with (default 0)")
    parser.add_argument("--venvs", type=Path, default=HERE / ".venv", help="where the environments are")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    options.venvs = options.venvs.resolve()
    if unknown := [name for name in options.agents.split(",") if name not in AGENTS]:
        parser.error(f"no such agent: {', '.join(unknown)}; there are {', '.join(AGENTS)}")
    if options.temperature and "plait-" in options.agents:
        parser.error("our loops choose their temperatures themselves: name other --agents")
    suite = load_basics(options.suite.removeprefix("basics").removeprefix(":")).first(options.limit)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended with us
    kind = "" if options.template == "fenced" else "-own"
    kind += f"-t{options.temperature:g}" if options.temperature else ""
    with endpoint(options) as served:
        for name in options.agents.split(","):
            file = options.out / f"{name}{kind}.jsonl"
            lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
            done = {(line["suite"], line["task"]) for line in lines}
            for task in suite.tasks:
                if (options.suite, task.id) in done:
                    continue
                line = performed(name, task, list(suite.tools_of(task)), served, options)
                if line["status"] == "crashed" and any(word in line["error"] for word in SLOW):
                    print(f"{name} {task.id}: the endpoint failed, not kept ({line['error']:.150})", flush=True)
                    continue
                with file.open("a") as results:
                    results.write(json.dumps(line) + "\n")
                shown = line["error"] or line["answer"]
                said = f"{line['status']}, {line['seconds']} s, {line['calls']} calls: {shown!r:.150}"
                print(f"{name} {task.id} {said}", flush=True)


if __name__ == "__main__":
    main()
