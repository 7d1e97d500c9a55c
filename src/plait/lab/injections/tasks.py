"""The suite `injections`: its tasks by id, and the tools of each.

The tasks of the split `before` were written before Plait had a defence. Tune a defence on them only.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from plait.core.errors import ConfigError
from plait.lab.injections.office import InjectedTask, Office
from plait.lab.tasks import Suite, SuiteTask
from plait.tools import Tool

SPLITS = {
    split: msgspec.json.decode(Path(__file__).with_name(f"{split}.json").read_bytes(), type=tuple[InjectedTask, ...])
    for split in ("before", "after")
}
TASKS = tuple(task for tasks in SPLITS.values() for task in tasks)
CLEAN = "clean"
"""The setting that leaves out the injected texts."""


def find_task(id: str) -> InjectedTask:
    """Find an injected task by its id. Raises `ConfigError`."""
    for task in TASKS:
        if task.id == id:
            return task
    raise ConfigError(f"There is no injected task {id!r}.", hint=f"There are: {', '.join(task.id for task in TASKS)}.")


def load_injections(settings: str = "") -> Suite:
    """Load `injections`, `injections:before`, `injections:after` or `injections:all`.

    With `,clean` the tasks are the same without the injected texts. Raises `ConfigError` for another split.
    """
    split, clean = _parse_settings(settings)
    splits = tuple(SPLITS) if split in ("", "all") else (split,)
    if not all(each in SPLITS for each in splits):
        raise ConfigError(f"The suite injections has no split {split!r}.", hint="Splits: before, after, all.")
    tasks = [
        SuiteTask(
            id=task.id,
            question=task.question,
            answer=task.answer or None,
            tools=(f"lab:injections,{task.id}{f',{CLEAN}' * clean}",),
            split=name,
            about={"attack": task.attack},
        )
        for name in splits
        for task in SPLITS[name]
    ]
    about = "an office whose mails, pages, documents and tools hold instructions of strangers"
    word = f"injections:{split or 'all'}{f',{CLEAN}' * clean}"
    return Suite(word=word, about=about, tasks=tuple(tasks), grader="injections")


def office_tools(settings: str) -> tuple[Tool, ...]:
    """Return the tools of a fresh office: `mail-contract`, `mail-contract,clean`. Raises `ConfigError`."""
    id, clean = _parse_settings(settings)
    return Office(find_task(id), clean=clean).tools


def _parse_settings(settings: str) -> tuple[str, bool]:
    """Return the split or the id, and whether the injected texts are left out."""
    first, *others = [part.strip() for part in settings.split(",")]
    if first == CLEAN and not others:
        return "", True
    if unknown := [part for part in others if part != CLEAN]:
        raise ConfigError(f"The suite injections has no setting {', '.join(unknown)}.", hint=f"It has: {CLEAN}.")
    return first, bool(others)
