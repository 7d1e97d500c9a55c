"""A tool-search set: queries whose right tools are known, over stand-ins of many tools.

Whether a run calls the right ones, through what it is shown and what it finds by searching, is what is measured.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from plait.core.errors import UsageError
from plait.lab import stubs
from plait.lab.base import Suite, Task
from plait.lab.loaders import files

SHOWN = 10
"""Tools that a task's model is shown, where the suite's word does not say."""


def load(argument: str) -> Suite:
    """`tool-search:QUERIES,tools=FILE[,show=N]`.

    Queries have `query` (or `question`) and `gold`, the names of the right tools; tools have a name, a description and
    perhaps parameters (see `stubs.py`). `show`: how many tools are shown, beside the one that searches the others.
    """
    name, given = files.parted(argument, ("tools", "show"), "tool-search")
    if "tools" not in given:
        raise UsageError("A tool-search suite needs the tools.", hint="Write tool-search:QUERIES,tools=FILE.")
    show = given.get("show", str(SHOWN)).strip()
    if not show.isdecimal():
        raise UsageError(f"show={show} is no number of tools.", hint="Such as show=10.")
    path, tools = files.found(name), files.found(given["tools"])
    kept = stubs.kept(tools)
    tasks = []
    entries = files.records(path)
    for entry in entries:
        gold = _gold(entry, {tool.name for tool in kept.tools}, tools)
        tasks.append(
            Task(
                id=entry.id("id", otherwise=f"query-{entry.number}"),
                question=entry.text("query", "question"),
                answer=gold,
                about={"calls": len(gold)},
            )
        )
    files.distinct((entry, task.id) for entry, task in zip(entries, tasks, strict=True))
    return Suite(
        word=f"tool-search:{path},tools={tools},show={int(show)}",
        about=f"queries whose right tools, among {len(kept.tools):,}, are to be found and called",
        tasks=tuple(tasks),
        grader="calls",
        tools=(kept.word,),
        show_tools=int(show),
    )


def _gold(entry: files.Entry, known: set[str], where: Path) -> list[str]:
    given: Any = entry.need("gold", "tools")
    listed = [given] if isinstance(given, str) else given
    if not isinstance(listed, list) or not listed or not all(isinstance(each, str) for each in listed):
        raise entry.wrong(f"'gold' is {given!r}.", "It is a list of names of tools.")
    gold = [stubs.fitting(each) for each in listed]
    if absent := [each for each, name in zip(listed, gold, strict=True) if name not in known]:
        raise entry.wrong(f"{where.name} has no tool {absent[0]!r}.")
    return list(dict.fromkeys(gold))
