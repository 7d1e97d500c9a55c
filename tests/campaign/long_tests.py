"""Runs tests with large counts: 2,000 random examples a property, every hostile program, disk faults."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from figures import Figures, line_of

TESTS = Path(__file__).resolve().parents[1]
MORE_HERE = re.compile(
    r"@given|^from conftest import .*\b(?:CAMPAIGN|LOOKS|LONG|examples|only_in_campaign|some_of)\b", re.M
)
"""What is in a file whose tests try more in the campaign."""
ALWAYS = ("test_hostile.py", "test_code_cells.py", "test_journal_faults.py", "test_journal_processes.py")
KILLS = ("test_agent_on_profiles.py",)
MORE = ("test_faults_journal.py", "test_faults_cancel.py", "test_faults_endpoint.py", "test_faults_tools.py")


def run(count: int, seed: int, folder: Path) -> Figures:
    """Run these tests so many times, with properties tried on examples by chance."""
    files = {path for path in TESTS.rglob("test_*.py") if MORE_HERE.search(path.read_text())}
    files |= {TESTS / name for name in ALWAYS + KILLS + MORE}
    command = [sys.executable, "-m", "pytest", "-n", "auto", "--dist", "worksteal", "--timeout", "3600"]
    env = {**os.environ, "PLAIT_CAMPAIGN": "1"}
    passed = failed = skipped = 0
    failures: list[str] = []
    for number in range(count):
        words = [*command, f"--hypothesis-seed={seed + number}", *map(str, sorted(files))]
        done = subprocess.run(words, cwd=TESTS.parent, env=env, capture_output=True, text=True)
        closing = done.stdout.strip().splitlines()[-1] if done.stdout.strip() else done.stderr[-500:]
        found = {word: int(n) for n, word in re.findall(r"(\d+) (passed|failed|skipped|error)", closing)}
        passed, skipped = passed + found.get("passed", 0), skipped + found.get("skipped", 0)
        failed += found.get("failed", 0) + found.get("error", 0)
        failures += re.findall(r"^(?:FAILED|ERROR) .*", done.stdout, re.M)
        if done.returncode and not failures:
            failures.append(closing)
    return Figures(line_of(tests=passed + failed, passed=passed, failed=failed, skipped=skipped), failures)
