"""FEVER (Thorne et al. 2018, arXiv:1803.05355): claims that are supported, refuted, or neither."""

from __future__ import annotations

from pathlib import Path

from plait.core.errors import UsageError
from plait.lab import corpus
from plait.lab.base import Suite, Task
from plait.lab.corpus import Page
from plait.lab.graders.words import LABELS, label_in
from plait.lab.loaders import files

ASKED = """\
Is this claim supported or refuted by what can be found? Answer with one label: SUPPORTS, REFUTES or NOT ENOUGH INFO.
Claim: {}"""


def load(argument: str) -> Suite:
    """`fever:FILE[,corpus=FILE]`: records with `id`, `claim` and `label`; a claim that is there once for each piece of
    its evidence is one task.

    The corpus has pages: `id` or `title`, and `text` or `lines`. Without one the tasks have no tools of their own.
    """
    name, given = files.parted(argument, ("corpus",), "fever")
    path = files.found(name)
    tasks: dict[str, Task] = {}
    for entry in files.records(path):
        id, claim, said = entry.id("id", otherwise=f"fever-{entry.number}"), entry.text("claim"), entry.text("label")
        label = label_in(said, LABELS)
        if not label:
            raise entry.wrong(f"the label is {said!r}.", f"It is one of: {', '.join(LABELS)}.")
        task = Task(id=id, question=ASKED.format(claim), answer=label, about={"label": label})
        if tasks.setdefault(id, task) != task:
            raise entry.wrong(f"the id {id!r} is that of another claim as well.", "Change one.")
    word, tools = f"fever:{path}", tuple[str, ...]()
    if "corpus" in given:
        found = files.found(given["corpus"])
        word, tools = f"{word},corpus={found}", (corpus.kept("pages", found, pages(found)).word(""),)
    return Suite(
        word=word, about="claims to be supported or refuted", tasks=tuple(tasks.values()), grader="label", tools=tools
    )


def pages(path: Path) -> dict[str, tuple[Page, ...]]:
    """The pages of a corpus, for all tasks: records with a title, and sentences or a text."""
    found = []
    for entry in files.records(path):
        title = _unescaped(entry.text("title", "id"))
        lines = entry.value.get("lines")
        sentences = entry.value.get("sentences")
        if isinstance(sentences, list) and sentences:
            found.append(Page(title, tuple(map(str, sentences))))
        elif isinstance(lines, str) and lines.strip():  # FEVER's own pages: number, sentence and links, with tabs
            parts = [line.split("\t") for line in lines.splitlines()]
            found.append(Page(title, tuple(part[1] for part in parts if len(part) > 1 and part[1].strip())))
        elif isinstance(entry.value.get("text"), str) and not entry.value["text"].strip():
            continue  # FEVER's dump has pages with nothing on them
        else:
            found.append(corpus.page(title, entry.text("text", "paragraph_text")))
    if not found:
        raise UsageError(f"{path.name} has no page with a text.")
    return {"": tuple(found)}


def _unescaped(title: str) -> str:
    for code, sign in (("-LRB-", "("), ("-RRB-", ")"), ("-LSB-", "["), ("-RSB-", "]"), ("-COLON-", ":")):
        title = title.replace(code, sign)
    return title.replace("_", " ")
