"""The library is typed: a program of its user passes `mypy --strict`, and a wrong one does not."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = ROOT / "tests" / "typed_program.py"
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
WRONG = """
import plait
plait.Agent(loops="react")
plait.Agent(limits={"steps": 3})
plait.ReAct(dialect="xx")
plait.Limits(steps="3")
plait.Runs
plait.Agent().run("?").run
plait.Agent(output=list[int]).run("?").output.days
plait.Agent().run("?").output.days
"""


def test_a_users_program_and_the_examples_are_checked_by_types(tmp_path: Path) -> None:
    """mypy on these files, as someone who installed the package has it."""
    wrong = tmp_path / "wrong.py"
    wrong.write_text(WRONG)
    words = ["--strict", "--config-file=", "--explicit-package-bases", "--follow-imports=silent"]
    words += [f"--cache-dir={ROOT / '.mypy_cache' / 'users'}"]
    command = [sys.executable, "-m", "mypy", *words, PROGRAM, wrong, *EXAMPLES]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert found.returncode == 1, found.stdout + found.stderr
    lines = [line for line in found.stdout.splitlines() if ": error: " in line]
    assert not [line for line in lines if "wrong.py" not in line], found.stdout
    assert {int(line.split(":")[1]) for line in lines} == set(range(3, 11))


def test_a_users_program_and_the_examples_pass_pyright(tmp_path: Path) -> None:
    if find_spec("pyright") is None:
        pytest.skip("NOT CHECKED: pyright is not installed")
    wrong = tmp_path / "wrong.py"
    wrong.write_text(WRONG)
    words = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--outputjson", PROGRAM, wrong, *EXAMPLES]
    found = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    errors = [each for each in json.loads(found.stdout)["generalDiagnostics"] if each["severity"] == "error"]
    assert [each for each in errors if not each["file"].endswith("wrong.py")] == []
    assert {each["range"]["start"]["line"] + 1 for each in errors} == set(range(3, 11))
