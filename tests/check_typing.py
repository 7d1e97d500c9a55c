"""The library is typed: right programs of its users pass `mypy --strict` and pyright, and mistakes are reported."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
MISTAKES = ROOT / "tests" / "typed_mistakes.py"
FILES = [MISTAKES, *sorted((ROOT / "tests").glob("typed_[pd]*.py")), *sorted((ROOT / "examples").glob("*.py"))]
"""Programs. Each wrong line says so, with the rules of both checkers: `# wrong: arg-type, reportArgumentType`."""


def marked(checker: str) -> set[tuple[str, int, str]]:
    """Return the file, line and rule of each mistake that a checker must report."""
    found = set()
    for number, line in enumerate(MISTAKES.read_text().splitlines(), 1):
        if mark := re.search(r"# wrong: (.+)$", line):
            rules = [rule for rule in mark[1].split(", ") if rule.startswith("report") == (checker == "pyright")]
            assert rules, f"line {number} names no rule of {checker}"
            found |= {(MISTAKES.name, number, rule) for rule in rules}
    assert len(found) >= 60
    return found


def test_mypy_accepts_right_programs_and_reports_each_mistake() -> None:
    """mypy on these files, as someone who installed the package has it."""
    words = ["--strict", "--config-file=", "--explicit-package-bases", "--follow-imports=silent"]
    words += ["--output=json", f"--cache-dir={ROOT / '.mypy_cache' / 'users'}"]
    command = [sys.executable, "-m", "mypy", *words, *FILES]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    lines = [json.loads(line) for line in found.stdout.splitlines() if line.startswith("{")]
    errors = {(Path(each["file"]).name, each["line"], each["code"]) for each in lines if each["severity"] == "error"}
    assert errors == marked("mypy"), found.stdout + found.stderr


def test_pyright_accepts_right_programs_and_reports_each_mistake() -> None:
    if find_spec("pyright") is None:
        pytest.skip("NOT CHECKED: pyright is not installed")
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--outputjson", *FILES]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    reports = json.loads(found.stdout)["generalDiagnostics"]
    errors = [each for each in reports if each["severity"] == "error"]
    seen = {(Path(each["file"]).name, each["range"]["start"]["line"] + 1, each.get("rule")) for each in errors}
    assert seen == marked("pyright"), errors
