"""The tasks by their id.

The tasks of the split `before` were written before Plait had a defence. Tune a defence on them only.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from injected.office import InjectedTask

SPLITS = {
    split: msgspec.json.decode(Path(__file__).with_name(f"{split}.json").read_bytes(), type=tuple[InjectedTask, ...])
    for split in ("before", "after")
}
TASKS = tuple(task for tasks in SPLITS.values() for task in tasks)


def find_task(id: str) -> InjectedTask:
    """Find an injected task by its id. Raises `StopIteration`."""
    return next(task for task in TASKS if task.id == id)
