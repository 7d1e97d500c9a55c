"""MuSiQue (Trivedi et al. 2022, arXiv:2108.00573): questions of two to four hops over paragraphs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from plait.lab import corpus
from plait.lab.base import Suite, Task
from plait.lab.corpus import Page
from plait.lab.loaders import fever, files


def load(argument: str) -> Suite:
    """`musique:FILE[,corpus=FILE]`: records with `id`, `question`, `answer`, `answer_aliases` and `paragraphs`.

    With a corpus (`title`, `text`) all tasks search that one. Questions that are marked as not answerable are left out;
    the suite's `about` says how many.
    """
    name, given = files.parted(argument, ("corpus",), "musique")
    path = files.found(name)
    entries = files.records(path)
    known = [entry for entry in entries if entry.value.get("answerable") is not False]
    ids = [_id(entry) for entry in known]
    files.distinct(zip(known, ids, strict=True))
    word, tools, own = f"musique:{path}", tuple[str, ...](), None
    if "corpus" in given:
        found = files.found(given["corpus"])
        word, tools = f"{word},corpus={found}", (corpus.kept("pages", found, fever.pages(found)).word(""),)
    else:
        own = corpus.kept("musique", path, {id: _pages(each) for id, each in zip(ids, known, strict=True)})
    tasks = tuple(
        Task(
            id=id,
            question=entry.text("question"),
            answer=_answers(entry),
            tools=(own.word(id),) if own is not None else (),
            about={"hops": len(hops)} if isinstance(hops := entry.value.get("question_decomposition"), list) else {},
        )
        for id, entry in zip(ids, known, strict=True)
    )
    out = f" ({len(entries) - len(known)} that can't be answered are left out)" if len(known) < len(entries) else ""
    return Suite(
        word=word, about=f"questions of several hops over paragraphs{out}", tasks=tasks, grader="f1", tools=tools
    )


def pages(path: Path) -> dict[str, tuple[Page, ...]]:
    """The paragraphs of each task."""
    entries = files.records(path)
    return {_id(entry): _pages(entry) for entry in entries if entry.value.get("answerable") is not False}


def _id(entry: files.Entry) -> str:
    return entry.id("id", otherwise=f"musique-{entry.number}")


def _answers(entry: files.Entry) -> Any:
    """The answer, or a list of it and its other names."""
    first, others = entry.text("answer"), entry.value.get("answer_aliases") or []
    if not isinstance(others, list):
        raise entry.wrong("'answer_aliases' is no list.")
    several = list(dict.fromkeys([first, *map(str, others)]))
    return several if len(several) > 1 else first


def _pages(entry: files.Entry) -> tuple[Page, ...]:
    given = entry.value.get("paragraphs")
    if not isinstance(given, list) or not given:
        raise entry.wrong("'paragraphs' is missing.", "Give the texts to search: musique:FILE,corpus=FILE.")
    try:
        return tuple(
            corpus.page(str(each["title"]), str(each.get("paragraph_text", each.get("text")))) for each in given
        )
    except (KeyError, TypeError, AttributeError):
        raise entry.wrong("'paragraphs' can't be read.", "Each has a 'title' and a 'paragraph_text'.") from None
