"""Tasks of one's own: a JSON object a line, `question` and `answer`, and what else a task may have."""

from __future__ import annotations

import difflib
from typing import Any

from plait.core.errors import UsageError
from plait.lab.base import Suite, Task
from plait.lab.loaders import files

FIELDS = ("question", "answer", "id", "tools", "grader", "split", "about", "now")
UNANSWERED = ("world", "judge", "python")
"""Graders that may do without a right answer."""


def load(argument: str) -> Suite:
    """A `tasks.jsonl`, or a `.json` with a list. Raises `UsageError` naming the line and what is wrong with it.

    Where a task says no `grader`, a number is compared as one, true and false as yes and no, and a text exactly. Other
    fields are left alone, but for one that seems to be a misspelt field of ours.
    """
    name, _ = files.parted(argument, (), "of a file")
    path = files.found(name)
    entries = files.records(path)
    tasks = [task_of(entry) for entry in entries]
    files.distinct((entry, task.id) for entry, task in zip(entries, tasks, strict=True))
    return Suite(word=str(path), about=f"the tasks of {path.name}", tasks=tuple(tasks), grader="exact")


def task_of(entry: files.Entry) -> Task:
    """The task of a record. Raises `UsageError` naming the record and what is wrong with it."""
    value = entry.value
    for name in value:
        near = difflib.get_close_matches(name, FIELDS, 1, 0.8)
        if near and name not in FIELDS and near[0] not in value:
            raise entry.wrong(f"{name!r} is no field of a task.", f"Did you mean {near[0]!r}?")
    question = entry.text("question")
    answer = value.get("answer")
    grader = entry.text("grader") if "grader" in value else _usual(answer)
    _known(entry, grader)
    if answer is None and not grader.startswith(UNANSWERED) and not grader.partition(":")[0].endswith(".py"):
        entry.need("answer")
    now = value.get("now")
    if now is not None and (isinstance(now, bool) or not isinstance(now, (int, float))):
        raise entry.wrong(f"'now' is {now!r}.", "Give seconds since 1970.")
    return Task(
        id=entry.id("id", otherwise=str(entry.number)),
        question=question,
        answer=answer,
        grader=grader,
        tools=_tools(entry, value.get("tools", [])),
        split=entry.text("split") if value.get("split") else "",
        now=now,
        about=_about(entry, value.get("about", {})),
    )


def _usual(answer: Any) -> str:
    """The grader for an answer of that kind; "" for the suite's."""
    one = answer[0] if isinstance(answer, list) and answer else answer
    return "yesno" if isinstance(one, bool) else "number" if isinstance(one, (int, float)) else ""


def _known(entry: files.Entry, grader: str) -> None:
    from plait.lab.graders import grader as made

    # A judge's model may need a key, which looking at a suite does not.
    if grader and grader.partition(":")[0] != "judge":
        try:
            made(grader)
        except UsageError as error:
            raise entry.wrong(error.message, error.hint) from error


def _tools(entry: files.Entry, given: Any) -> tuple[str, ...]:
    listed = [given] if isinstance(given, str) else given
    if not isinstance(listed, list) or not all(isinstance(each, str) and each.strip() for each in listed):
        raise entry.wrong(
            f"'tools' is {given!r}.", 'Give a list of words, such as ["calculator", "lookup:facts.json"].'
        )
    return tuple(each.strip() for each in listed)


def _about(entry: files.Entry, given: Any) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise entry.wrong(f"'about' is {given!r}.", 'Give an object, such as {"steps": 2}.')
    return given
