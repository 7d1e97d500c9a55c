"""The command `plait init`: a folder with an agent, its test and its settings."""

from __future__ import annotations

import json
import os
import shlex
from importlib.util import find_spec
from pathlib import Path

import click

from plait import trust
from plait.config import load
from plait.core.errors import ConfigError
from plait.core.text import clean
from plait.installation import install_command
from plait.models.default_model import choose_model
from plait.models.resolve import check_spec, resolve

AGENT = '''\
"""An agent with a tool of its own."""

import plait

METRES = {"m": 1.0, "km": 1000.0, "foot": 0.3048, "mile": 1609.344}


@plait.tool(read_only=True)  # it changes nothing, so Plait may call it again after a crash
def convert_length(value: float, unit: str, to: str) -> float:
    """Convert a length to another unit.

    Args:
        value: The number, such as 42.195.
        unit: The unit of the number: m, km, foot or mile.
        to: The unit of the result.
    """
    for each in (unit, to):
        if each not in METRES:
            raise plait.ToolError(f"The unit {each!r} is not known.", hint=f"Known are {', '.join(METRES)}.")
    return round(value * METRES[unit] / METRES[to], 3)


agent = plait.Agent(
    model=MODEL,
    tools=[convert_length, "calculator"],
    instructions="Convert lengths with the tool. Answer in one sentence.",
    name="assistant",
)
'''
TEST = '''\
"""Tests of the agent, with scripted replies."""

import plait

from agent import agent


def test_it_converts_a_length(no_real_models):  # which fails if a real model is asked
    call = {"name": "convert_length", "input": {"value": 42.195, "unit": "km", "to": "mile"}}
    script = plait.Scripted([{"calls": [call]}, {"answer": "A marathon has 26.219 miles."}])
    run = agent.using(loop="tool_calling", model=script).run("How many miles has a marathon?")
    assert run.answer == "A marathon has 26.219 miles."
    assert [each.result for each in run.calls_of("convert_length")] == [26.219]
'''
SETTINGS = """\
# Settings of the commands in this folder. Plait trusts this file as it is now: after a change, run `plait trust`.

[agents.assistant]
agent = "agent.py:agent"
description = "Converts lengths."   # shown to clients of `plait serve`
max_steps = 12
# approve = "effects"               # ask before each call of a tool that is not read_only
"""
IGNORED = """\
__pycache__/
.venv/
.env
*.db
*.db-*
"""


@click.command()
@click.argument("folder", default=".", type=click.Path(path_type=Path, file_okay=False))
@click.option("--model", metavar="SPEC", help="The agent's model (default: one that can be used here).")
def init(folder: Path, model: str | None) -> None:
    """Write a small project into FOLDER: an agent with a tool, its test, and its settings. Overwrites nothing."""
    spec, why = (model, "") if model else choose_model(os.environ)
    check_spec(spec, models := load().models)
    missing: ConfigError | None = None
    try:
        resolve(spec, models)
    except ConfigError as error:  # such as a key that is not set yet
        missing = error
    files = {
        "agent.py": AGENT.replace("MODEL", json.dumps(spec)),
        "test_agent.py": TEST,
        "plait.toml": SETTINGS,
        ".gitignore": IGNORED,
    }
    if there := [name for name in files if os.path.lexists(folder / name)]:
        raise ConfigError(f"{folder} already has {', '.join(there)}.", hint="Name an empty folder, or a new one.")
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        with (folder / name).open("x", encoding="utf-8") as file:
            file.write(text)
    trust.trust(folder / "plait.toml")  # it says what was written here
    click.echo(f"Written to {clean(str(folder.absolute()))}: {', '.join(files)}.")
    click.echo(f"Model: {clean(spec)}{f', because {clean(why)}' if why else ''}. It is in agent.py.")
    if missing is not None:
        click.echo(clean(str(missing)))
    rows = [
        ('plait run "How many miles has a marathon of 42.195 km?"', ""),
        ("plait chat", ""),
        ("plait serve --reload", "" if find_spec("uvicorn") else install_command("server")),
        ("python -m pytest", "" if find_spec("pytest") else "pip install pytest"),
    ]
    click.echo("\nNext:")
    if folder.absolute() != Path.cwd():
        click.echo(f"  cd {shlex.quote(str(folder))}")
    for command, needed in rows:
        click.echo(f"  {command}{f'    # first: {needed}' if needed else ''}")
