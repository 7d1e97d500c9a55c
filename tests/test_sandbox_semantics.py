"""Ordinary programs do in the default sandbox what they do in CPython: the same output, the same calls out of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from plait.sandbox import Settings, default_sandbox, sandbox
from plait.sandbox.base import PRELUDE
from python_programs import PROGRAMS
from sandbox_support import whole

REFERENCE = """
import contextlib, io, json, sys
names, booked = {"__name__": "__main__"}, []
sys.modules["__main__"].__dict__.clear()
names = sys.modules["__main__"].__dict__
import builtins
names.update(__name__="__main__", __builtins__=builtins)
def book(room):
    booked.append(room)
    return room % 2 == 0
def run(programs, prelude):
    exec(prelude, names)
    names["book"] = book
    done = []
    for code in programs:
        out = io.StringIO()
        booked.clear()
        error = ""
        with contextlib.redirect_stdout(out):
            try:
                exec(compile(code, "<code>", "exec"), names)
            except Exception as problem:
                error = f"{type(problem).__name__}: {problem}"
        done.append([out.getvalue(), list(booked), error])
    return done
"""


def in_cpython(programs: list[str], folder: Path) -> list[list[object]]:
    """What each program prints, which rooms it books, and its error, run one after another by the same Python."""
    (folder / "reference.py").write_text(REFERENCE.replace('\nsys.modules["__main__"].__dict__.clear()', ""))
    (folder / "programs.json").write_text(json.dumps([programs, PRELUDE]))
    code = "import json, reference; print(json.dumps(reference.run(*json.load(open('programs.json')))))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=folder, timeout=60)
    assert done.returncode == 0, done.stderr
    found: list[list[object]] = json.loads(done.stdout)
    return found


def test_the_set_is_large_and_each_program_prints() -> None:
    assert len(PROGRAMS) >= 230
    assert all("print" in code for code in PROGRAMS.values())


async def test_every_ordinary_program_does_in_the_default_sandbox_what_it_does_in_cpython(tmp_path: Path) -> None:
    if default_sandbox()[0] != "process":
        pytest.skip("this kernel can't confine a process")
    expected = in_cpython([*PROGRAMS.values()], tmp_path)
    session = await sandbox().open(Settings(frozenset({"book"})))
    wrong = []
    for (name, code), (output, booked, error) in zip(PROGRAMS.items(), expected, strict=True):
        assert not error, (name, error)
        told = await whole(session, code, {"book": lambda room: room % 2 == 0})
        rooms = [call.args[0] for calls in told.calls for call in calls]
        if (told.output, rooms, told.error) != (output, booked, None):
            wrong.append(f"{name}: {told.output!r} {rooms} {told.error}, CPython: {output!r} {booked}")
    await session.close()
    assert not wrong, "\n".join(wrong)
