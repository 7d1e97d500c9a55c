"""Without Linux's own calls: every module is imported, code runs in `monty`, and processes are told apart."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import plait
import plait.sandbox
from plait.core.errors import ConfigError
from plait.journal import owner

PROGRAM = """
import importlib, os, pkgutil, socket, sys
sys.path.insert(0, sys.argv[1])
from like_macos import look_like_macos
look_like_macos()
import plait
scripts = ("plait.__main__", "plait.models.serve_gguf")
names = [each.name for each in pkgutil.walk_packages(plait.__path__, "plait.") if each.name not in scripts]
for name in names:
    importlib.import_module(name)
assert len(names) > 400 and not hasattr(os, "memfd_create"), names

code = " so.\\nACTION 1:\\n```python\\nprint(6 * 7)\\n```"
stop = " so.\\nACTION 2:\\n```python\\nstop('42')\\n```"
agent = plait.Agent("codeact", model=plait.Scripted([code, stop]), journal="journal.db")
run = agent.run("q")
assert (run.status, run.answer) == ("answered", "42"), run
agent.replay(run.id)

from plait.cli.doctor import examine
from plait.journal.owner import life_of, owner_of_this_process
found = {each.name: each for each in examine("journal.db") if each.group == "sandbox"}
assert found["auto"].detail == "uses monty because process is not available: darwin has no seccomp filters"
assert (found["process"].state, found["shell"].state, found["monty"].state) == ("absent", "absent", "ok")
print(owner_of_this_process())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="hides what only Linux has")
def test_plait_needs_nothing_that_only_linux_has(tmp_path: Path) -> None:
    words = [sys.executable, "-c", PROGRAM, str(Path(__file__).parent)]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().endswith("::"), "neither boot id nor namespace"


def test_without_proc_number_and_lock_say_whether_a_process_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner, "_place", lambda pid: ("", ""))
    monkeypatch.setattr(owner, "_start_of", lambda pid: None)
    owner._owner.cache_clear()
    try:
        own = owner.owner_of_this_process()
        host = own.split(":")[0]
        assert owner.life_of(own, lambda each: False) == "alive", "a process does not see its own lock"
        parent, unused = f"{host}:{os.getppid()}:7::", f"{host}:4194305:7::"
        assert owner.life_of(parent) == owner.life_of(parent, lambda each: True) == "alive"
        assert owner.life_of(parent, lambda each: False) == "dead", "another process has its number now"
        assert owner.life_of(unused) == "dead"
    finally:
        owner._owner.cache_clear()


def test_without_any_sandbox_the_error_says_why_and_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(plait.sandbox, "_opened", set())
    monkeypatch.setattr(plait.sandbox, "_refused", {"process": "no filter"})
    monkeypatch.setitem(sys.modules, "pydantic_monty", None)
    with pytest.raises(ConfigError, match="not available \\(no filter\\), and 'monty' is not installed") as caught:
        plait.Agent("codeact", model=plait.Scripted(["x"]), journal=tmp_path / "journal.db").run("q")
    assert "[code]" in caught.value.hint
