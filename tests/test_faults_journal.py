"""A journal that can't be used: said before anything is sent; one that fails in the middle: what was written stays."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cli_support import Ended, Shell, action, checked, final
from conftest import some_of
from faults_support import (
    Endpoint,
    attempts,
    calls_begun,
    endpoint,
    observations,
    plait_resume,
    plait_run,
    sent,
    serving,
    shell,
    told_clearly,
    turn_of,
)
from fork_server import run_forked
from models_server import Asked
from plait.journal.store import Journal

__all__ = ["shell"]

AS_NOBODY = """
import os, sys
from plait.cli.main import main
said = sys.argv[1:]
# Once with every right, and unheard: all that Python loads while it works is loaded.
out, err = os.dup(1), os.dup(2)
nowhere = os.open(os.devnull, os.O_WRONLY)
os.dup2(nowhere, 1), os.dup2(nowhere, 2)
for words in (["run", "q", "--model", "openai:m", "--tools", "tools.py", "--journal", "warm.db"],
              ["runs", "--journal", "warm.db"]):
    sys.argv = ["plait", *words]
    try:
        main()
    except SystemExit:
        pass
os.dup2(out, 1), os.dup2(err, 2)
os.unlink("sent.txt")
if os.getuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
sys.argv = ["plait", *said]
main()
"""


def as_nobody(shell: Shell, at: Endpoint, *args: str) -> Ended:
    """The command line, performed by a user who is not root."""
    done = run_forked(["-c", AS_NOBODY, *args], cwd=shell.folder, env={**shell.env, **at.env})
    assert at.asked  # of the warming up
    del at.asked[:3]
    return checked(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def open_shell() -> Iterator[Shell]:
    """A shell in a folder that other users may enter and read (pytest's own is closed to them)."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    shell = Shell(folder)
    shell.env["XDG_CONFIG_HOME"] = str(folder / "config")  # others may not look into pytest's own folder
    yield shell
    subprocess.run(["chmod", "-R", "u+rwX", str(folder)], check=True)
    shutil.rmtree(folder)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Another connection holds the file's lock."""
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        other.execute("ROLLBACK")
        other.close()


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """A disk of that size."""
    folder.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], capture_output=True)
    if made.returncode:
        pytest.skip(f"NOT CHECKED: no small disk to fill: {made.stderr.decode().strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def journal_of(shell: Shell) -> Path:
    return Path(shell.env["PLAIT_JOURNAL"])


def filled(shell: Shell, at: Endpoint) -> bytes:
    """A journal with a run in it; gives the file's bytes."""
    assert plait_run(shell, at).code == 0
    at.asked.clear()
    (shell.folder / "sent.txt").unlink()
    return journal_of(shell).read_bytes()


# ---- before the run: nothing is sent, nothing is done


def newer(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
        connection.execute("UPDATE marks SET value = '99' WHERE name = 'reader'")
    connection.close()


def cut_short(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 3)


def a_letter(path: Path) -> None:
    path.write_bytes(b"Dear diary, today I ran an agent. " * 100)


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


BROKEN: dict[str, tuple[Any, tuple[str, ...]]] = {
    "of a newer version": (newer, ("newer Plait", "Upgrade Plait")),
    "cut short": (cut_short, ("is damaged", "plait journal restored")),
    "no journal at all": (a_letter, ("is not a journal", "Move it away")),
    "a folder": (a_folder, ("can't be opened", "PLAIT_JOURNAL")),
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_journal_that_cannot_be_used_is_said_before_anything_is_sent(shell: Shell, how: str) -> None:
    spoil, words = BROKEN[how]
    with endpoint(serving()) as at:
        filled(shell, at)
        spoil(journal_of(shell))
        before = journal_of(shell).read_bytes() if journal_of(shell).is_file() else b""
        code = 2 if how == "a folder" else 1  # the path is wrong, or what it leads to
        done = plait_run(shell, at)
        told_clearly(done, code, "Error: ", str(journal_of(shell)), *words)
        assert len(done.err.splitlines()) == 1
        assert at.asked == [] and sent(shell) == []
        told_clearly(plait_resume(shell, at), code, "Error: ", str(journal_of(shell)))
        if before:
            assert journal_of(shell).read_bytes() == before  # not touched
        # Another file, and the work goes on.
        assert plait_run(shell, at, "--journal", "other.db").out == "all is sent\n"


@pytest.mark.parametrize("what", some_of(["file", "new", "folder"], 2))
def test_a_journal_this_user_may_not_write(open_shell: Shell, what: str) -> None:
    folder = open_shell.folder / "kept"
    folder.mkdir()
    open_shell.env["PLAIT_JOURNAL"] = str(folder / "j.db")
    with endpoint(serving()) as at:
        if what != "new":
            filled(open_shell, at)
            (folder / "j.db").chmod(0o444)
        folder.chmod(0o777 if what == "file" else 0o555)
        done = as_nobody(open_shell, at, "run", "q", "--model", "openai:m", "--tools", "tools.py")
        told_clearly(done, 2 if what == "new" else 1, "Error: ", str(folder / "j.db"), "--journal or PLAIT_JOURNAL")
        assert at.asked == []
        if what != "new":
            # What is on record can be read all the same.
            assert "answered" in as_nobody(open_shell, at, "runs").out


def test_a_journal_that_stays_locked(shell: Shell) -> None:
    shell.env["PLAIT_BUSY_SECONDS"] = "0.5"
    with endpoint(serving()) as at:
        filled(shell, at)
        with locked(journal_of(shell)):
            done = plait_run(shell, at)
            told_clearly(done, 1, "Error: ", "locked by another process for more than 0.5 s", "--journal")
            assert at.asked == []
        assert plait_run(shell, at).code == 0


def test_a_disk_that_is_full_from_the_start(shell: Shell) -> None:
    with small_disk(shell.folder / "disk", "64k") as disk, endpoint(serving()) as at:
        (disk / "filler").write_bytes(b"x" * (60 << 10))
        done = plait_run(shell, at, "--journal", str(disk / "j.db"))
        told_clearly(done, 1, "Error: ", "disk", "--journal")
        assert at.asked == []


# ---- in the middle of the run


def during(turn: int, begin: Any, replies: list[str] | None = None) -> Any:
    """A handler that lets something happen before the model's reply of that turn."""
    good = serving(replies) if replies else serving()
    happened: list[bool] = []

    async def handle(asked: Asked) -> None:
        if turn_of(asked) == turn and not happened:
            happened.append(True)
            begin()
        await good(asked)

    return handle


def test_a_lock_in_the_middle_is_waited_for(shell: Shell) -> None:
    held = locked(journal_of(shell))

    def lock() -> None:
        held.__enter__()
        threading.Timer(0.7, held.__exit__, (None, None, None)).start()

    with endpoint(during(1, lock)) as at:
        done = plait_run(shell, at)
    assert (done.code, done.out) == (0, "all is sent\n"), done.err
    assert sent(shell) == ["one", "two"] and len(observations(shell)) == 2


def test_a_lock_in_the_middle_that_stays_ends_the_run_before_it_acts_unrecorded(shell: Shell) -> None:
    shell.env["PLAIT_BUSY_SECONDS"] = "0.5"
    held = locked(journal_of(shell))
    with endpoint(during(1, held.__enter__)) as at:
        done = plait_run(shell, at)
        told_clearly(done, 1, "crashed: ", "locked by another process for more than 0.5 s")
        assert "To continue after fixing this, run: plait resume " in done.err
        assert sent(shell) == ["one"]  # the second was not on record, so it was not made
        held.__exit__(None, None, None)
        assert [row.status for row in Journal(journal_of(shell)).runs()] == ["interrupted"]
        assert calls_begun(shell) == ["one"]
        done = plait_resume(shell, at)
    assert (done.code, done.out) == (0, "all is sent\n"), done.err
    assert sent(shell) == ["one", "two"]
    # The reply that could not be written was asked for again; both requests are on record, the first one as lost.
    assert [(n, status) for n, status, _ in attempts(shell)] == [(0, 200), (2, 0), (2, 200), (4, 200)]


def test_a_disk_that_fills_up_in_the_middle(shell: Shell) -> None:
    replies = [action("send", "one"), action("send", "two"), action("long"), final("all is sent")]
    with small_disk(shell.folder / "disk", "512k") as disk:
        shell.env["PLAIT_JOURNAL"] = str(disk / "j.db")

        def fill() -> None:
            with (disk / "filler").open("wb", buffering=0) as file:
                try:
                    while file.write(os.urandom(1024)):
                        pass
                except OSError:
                    pass

        with endpoint(during(2, fill, replies)) as at:
            done = plait_run(shell, at)
            told_clearly(done, 1, "crashed: ", "disk", "resume")
            assert sent(shell) == ["one", "two"]
            # What was written stays, and can be read from the full disk.
            assert calls_begun(shell) == ["one", "two"]
            assert shell("show", "last", env=at.env).code == 0
            (disk / "filler").unlink()
            done = plait_resume(shell, at)
        assert (done.code, done.out) == (0, "all is sent\n"), done.err
        assert sent(shell) == ["one", "two"]


def test_a_journal_that_is_deleted_in_the_middle_does_not_end_the_run(shell: Shell) -> None:
    def delete() -> None:
        for path in shell.folder.glob("journal.db*"):
            path.unlink()

    with endpoint(during(1, delete)) as at:
        done = plait_run(shell, at)
    assert (done.code, done.out) == (0, "all is sent\n"), done.err
    assert sent(shell) == ["one", "two"]


# ---- a model file that is not what it says


def test_a_model_file_with_a_wrong_hash_is_said_and_never_loaded(shell: Shell) -> None:
    from plait.models.catalogue import catalogue_model

    model = catalogue_model("smollm2-135m")
    cache = shell.folder / "cache"
    cache.mkdir()
    (cache / model.file).write_bytes(b"GGUF" + b"\x00" * 5000)
    env = {"PLAIT_CACHE": str(cache)}
    done = shell("run", "q", "--model", "local:smollm2-135m", env=env)
    told_clearly(done, 1, "is another file", "expected sha256 " + model.sha256, "plait models pull smollm2-135m")
    assert "5,004 bytes" in done.err
    assert not (cache / model.file).exists()  # a wrong file is not left to be taken for the right one
    assert "smollm2-135m" in shell("models", "list", env=env).out


def test_a_model_file_that_is_no_model(shell: Shell) -> None:
    (shell.folder / "letter.gguf").write_bytes(b"Dear diary, this is no model. " * 100)
    done = shell("run", "q", "--model", "local:letter.gguf")
    told_clearly(done, 1, "letter.gguf")
    assert shell("run", "q", "--model", "local:absent.gguf").code in (1, 2)


def test_python_says_the_same_as_the_command(shell: Shell) -> None:
    """From Python a journal that can't be used raises `PlaitError`, before the model is asked."""
    a_letter(shell.folder / "j.db")
    code = (
        "import plait\n"
        "def asked(think): raise SystemExit('the model was asked')\n"
        "try:\n"
        "    plait.Agent('react', model=plait.Scripted([asked]), journal='j.db').run('q')\n"
        "except plait.PlaitError as why:\n"
        "    print(why)\n"
    )
    done = run_forked(["-c", code], cwd=shell.folder, env=shell.env)
    assert "is not a journal" in done.stdout and not done.stderr
