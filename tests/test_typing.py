"""The library is typed: a program of its user passes `mypy --strict`, and a wrong one does not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = ROOT / "tests" / "typed_program.py"
WRONG = """
import plait
plait.Agent(loops="react")
plait.Agent(limits={"steps": 3})
plait.ReAct(dialect="xx")
plait.Limits(steps="3")
plait.Runs
plait.Agent().run("?").run
plait.Agent(output=list[int]).run("?").output.days
"""


def check(*files: Path) -> subprocess.CompletedProcess[str]:
    """mypy on these files, as someone who installed the package has it."""
    words = ["--strict", "--config-file=", "--follow-imports=silent", f"--cache-dir={ROOT / '.mypy_cache'}"]
    return subprocess.run([sys.executable, "-m", "mypy", *words, *files], cwd=ROOT, capture_output=True, text=True)


def test_a_users_program_is_checked_by_types(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.py"
    wrong.write_text(WRONG)
    found = check(PROGRAM, wrong)
    assert found.returncode == 1, found.stdout + found.stderr
    lines = [line for line in found.stdout.splitlines() if ": error: " in line]
    assert not [line for line in lines if "wrong.py" not in line], found.stdout
    assert {int(line.split(":")[1]) for line in lines} == {3, 4, 5, 6, 7, 8, 9}
