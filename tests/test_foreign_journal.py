"""Reading a journal runs no code that it names: no file, module or command, unless the user allows it."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from msgspec import structs

import plait
from cli_support import Shell, action, final
from plait.core.errors import ConfigError
from plait.journal.store import Journal
from plait.tools.load import runs_code

TOOLS = """
from pathlib import Path
import plait

Path(__file__).with_name("loaded").touch()

@plait.tool
def send(text: str) -> str:
    \"\"\"Send a text.\"\"\"
    return "sent " + text
"""


answer: list[str] = []
"""The words that approve the call which the run waits with."""


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """A folder with a recorded run that waits for approval of a call of a tool in a file."""
    shell = Shell(tmp_path)
    (tmp_path / "evil.py").write_text(TOOLS)
    (tmp_path / "script.json").write_text(json.dumps([action("send", "one"), final("sent")]))
    words = ("run", "Send one.", "--model", "scripted:script.json", "--tools", "evil.py", "--approve", "always")
    done = shell(*words, "--journal", "foreign.db")
    assert done.code == 5
    answer[:] = ["resume", "last", *re.findall(r"--question \S+", done.err)[0].split(), "--answer", "yes"]
    (tmp_path / "loaded").unlink()
    return shell


def loaded(shell: Shell) -> bool:
    return (shell.folder / "loaded").exists()


@pytest.mark.parametrize(
    "words",
    [
        ("replay", "last"),
        ("show", "last"),
        ("show", "last", "--wire"),
        ("runs",),
        ("export", "last"),
        ("costs", "last"),
    ],
    ids=lambda words: " ".join(words),
)
def test_reading_a_foreign_journal_loads_nothing(shell: Shell, words: tuple[str, ...]) -> None:
    done = shell(*words, "--journal", "foreign.db")
    assert done.code == 0, done.err
    assert not loaded(shell)


@pytest.mark.parametrize("words", [answer, ["fork", "last", "--at", "1"]], ids=["resume", "fork"])
def test_resume_and_fork_of_a_foreign_journal_say_what_they_would_load(shell: Shell, words: list[str]) -> None:
    done = shell(*words, "--journal", "foreign.db")
    assert (done.code, done.out) == (2, ""), done.err
    assert "names tools that run code" in done.err and "evil.py" in done.err and "--load-tools" in done.err
    assert not loaded(shell)
    done = shell(*words, "--journal", "foreign.db", "--load-tools")
    assert done.code in (0, 5), done.err
    assert loaded(shell)


def test_the_user_s_default_journal_loads_the_tools_it_names(shell: Shell) -> None:
    (shell.folder / "foreign.db").rename(shell.env["PLAIT_JOURNAL"])
    done = shell(*answer)
    assert (done.code, done.out) == (0, "sent\n"), done.err
    assert loaded(shell)


def test_tools_that_the_user_names_take_the_place_of_the_recorded_ones(shell: Shell) -> None:
    (shell.folder / "mine.py").write_text(TOOLS.replace("loaded", "mine"))
    done = shell(*answer, "--journal", "foreign.db", "--tools", "mine.py")
    assert (done.code, done.out) == (0, "sent\n"), done.err
    assert not loaded(shell) and (shell.folder / "mine").exists()


def test_an_mcp_command_of_a_foreign_journal_is_not_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLAIT_JOURNAL", str(tmp_path / "default.db"))

    @plait.tool
    def send(text: str) -> str:
        """Send a text."""
        return "sent"

    said = [action("send", "one"), final("sent")]
    agent = plait.Agent("react", model=plait.Scripted(said), tools=[send], approve="always", journal=tmp_path / "j.db")
    agent.run("q")
    head = Journal(tmp_path / "j.db").head("last")
    command = f'mcp:{sys.executable} -c \'open("{tmp_path}/started", "w")\''
    head = structs.replace(head, sources=(command,))
    again = plait.Agent.from_journal(head, journal=tmp_path / "j.db", model=plait.Scripted(said))
    assert [spec.name for spec in again.specs] == ["send"]
    with pytest.raises(ConfigError, match="names tools that run code"):
        again.resume("last")
    assert not (tmp_path / "started").exists()


@pytest.mark.parametrize(
    ("word", "code"),
    [
        ("calculator", False),
        ("lookup:facts.json", False),
        ("cities=lookup:facts.json", False),
        ("tools.py", True),
        ("x=tools.py", True),
        ("os:system", True),
        ("a-plug-in", True),
        ("mcp:server", True),
        ("mcp:http://localhost:1/mcp", True),
    ],
)
def test_which_words_run_code(word: str, code: bool) -> None:
    assert runs_code(word) is code
