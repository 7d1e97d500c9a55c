"""Claims about the toolkit `docs`: what a search of a folder's documents finds, and when its index is made anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from plait.core.errors import ConfigError
from plait.search import embedders
from plait.search.minilm import LocalEmbedder
from plait.toolkits import docs, documents
from plait.toolkits.passages import split_passages
from plait.tools import Tool, anchor_word, load
from toolkits_server import call, refusal

SECRET = "coal-mine-7"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PLAIT_CACHE", str(tmp_path / "cache"))
    (tmp_path / "outside.md").write_text(SECRET)
    folder = tmp_path / "handbook"
    (folder / "trips").mkdir(parents=True)
    (folder / ".git").mkdir()
    (folder / ".git" / "notes.md").write_text(SECRET)
    (folder / "trips" / "rail.md").write_text(
        "# Trains\n\nThe express departs from Lyon at nine in the morning.\n\n"
        "## Fares\n\nA return ticket is 84 euros.\n"
    )
    (folder / "kitchen.txt").write_text("Bread needs salt, flour and water.\n\nTea is brewed for three minutes.\n")
    (folder / "page.html").write_text(
        "<title>x</title><nav>Menu</nav><p>The office opens at eight.<p>Dogs may come in."
    )
    (folder / "prices.csv").write_text("article,price\nheadphones QX-7,129\nkeyboard,45\n")
    (folder / "staff.json").write_text('{"manager": "Ada Nobel", "phone": "0555-123"}')
    (folder / "photo.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0")
    return folder


@pytest.fixture
def tools(place: Path) -> tuple[Tool, ...]:
    return docs(place)


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("When does my rail journey begin?", "[trips/rail.md, line 3: Trains]\nThe express departs from Lyon"),
        ("how much does it cost to travel there and back", "[trips/rail.md, line 7: Fares]\nA return ticket"),
        ("QX-7", "[prices.csv, line 1]\narticle,price\nheadphones QX-7,129"),
        ("who is in charge", '[staff.json, line 1]\n{"manager": "Ada Nobel"'),
        ("are pets allowed", "[page.html, line 1]\nThe office opens at eight.\nDogs may come in."),
    ],
)
async def test_a_passage_is_found_by_meaning_and_by_word(query: str, first: str, tools: tuple[Tool, ...]) -> None:
    assert (await call(tools, "search_docs", query=query)).startswith(first)


async def test_a_result_names_file_and_line_and_the_document_can_be_read_from_there(tools: tuple[Tool, ...]) -> None:
    assert await call(tools, "search_docs", query="ticket", limit=1) == (
        "[trips/rail.md, line 7: Fares]\nA return ticket is 84 euros."
    )
    assert await call(tools, "read_doc", file="trips/rail.md", start=7) == (
        "[trips/rail.md: lines 7-7 of 7.]\nA return ticket is 84 euros.\n"
    )
    assert "Dogs may come in." in await call(tools, "read_doc", file="page.html")
    assert "Menu" not in await call(tools, "read_doc", file="page.html")
    assert len((await call(tools, "search_docs", query="at", limit=100)).split("\n\n")) == 6
    assert "nothing to search for" in await refusal(tools, "search_docs", query=" ")


async def test_the_index_notices_new_changed_and_deleted_files_and_embeds_only_these(
    place: Path, tools: tuple[Tool, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    embedded: list[str] = []
    embed = LocalEmbedder.embed

    def count(self: LocalEmbedder, texts: list[str]) -> object:
        embedded.extend(texts)
        return embed(self, texts)

    monkeypatch.setattr(LocalEmbedder, "embed", count)
    await call(tools, "search_docs", query="first")
    assert len(embedded) == 7  # six passages and the query
    embedded.clear()
    await call(tools, "search_docs", query="second")
    assert embedded == ["second"]
    embedded.clear()
    (place / "kitchen.txt").write_text("Coffee takes five minutes.\n")
    (place / "new.md").write_text("The garage is in the basement.\n")
    (place / "prices.csv").unlink()
    assert (await call(tools, "search_docs", query="coffee")).startswith("[kitchen.txt, line 1]\nCoffee takes")
    assert sorted(embedded) == [
        "coffee",
        "kitchen.txt \nCoffee takes five minutes.",
        "new.md \nThe garage is in the basement.",
    ]
    assert (await call(tools, "search_docs", query="where can I park my car")).startswith("[new.md, line 1]")
    assert "QX-7" not in await call(tools, "search_docs", query="headphones QX-7")
    embedded.clear()
    await call(docs(place), "search_docs", query="another process")
    assert embedded == ["another process"]  # the vectors of the documents are stored on disk


async def test_without_the_extra_the_search_is_by_keyword_and_says_so(
    tools: tuple[Tool, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedders, "find_spec", lambda module: None)
    said = await call(tools, "search_docs", query="express to Lyon")
    assert said.startswith("[trips/rail.md, line 3: Trains]\n")
    assert "(Searched by words only. Search by meaning needs numpy, which is not installed. Install it with:" in said
    assert (await call(tools, "search_docs", query="zebra")).startswith("No document has anything on this.")


async def test_documents_have_limits_that_the_error_says(
    place: Path, tools: tuple[Tool, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "large.txt").write_text("word " * 500_000)
    (place / "raw.txt").write_bytes(bytes(range(256)))
    said = await call(tools, "search_docs", query="ticket")
    assert said.endswith("(2 not searched, because not text or above 2,000,000 bytes: large.txt, raw.txt.)")
    monkeypatch.setattr(documents, "MAX_DOCUMENTS", 3)
    assert (
        "has 7 documents" in (said := await refusal(tools, "search_docs", query="x")) and "At most 3 with 20 MB" in said
    )
    monkeypatch.setattr(documents, "MAX_DOCUMENTS", 100)
    monkeypatch.setattr(documents, "MAX_TOTAL", 100)
    assert "can be searched. Name a smaller folder." in await refusal(tools, "search_docs", query="x")


async def test_no_document_outside_of_the_folder_or_hidden_is_read(place: Path, tools: tuple[Tool, ...]) -> None:
    (place / "link.md").symlink_to(place.parent / "outside.md")
    assert SECRET not in await call(tools, "search_docs", query=SECRET, limit=20)
    for file in ("../outside.md", str(place.parent / "outside.md"), "link.md", ".git/notes.md"):
        assert SECRET not in await refusal(tools, "read_doc", file=file)
    assert "'photo.png' is not a document" in await refusal(tools, "read_doc", file="photo.png")
    assert "There is no file 'none.md'" in await refusal(tools, "read_doc", file="none.md")


async def test_a_folder_without_documents_is_an_error_that_says_what_is_read(tmp_path: Path) -> None:
    assert "no documents with text. It reads .txt, .md," in await refusal(docs(tmp_path), "search_docs", query="x")


def test_the_word_names_a_folder(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place.parent)
    found = load("docs:handbook")
    assert [tool.name for tool in found] == ["search_docs", "read_doc"]
    assert all(tool.read_only and tool.open_world and not tool.requires_approval for tool in found)
    assert anchor_word("docs:handbook") == f"docs:{place}"
    for word, said in (("docs", "Write docs:FOLDER"), ("docs:none", "no folder 'none'")):
        with pytest.raises(ConfigError, match=said):
            load(word)


def test_each_passage_knows_its_line() -> None:
    text = "\n".join(
        f"{'# Part' if number % 7 == 0 else 'Line'} {number} {'word ' * (number % 50)}\n" for number in range(300)
    )
    text += "\n" + "A long sentence without an end, " * 100
    passages = split_passages("a.md", text.replace("\n", "\r\n"))
    lines = text.splitlines()
    assert len(passages) > 50
    for passage in passages[:-5]:
        assert lines[passage.line - 1].strip() == passage.text.splitlines()[0].strip()
    assert {passage.line for passage in passages[-4:]} == {len(lines)}
