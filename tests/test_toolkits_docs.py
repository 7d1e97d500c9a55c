"""Claims about the toolkit `docs`: what a search of a folder's documents finds, and when its index is made anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from plait.core.errors import ConfigError
from plait.search import embedders
from plait.search.minilm import LocalEmbedder
from plait.toolkits import docs, documents, pdf
from plait.toolkits.folder import show_lines
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
        ("QX-7", "[prices.csv, lines 1-3]\narticle,price\nheadphones QX-7,129"),
        ("who is in charge", '[staff.json, line 1]\n{"manager": "Ada Nobel"'),
        ("are pets allowed", "[page.html, lines 1-3]\nThe office opens at eight.\nDogs may come in."),
    ],
)
async def test_a_passage_is_found_by_meaning_and_by_word(query: str, first: str, tools: tuple[Tool, ...]) -> None:
    assert (await call(tools, "search_docs", query=query)).startswith(first)


async def test_a_result_names_file_and_line_and_the_document_can_be_read_from_there(tools: tuple[Tool, ...]) -> None:
    assert await call(tools, "search_docs", query="ticket", limit=1) == (
        "[trips/rail.md, line 7: Fares]\nA return ticket is 84 euros."
    )
    assert await call(tools, "read_doc", file="trips/rail.md", start=7) == (
        "[trips/rail.md: lines 7-7 of 7.]\n7: A return ticket is 84 euros."
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
    assert "(2 not searched: large.txt (has more than 2,000,000 bytes), raw.txt (is not text: " in said
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


def make_pdf(*pages: str, trailer: str = "") -> bytes:
    """Return a PDF whose pages have these lines of text."""
    kids = " ".join(f"{4 + 2 * i} 0 R" for i in range(len(pages)))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for i, page in enumerate(pages):
        lines = " ".join(f"({line}) Tj T*" for line in page.split("\n") if line)
        content = f"BT /F1 12 Tf 50 750 Td 14 TL {lines} ET"
        font = "/Resources << /Font << /F1 3 0 R >> >>"
        parts = f"/Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] {font}"
        objects += [f"<< {parts} /Contents {5 + 2 * i} 0 R >>"]
        objects += [f"<< /Length {len(content)} >>\nstream\n{content}\nendstream"]
    made, places = b"%PDF-1.4\n", []
    for number, each in enumerate(objects, 1):
        places.append(len(made))
        made += f"{number} 0 obj\n{each}\nendobj\n".encode()
    table = "".join(f"{place:010} 00000 n \n" for place in places)
    size = len(objects) + 1
    end = f"xref\n0 {size}\n0000000000 65535 f \n{table}trailer\n<< /Size {size} /Root 1 0 R {trailer} >>"
    return made + f"{end}\nstartxref\n{len(made)}\n%%EOF".encode()


KEYS = f"/O <{'11' * 32}> /U <{'22' * 32}>"
LOCKED = f"/ID [<{'00' * 16}> <{'00' * 16}>] /Encrypt << /Filter /Standard /V 1 /R 2 /P -4 {KEYS} >>"


async def test_a_pdf_is_found_with_page_and_lines_and_read_from_there(place: Path, tools: tuple[Tool, ...]) -> None:
    pytest.importorskip("pypdfium2")
    pages = "Rules of the harbour", "", "Boats over nine metres\npay the tariff of 480 crowns."
    (place / "harbour.pdf").write_bytes(make_pdf(*pages))
    found = await call(tools, "search_docs", query="tariff crowns", limit=1)
    assert found == "[harbour.pdf, page 3, lines 3-4]\nBoats over nine metres\npay the tariff of 480 crowns."
    shown = await call(tools, "read_doc", file="harbour.pdf", start=2)
    assert shown == (
        "[harbour.pdf: lines 2-4 of 4.]\np. 2, 2: (No text on this page.)\n"
        "p. 3, 3: Boats over nine metres\np. 3, 4: pay the tariff of 480 crowns."
    )
    assert "no line 5" in await refusal(tools, "read_doc", file="harbour.pdf", start=5)


async def test_a_pdf_that_cannot_be_read_says_why_and_the_others_are_searched(
    place: Path, tools: tuple[Tool, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pypdfium2")
    (place / "locked.pdf").write_bytes(make_pdf("secret", trailer=LOCKED))
    (place / "scan.pdf").write_bytes(make_pdf("", ""))
    (place / "broken.pdf").write_bytes(b"%PDF-1.7\n" + bytes(range(256)) * 20)
    monkeypatch.setattr(documents, "MAX_PDF", 10_000)
    (place / "large.pdf").write_bytes(make_pdf("word " * 5000))
    said = await call(tools, "search_docs", query="ticket")
    assert said.startswith("[trips/rail.md, line 7: Fares]") and "(4 not searched: " in said
    for file, why in {
        "locked.pdf": "it is encrypted and needs a password",
        "scan.pdf": "it has no text, so it is probably scanned",
        "broken.pdf": "it is broken, or no PDF",
        "large.pdf": "has more than 10,000 bytes",
    }.items():
        assert f"{file} ({why})" in said and why in await refusal(tools, "read_doc", file=file)
    for name in ("locked.pdf", "scan.pdf", "broken.pdf", "large.pdf"):
        (place / name).unlink()
    monkeypatch.setattr(documents, "MAX_TOTAL", 700)
    monkeypatch.setattr(documents, "MAX_PDF", 100_000)
    (place / "long.pdf").write_bytes(make_pdf("\n".join(["so many words"] * 60)))
    assert "have too much text" in await refusal(tools, "search_docs", query="x")


async def test_a_pdf_made_to_harm_is_read_within_limits_and_sees_no_secret(
    place: Path, tools: tuple[Tool, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pdf, "find_spec", lambda name: name)
    (place / "evil.pdf").write_bytes(make_pdf("x"))
    child = place / "child.py"
    monkeypatch.setattr(pdf, "__file__", str(place / "pdf.py"))
    monkeypatch.setattr(pdf, "SECONDS", 1)
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    source = Path(documents.__file__).with_name("pdf_child.py").read_text()
    attacks = {
        "an endless loop": "while True: pass",
        "endless memory": "x = b'x' * (4 << 30)",
        "a crash": "import os; os.abort()",
        "another reply": "print('no JSON'); sys.exit()",
        "the environment": "import os; print(json.dumps({'problem': str(dict(os.environ))})); sys.exit()",
    }
    for attack, code in attacks.items():
        child = place / "pdf_child.py"
        child.write_text(source.replace("    pdfium = import_module", f"    {code}\n    pdfium = import_module"))
        pdf.read_pdf.cache_clear()
        said = await refusal(tools, "read_doc", file="evil.pdf")
        assert SECRET not in said, attack
        assert "cannot be read within 1 s" in said or attack == "the environment", (attack, said)


async def test_without_the_extra_a_pdf_is_named_with_what_to_install(
    place: Path, tools: tuple[Tool, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pdf, "find_spec", lambda name: None)
    (place / "harbour.pdf").write_bytes(make_pdf("Rules of the port"))
    said = await refusal(tools, "read_doc", file="harbour.pdf")
    assert "reading PDF needs pypdfium2, which is not installed." in said and "[pdf]" in said
    assert "harbour.pdf (reading PDF needs pypdfium2" in await call(tools, "search_docs", query="ticket")


def test_lines_are_those_of_an_editor(tmp_path: Path) -> None:
    text = "one\x0cstill one\r\n\r\n# Two\u2028 on it\rthree\x0b\x85\n\nfive is here"
    (tmp_path / "odd.md").write_text(text, newline="")
    first, *_, last = split_passages("odd.md", text)
    assert (first.line, first.last_line, last.line, last.last_line) == (1, 1, 4, 6)
    assert show_lines("odd.md", text, 6, 9) == "[odd.md: lines 6-6 of 6.]\nfive is here"
    read_doc = docs(tmp_path)[1]
    assert read_doc("odd.md", start=6) == "[odd.md: lines 6-6 of 6.]\n6: five is here"


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
