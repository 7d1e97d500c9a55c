"""Texts that belong to tasks, and the tools that search them.

The word `lab:corpus,KIND,TASK,MARK,FILE` loads the tools. The mark is a digest of the texts. If the file has changed,
the word is an error, so a resumed run never reads another text under the same name.
"""

from __future__ import annotations

import difflib
import re
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import quote, unquote

from msgspec import Struct

from plait.core.errors import ConfigError, ToolError
from plait.core.text import cut_text
from plait.lab.records import FileRecord, file_stamp, find_file, read_records
from plait.lab.tasks import digest
from plait.search.keywords import KeywordIndex, drop_small_words, split_words, stem
from plait.tools import Tool, tool

_KINDS = ("hotpotqa", "musique", "strategyqa", "pages")
_SAME_TITLE, _BEST, _OTHERS = 8, 3, 5
"""Number of pages shown: with the same title, of the best matches, and by title only."""
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[\"'(\[]?[A-Z0-9])")
_BRACKETS = re.compile(r"\s*\([^()]*\)\s*$")


class CorpusPage(Struct, frozen=True):
    """A titled text in sentences."""

    title: str
    sentences: tuple[str, ...]

    @property
    def text(self) -> str:
        """The whole text."""
        return " ".join(sentence.strip() for sentence in self.sentences if sentence.strip())


PagesByTask: TypeAlias = dict[str, tuple[CorpusPage, ...]]


class Corpus(Struct, frozen=True, dict=True):
    """Pages to search. It has no state, so a run can be resumed and replayed in any process."""

    pages: tuple[CorpusPage, ...]

    @cached_property
    def mark(self) -> str:
        """The digest of these texts."""
        return digest(self.pages)

    def search(self, query: str) -> str:
        """Return the page of that title, or the pages that match the words best. Raises `ToolError` if none does."""
        if titled := self._find_titled(query):
            return "\n\n".join(_show(page) for page in titled[:_SAME_TITLE])
        best = self._find_best(query)
        if not best:
            raise ToolError(f"Nothing was found for {cut_text(query, 80)!r}.", hint=self._suggest(query))
        found = "\n\n".join(_show(page) for page in best[:_BEST])
        others = list(dict.fromkeys(page.title for page in best[_BEST:]))
        also = f"\n\nOther pages: {', '.join(others)}." if others else ""
        return f"No page is titled {cut_text(query, 80)!r}. These fit best:\n\n{found}{also}"

    def lookup(self, title: str, wanted: str) -> str:
        """Return the sentences of a page with all, or most, of these words. Raises `ToolError`."""
        pages = self._find_titled(title)
        if not pages:
            raise ToolError(f"No page is titled {cut_text(title, 80)!r}.", hint=self._suggest(title))
        asked = {stem(word) for word in drop_small_words(split_words(wanted))}
        if not asked:
            raise ToolError("There are no words to look for.", hint="Name some words of the sentence.")
        counts = [
            (len(asked & {stem(word) for word in split_words(sentence)}), sentence.strip())
            for page in pages
            for sentence in page.sentences
        ]
        best = max((count for count, _ in counts), default=0)
        if not best:
            raise ToolError(f"No sentence of {pages[0].title!r} has any of these words.", hint="Try other words.")
        found = "\n".join(sentence for count, sentence in counts if count == best)
        return found if best == len(asked) else f"No sentence has all of these words. The nearest:\n{found}"

    def _find_titled(self, title: str) -> list[CorpusPage]:
        """Return the pages of that title: exact, else by its words, else without the part in brackets at its end."""
        exact, by_words, by_name = self._titles
        if same := exact.get(title.strip().casefold()):
            return same
        asked = split_words(title)
        return by_words.get(asked) or by_name.get(asked) or [] if asked else []

    @cached_property
    def _titles(self) -> tuple[dict[Any, list[CorpusPage]], ...]:
        exact: dict[Any, list[CorpusPage]] = {}
        by_words: dict[Any, list[CorpusPage]] = {}
        by_name: dict[Any, list[CorpusPage]] = {}
        for each in self.pages:
            exact.setdefault(each.title.strip().casefold(), []).append(each)
            by_words.setdefault(split_words(each.title), []).append(each)
            if (short := _BRACKETS.sub("", each.title)) != each.title:
                by_name.setdefault(split_words(short), []).append(each)
        return exact, by_words, by_name

    @cached_property
    def _keywords(self) -> KeywordIndex:
        return KeywordIndex(f"{page.title} {page.text}" for page in self.pages)

    def _find_best(self, query: str) -> list[CorpusPage]:
        return [self.pages[i] for i in self._keywords.rank(query)[: _BEST + _OTHERS]]

    def _suggest(self, title: str) -> str:
        titles = list(dict.fromkeys(page.title for page in self.pages))
        near = difflib.get_close_matches(title, titles, _OTHERS, 0.4) if len(titles) <= 5000 else []
        near = near or [page.title for page in self._find_best(title)[:_OTHERS]]
        listed = near or (titles if len(titles) <= 12 else [])
        return f"Pages: {', '.join(listed)}." if listed else "Try other words."

    @cached_property
    def tools(self) -> tuple[Tool, ...]:
        """`search` and `lookup_in` over these pages."""
        quick = len(self.pages) <= 200

        @tool(
            name="search",
            description="Finds a page by its title, or the pages that best fit some words.",
            returns="the page's text, or the best pages, each under its title",
            read_only=True,
            inline=quick,
        )
        def search(query: str) -> str:
            """
            Args:
                query: The title of a page, or a few words on what is wanted.
            """
            return self.search(query)

        @tool(
            name="lookup_in",
            description="Finds the sentences of one page that have certain words.",
            returns="the sentences",
            read_only=True,
            inline=quick,
        )
        def lookup_in(title: str, words: str) -> str:
            """
            Args:
                title: The page's title.
                words: The words that a sentence is to have.
            """
            return self.lookup(title, words)

        return (search, lookup_in)


def corpus_word(kind: str, path: Path, task: str = "") -> str:
    """Return the word that loads the tools of a file's texts again ("": those of all tasks)."""
    mark = _load_corpora(kind, path, file_stamp(path))[task].mark
    return f"lab:corpus,{kind},{quote(task, safe='')},{mark},{path}"


@lru_cache(maxsize=16)
def _load_corpora(kind: str, path: Path, stamp: tuple[int, int]) -> dict[str, Corpus]:
    """Load the corpora of a file by task. The cache holds while the file does not change."""
    return {task: Corpus(pages) for task, pages in read_pages(kind, path).items()}


def split_page(title: str, text: str) -> CorpusPage:
    return CorpusPage(title, tuple(_SENTENCE.split(text.strip())))


def find_corpus_tools(settings: str) -> tuple[Tool, ...]:
    parts = settings.split(",", 3)
    if len(parts) != 4 or parts[0] not in _KINDS:
        hint = "A suite makes such words: lab:corpus,KIND,..."
        raise ConfigError(f"lab:corpus,{settings} names no texts.", hint=hint)
    kind, task, mark, path = parts[0], unquote(parts[1]), parts[2], find_file(parts[3])
    corpus = _load_corpora(kind, path, file_stamp(path)).get(task)
    if corpus is None or corpus.mark != mark:
        raise ConfigError(
            f"The texts of {path.name}{f' for {task!r}' if task else ''} are not those that the run started with.",
            hint="The file has changed. Restore the old file, or start a new run.",
        )
    return corpus.tools


def read_pages(kind: str, path: Path) -> PagesByTask:
    """Read the searchable pages of a file by task ("" for all tasks)."""
    entries = read_records(path)
    match kind:
        case "hotpotqa":
            return {hotpotqa_id(entry): hotpotqa_pages(entry) for entry in entries}
        case "musique":
            known = [entry for entry in entries if entry.value.get("answerable") is not False]
            return {musique_id(entry): musique_pages(entry) for entry in known}
        case "strategyqa":
            return {"": strategyqa_pages(entries)}
    return {"": _corpus_pages(entries, path)}


def hotpotqa_id(entry: FileRecord) -> str:
    return entry.id("id", "_id", otherwise=f"hotpotqa-{entry.number}")


def musique_id(entry: FileRecord) -> str:
    return entry.id("id", otherwise=f"musique-{entry.number}")


def hotpotqa_pages(entry: FileRecord) -> tuple[CorpusPage, ...]:
    pairs: Any = entry.require("context")
    if isinstance(pairs, dict):
        titles, sentences = pairs.get("title"), pairs.get("sentences")
        if not isinstance(titles, list) or not isinstance(sentences, list) or len(titles) != len(sentences):
            raise entry.error("'context' needs as many 'sentences' as 'title's.")
        pairs = list(zip(titles, sentences, strict=True))
    try:
        found = tuple(CorpusPage(str(title), tuple(map(str, sentences))) for title, sentences in pairs)
    except (TypeError, ValueError):
        raise entry.error("'context' can't be read.", "It is a list of [title, [sentence, ...]].") from None
    if not found:
        raise entry.error("'context' has no paragraphs.")
    return found


def musique_pages(entry: FileRecord) -> tuple[CorpusPage, ...]:
    given = entry.value.get("paragraphs")
    if not isinstance(given, list) or not given:
        raise entry.error("'paragraphs' is missing.", "Give the texts to search: musique:FILE,corpus=FILE.")
    try:
        return tuple(
            split_page(str(each["title"]), str(each.get("paragraph_text", each.get("text")))) for each in given
        )
    except (KeyError, TypeError, AttributeError):
        raise entry.error("'paragraphs' can't be read.", "Each has a 'title' and a 'paragraph_text'.") from None


def strategyqa_pages(entries: list[FileRecord]) -> tuple[CorpusPage, ...]:
    """Return a page for each term with all its facts, each fact once."""
    by_term: dict[str, dict[str, None]] = {}
    for entry in entries:
        facts = entry.value.get("facts")
        if isinstance(facts, list) and facts:
            term = entry.text("term") if entry.value.get("term") else entry.text("question")
            by_term.setdefault(term, {}).update(dict.fromkeys(str(fact).strip() for fact in facts))
    return tuple(CorpusPage(term, tuple(facts)) for term, facts in by_term.items())


def _corpus_pages(entries: list[FileRecord], path: Path) -> tuple[CorpusPage, ...]:
    """Return the pages of a corpus: records with a title, and sentences or a text."""
    found = []
    for entry in entries:
        title = entry.text("title", "id")
        for code, sign in (("-LRB-", "("), ("-RRB-", ")"), ("-LSB-", "["), ("-RSB-", "]"), ("-COLON-", ":")):
            title = title.replace(code, sign)
        title = title.replace("_", " ")
        lines, sentences, text = (entry.value.get(name) for name in ("lines", "sentences", "text"))
        if isinstance(sentences, list) and sentences:
            found.append(CorpusPage(title, tuple(map(str, sentences))))
        elif isinstance(lines, str) and lines.strip():  # FEVER's own pages: number, sentence and links, with tabs
            parts = [line.split("\t") for line in lines.splitlines()]
            found.append(CorpusPage(title, tuple(part[1] for part in parts if len(part) > 1 and part[1].strip())))
        elif not isinstance(text, str) or text.strip():  # FEVER's dump has empty pages, which are skipped
            found.append(split_page(title, entry.text("text", "paragraph_text")))
    if not found:
        raise ConfigError(f"{path.name} has no page with a text.")
    return tuple(found)


def _show(page: CorpusPage) -> str:
    return f"[{page.title}]\n{page.text}"
