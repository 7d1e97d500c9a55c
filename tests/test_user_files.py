"""Claims about files that models, users and configurations name: an open journal is never touched, and texts of any
encoding are read."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import plait
from conftest import for_each
from fork_server import run_forked
from plait import config, trust, user_files
from plait.cli.output import check_writable
from plait.core.errors import ConfigError, PlaitError
from plait.core.text import decode_text, find_encoding
from plait.journal.store import Journal
from plait.models.embedded import check_gguf
from plait.models.special_tokens import tokens_of_file
from plait.toolkits import docs, files, lookup
from plait.toolkits.folder import Folder
from plait.tools.user_code import read_file as read_code
from plait.user_files import read_text
from toolkits_server import call, refusal

PROBE = """
import sqlite3, sys
try:
    sqlite3.connect(sys.argv[1], timeout=0, isolation_level=None).execute("BEGIN IMMEDIATE")
except sqlite3.OperationalError as why:
    sys.exit(f"{why}")
"""


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Path]:
    """A journal of this process in a folder with a text, with an open write: another process must see the lock."""
    (tmp_path / "notes.md").write_text("one\n")
    path = tmp_path / "runs.db"
    plait.Agent("react", model=plait.Scripted(["Final Answer: x"]), journal=path).run("q")
    connection = Journal.at(path).store._open_writer().connection()  # type: ignore[attr-defined]
    connection.execute("BEGIN IMMEDIATE")
    yield path
    connection.execute("ROLLBACK")
    Journal.at(path).close()


def is_locked(journal: Path) -> bool:
    """Whether another process finds the journal locked, so that the locks of this process are there."""
    return "locked" in run_forked(["-c", PROBE, journal]).stderr


def names_of(journal: Path) -> dict[str, Path]:
    """Paths to files of the journal: their own, links, hard links, other spellings, and moved ones."""
    folder = journal.parent
    hard = {part: folder / f"hard{part}.md" for part in ("", "-wal", "-shm", "-owners")}
    for part, path in hard.items():
        os.link(f"{journal}{part}", path)
    (folder / "soft.md").symlink_to(journal)
    (folder / "below").mkdir()
    return {
        **{f"own{part}": Path(f"{journal}{part}") for part in hard},
        **{f"hard{part}": path for part, path in hard.items()},
        "soft": folder / "soft.md",
        "dots": folder / "below" / ".." / "runs.db",
        "proc": Path("/proc/self/cwd") / os.path.relpath(journal),
    }


READERS: dict[str, Callable[[Path], object]] = {
    "attach": plait.attach,
    "lookup": lookup,
    "--file": lambda path: read_text(str(path)),
    "code": lambda path: read_code(str(path)),
    "script": plait.Scripted.from_file,
    "configuration": config.load,
    "trust": trust.trust,
    "model file": check_gguf,
    "--html": lambda path: check_writable(str(path)),
    "any": user_files.read_file,
}


def test_no_path_opens_a_file_of_a_journal_that_is_open(journal: Path) -> None:
    assert is_locked(journal)
    for path in names_of(journal).values():
        for reader, read in READERS.items():
            said = "is no table or text|in use" if reader == "lookup" else "in use"
            with pytest.raises((PlaitError, OSError), match=said):
                read(path)
            with contextlib.suppress(OSError, ValueError):
                tokens_of_file(path)
    assert is_locked(journal)


async def test_no_folder_tool_opens_or_replaces_a_file_of_the_journal_beside_it(journal: Path) -> None:
    names = [os.path.relpath(each, journal.parent) for each in names_of(journal).values()]
    places = {f"files {journal.parent}": files(journal.parent), "docs": docs(journal.parent)}
    for tools in places.values():
        for name in (each for each in names if not each.startswith((".", "/", "below"))):
            if len(tools) > 2:
                for tool, rest in (
                    ("read_file", {}),
                    ("write_file", {"content": "x"}),
                    ("edit_file", {"old": "a", "new": "b"}),
                ):
                    assert "in use" in (said := await refusal(tools, tool, path=name, **rest)) or "link" in said
            elif name.endswith(".md"):
                assert "in use" in (said := await refusal(tools, "read_doc", file=name)) or "link" in said
    for name in ("runs.db-journal",):  # SQLite would take it for changes to undo
        assert "in use" in await refusal(places[f"files {journal.parent}"], "write_file", path=name, content="x")
    assert "runs.db" in await call(places[f"files {journal.parent}"], "search_files", text="nowhere")
    assert "[notes.md" in await call(places["docs"], "search_docs", query="one")
    assert is_locked(journal)
    os.rename(journal, moved := journal.with_name("moved.md"))
    assert "in use" in await refusal(places["docs"], "read_doc", file="moved.md")
    os.rename(moved, journal)


def test_a_file_that_becomes_a_journal_while_it_is_read_stays_open(tmp_path: Path) -> None:
    path = tmp_path / "late.db"
    plait.Agent("react", model=plait.Scripted(["Final Answer: x"]), journal=path).run("q")
    Journal.at(path).close()
    user_files._places.discard(os.path.realpath(path))
    with user_files.open_file(path):
        connection = Journal.at(path).store._open_writer().connection()  # type: ignore[attr-defined]
        connection.execute("BEGIN IMMEDIATE")
    assert is_locked(path)
    connection.execute("ROLLBACK")


def test_a_file_at_the_inode_of_a_journal_that_is_gone_is_read(tmp_path: Path) -> None:
    path = tmp_path / "gone.db"
    plait.Agent("react", model=plait.Scripted(["Final Answer: x"]), journal=path).run("q")
    Journal.at(path).close()
    for each in tmp_path.iterdir():
        if each.is_file():
            each.unlink()
    for number in range(20):
        (tmp_path / f"{number}.txt").write_text("x")
        assert user_files.read_file(tmp_path / f"{number}.txt") == b"x"


# --- a folder whose own path changes


def _link(tmp_path: Path) -> None:
    os.rename(tmp_path / "a", tmp_path / "old")
    (tmp_path / "a").symlink_to("evil")


def _replace(tmp_path: Path) -> None:
    os.rename(tmp_path / "a", tmp_path / "old")
    os.rename(tmp_path / "evil", tmp_path / "a")


@pytest.mark.parametrize("change", [_link, _replace])
async def test_a_folder_is_left_by_no_change_of_its_own_path(tmp_path: Path, change: Callable[[Path], None]) -> None:
    for place in ("a", "evil"):
        (tmp_path / place / "b").mkdir(parents=True)
        (tmp_path / place / "b" / "f.txt").write_text(place)
    tools, texts = files(tmp_path / "a" / "b"), docs(tmp_path / "a" / "b")
    change(tmp_path)
    for made, name, arguments in (
        (tools, "read_file", {"path": "f.txt"}),
        (tools, "list_files", {}),
        (tools, "search_files", {"text": "evil"}),
        (tools, "write_file", {"path": "new.txt", "content": "x"}),
        (texts, "search_docs", {"query": "evil"}),
        (texts, "read_doc", {"file": "f.txt"}),
    ):
        try:
            said = await call(made, name, **arguments)
        except plait.ToolError as why:
            said = str(why)
        assert "evil" not in said.replace("'evil'", "").replace(str(tmp_path), ""), name
    assert not list(tmp_path.glob("*/b/new.txt"))


async def test_a_folder_that_moved_with_a_link_in_its_place_is_the_same_folder(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "f.txt").write_text("here")
    tools = files(tmp_path / "a")
    os.rename(tmp_path / "a", tmp_path / "disk")
    (tmp_path / "a").symlink_to("disk")
    assert "here" in await call(tools, "read_file", path="f.txt")


def test_the_descriptor_of_a_folder_is_closed_with_it(tmp_path: Path) -> None:
    folder = Folder.open(tmp_path, "files")
    descriptor = folder.descriptor
    del folder
    with pytest.raises(OSError):
        os.fstat(descriptor)


# --- encodings

GERMAN = "name;stadt\nMüller;Größe und Länge\nJosé;Köln\n"
ENCODED = {
    "utf-8": GERMAN.encode(),
    "utf-8-sig": GERMAN.encode("utf-8-sig"),
    "utf-16": GERMAN.encode("utf-16"),
    "utf-16-be with mark": b"\xfe\xff" + GERMAN.encode("utf-16-be"),
    "utf-16-le": GERMAN.encode("utf-16-le"),
    "utf-16-be": GERMAN.encode("utf-16-be"),
    "utf-32": GERMAN.encode("utf-32"),
    "latin-1": GERMAN.encode("latin-1"),
    "cp1252": GERMAN.encode("cp1252"),
}


@pytest.mark.parametrize("name", ENCODED)
async def test_a_text_of_any_encoding_is_read_everywhere(name: str, tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_bytes(ENCODED[name])
    assert decode_text(ENCODED[name]) == GERMAN
    assert read_text(str(path)) == GERMAN and plait.attach(path).data.decode().removeprefix("\ufeff") == GERMAN
    assert "Köln" in str(await call((lookup(path),), "lookup", key="José"))
    assert "Größe" in await call(files(tmp_path), "read_file", path="data.csv")
    assert "data.csv:2" in await call(files(tmp_path), "search_files", text="Müller")
    assert "Größe" in await call(docs(tmp_path), "search_docs", query="Länge")


@for_each(
    ("encoding", "text"),
    [
        ("cp1250", "Zażółć gęślą jaźń, dobrego dnia wszystkim"),
        ("cp1251", "Привет мир, это русский текст о погоде в Москве."),
        ("koi8_r", "Привет мир, это русский текст о погоде в Москве."),
        ("cp1253", "Καλημέρα κόσμε, τι κάνεις σήμερα"),
        ("cp932", "これは日本語のテキストです。東京の人口は千四百万人です。"),
        ("gb18030", "上海分公司的收入是八百万元。北京分公司的收入是三百万元。"),
        ("cp949", "안녕하세요 세계"),
    ],
)
def test_usual_encodings_are_recognized(encoding: str, text: str) -> None:
    assert decode_text(text.encode(encoding)) == text


def test_a_text_with_some_damaged_bytes_is_shown_and_bytes_that_are_no_text_are_not() -> None:
    for text in ("started\n" * 9 + "\0\0\0größe\n", "bridge 42\0\n"):
        assert decode_text(text.encode()) == text
    assert decode_text("a b, c".encode("utf-16-le")) == "a b, c"
    assert decode_text("äöü äöü".encode() + b" M\xfcller") == "äöü äöü M\ufffdller"
    for data in (
        b"\x89PNG\r\n\x1a\n\0",
        b"PK\x03\x04 \0\0",
        bytes(range(256)),
        b"a\0b",
    ):
        assert decode_text(data) is None, data[:10]


async def test_an_edit_keeps_the_encoding_and_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    for name in ("latin-1", "utf-16", "utf-8-sig"):
        (tmp_path / "data.txt").write_bytes(ENCODED[name])
        await call(files(tmp_path), "edit_file", path="data.txt", old="Köln", new="Zürich")
        assert (tmp_path / "data.txt").read_bytes() == GERMAN.replace("Köln", "Zürich").encode(name)
    (tmp_path / "data.txt").write_bytes(GERMAN.encode("latin-1"))
    assert "can't hold" in await refusal(files(tmp_path), "edit_file", path="data.txt", old="Köln", new="上海")
    (tmp_path / "bad.txt").write_bytes("äöü äöü".encode() + b" M\xfcller")
    assert "write_file" in await refusal(files(tmp_path), "edit_file", path="bad.txt", old="äöü", new="x")
    (tmp_path / "sheet.xlsx").write_bytes(b"PK\x03\x04\0")
    (tmp_path / "raw.csv").write_bytes(bytes(range(256)))
    said = await call(docs(tmp_path), "search_docs", query="Größe")
    assert "2 not searched" in said and "sheet.xlsx" in said and "raw.csv" in said
    with pytest.raises(ConfigError, match=r"raw\.csv is not text"):
        lookup(tmp_path / "raw.csv")
    assert find_encoding(b"") == "utf-8"


def test_the_collector_may_close_a_connection_while_a_journal_is_being_protected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user_files.protect_journal(tmp_path / "other.db")
    exists = os.path.exists
    closed: list[bool] = []

    def close_another(path: str) -> bool:
        user_files.release_inodes(())  # what a finalizer calls, in this thread
        closed.append(user_files._guard.locked())
        return exists(path)

    monkeypatch.setattr(os.path, "exists", close_another)
    user_files.protect_journal(tmp_path / "runs.db")
    assert any(closed)
