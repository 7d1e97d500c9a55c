"""`docs`: tools that search the documents of one folder by meaning and by keyword, offline, and read them. Both give
pages and lines, so that a citation can be checked in the file."""

from __future__ import annotations

import threading
from itertools import pairwise
from pathlib import Path
from typing import TypeAlias

from msgspec import structs

from plait.core.errors import ToolError
from plait.toolkits.folder import MAX_BYTES, Folder, FoundFile, show_lines
from plait.toolkits.html_text import html_to_text
from plait.toolkits.passages import Passage, Search, make_meaning_search, split_passages
from plait.toolkits.pdf import MAX_PDF, DocumentText, read_pdf
from plait.tools.call_context import cancelled
from plait.tools.tool import Tool, tool

HTML = (".html", ".htm")
PDF = ".pdf"
TEXTS = (".txt", ".md", ".markdown", ".rst", *HTML, ".csv", ".tsv", ".json", ".jsonl")
SUFFIXES = (*TEXTS, PDF)
"""The documents that are searched."""
UNREAD = (".doc", ".docx", ".odt", ".rtf", ".xls", ".xlsx", ".ods", ".ppt", ".pptx", ".odp", ".epub")
"""Documents that are not text. A search names them."""
MAX_DOCUMENTS, MAX_TOTAL = 2_000, 20_000_000
"""Maximum number of documents, and of bytes of all of them."""
MOST = 20
"""Maximum number of passages that a search returns."""
SECONDS = 900.0
"""Time limit of a search. The first one embeds all documents."""

_Read: TypeAlias = tuple[tuple[int, ...], list[Passage], str]
"""The state of a document when it was read, its passages, and why it can't be read."""


def docs(folder: str | Path) -> tuple[Tool, ...]:
    """Makes the tools `search_docs` and `read_doc` over the texts, Markdown, HTML, CSV, JSON and PDF files of a folder.

    PDF needs the extra `pdf`. The first search makes the index; later ones update it if files have changed. Vectors are
    stored on disk. Without the extra `search`, the search is by keyword only, and its results say so.
    """
    library = _Library(Folder.open(folder, "docs"))

    @tool(read_only=True, open_world=True, timeout=SECONDS)
    def search_docs(query: str, limit: int = 5) -> str:
        """Finds the passages of the user's documents that fit best: file, page of a PDF, lines, passage.

        Args:
            query: What to look for, in a few words or a question.
            limit: How many passages, at most 20.
        """
        if not query.strip():
            raise ToolError("There is nothing to search for.", hint="Give a few words.")
        return library.search(query.strip()[:1000], min(max(limit, 1), MOST))

    @tool(read_only=True, open_world=True)
    def read_doc(file: str, start: int = 1) -> str:
        """Shows the text of a document. Each line begins with its number.

        Args:
            file: Its name, as search_docs gives it.
            start: The number of the first line.
        """
        if not file.lower().endswith(SUFFIXES):
            raise ToolError(f"{file[:80]!r} is not a document.", hint=f"Documents end in {', '.join(SUFFIXES)}.")
        read = library.read(file)
        lines = enumerate(read.lines, 1)
        numbered = (f"p. {read.find_page(n)}, {n}: {line}" if read.starts else f"{n}: {line}" for n, line in lines)
        return show_lines(file, "\n".join(numbered), max(start, 1), 400)

    return (search_docs, read_doc)


class _Library:
    """The documents of a folder and their index, as they were when they were last looked at."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._known: dict[str, _Read] = {}
        self._passages: list[Passage] = []
        self._search: Search | None = None
        self._skipped: list[str] = []

    def search(self, query: str, limit: int) -> str:
        """Return the passages that fit best. Raises `ToolError` if there are too many documents."""
        with self._lock:
            self._update()
            search, passages, skipped = self._search, self._passages, self._skipped
        if search is None:
            why = f" Not read: {', '.join(skipped[:5])}." if skipped else ""
            raise ToolError(f"The folder has no documents with text.{why}", hint=f"It reads {', '.join(SUFFIXES)}.")
        ranked, note = search(query)
        shown = [_show(passages[number]) for number in ranked[:limit]] or ["No document has anything on this."]
        notes = [note] if note else []
        if skipped:
            named = f"{', '.join(skipped[:5])}{', ...' if len(skipped) > 5 else ''}"
            notes.append(f"({len(skipped):,} not searched: {named}.)")
        return "\n\n".join([*shown, *notes])

    def read(self, path: str) -> DocumentText:
        """Return a document as text; only a PDF has pages. Raises `ToolError`."""
        if path.lower().endswith(PDF):
            content = self._folder.read_bytes(path, MAX_PDF)
            try:
                return read_pdf(content)
            except ToolError as why:
                raise ToolError(f"{path}: {why.message}", hint=why.hint) from None
        text = self._folder.read_text(path)
        return DocumentText(html_to_text(text)[1] if path.lower().endswith(HTML) else text)

    def _update(self) -> None:
        """Read the changed files, and rebuild the index if there are any."""
        found = [each for each in self._folder.walk() if each.path.lower().endswith((*SUFFIXES, *UNREAD))]
        total = sum(each.size for each in found if each.size <= MAX_BYTES and each.path.lower().endswith(TEXTS))
        if len(found) > MAX_DOCUMENTS or total > MAX_TOTAL:
            hint = f"At most {MAX_DOCUMENTS:,} with {MAX_TOTAL / 1e6:.0f} MB can be searched. Name a smaller folder."
            raise ToolError(f"The folder has {len(found):,} documents with {total / 1e6:,.1f} MB.", hint=hint)
        known: dict[str, _Read] = {}
        for each in found:
            known[each.path] = read = self._read_passages(each)
            total += sum(len(passage.text) for passage in read[1]) if each.path.lower().endswith(PDF) else 0
            if total > MAX_TOTAL or cancelled():
                raise ToolError("The PDF files of the folder have too much text.", hint="Name a smaller folder.")
        if known == self._known and self._search is not None:
            return
        self._passages = [passage for _, passages, _ in known.values() for passage in passages]
        self._skipped = [why for _, _, why in known.values() if why]
        texts = [f"{each.file} {each.heading}\n{each.text}" for each in self._passages]
        self._search = make_meaning_search(texts, "local") if texts else None
        self._known = known

    def _read_passages(self, found: FoundFile) -> _Read:
        known = self._known.get(found.path)
        if known is not None and known[0] == found.state:
            return known
        if found.path.lower().endswith(UNREAD):
            return found.state, [], f"{found.path} (not text)"
        try:
            read = self.read(found.path)
        except ToolError as why:  # too large, not text, or it has just gone
            return found.state, [], f"{found.path} ({why.message.removeprefix(found.path).strip(': .')})"
        passages: list[Passage] = []
        for first, after in pairwise((*(read.starts or (1,)), len(read.lines) + 1)):  # a passage is on one page
            name = f"{found.path}, page {read.find_page(first)}" if read.starts else found.path
            for each in split_passages(name, "\n".join(read.lines[first - 1 : after - 1])):
                line, last_line = (first - 1 + number for number in (each.line, each.last_line))
                passages.append(structs.replace(each, line=line, last_line=last_line))
        return found.state, passages, ""


def _show(passage: Passage) -> str:
    first, last, heading = passage.line, passage.last_line, f": {passage.heading}" if passage.heading else ""
    lines = f"line {first}" if first == last else f"lines {first}-{last}"
    return f"[{passage.file}, {lines}{heading}]\n{passage.text}"
