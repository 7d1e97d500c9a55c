"""The library is typed: right programs of its users pass `mypy --strict` and pyright, and mistakes are reported."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from docs_support import files_of

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


def write_recipes(folder: Path) -> list[Path]:
    """Write the programs of the recipes into as few folders as can be: a name stands in each for one file."""
    folders: list[dict[str, str]] = []
    for page in sorted((ROOT / "docs" / "recipes").glob("*.md")):
        programs = {name: text for name, text in files_of(page).items() if name.endswith(".py")}
        place = next((each for each in folders if not each.keys() & programs.keys()), None)
        if place is None:
            folders.append(place := {})
        place |= programs
    for number, programs in enumerate(folders):
        for name, text in programs.items():
            path = folder / str(number) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    return sorted(folder.iterdir())


def run_mypy(files: list[Path], folder: Path) -> set[tuple[str, int, str]]:
    """Return the mistakes that mypy reports in these files, as someone who installed the package has it."""
    words = ["--strict", "--config-file=", "--explicit-package-bases", "--follow-imports=silent"]
    words += ["--output=json", f"--cache-dir={ROOT / '.mypy_cache' / 'users'}"]
    found = subprocess.run([sys.executable, "-m", "mypy", *words, *files], cwd=folder, capture_output=True, text=True)
    assert found.returncode in (0, 1) and not found.stderr, found.stdout + found.stderr
    lines = [json.loads(line) for line in found.stdout.splitlines() if line.startswith("{")]
    return {(Path(each["file"]).name, each["line"], each["code"]) for each in lines if each["severity"] == "error"}


def run_pyright(files: list[Path], folder: Path) -> set[tuple[str, int, str]]:
    """Return the mistakes that pyright reports in these files."""
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--outputjson", *map(str, files)]
    found = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    errors = [each for each in json.loads(found.stdout)["generalDiagnostics"] if each["severity"] == "error"]
    return {(Path(each["file"]).name, each["range"]["start"]["line"] + 1, each.get("rule")) for each in errors}


def test_mypy_accepts_right_programs_and_reports_each_mistake(tmp_path: Path) -> None:
    assert run_mypy(FILES, ROOT) == marked("mypy")
    for folder in write_recipes(tmp_path):
        assert run_mypy(sorted(folder.glob("*.py")), folder) == set()


def test_pyright_accepts_right_programs_and_reports_each_mistake(tmp_path: Path) -> None:
    if find_spec("pyright") is None:
        pytest.skip("NOT CHECKED: pyright is not installed")
    assert run_pyright(FILES, ROOT) == marked("pyright")
    for folder in write_recipes(tmp_path):
        assert run_pyright(sorted(folder.glob("*.py")), folder) == set()
