"""Containers and clusters: other users, folders that cannot be written, no user namespaces. README.md names the thread
of each test."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fork_server import run_forked

pytestmark = pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="only root becomes another user")
OTHER = """
import os, sys
os.setgroups([])
os.setresgid(54321, 54321, 54321)
os.setresuid(54321, 54321, 54321)  # a user whom /etc/passwd does not have
"""
WEAK = """
import ctypes, os, sys
none = (ctypes.c_uint32 * 6)()
header = (ctypes.c_uint32 * 2)(0x20080522, 0)
kernel = ctypes.CDLL(None)
assert kernel.capset(header, none) == 0 and kernel.prctl(38, 1, 0, 0, 0) == 0  # no capability, and none to be had
"""
MAIN = "from plait.cli.main import main\nmain()"


def run_as(who: str, *args: str, code: str = MAIN, env: dict[str, str], cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a program with the rights of a container, and with exactly this environment."""
    done = run_forked(["-c", who + code, *args], cwd=cwd, env={"PATH": "/usr/bin:/bin", **env})
    assert "Traceback" not in done.stderr and "defect" not in done.stderr, done.stderr
    return done


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that anybody may write, with a script."""
    own = [each for each in tmp_path.parents if each.name.startswith(("pytest-", "popen-"))]
    for each in (tmp_path, *own):
        each.chmod(0o755)
    data = tmp_path / "data"
    data.mkdir()
    data.chmod(0o777)
    (data / "script.json").write_text(json.dumps(["Thought: k\nFinal Answer: 21"]))
    return data


RUN = ("run", "?", "--model", "scripted:script.json", "--loop", "react")


@pytest.mark.parametrize("home", ["unwritable", "absent", "none"])
def test_a_home_that_cannot_be_used_is_named_with_what_to_do_and_another_journal_is_enough(
    home: str, folder: Path
) -> None:
    locked = folder.parent / "locked"
    locked.mkdir(mode=0o555)
    env = {"none": {}, "unwritable": {"HOME": str(locked)}, "absent": {"HOME": str(locked / "nonroot")}}[home]
    who = OTHER if home == "none" else WEAK
    failed = run_as(who, *RUN, env=env, cwd=folder)
    assert (failed.returncode, failed.stdout) == (2, "")
    assert "journal.db can't be opened: Permission denied" in failed.stderr and "PLAIT_JOURNAL" in failed.stderr
    done = run_as(who, *RUN, "--journal", str(folder / "runs.db"), env=env, cwd=folder)
    assert (done.returncode, done.stdout) == (0, "21\n"), done.stderr


def test_doctor_names_a_home_that_cannot_be_written(folder: Path) -> None:
    (locked := folder.parent / "locked").mkdir(mode=0o555)
    found = json.loads(run_as(WEAK, "doctor", "--json", env={"HOME": str(locked)}, cwd=folder).stdout)
    journal = next(each for each in found["findings"] if each["group"] == "journal")
    assert journal["state"] == "broken" and "not writable" in journal["detail"] and "PLAIT_JOURNAL" in journal["fix"]


def test_a_journal_of_another_user_says_who_may_not_write_it(folder: Path) -> None:
    place = str(folder / "runs.db")
    made = run_forked(["-m", "plait", *RUN, "--journal", place], cwd=folder, env={**os.environ, "HOME": str(folder)})
    assert made.returncode == 0, made.stderr
    failed = run_as(OTHER, *RUN, "--journal", place, env={"HOME": "/"}, cwd=folder)
    assert failed.returncode == 2 and "runs.db" in failed.stderr and "may write" in failed.stderr, failed.stderr


CODE = r"""
import os, platform, sys
from plait.sandbox import confine, confine_filter as filters

# What Docker's own filter refuses: other namespaces and mounts.
docker = ("clone3", "unshare", "setns", "mount", "umount2", "pivot_root", "open_tree", "move_mount", "fsopen", "bpf")
filters.REFUSED = {name: filters.REFUSED[name] for name in docker}
confine.install_filter(filters.command_program(platform.machine()))
try:
    os.unshare(0x10000000) if hasattr(os, "unshare") else confine.call_kernel(272, 0x10000000)
    sys.exit("the filter does not hold")
except OSError:
    pass
import plait

first = " so.\nACTION 1:\n```python\nclass A(Exception):\n    pass\nprint(open)\n```"
reach = " so.\nACTION 2:\n```python\nprint(open('/etc/passwd').read())\n```"
last = ' so.\nACTION 3:\n```python\nstop(str(A.__mro__[1].__name__))\n```'
agent = plait.Agent("codeact", model=plait.Scripted([first, reach, last]), journal=sys.argv[1])
run = agent.run("?")
print(run.status, run.answer)
print([event.text for event in run.events if hasattr(event, "text") and "root:" in event.text])
"""


def test_code_runs_confined_where_docker_forbids_user_namespaces(folder: Path) -> None:
    done = run_as(WEAK, str(folder / "runs.db"), code=CODE, env={"HOME": str(folder)}, cwd=folder)
    assert done.stdout.splitlines() == ["answered Exception", "[]"], done.stdout + done.stderr
