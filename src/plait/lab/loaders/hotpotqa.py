"""HotpotQA (Yang et al. 2018, arXiv:1809.09600): questions over two paragraphs among ten."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from plait.lab import corpus
from plait.lab.base import Suite, Task
from plait.lab.corpus import Page
from plait.lab.loaders import files


def load(argument: str) -> Suite:
    """`hotpotqa:FILE`: records with `question`, `answer` and `context`.

    The context is a list of [title, [sentence, ...]] as its authors publish it, or {"title": [...],
    "sentences": [...]}.
    """
    name, _ = files.parted(argument, (), "hotpotqa")
    path = files.found(name)
    entries = files.records(path)
    ids = [_id(entry) for entry in entries]
    files.distinct(zip(entries, ids, strict=True))
    kept = corpus.kept("hotpotqa", path, {id: _pages(each) for id, each in zip(ids, entries, strict=True)})
    tasks = tuple(
        Task(
            id=id,
            question=entry.text("question"),
            answer=entry.text("answer"),
            tools=(kept.word(id),),
            about={key: entry.value[key] for key in ("type", "level") if entry.value.get(key)},
        )
        for id, entry in zip(ids, entries, strict=True)
    )
    return Suite(
        word=f"hotpotqa:{path}",
        about="questions over two of ten paragraphs, which can be searched",
        tasks=tasks,
        grader="f1",
    )


def pages(path: Path) -> dict[str, tuple[Page, ...]]:
    """The paragraphs of each task."""
    return {_id(entry): _pages(entry) for entry in files.records(path)}


def _id(entry: files.Entry) -> str:
    return entry.id("id", "_id", otherwise=f"hotpotqa-{entry.number}")


def _pages(entry: files.Entry) -> tuple[Page, ...]:
    given = entry.need("context")
    pairs: Any = given
    if isinstance(given, dict):
        titles, sentences = given.get("title"), given.get("sentences")
        if not isinstance(titles, list) or not isinstance(sentences, list) or len(titles) != len(sentences):
            raise entry.wrong("'context' needs as many 'sentences' as 'title's.")
        pairs = list(zip(titles, sentences, strict=True))
    try:
        found = tuple(Page(str(title), tuple(map(str, sentences))) for title, sentences in pairs)
    except (TypeError, ValueError):
        raise entry.wrong("'context' can't be read.", "It is a list of [title, [sentence, ...]].") from None
    if not found:
        raise entry.wrong("'context' has no paragraphs.")
    return found
