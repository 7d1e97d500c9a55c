"""The wheel in empty environments: without an extra, with each one alone and with all, every command works or names the
extra.

Each environment is a new virtual environment. pip installs the wheel and what it needs, so this part needs a package
index. The commands run in a folder outside the repository.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
import urllib.request
from pathlib import Path
from typing import NamedTuple

from figures import Figures, line_of

ROOT = Path(__file__).resolve().parents[2]
LYON = "--model scripted:lyon.json --tools tools.py"
CITIES = "--model scripted:two-cities.json --tools lookup:cities.json --tools calculator"
SECONDS = 180.0


class Command(NamedTuple):
    """A command line, the extras it needs, and its exit code where it has them."""

    line: str
    needs: tuple[str, ...] = ()
    code: int = 0
    env: tuple[str, str] = ("", "")


COMMANDS = (
    Command("--version"),
    Command("--help"),
    Command("doctor"),
    Command("doctor --json"),
    Command("loops list"),
    Command("tools list"),
    Command("tools list all"),
    Command("models list"),
    Command("prompts list"),
    Command("prompts copy react prompts"),
    Command("trust plait.toml"),
    Command(f"run How-many-live-in-Lyon? --loop react {LYON}"),
    Command(f"run How-many-live-in-Lyon? --json --session talk {LYON}"),
    Command("run How-many-more? --loop codeact --model scripted:two-cities-code.json --tools lookup:cities.json"),
    Command(
        "run How-many-more? --loop codeact --sandbox monty --model scripted:two-cities-code.json "
        "--tools lookup:cities.json",
        ("code",),
    ),
    Command(f"run How-many-live-in-Lyon? {LYON} --max-tools 1", ("search",)),
    Command("tools search weather", ("search",)),
    Command("run Hello? --model local:damaged.gguf", ("local",), 1),
    Command("run Hello? --model openai:gpt-5", code=2),
    Command("init trip --model openai:gpt-5"),
    Command("init trip", code=2),
    Command(f"run How-many-live-in-Lyon? {LYON} --tools mcp:true", ("mcp",), 2),
    Command(f"run How-many-live-in-Lyon? {LYON}", ("otel",), env=("PLAIT_TELEMETRY", "on")),
    Command(f"plan How-many-more? {CITIES.replace('two-cities', 'two-cities-plan')}"),
    Command("compare tasks.jsonl --loops react --limit 1 --models scripted:lyon.json --tools tools.py --name one"),
    Command("compare tasks.jsonl --loops react --limit 1 --models scripted:lyon.json --html one.html", ("report",)),
    Command("compare tasks.jsonl --loops react --limit 1 --models scripted:lyon.json --workers 2 --again"),
    Command("results list"),
    Command("results show one"),
    Command("recommend one", code=3),
    Command("classics phases --help"),
    Command("classics tokens --help"),
    Command("world tasks"),
    Command(f"chat --loop react --session fresh {LYON}"),
    Command("runs"),
    Command("show last"),
    Command("show last --html last.html"),
    Command("costs last"),
    Command("replay last"),
    Command("export last"),
    Command("rate last good"),
    Command("trajectories last --out lines"),
    Command("serve --help"),
    Command(f"mcp {LYON}", ("mcp", "server")),
    Command(f"serve --port 0 {LYON}", ("server",)),
)


def run(count: int, seed: int, folder: Path) -> Figures:
    """Install the wheel in `count` environments and run every command in each."""
    wheel = build_wheel(folder)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    names = ["", *(name for name in extras if name != "dev")][:count]
    every = frozenset(extras)
    failures: list[str] = []
    refused = worked = 0
    for name in names:
        place = folder / (name or "none")
        try:
            program = install(wheel, name, place)
            has = every if name == "all" else frozenset((name,))
            outcomes = [(each, check(program, each, has, place / "work")) for each in COMMANDS]
            failures += [f"[{name}] plait {each.line}: {why}" for each, why in outcomes if why]
            refused += sum(not has.issuperset(each.needs) for each, _ in outcomes)
            worked += sum(has.issuperset(each.needs) for each, _ in outcomes)
        except subprocess.CalledProcessError as why:
            failures.append(f"[{name}] {why}: {why.stderr[-1000:]}")
        shutil.rmtree(place, ignore_errors=True)
    return Figures(line_of(environments=len(names), commands=worked, named_an_extra=refused), failures)


def build_wheel(folder: Path) -> Path:
    """Build the wheel of this repository. `build` makes it from the source archive, as a publisher does."""
    _call([sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)])
    (wheel,) = folder.glob("*.whl")
    return wheel


def install(wheel: Path, extra: str, place: Path) -> Path:
    """Make an environment with the wheel and one extra, and a folder to work in. Return the program."""
    _call([sys.executable, "-m", "venv", str(place)])
    requirement = f"plait[{extra}] @ {wheel.as_uri()}" if extra else f"plait @ {wheel.as_uri()}"
    constraints = str(ROOT / "constraints.txt")
    _call([str(place / "bin/python"), "-m", "pip", "install", "--quiet", "-c", constraints, requirement])
    make_folder(place / "work")
    return place / "bin/plait"


def make_folder(folder: Path) -> None:
    """Make the folder that the commands run in: the examples, a harmless plait.toml and a damaged model file."""
    shutil.copytree(ROOT / "examples", folder)
    (folder / "plait.toml").write_text("[run]\nmax_steps = 9\n")
    (folder / "damaged.gguf").write_bytes(b"GGUF")


def check(program: Path, command: Command, extras: frozenset[str], folder: Path) -> str:
    """Run a command; return what is wrong about how it ended, "" if nothing is."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PLAIT_", "OPENAI_", "PYTHON"))}
    env = {**kept, "HOME": str(folder), "OTEL_TRACES_EXPORTER": "none", "OTEL_METRICS_EXPORTER": "none"}
    env |= dict([command.env]) if command.env[0] else {}
    missing = {*command.needs} - extras
    if command.line.startswith("serve --port") and not missing:
        return _check_server(program, command, folder, env)
    given = "How many live in Lyon?\n" if command.line.startswith("chat") else ""
    done = subprocess.run(
        [program, *command.line.split()],
        cwd=folder,
        env=env,
        input=given,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    said = done.stdout + done.stderr
    if "Traceback" in said or "defect of Plait" in said:
        return said[-1000:]
    if not missing:
        return (
            "" if done.returncode == command.code else f"exit code {done.returncode}, not {command.code}: {said[-800:]}"
        )
    if done.returncode not in (1, 2):
        return f"exit code {done.returncode}, though {', '.join(missing)} is missing: {said[-800:]}"
    named = [line for line in done.stderr.splitlines() if re.search(r"pip install .*plait\[(\w+)\]", line)]
    return "" if any(f"plait[{extra}]" in line for line in named for extra in missing) else f"no hint: {said[-800:]}"


def _check_server(program: Path, command: Command, folder: Path, env: dict[str, str]) -> str:
    """Start the server, ask it for its models and its page, and stop it."""
    server = subprocess.Popen(
        [program, *command.line.split()], cwd=folder, env=env, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert server.stderr is not None
    try:
        line = server.stderr.readline()
        found = re.search(r"http://\S+", line)
        if found is None:
            return line + server.communicate(timeout=SECONDS)[1]
        for path in ("/v1/models", "/"):
            with urllib.request.urlopen(found[0] + path, timeout=20) as reply:
                if reply.status != 200:
                    return f"{path} answered {reply.status}"
    finally:
        server.send_signal(signal.SIGTERM)
        err = server.communicate(timeout=SECONDS)[1]
    return err if "Traceback" in err else ""


def _call(command: list[str]) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)
