"""Suites by their word: Plait's own, a file of tasks, or one of another package."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from msgspec import structs

from plait.core.errors import ConfigError, PlaitError
from plait.installation import plugins
from plait.lab import datasets
from plait.lab.basics import load_basics
from plait.lab.graders import load_grader
from plait.lab.records import FileRecord, check_distinct, find_file, parse_options, read_records
from plait.lab.tasks import Suite, SuiteTask

GROUP = "plait.suites"
"""The entry-point group for suites of other packages. An entry is name = "module:function". The function gets the text
after the colon of the word ("" if there is none) and returns a `Suite`."""

OURS: dict[str, Callable[[str], Suite]] = {
    "basics": load_basics,
    "world": datasets.load_world,
    "gsm8k": datasets.load_gsm8k,
    "hotpotqa": datasets.load_hotpotqa,
    "fever": datasets.load_fever,
    "strategyqa": datasets.load_strategyqa,
    "musique": datasets.load_musique,
    "tool-search": datasets.load_tool_search,
}
_WITHOUT_FILE = ("basics", "world")
ENDINGS = (".jsonl", ".json", ".jsonl.gz", ".json.gz", ".ndjson", ".ndjson.gz")
FIELDS = ("question", "answer", "id", "tools", "grader", "split", "about", "now")
_ANSWER_OPTIONAL = ("world", "judge", "python")
"""Graders that do not need a right answer."""


def load_suite(word: str) -> Suite:
    """Load a suite by a word such as `basics:report`, `world:six`, `gsm8k:test.jsonl` or `tasks.jsonl`. Raises
    `ConfigError` for an unknown suite, and for a file with an error: it names the file, the line and the problem."""
    word = word.strip()
    name, _, argument = word.partition(":")
    if name in OURS:
        if name not in _WITHOUT_FILE and not argument.strip():
            raise ConfigError(f"The suite {name} needs a file.", hint=f"Write {name}:FILE, such as {name}:dev.jsonl.")
        found: Any = OURS[name](argument)
    elif (point := _plugins().get(name)) is not None:
        try:
            found = point.load()
            found = found(argument) if callable(found) else found
        except PlaitError:
            raise
        except Exception as error:  # another package's code may fail in any way
            raise ConfigError(f"The suite {word!r} can't be made: {type(error).__name__}: {error}.") from error
    else:
        near = difflib.get_close_matches(name.casefold(), suite_names(), 2)
        is_misspelt = bool(near and argument) and not Path(word).is_file()  # hotpot:dev.jsonl
        if is_misspelt or not word.casefold().endswith(ENDINGS):
            hint = f"Did you mean {' or '.join(near)}?" if near else f"Suites: {', '.join(suite_names())}."
            if not near and Path(word).is_file():
                hint = f"A file of tasks ends in {', '.join(ENDINGS[:4])}."
            raise ConfigError(f"No suite is named {name!r}.", hint=f"{hint} A file of your own tasks is tasks.jsonl.")
        found = load_tasks(word)
    if not isinstance(found, Suite):
        raise ConfigError(f"{word!r} is a {type(found).__name__} and not a suite.", hint="Return a plait.lab.Suite.")
    if not found.tasks:
        raise ConfigError(f"{word!r} has no tasks.")
    return found


def make_suite(given: str | Suite | Iterable[SuiteTask | Mapping[str, Any]]) -> Suite:
    """Return a suite from its word, from tasks (values, or mappings as a file has them), or unchanged."""
    if isinstance(given, Suite):
        return given
    if isinstance(given, str):
        return load_suite(given)
    tasks = [
        each if isinstance(each, SuiteTask) else read_task(FileRecord(f"task {number}", number, dict(each)))
        for number, each in enumerate(given, 1)
    ]
    return Suite(word="tasks", about="tasks given in Python", tasks=tuple(tasks))


def replace_questions(suite: Suite, text: str) -> Suite:
    """Return a suite with other wordings: the lines of `text` that are not empty, one for each task, in their order.
    Raises `ConfigError` if there are more or fewer."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if len(lines) != len(suite.tasks):
        raise ConfigError(
            f"The file has {len(lines)} wordings, and {suite.word} has {len(suite.tasks)} tasks.",
            hint=f"Write one line for each task: {', '.join(task.id for task in suite.tasks)}.",
        )
    tasks = zip(suite.tasks, lines, strict=True)
    return structs.replace(suite, tasks=tuple(structs.replace(task, question=line) for task, line in tasks))


def suite_names() -> list[str]:
    """Return the names of all suites: Plait's, then those of other packages."""
    return [*OURS, *(name for name in _plugins() if name not in OURS)]


def load_tasks(argument: str) -> Suite:
    """Load a `tasks.jsonl`, or a `.json` with a list. Raises `ConfigError` with the line and the problem. If a task
    names no `grader`, a number is compared as a number, true and false as yes and no, and text exactly. Other fields
    are ignored, except one that looks like a misspelt field of a task."""
    name, _ = parse_options(argument, (), "of a file")
    path = find_file(name)
    entries = read_records(path)
    tasks = [read_task(entry) for entry in entries]
    check_distinct((entry, task.id) for entry, task in zip(entries, tasks, strict=True))
    return Suite(word=str(path), about=f"the tasks of {path.name}", tasks=tuple(tasks), grader="exact")


def read_task(entry: FileRecord) -> SuiteTask:
    """Return the task of a record. Raises `ConfigError` with the record and the problem."""
    value = entry.value
    for name in value:
        near = difflib.get_close_matches(name, FIELDS, 1, 0.8)
        if near and name not in FIELDS and near[0] not in value:
            raise entry.error(f"{name!r} is not a field of a task.", f"Did you mean {near[0]!r}?")
    question, answer = entry.text("question"), value.get("answer")
    grader = entry.text("grader") if "grader" in value else choose_grader(answer)
    kind = grader.partition(":")[0]
    if grader and kind != "judge":  # a judge's model may need a key, which looking at a suite does not
        try:
            load_grader(grader)
        except ConfigError as error:
            raise entry.error(error.message, error.hint) from error
    if answer is None and not grader.startswith(_ANSWER_OPTIONAL) and not kind.endswith(".py"):
        entry.require("answer")
    now = value.get("now")
    if now is not None and (isinstance(now, bool) or not isinstance(now, (int, float))):
        raise entry.error(f"'now' is {now!r}.", "Give seconds since 1970.")
    tools, about = value.get("tools", []), value.get("about", {})
    words = [tools] if isinstance(tools, str) else tools
    if not isinstance(words, list) or not all(isinstance(each, str) and each.strip() for each in words):
        raise entry.error(
            f"'tools' is {tools!r}.", 'Give a list of words, such as ["calculator", "lookup:facts.json"].'
        )
    if not isinstance(about, dict):
        raise entry.error(f"'about' is {about!r}.", 'Give an object, such as {"steps": 2}.')
    return SuiteTask(
        id=entry.id("id", otherwise=str(entry.number)),
        question=question,
        answer=answer,
        grader=grader,
        tools=tuple(each.strip() for each in words),
        split=entry.text("split") if value.get("split") else "",
        now=now,
        about=about,
    )


def choose_grader(answer: Any) -> str:
    """Return the grader for an expected answer whose task names none: "" is that of the suite."""
    one = answer[0] if isinstance(answer, list) and answer else answer
    return "yesno" if isinstance(one, bool) else "number" if isinstance(one, (int, float)) else ""


def _plugins() -> dict[str, Any]:
    return {point.name: point for point in plugins(GROUP)}
