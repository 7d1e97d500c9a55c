"""Texts that belong to tasks, and the two tools that search them: `search` and `lookup_in`.

Neither keeps anything between calls: a run can be resumed and replayed in any process. The tools are found again by the
word `lab:corpus,KIND,TASK,MARK,FILE`, where the mark stands for the texts: a file that was changed since is an error,
not another text under the same name.
"""

from __future__ import annotations

import difflib
import re
from functools import cached_property
from importlib import import_module
from pathlib import Path
from urllib.parse import quote, unquote

from msgspec import Struct

from plait.core.errors import ToolError, UsageError
from plait.lab.base import digest
from plait.lab.loaders import files
from plait.search.keywords import KeywordIndex, drop_small_words, split_words, stem
from plait.tools import Tool, tool

KINDS = {"hotpotqa": "hotpotqa", "musique": "musique", "strategyqa": "strategyqa", "pages": "fever"}
"""Whose module of `loaders` finds the texts of a file again."""

SAME_TITLE = 8
BEST = 3
NAMED = 5
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[\"'(\[]?[A-Z0-9])")
_BRACKETS = re.compile(r"\s*\([^()]*\)\s*$")


class Page(Struct, frozen=True):
    """A titled text, in sentences."""

    title: str
    sentences: tuple[str, ...]

    @property
    def text(self) -> str:
        """All of it."""
        return " ".join(sentence.strip() for sentence in self.sentences if sentence.strip())


class Corpus(Struct, frozen=True, dict=True):
    """Pages to search."""

    pages: tuple[Page, ...]

    @cached_property
    def mark(self) -> str:
        """What stands for these texts."""
        return digest(self.pages)

    def search(self, query: str) -> str:
        """The page of that title; where there is none, those that fit the words best. `ToolError` for nothing."""
        if titled := self._titled(query):
            return "\n\n".join(_shown(page) for page in titled[:SAME_TITLE])
        best = self._best(query)
        if not best:
            raise ToolError(f"Nothing was found for {_cut(query)!r}.", hint=self._near(query))
        found = "\n\n".join(_shown(page) for page in best[:BEST])
        others = list(dict.fromkeys(page.title for page in best[BEST : BEST + NAMED]))
        also = f"\n\nOther pages: {', '.join(others)}." if others else ""
        return f"No page is titled {_cut(query)!r}. These fit best:\n\n{found}{also}"

    def lookup(self, title: str, wanted: str) -> str:
        """The sentences of a page that have these words, all of them if any does. `ToolError` where none has one."""
        pages = self._titled(title)
        if not pages:
            raise ToolError(f"No page is titled {_cut(title)!r}.", hint=self._near(title))
        asked = {stem(word) for word in drop_small_words(split_words(wanted))}
        if not asked:
            raise ToolError("There are no words to look for.", hint="Name some words of the sentence.")
        counts = [
            (len(asked & {stem(word) for word in split_words(sentence)}), sentence.strip())
            for page in pages
            for sentence in page.sentences
        ]
        most = max((count for count, _ in counts), default=0)
        if not most:
            raise ToolError(f"No sentence of {pages[0].title!r} has any of these words.", hint="Try other words.")
        found = "\n".join(sentence for count, sentence in counts if count == most)
        return found if most == len(asked) else f"No sentence has all of these words. The nearest:\n{found}"

    def _titled(self, title: str) -> list[Page]:
        """The pages of that title: to the letter, else by its words, else but for what stands in brackets behind it."""
        exact, by_words, by_name = self._titles
        if same := exact.get(title.strip().casefold()):
            return same
        asked = split_words(title)
        return by_words.get(asked) or by_name.get(asked) or [] if asked else []

    @cached_property
    def _titles(
        self,
    ) -> tuple[dict[str, list[Page]], dict[tuple[str, ...], list[Page]], dict[tuple[str, ...], list[Page]]]:
        exact: dict[str, list[Page]] = {}
        by_words: dict[tuple[str, ...], list[Page]] = {}
        by_name: dict[tuple[str, ...], list[Page]] = {}
        for each in self.pages:
            exact.setdefault(each.title.strip().casefold(), []).append(each)
            by_words.setdefault(split_words(each.title), []).append(each)
            if (short := _BRACKETS.sub("", each.title)) != each.title:
                by_name.setdefault(split_words(short), []).append(each)
        return exact, by_words, by_name

    @cached_property
    def _keywords(self) -> KeywordIndex:
        return KeywordIndex(f"{page.title} {page.text}" for page in self.pages)

    def _best(self, query: str) -> list[Page]:
        return [self.pages[i] for i in self._keywords.rank(query)[: BEST + NAMED]]

    def _near(self, title: str) -> str:
        titles = list(dict.fromkeys(page.title for page in self.pages))
        near = difflib.get_close_matches(title, titles, NAMED, 0.4) if len(titles) <= 5000 else []
        near = near or [page.title for page in self._best(title)[:NAMED]]
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


class Kept(Struct, frozen=True):
    """The corpora of a file, by task ("" for all)."""

    kind: str
    path: Path
    stamp: tuple[int, int]
    corpora: dict[str, Corpus]

    def word(self, task: str) -> str:
        """The word that finds a task's tools again, from anywhere on this machine."""
        return f"lab:corpus,{self.kind},{quote(task, safe='')},{self.corpora[task].mark},{self.path}"


_KEPT: dict[tuple[str, Path], Kept] = {}
"""Read once in a process: each cell of a comparison finds its tools here."""


def kept(kind: str, path: Path, pages: dict[str, tuple[Page, ...]]) -> Kept:
    """Keep the texts that a loader has read anyway."""
    known = Kept(kind, path, files.stamp(path), {task: Corpus(each) for task, each in pages.items()})
    _KEPT[kind, path] = known
    return known


def tools(settings: str) -> tuple[Tool, ...]:
    """The tools of `KIND,TASK,MARK,FILE`. Raises `UsageError` where the file or its texts are not there any more."""
    parts = settings.split(",", 3)
    if len(parts) != 4 or parts[0] not in KINDS:
        raise UsageError(f"lab:corpus,{settings} names no texts.", hint="A suite makes such words: lab:corpus,KIND,...")
    kind, task, mark, path = parts[0], unquote(parts[1]), parts[2], files.found(parts[3])
    known = _KEPT.get((kind, path))
    if known is None or known.stamp != files.stamp(path):
        known = kept(kind, path, import_module(f"plait.lab.loaders.{KINDS[kind]}").pages(path))
    corpus = known.corpora.get(task)
    if corpus is None or corpus.mark != mark:
        raise UsageError(
            f"The texts of {path.name}{f' for {task!r}' if task else ''} are not those that the run was begun with.",
            hint="The file was changed: put the old one back, or begin anew.",
        )
    return corpus.tools


def page(title: str, text: str) -> Page:
    """A page of a text that is in one piece."""
    return Page(title, tuple(_SENTENCE.split(text.strip())))


def _shown(page: Page) -> str:
    return f"[{page.title}]\n{page.text}"


def _cut(text: str) -> str:
    return text if len(text) <= 80 else text[:77] + "..."
