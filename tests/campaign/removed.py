"""Runs the whole test suite without one of the built-in guards, for each of them.

The test files that fail must be about that guard: they, or a module of tests/ that they import, name it or its options.
Tests that fail with all guards as well do not count. Programs that tests start by themselves keep all guards.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from figures import Figures, line_of

from without_guard import GUARDS

TESTS = Path(__file__).resolve().parents[1]

WORDS = {
    "breaker": r"repeats|same call|repetition|circle",
    "limits": r"Limits\(|limit|budget|max_calls|--max",
    "hooks": r"hook",
    "grounding": r"grounding|invented|unfounded",
    "output": r"output|CheckAnswer|check_answer|typed",
    "taint": r"taint|outside|untrusted",
    "spend": r"spend",
    "approvals": r"approv|in_doubt|in doubt|Waiting|waiting|taint|grounding",
}
"""What a test file that is about a guard says somewhere."""


def run(count: int, seed: int, folder: Path) -> Figures:
    """Leave out so many guards, one after the other."""
    usual = run_tests("", folder)
    failures: list[str] = []
    figures: dict[str, int] = {"guards": min(count, len(GUARDS)), "failing_before": len(usual)}
    for name in list(GUARDS)[:count]:
        failing = run_tests(name, folder) - usual
        files = sorted({test.partition("::")[0] for test in failing})
        print(f"  without {name}: {len(failing)} tests fail, in {', '.join(files) or 'no file'}", flush=True)
        failures += [f"{file} fails without {name}" for file in files if not is_about(name, file)]
        figures[f"without_{name}"] = len(failing)
    return Figures(line_of(**figures, foreign_files=len(failures)), failures)


def run_tests(removed: str, folder: Path) -> set[str]:
    """Run all tests without a guard; "" for none. Returns those that fail."""
    paths = [str(TESTS), os.environ.get("PYTHONPATH", "")]
    env = {**os.environ, "PLAIT_WITHOUT_GUARD": removed, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    command = [sys.executable, "-m", "pytest", "-p", "without_guard", "-n", "auto", "--dist", "loadfile", "-rfE"]
    done = subprocess.run([*command, str(TESTS)], cwd=TESTS.parent, env=env, capture_output=True, text=True)
    (folder / f"without-{removed or 'none'}.txt").write_text(done.stdout + done.stderr)
    return set(re.findall(r"^(?:FAILED|ERROR) (?:.*/)?(test_\S+)", done.stdout, re.M))


def is_about(name: str, file: str) -> bool:
    """Return whether a test file, or a module of tests/ that it imports, names a guard or its options."""
    text = (TESTS / file).read_text()
    modules = re.findall(r"^(?:from|import) (\w+)", text, re.M)
    texts = [text, *(path.read_text() for each in modules if (path := TESTS / f"{each}.py").exists())]
    return any(re.search(WORDS[name], each) for each in texts if each)
