"""Runs what the documentation shows: code, commands and the output printed below them.

The rules, for whoever writes a page:

- A block ```python is run, in order, in one namespace a page. What it prints must stand in a block ```text output
  right below it.
- A block ```console is run: a line that begins with `$ ` is a command (a `\\` at its end continues it), what stands
  below is its output, stdout and stderr together. Without output below, it must end with 0.
- `file=NAME` behind the language writes the block to that file.
- `no-run: REASON` behind the language shows the block only. Other languages are only shown.
- In an output `...` stands for anything on its line, and alone on a line for any lines. Run ids, times and dates
  are compared as if they were all alike, and so are the ids of questions (`--question ID`): a command that names one
  is run with the id that was printed last.

Every page has a folder of its own with a copy of `examples/`. `python tests/docs_support.py --write PAGE` writes
the outputs of a page anew (look at what changed: the page must stay true).
"""

from __future__ import annotations

import contextlib
import difflib
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from cli_support import PLAIT
from fork_server import run_forked, run_shell
from mcp_support import python_in_path

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

_FENCE = re.compile(r"^(```+)([^`]*)$")
_ALIKE = (
    (re.compile(r"\b\d{8}-\d{6}-[a-z0-9]{6}(?:[a-z0-9]{6})?\b"), "RUN"),
    (re.compile(r"\b\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[+-]\d\d:\d\d|Z)?"), "WHEN"),
    (re.compile(r"\b(learned on|expires) \d{4}-\d\d-\d\d"), r"\1 DAY"),
    (re.compile(r"\b(?:\d+ min \d+ s|\d+(?:\.\d+)? m?s)\b"), "TIME"),
    (re.compile(r'(["\']seconds["\']: ?)\d+(?:\.\d+)?(?:e-?\d+)?'), r"\1TIME"),
    (re.compile(r"\b127\.0\.0\.1:\d+"), "LOOPBACK"),
    (re.compile(r"--question [a-z2-7]{8}\b"), "--question ID"),
)
_QUESTION = re.compile(r"--question [a-z2-7]{8}\b")


@dataclass(frozen=True)
class Block:
    """A fenced block: where it stands (lines from 1), its language and what stands behind it, its text."""

    line: int
    language: str
    info: str
    text: str

    @property
    def no_run(self) -> bool:
        return self.info.startswith("no-run")

    @property
    def file(self) -> str:
        match = re.match(r"file=(\S+)", self.info)
        return match[1] if match else ""


@dataclass(frozen=True)
class Command:
    """A command of a console block and the output shown below it (None: none is shown)."""

    line: int
    text: str
    shown: str | None


@dataclass
class Page:
    """A page being run in `folder`."""

    path: Path
    folder: Path
    names: dict[str, Any] = field(default_factory=dict)
    code: int = 0
    question: str = ""
    """`--question ID` as it was printed last."""

    @property
    def name(self) -> str:
        return self.path.relative_to(ROOT).as_posix()


def blocks_of(text: str) -> list[Block]:
    """The fenced blocks of a page, in order."""
    found: list[Block] = []
    fence, begin, info = "", 0, ""
    lines: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        match = _FENCE.match(line)
        if not fence and match:
            fence, info, begin, lines = match[1], match[2].strip(), number, []
        elif fence and match and match[1] == fence and not match[2].strip():
            language, _, rest = info.partition(" ")
            found.append(Block(begin, language, rest.strip(), "".join(f"{each}\n" for each in lines)))
            fence = ""
        elif fence:
            lines.append(line)
    assert not fence, f"the block that begins in line {begin} never ends"
    return found


def files_of(page: Path) -> dict[str, str]:
    """The files that a page shows, with their text."""
    return {block.file: block.text for block in blocks_of(page.read_text(encoding="utf-8")) if block.file}


def commands_of(block: Block) -> list[Command]:
    """The commands of a console block."""
    found: list[Command] = []
    lines = block.text.splitlines()
    at = 0
    while at < len(lines):
        if not lines[at].startswith("$ "):
            raise AssertionError(f"line {block.line + 1 + at}: a console block begins with a command: {lines[at]!r}")
        begin, words = at, [lines[at][2:]]
        while words[-1].endswith("\\"):
            at += 1
            words.append(lines[at])
        at += 1
        out: list[str] = []
        while at < len(lines) and not lines[at].startswith("$ "):
            out.append(lines[at])
            at += 1
        while out and not out[-1]:
            out.pop()
        found.append(Command(block.line + 1 + begin, "\n".join(words), "\n".join(out) if out else None))
    return found


def alike(text: str) -> str:
    """The text with what differs from run to run made alike, and no blanks at the ends of its lines."""
    for pattern, word in _ALIKE:
        text = pattern.sub(word, text)
    return "\n".join(line.rstrip() for line in text.strip("\n").split("\n"))


def fits(shown: str, found: str) -> bool:
    """Is `found` what a page shows?"""
    parts = []
    for line in alike(shown).split("\n"):
        if line == "...":
            parts.append(r"(?:.*\n)*")
        else:
            parts.append(".*".join(map(re.escape, line.split("..."))) + r"\n")
    return re.fullmatch("".join(parts), alike(found) + "\n") is not None


def check(page: Page, line: int, shown: str, found: str) -> None:
    """Raises AssertionError with a difference when the output is not what the page shows."""
    if not fits(shown, found):
        diff = "\n".join(difflib.ndiff(alike(shown).split("\n"), alike(found).split("\n")))
        raise AssertionError(f"{page.name}, line {line}: the output is not what the page shows\n{diff}")


def plain_words(command: str) -> list[str]:
    """The words of a command that needs no shell, else an empty list."""
    line = command.replace("\\\n", " ")
    bare = re.sub(r"'[^']*'|\"[^\"$`\\]*\"", "", line)
    return [] if re.search(r"[^\w\s./:=,@%+-]", bare) or "\n" in line else shlex.split(line)


def run_command(page: Page, command: str) -> str:
    """Run a command as a shell would; returns stdout and stderr as they came. `$?` is the last command's code."""
    if command.startswith("pip install -e ."):
        install(page.folder)
        page.code = 0
        return ""
    command = _QUESTION.sub(page.question, command) if page.question else command
    env = {
        **os.environ,
        "PATH": os.pathsep.join(
            [str(python_in_path(os.getpid())), str(Path(sys.executable).parent), os.environ["PATH"]]
        ),
        # As if Plait were installed, without remarks on a folder without settings and on the modules of a fork.
        "PYTEST_ADDOPTS": "-p plait.testing.pytest_plugin -o asyncio_default_fixture_loop_scope=function "
        "-W ignore:Module",
        "PYTHONPATH": f"{page.folder}{os.pathsep}{ROOT / 'src'}",
        "COLUMNS": "100",
    }
    words = plain_words(command)
    if words[:1] == ["plait"]:
        done = run_forked([PLAIT, *words[1:]], cwd=page.folder, env=env, together=True)
    else:
        done = run_shell(
            f"(exit {page.code})\n{command}",
            cwd=page.folder,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
        )
    page.code = done.returncode
    page.question = next(reversed(_QUESTION.findall(done.stdout)), page.question)
    return done.stdout


def install(folder: Path) -> None:
    """What `pip install -e .` does for entry points: their table beside the code, on the import path."""
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    info = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    lines = []
    for group, points in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {place}" for name, place in points.items()), ""]
    (info / "entry_points.txt").write_text("\n".join(lines))


def run_python(page: Page, block: Block) -> str:
    """Run a block in the page's namespace; returns what it printed."""
    out = io.StringIO()
    # Blank lines before it: a traceback then names the page's own line.
    source = "\n" * block.line + block.text
    with contextlib.redirect_stdout(out):
        exec(compile(source, page.name, "exec", dont_inherit=True), page.names)
    return out.getvalue()


def run_page(path: Path, folder: Path, found: dict[tuple[int, int], str] | None = None) -> int:
    """Run a page in an empty folder; returns how many blocks and commands were run.

    Raises AssertionError at the first difference, or, given `found`, puts every output there under its place.
    """
    shutil.copytree(ROOT / "examples", folder / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    page = Page(path, folder)
    # A module of its own: type hints and pickles look for it.
    module = ModuleType("__main__")
    page.names = vars(module)
    ran = 0
    blocks = blocks_of(path.read_text(encoding="utf-8"))
    with _in(folder):
        for number, block in enumerate(blocks):
            if block.no_run:
                why = f"{page.name}, line {block.line}: no-run needs a reason"
                assert re.fullmatch(r"no-run: .{5,}", block.info), why
                continue
            if block.file:
                place = folder / block.file
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_text(block.text)
                if block.language == "python":
                    compile(block.text, block.file, "exec", dont_inherit=True)
                continue
            if block.language == "python":
                printed = run_python(page, block)
                after = blocks[number + 1] if number + 1 < len(blocks) else None
                shown = after if after is not None and (after.language, after.info) == ("text", "output") else None
                ran += 1
                if found is not None:
                    found[block.line, 0] = printed
                elif printed or shown:
                    where = shown.line if shown else block.line
                    check(page, where, shown.text if shown else "(the page shows no output)", printed)
            elif block.language == "console":
                for each, command in enumerate(commands_of(block)):
                    said = run_command(page, command.text)
                    ran += 1
                    if found is not None:
                        found[block.line, each] = said
                    elif command.shown is not None:
                        check(page, command.line, command.shown, said)
                    elif page.code:
                        raise AssertionError(f"{page.name}, line {command.line}: ended with {page.code}:\n{said}")
    return ran


@contextlib.contextmanager
def _in(folder: Path) -> Iterator[None]:
    """Work in a folder, with imports from it, and leave the process as it was."""
    before, path, modules, env = os.getcwd(), list(sys.path), set(sys.modules), dict(os.environ)
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        os.chdir(before)
        sys.path[:] = path
        for name in set(sys.modules) - modules:
            # What the page's own folder brought must not be found by the next page.
            if str(getattr(sys.modules[name], "__file__", "")).startswith(str(folder)):
                del sys.modules[name]
        os.environ.clear()
        os.environ.update(env)


def rewritten(text: str, found: dict[tuple[int, int], str]) -> str:
    """A page with its outputs as they are now; what still fits stays as it is."""
    lines = text.splitlines()
    blocks = blocks_of(text)
    for number in reversed(range(len(blocks))):
        block = blocks[number]
        if block.no_run or block.file:
            continue
        if block.language == "console":
            out: list[str] = []
            for each, command in enumerate(commands_of(block)):
                head, *rest = command.text.split("\n")
                out += [f"$ {head}", *rest]
                said = found.get((block.line, each), "")
                if command.shown is not None and not fits(command.shown, said):
                    out += alike_lines(said)
                elif command.shown is not None:
                    out += command.shown.split("\n")
            lines[block.line : block.line + len(block.text.splitlines())] = out
        elif block.language == "text" and block.info == "output" and number:
            said = found.get((blocks[number - 1].line, 0), "")
            if not fits(block.text, said):
                lines[block.line : block.line + len(block.text.splitlines())] = alike_lines(said)
    return "\n".join(lines) + "\n"


def alike_lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip("\n").split("\n")]


def main() -> None:
    """Write the outputs of the pages named behind `--write` anew."""
    import tempfile

    for name in sys.argv[2:]:
        path = Path(name).resolve()
        with tempfile.TemporaryDirectory() as folder:
            os.environ["PLAIT_JOURNAL"] = str(Path(folder) / "journal.db")
            found: dict[tuple[int, int], str] = {}
            place = Path(folder) / "page"
            place.mkdir()
            run_page(path, place, found)
            path.write_text(rewritten(path.read_text(encoding="utf-8"), found), encoding="utf-8")


if __name__ == "__main__":
    main()
