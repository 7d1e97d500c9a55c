"""Claims about the toolkit `files`: what it reads and writes, and that no path leads out of its folder."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import socket
import threading
from pathlib import Path

import pytest

import plait
from plait.core.errors import ConfigError, ToolError
from plait.toolkits import files, folder
from plait.tools import Tool, anchor_word, load
from toolkits_server import call, refusal

SECRET = "coal-mine-7"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with some files, beside a file that no tool may reach."""
    (tmp_path / "outside.txt").write_text(SECRET)
    inside = tmp_path / "inside"
    (inside / "src" / "deep").mkdir(parents=True)
    (inside / "notes.md").write_text("one\ntwo\nthree\n")
    (inside / "src" / "main.py").write_text("def main():\n    return 1\n")
    (inside / "src" / "deep" / "more.py").write_text("x = 'return'\n")
    (inside / ".git").mkdir()
    (inside / ".git" / "config").write_text(SECRET)
    (inside / ".env").write_text(SECRET)
    return inside


@pytest.fixture
def tools(place: Path) -> tuple[Tool, ...]:
    return files(place)


async def test_a_pattern_fits_names_and_paths(tools: tuple[Tool, ...]) -> None:
    assert await call(tools, "list_files") == (
        "notes.md (14 bytes)\nsrc/main.py (25 bytes)\nsrc/deep/more.py (13 bytes)"
    )
    for pattern, count in (("*.py", 2), ("src/**/*.py", 2), ("src/deep/*", 1), ("**/main.py", 1), ("./notes.md", 1)):
        assert len((await call(tools, "list_files", pattern=pattern)).splitlines()) == count, pattern
    assert await call(tools, "list_files", pattern="*.rs") == "No file fits '*.rs'."
    assert await call(tools, "list_files", pattern="none/*") == "No file fits 'none/*'."
    for pattern in ("../*", "/etc/*", "src/../../*", ".git/*"):
        assert SECRET not in await refusal(tools, "search_files", text=SECRET, pattern=pattern)


async def test_a_file_is_shown_by_lines(tools: tuple[Tool, ...]) -> None:
    assert await call(tools, "read_file", path="notes.md") == "[notes.md: lines 1-3 of 3.]\none\ntwo\nthree\n"
    part = await call(tools, "read_file", path="./notes.md", first_line=2, lines=1)
    assert part == "[./notes.md: lines 2-2 of 3. Next: line 3.]\ntwo\n"
    assert "has 3 lines; there is no line 9" in await refusal(tools, "read_file", path="notes.md", first_line=9)


async def test_a_search_gives_path_line_and_text(tools: tuple[Tool, ...]) -> None:
    found = await call(tools, "search_files", text="return")
    assert found == "src/main.py:2: return 1\nsrc/deep/more.py:1: x = 'return'"
    assert await call(tools, "search_files", text="return", pattern="main.py") == "src/main.py:2: return 1"
    assert await call(tools, "search_files", text=r"^def \w+\(", regex=True) == "src/main.py:1: def main():"
    assert await call(tools, "search_files", text=SECRET) == f"No line has '{SECRET}'."
    assert "nothing to search for" in await refusal(tools, "search_files", text="")
    assert "look-around" in await refusal(tools, "search_files", text="(?=x)", regex=True)


async def test_a_regular_expression_cannot_take_exponential_time(place: Path, tools: tuple[Tool, ...]) -> None:
    (place / "long.txt").write_text("a" * 50_000 + "!")
    assert (await call(tools, "search_files", text="^(a|a)*$", regex=True)).startswith("No line has")
    assert (await call(tools, "search_files", text="(a+)+$", regex=True)).startswith("No line has")


OUT = ["../outside.txt", "/etc/passwd", "src/../../outside.txt", "..", "", ".", "/", "src/", "notes.md/", "a\0b"]
HIDDEN = [".git/config", ".env", "src/.x/y", ".git", "src/../.env"]


@pytest.mark.parametrize("path", [*OUT, *HIDDEN])
async def test_no_path_leads_out_of_the_folder_or_to_a_hidden_place(
    path: str, place: Path, tools: tuple[Tool, ...]
) -> None:
    before = sorted(place.parent.rglob("*"))
    for name, rest in (
        ("read_file", {}),
        ("write_file", {"content": "x"}),
        ("edit_file", {"old": SECRET, "new": "x"}),
    ):
        assert SECRET not in await refusal(tools, name, path=path, **rest)
    assert sorted(place.parent.rglob("*")) == before
    assert (place / ".git" / "config").read_text() == (place.parent / "outside.txt").read_text() == SECRET


async def test_symbolic_links_are_not_followed(place: Path, tools: tuple[Tool, ...]) -> None:
    (place / "link").symlink_to(place.parent / "outside.txt")
    (place / "dir").symlink_to(place.parent)
    (place / "near").symlink_to("notes.md")
    for path in ("link", "near", "dir/outside.txt", "dir/inside/notes.md"):
        for name, rest in (("read_file", {}), ("write_file", {"content": "x"})):
            assert "inks are not followed" in await refusal(tools, name, path=path, **rest)
    assert "inks are not followed" in await refusal(tools, "write_file", path="dir/new.txt", content="x")
    assert "link" not in await call(tools, "list_files") and "dir" not in await call(tools, "list_files")
    assert (await call(tools, "search_files", text=SECRET)).startswith("No line has")
    assert not (place.parent / "new.txt").exists()


async def test_a_folder_that_turns_into_a_link_during_the_call_leads_nowhere(
    place: Path, tools: tuple[Tool, ...]
) -> None:
    """A thread swaps a folder with a link to the outside all the time. Each read gives the inner file, or an error."""
    (place / "a").mkdir()
    (place / "a" / "outside.txt").write_text("inner")
    (place / "b").symlink_to(place.parent)
    done = threading.Event()

    exchange = ctypes.CDLL(None, use_errno=True).renameat2
    one, other = os.fsencode(place / "a"), os.fsencode(place / "b")

    def swap() -> None:
        while not done.is_set():
            assert exchange(-100, one, -100, other, 2) == 0  # RENAME_EXCHANGE

    thread = threading.Thread(target=swap)
    thread.start()
    seen = set()
    try:
        for _ in range(2000):
            try:
                seen.add(await call(tools, "read_file", path="a/outside.txt"))
            except ToolError as error:
                seen.add(str(error)[:20])
            with contextlib.suppress(ToolError):
                await call(tools, "write_file", path="a/outside.txt", content="inner")
    finally:
        done.set()
        thread.join()
    assert not any(SECRET in each for each in seen)
    assert len(seen) == 2, seen  # the inner file, and an error
    assert (place.parent / "outside.txt").read_text() == SECRET


async def test_special_files_are_refused_and_no_call_waits_for_a_pipe(place: Path, tools: tuple[Tool, ...]) -> None:
    os.mkfifo(place / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        here = os.getcwd()
        os.chdir(place)  # the path of a socket has at most 107 characters
        server.bind("sock")
        os.chdir(here)
        for path in ("pipe", "sock"):
            assert "is a device, a pipe or a socket" in await refusal(tools, "read_file", path=path)
            assert "is a device, a pipe or a socket" in await refusal(tools, "write_file", path=path, content="x")
        assert "pipe" not in await call(tools, "list_files")
        assert await call(tools, "search_files", text="zzz") == "No line has 'zzz'."


async def test_a_file_that_is_not_text_is_named_and_not_shown(place: Path, tools: tuple[Tool, ...]) -> None:
    (place / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0")
    assert "a.png is not text: 10 bytes (image/png)" in await refusal(tools, "read_file", path="a.png")
    assert "not text" in await refusal(tools, "edit_file", path="a.png", old="P", new="Q")
    found = await call(tools, "search_files", text="one")
    assert found == "notes.md:1: one\n[1 not searched, because not text or too large: a.png.]"


async def test_sizes_numbers_and_time_are_bounded(
    place: Path, tools: tuple[Tool, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "big.txt").write_text("x" * (folder.MAX_BYTES + 1))
    (place / "wide.txt").write_text("y" * 100_000)
    (place / "many.txt").write_text("word\n" * 10_000)
    assert "has more than 2,000,000 bytes" in await refusal(tools, "read_file", path="big.txt")
    assert "at most 2,000,000" in await refusal(tools, "write_file", path="x.txt", content="é" * 1_000_001)
    assert len(await call(tools, "read_file", path="wide.txt")) < folder.SHOWN + 200
    assert "Next: line 401" in await call(tools, "read_file", path="many.txt")
    assert len(await call(tools, "read_file", path="many.txt", lines=10_000)) < folder.SHOWN + 200
    hits = (await call(tools, "search_files", text="word")).splitlines()
    assert len(hits) == 101 and hits[-1].startswith("[The search ended after 100 lines.")
    assert max(map(len, (await call(tools, "search_files", text="yyy")).splitlines())) < 300
    monkeypatch.setattr(folder, "MAX_FILES", 3)
    assert "more than 3 files" in await refusal(tools, "list_files")
    assert await call(tools, "list_files", pattern="src/deep/*") == "src/deep/more.py (13 bytes)"
    monkeypatch.setattr(folder, "MAX_FILES", 1000)
    monkeypatch.setattr(folder, "SECONDS", -1.0)
    assert "took longer" in await refusal(tools, "list_files")


async def test_a_file_is_written_whole_and_keeps_its_mode(place: Path, tools: tuple[Tool, ...]) -> None:
    (place / "notes.md").chmod(0o640)
    other = place / "hard.md"
    os.link(place / "notes.md", other)
    said = await call(tools, "write_file", path="notes.md", content="new\n")
    assert said == "notes.md has been written: 4 characters."
    assert (place / "notes.md").read_text() == "new\n" and (place / "notes.md").stat().st_mode & 0o777 == 0o640
    assert other.read_text() == "one\ntwo\nthree\n"  # another name of the old file still has the old text
    await call(tools, "write_file", path="new/folder/a.txt", content="a")
    assert (place / "new" / "folder" / "a.txt").read_text() == "a"
    (place / "notes.md").chmod(0o440)
    assert "write-protected" in await refusal(tools, "write_file", path="notes.md", content="x")
    assert not list(place.rglob("*.tmp"))


async def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    place: Path, tools: tuple[Tool, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert "No space left" in await refusal(tools, "write_file", path="notes.md", content="new")
    assert (place / "notes.md").read_text() == "one\ntwo\nthree\n"
    assert sorted(each.name for each in place.iterdir()) == [".env", ".git", "notes.md", "src"]


async def test_an_edit_replaces_a_text_that_occurs_once(place: Path, tools: tuple[Tool, ...]) -> None:
    assert await call(tools, "edit_file", path="notes.md", old="two", new="2") == "notes.md has been changed at line 2."
    assert (place / "notes.md").read_text() == "one\n2\nthree\n"
    assert "more than once" in await refusal(tools, "edit_file", path="notes.md", old="e\n", new="")
    (place / "aaa").write_text("aaa")
    assert "more than once" in await refusal(tools, "edit_file", path="aaa", old="aa", new="")
    assert "does not have the text" in await refusal(tools, "edit_file", path="notes.md", old="four", new="x")
    assert "`old` is empty" in await refusal(tools, "edit_file", path="notes.md", old="", new="x")
    assert "There is no file" in await refusal(tools, "edit_file", path="none.md", old="a", new="b")
    (place / "dos.txt").write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\n")
    await call(tools, "edit_file", path="dos.txt", old="one\ntwo", new="1\n2")
    assert (place / "dos.txt").read_bytes() == b"\xef\xbb\xbf1\r\n2\r\n"


def test_reads_need_no_approval_and_each_write_does(place: Path) -> None:
    marks = {tool.name: (tool.read_only, tool.open_world, tool.requires_approval) for tool in files(place)}
    assert marks == {
        "list_files": (True, True, False),
        "read_file": (True, True, False),
        "search_files": (True, True, False),
        "write_file": (False, False, True),
        "edit_file": (False, False, True),
    }
    assert [tool.name for tool in files(f"{place},read_only")] == ["list_files", "read_file", "search_files"]


def test_a_write_waits_for_approval_although_the_agent_asks_for_none(place: Path, tmp_path: Path) -> None:
    replies = [
        'Thought: x\nAction: write_file\nAction Input: {"path": "a.txt", "content": "hi"}',
        "Thought: y\nFinal Answer: done",
    ]
    agent = plait.Agent(
        "react",
        model=plait.Scripted(replies, by_turn=False),
        tools=[f"files:{place}"],
        journal=tmp_path / "j.db",
        approve="never",
    )
    waiting = agent.run("Write hi.")
    assert waiting.status == "waiting" and not (place / "a.txt").exists()
    assert "write_file" in waiting.reason and "a.txt" in waiting.reason
    assert agent.resume(waiting, "yes").status == "answered" and (place / "a.txt").read_text() == "hi"


def test_a_word_names_a_folder(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert len(load("files:inside")) == 5 and len(load("files:inside,read_only")) == 3
    assert anchor_word("files:inside,read_only") == f"files:{place},read_only"
    for word, said in (
        ("files", "Write files:FOLDER"),
        ("files:none", "no folder 'none'"),
        ("files:", "needs a folder"),
    ):
        with pytest.raises(ConfigError, match=said):
            load(word)
    with pytest.raises(ConfigError, match="no folder"):
        load("files:inside/notes.md")


@pytest.mark.parametrize(
    ("word", "hint"),
    [("files:proj,readonly", "Did you mean files:proj,read_only?"), ("files:proj/a.txt", "That is a file.")],
)
def test_a_word_that_is_nearly_right_is_explained(
    word: str, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "proj").mkdir()
    (tmp_path / "proj" / "a.txt").write_text("x")
    with pytest.raises(plait.ConfigError, match=re.escape(hint)):
        _ = plait.Agent("react", model=plait.Scripted([]), tools=[word]).specs
