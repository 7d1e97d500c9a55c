"""StrategyQA (Geva et al. 2021, arXiv:2101.02235): yes-or-no questions whose steps are implicit."""

from __future__ import annotations

from pathlib import Path

from plait.lab import corpus
from plait.lab.base import Suite, Task
from plait.lab.corpus import Page
from plait.lab.graders.words import yes_or_no
from plait.lab.loaders import files


def load(argument: str) -> Suite:
    """`strategyqa:FILE`: records with `question` and `answer` (true or false), `qid`, `term`, `facts`.

    The facts of all questions together can be searched, by their terms and by words.
    """
    name, _ = files.parted(argument, (), "strategyqa")
    path = files.found(name)
    entries = files.records(path)
    tasks = []
    for entry in entries:
        given = entry.need("answer")
        answer = given if isinstance(given, bool) else yes_or_no(str(given))
        if answer is None:
            raise entry.wrong(f"the answer is {given!r}.", "It is true or false.")
        tasks.append(
            Task(
                id=entry.id("qid", "id", otherwise=f"strategyqa-{entry.number}"),
                question=f"{entry.text('question')} Answer yes or no.",
                answer=answer,
                about={"steps": len(steps)} if isinstance(steps := entry.value.get("decomposition"), list) else {},
            )
        )
    files.distinct((entry, task.id) for entry, task in zip(entries, tasks, strict=True))
    found = _pages(entries)
    tools = (corpus.kept("strategyqa", path, {"": found}).word(""),) if found else ()
    return Suite(
        word=f"strategyqa:{path}",
        about="yes-or-no questions" + (" over facts that can be searched" if found else ""),
        tasks=tuple(tasks),
        grader="yesno",
        tools=tools,
    )


def pages(path: Path) -> dict[str, tuple[Page, ...]]:
    """The facts of all questions."""
    return {"": _pages(files.records(path))}


def _pages(entries: list[files.Entry]) -> tuple[Page, ...]:
    """A page for each term, with what the records say of it."""
    by_term: dict[str, dict[str, None]] = {}
    for entry in entries:
        facts = entry.value.get("facts")
        if not isinstance(facts, list) or not facts:
            continue
        term = entry.text("term") if entry.value.get("term") else entry.text("question")
        # A sentence that stands with two questions of one term is told once.
        by_term.setdefault(term, {}).update(dict.fromkeys(str(fact).strip() for fact in facts))
    return tuple(Page(term, tuple(facts)) for term, facts in by_term.items())
